"""Every Python block of the README and the pages in docs/ runs, in order, in an empty folder."""

import re
from contextlib import chdir
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/start/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


ELSEWHERE = {"cluster.md"}  # beside the tests of a cluster, which start one: release/test_ray_engine.py
RUN_HERE = [page for page in PAGES if page.name not in ELSEWHERE]


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    with chdir(tmp_path):
        run_blocks(page)


def run_blocks(page: Path) -> None:
    """Run a page's blocks, one after the other."""
    names: dict[str, object] = {"__name__": "__page__"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, page.name, "exec"), names)  # our own pages


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nkept = 1\n```\n\nand\n\n```python\nassert kept == 2\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)


def test_the_readme_has_blocks_to_run() -> None:
    assert BLOCK.findall((ROOT / "README.md").read_text())


def test_the_readme_fits_two_screens_and_has_one_picture() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"\]\([^)]*\)", "]", text).splitlines()  # addresses of links are not
    assert sum(max(1, -(-len(line) // 140)) for line in shown) <= 2 * 50
    assert len(re.findall(r"!\[|<img", text)) == 1


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", BLOCK.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
