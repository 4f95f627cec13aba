"""Every Python block of the README and the pages in docs/ runs, in order, in an empty folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/start/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # pages keep secrets, and not in this home
    names: dict[str, object] = {"__name__": "__page__"}
    for block in BLOCK.findall(BLOCK.sub("", page.read_text())):
        exec(compile(block, page.name, "exec"), names)  # our own pages


def test_the_readme_has_blocks_to_run() -> None:
    assert BLOCK.findall((ROOT / "README.md").read_text())


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", BLOCK.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
