"""The table of private sums in ``docs/guarantees.md`` names every query, and each file on it exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "graphveil"


def documented() -> dict[str, str]:
    """Return the place of each query's exact sum, as the page has it."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    section = page.partition("## 6. Numbers and noise")[2].partition("### Rows of norm")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name: where for names, where in rows for name in re.findall(r"`(\w+Query)`", names)}


def answering(folder: Path) -> dict[str, Path]:
    """Return the classes below a folder that answer queries about private data, with their files."""
    return {
        node.name: path
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any(_answers(part) for part in node.body)
    }


def _answers(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.FunctionDef)
        and node.name == "answer"
        and any("PrivateEdges" in ast.dump(arg) for arg in node.args.args)
    )


def test_the_page_names_every_query() -> None:
    queries = {name for name in answering(PACKAGE / "release") if name != "Query"}
    assert set(documented()) == queries


def test_no_other_part_answers_queries() -> None:
    assert set(answering(PACKAGE)) == set(answering(PACKAGE / "release"))


def test_the_files_on_the_page_exist() -> None:
    named = {name for where in documented().values() for name in re.findall(r"`([\w/]+\.py)`", where)}
    assert named
    assert not [name for name in named if not (PACKAGE / name).is_file()]


def test_noise_of_training_steps_is_added_where_the_page_says() -> None:
    adding = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AugAssign) and "noise.noise(step)" in ast.unparse(node.value)
    }
    named = set(
        re.findall(r"`([\w/]+\.py)`", documented()["DPSGDQuery"] + documented()["EdgeAttentionQuery"])
    )
    assert adding == named
