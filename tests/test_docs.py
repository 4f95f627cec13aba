"""The pages: Python blocks run and print what is shown, links work, and generated parts are current."""

import ast
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
from syntax import trees, walked

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if "decisions" not in page.parts),
]
WITH_CODE = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def loaded(path: Path) -> ModuleType:
    """Import a script of the documentation."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# -- code --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path) -> None:
    blocks = loaded(DOCS / "site" / "blocks.py")
    assert blocks.differences(page.read_text(encoding="utf-8")) == [], (
        f"python docs/site/blocks.py {named(page)}"
    )


@pytest.mark.parametrize(
    ("text", "differences"),
    [
        ("```python\nkept = 1\n```\n\nand\n\n```python\nprint(kept)\n```\n\n```text\n1\n```\n", []),
        ("```python\nprint(2)\n```\n\n```text\n1\n```\n", [("1\n", "2\n")]),
        ("<!-- run: cluster -->\n```python\nraise ValueError\n```\n", []),
    ],
)
def test_outputs_are_compared(text: str, differences: list[tuple[str, str]]) -> None:
    assert loaded(DOCS / "site" / "blocks.py").differences(text) == differences


def test_outputs_are_written_in_their_places() -> None:
    page = "```python\nprint({0})\n```\n\n```text\n{1}```\n"
    found = loaded(DOCS / "site" / "blocks.py").with_outputs(page.format(1, "") + page.format(2, "3\n"))
    assert found == page.format(1, "1\n") + page.format(2, "2\n")


def test_a_block_that_fails_is_noticed() -> None:
    with pytest.raises(AssertionError):
        loaded(DOCS / "site" / "blocks.py").differences("```python\nassert False\n```\n")


def test_pages_save_to_different_folders() -> None:
    """A folder must be new, and readers follow several pages in one place."""
    saved = re.compile(r"""(?:\.save\(|\bout=|cp -r \S+ )"?([\w/-]+)"?""")
    pages = [page for page in PAGES if {"python", "cli"}.isdisjoint(page.parts)]
    blocks = {
        page: "\n".join(re.findall(r"(?ms)^ *```(?:python|console)\n(.*?)^ *```", page.read_text("utf-8")))
        for page in pages
    }
    found = [(name, named(page)) for page, text in blocks.items() for name in saved.findall(text)]
    names = [name for name, _ in found]
    assert len(found) > 5 and [each for each in found if names.count(each[0]) > 1] == []


def test_the_readme_fits_two_screens_and_has_one_picture() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"\]\([^)]*\)", "]", text).splitlines()  # addresses of links are not
    assert sum(max(1, -(-len(line) // 140)) for line in shown) <= 2 * 60
    assert len(re.findall(r"!\[|<img", text)) == 1
    assert "```python\n" in text


# -- links and navigation ----------------------------------------------------------------------------------


def test_links_lead_somewhere() -> None:
    missing = []
    for page in PAGES:
        text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
        targets = [target for target, _ in LINK.findall(text)]
        missing += [(named(page), target) for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES if DOCS in page.parents]
    assert [page for page in pages if not re.search(rf"(?:- |: ){re.escape(page)}\n", listed)] == []


# -- generated parts ---------------------------------------------------------------------------------------


@pytest.mark.drawn_charts
def test_pictures_are_current() -> None:
    for name, text in loaded(DOCS / "pictures" / "draw.py").pictures().items():
        assert (DOCS / "pictures" / name).read_text("utf-8") == text, f"run docs/pictures/draw.py for {name}"


def test_reference_pages_are_current() -> None:
    reference = loaded(DOCS / "site" / "reference.py")
    pages = {**reference.cli_pages(), **reference.python_pages()}
    for name, text in pages.items():
        assert (DOCS / "reference" / name).read_text("utf-8") == text, (
            f"run docs/site/reference.py for {name}"
        )
    found = {path.relative_to(DOCS / "reference").as_posix() for path in (DOCS / "reference").glob("*/*.md")}
    assert found == set(pages)


def test_documented_names_have_docstrings() -> None:
    pages = (DOCS / "reference" / "python").glob("*.md")
    names = {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)}
    missing = []
    for name in sorted(names):
        value = pkgutil.resolve_name(name)
        members = vars(value).items() if inspect.isclass(value) else ()
        functions = {
            f"{name}.{key}": getattr(value, key)
            for key, member in members
            if not key.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
        }
        described = inspect.isclass(value) or inspect.isroutine(value)
        missing += [
            key for key, one in {name: value, **functions}.items() if described and not inspect.getdoc(one)
        ]
    assert names and missing == []


def test_arguments_of_a_docstring_are_on_the_line_of_their_description() -> None:
    """The generator of the reference pages omits an entry whose names are on two lines."""
    entry, found = re.compile(r"[\w*,. `]+( \([^)]*\))?:"), []
    for node in (node for tree in trees().values() for node in walked(tree)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for part in re.findall(
            r"^(?:Args|Raises|Keys):\n((?: .*\n?)+)", ast.get_docstring(node) or "", re.MULTILINE
        ):
            entries = [line[4:] for line in part.splitlines() if re.match(r" {4}\S", line)]
            found += [f"{node.name}: {line}" for line in entries if not entry.match(line)]
    assert found == []


def test_every_public_name_has_a_page() -> None:
    assert loaded(DOCS / "site" / "reference.py").undocumented() == set()


def test_the_glossary_is_linked() -> None:
    assert any("glossary.md" in page.read_text(encoding="utf-8") for page in PAGES)


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    mathml = loaded(DOCS / "site" / "mathml.py")
    html = markdown.markdown("costs $\\mu^2$ and\n\n$$a = b$$\n\n5 $ and 6 $", extensions=[mathml.MathML()])
    assert html.count("<math ") == 2 and 'display="block"' in html
    assert "5 $ and 6 $" in html


def test_a_formula_does_not_end_the_list_that_it_is_in() -> None:
    markdown = pytest.importorskip("markdown")
    extension = loaded(DOCS / "site/mathml.py").makeExtension()
    page = markdown.markdown("1. a\n\n    $$x$$\n\n    $y$ too\n\n2. b\n", extensions=[extension])
    assert page.count("<ol>") == 1 and page.count("<math") == 2 and "<pre>" not in page
