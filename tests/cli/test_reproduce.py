"""``reproduce``: the list, one target end to end, and misuse."""

from pathlib import Path

import pytest
from command import Invoke

TABLE = [
    "reproduce",
    "gap:table1",
    "--datasets",
    "synthetic/tiny",
    "--runs",
    "1",
    "--jobs",
    "1",
    "--out",
    "r",
]


def test_the_list_states_data_and_minutes(invoke: Invoke) -> None:
    listed = invoke("reproduce list --json")
    assert listed.code == 0, listed.err
    rows = {row["target"]: row for row in listed.json["targets"]}
    assert rows["gap:table2"]["cells"] > 100 and "UIllinois20" in rows["gap:table2"]["needs"]
    one = invoke("reproduce list gap:figure8")
    assert "one hop, noise of K" in one.out


def test_a_target_end_to_end(invoke: Invoke) -> None:
    done = invoke(*TABLE, "--json")
    assert done.code == 0, done.err
    ours = {point["line"]: point["ours"] for point in done.json["points"]}
    assert ours["nodes"] * 100 > 0 and ours["stored edges"] == 3000
    files = {path.name for path in Path("r").iterdir()}
    assert files == {"cells", "internal", "results.csv", "table.md", "table.tex", "verdict.json"}
    again = invoke(*TABLE, "--resume", "--json")
    assert again.json == done.json


INVALID = {
    "unknown target": (["gap:tabel2"], "gap:table2"),
    "unknown data": (["gap:table1", "--datasets", "karat"], "karate"),
    "unknown mode": (["gap:table1", "--mode", "papper"], "paper"),
    "two targets": (["gap:table1", "gap:table2"], "Name one target"),
    "no axis": (["gap:table1", "--at", "1"], "no x-axis"),
    "a place that is not there": (["gap:figure8", "--at", "1,9"], "Use one of 1, 2, 3, 4, 5"),
    "a place that is no number": (["gap:figure8", "--at", "one"], "list of numbers"),
    "nothing to resume": (["gap:table1", "--resume"], "nothing to resume"),
}


@pytest.mark.parametrize("case", INVALID)
def test_misuse_computes_nothing(case: str, invoke: Invoke) -> None:
    arguments, words = INVALID[case]
    done = invoke("reproduce", *arguments, "--out", "r")
    assert (done.code, Path("r").exists()) == (2, False)
    assert words in done.err


def test_unpublished_data_are_reported_missing(invoke: Invoke) -> None:
    listed = invoke("reproduce list heterorr:flickr-mir")
    assert "not available" in listed.out and "nodes.parquet" in listed.out
    done = invoke("reproduce heterorr:flickr-mir --runs 1 --jobs 1 --out r")
    assert done.code == 2 and "read_graph" in done.err
    assert not Path("r").exists()
