"""The documentation site: notebooks print what they show, and pictures are those of the tables."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.ipynb"))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebooks, notebook = loaded(DOCS / "site" / "notebooks.py"), json.loads(path.read_text("utf-8"))
    printed = notebooks.run(notebook)
    assert printed == notebooks.stored(notebook)
    assert any(printed)


def test_there_is_a_notebook_for_each_reader() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["auditor", "engineer", "researcher"]


def test_pictures_are_drawn_from_the_tables() -> None:
    for name, text in loaded(DOCS / "pictures" / "draw.py").pictures().items():
        assert (DOCS / "pictures" / name).read_text("utf-8") == text, f"run docs/pictures/draw.py for {name}"


def test_notebooks_become_pages() -> None:
    pytest.importorskip("mkdocs")
    page = loaded(DOCS / "site" / "pages.py").as_markdown(json.loads(NOTEBOOKS[0].read_text("utf-8")))
    assert page.startswith("# Tutorial") and "```text\nbroken: True" in page


def test_every_page_stands_in_the_navigation() -> None:
    listed = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for part in ("*.md", "start/*.md") for page in DOCS.glob(part)]
    assert [page for page in pages if f"- {page}\n" not in listed] == []
