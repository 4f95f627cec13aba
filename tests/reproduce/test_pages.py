"""The pages of benchmarks/results are made from their CSV files."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results"


def test_pages_are_made_from_their_csv_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results as benchmark

    pages = benchmark.pages(FOLDER)
    reproduced = {path.name for path in FOLDER.glob("*.md") if path.stem.count(".")}  # TARGET.MODE.md
    assert reproduced | {"README.md", "trends.md"} == set(pages)
    for name, text in pages.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: python benchmarks/results.py"
    assert pages["trends.md"].count("\n| [") > 10
    del sys.modules["results"], sys.modules["trends"]
