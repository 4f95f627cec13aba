"""One count of releases: statements, reports, cards and pages agree with the privacy ledger."""

import re
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke

SHORT = ("--set", "epochs=1")
EDGE = ("--unit", "undirected-edge", "--delta", "1e-7", "--epsilon", "1")
DIRECTED = ("--unit", "directed-edge", "--delta", "1e-7", "--epsilon", "1")
RECORD = ("--unit", "node-record", "--delta", "1e-5", "--epsilon", "8")
LOCAL = ("--unit", "local-attributes", "--set", "eps_x=1", "--set", "eps_y=2")
TRAINED: dict[str, tuple[str, ...]] = {
    "gap, one hop": ("gap", *EDGE, *SHORT, "--set", "hops=1"),
    "gap, two hops": ("gap", *EDGE, *SHORT, "--set", "hops=2"),
    "gap, three hops, directed": ("gap", *DIRECTED, *SHORT, "--set", "hops=3", "--directed"),
    "gap, two runs": ("gap", *EDGE, *SHORT, "--runs", "2"),
    "gap on records": ("gap", *RECORD, *SHORT, "--out-degree-bound", "5"),
    "gap on records, counts, mlp": (
        *("gap", *RECORD, *SHORT, "--out-degree-bound", "5", "--private-metrics", "--baseline"),
    ),
    "classcode": ("classcode", *EDGE),
    "classcode, sums": ("classcode", *EDGE, "--set", "noise=gaussian"),
    "classcode on records": ("classcode", *RECORD, "--out-degree-bound", "5"),
    "mlp": ("mlp", *EDGE, *SHORT),
    "mlp on records": ("mlp", *RECORD, *SHORT),
    "lpgnn": ("lpgnn", *LOCAL, *SHORT),
    "label posterior": ("label-posterior", "--unit", "local-attributes", "--set", "eps_y=2"),
    "heterorr": (
        *("heterorr", "--unit", "edge-subset", "--epsilon", "2", "--set", "eps_x=4", *SHORT),
        *("--private-nodes", "all"),
    ),
    "gcn, exact": ("gcn", "--unit", "none", *SHORT),
    "gcn on a released graph": ("gcn", *EDGE, *SHORT, "--perturb", "edge-rand"),
}


def listed(invoke: Invoke) -> dict[str, int]:
    """Return how many releases the ledger lists, by unit."""
    found = invoke("ledger", "list", "--json").json["data_sets"]
    return {one["unit"]: one["releases"] for one in found}


def of_guarantees(first: dict[str, Any]) -> dict[str, int]:
    """Return how many releases guarantees count, by unit, of those that count any."""
    counts = {one["unit"]: one["releases"] for one in (first, *first.get("additional", ()))}
    return {unit: count for unit, count in counts.items() if count}


def stated(text: str) -> set[str]:
    return set(re.findall(r"This covers ([\d,]+ releases?);", " ".join(text.split())))


@pytest.mark.parametrize("name", TRAINED)
def test_a_run_states_the_number_of_its_ledger_entries(invoke: Invoke, files: Files, name: str) -> None:
    done = invoke("train", *TRAINED[name], *files.flags, "--out", "run", "--json")
    assert done.code == 0, done.err
    metrics, counts = done.json, listed(invoke)
    assert of_guarantees(metrics["guarantee"]) == dict.fromkeys(counts, 1)
    together = {**metrics["guarantee_all_runs"], "unit": metrics["guarantee"]["unit"]}
    assert of_guarantees(together) == counts
    pages = [metrics["statement"], *(read for read in map(Path.read_text, pages_of("run")))]
    edges = metrics["guarantee"]["unit"] in ("undirected-edge", "directed-edge") and counts
    assert [stated(page) for page in pages] == [{"1 release"} if edges else set()] * len(pages)
    recorded = f"{sum(counts.values())} release" if counts else "no entry in a privacy ledger"
    assert all(recorded in " ".join(path.read_text().split()) for path in pages_of("run")[-2:])


def pages_of(run: str) -> list[Path]:
    """Return the pages of a run: public ones, and then the two that name the ledger."""
    places = "release/MODEL_CARD.md", "release/PRIVACY.md", "PRIVACY.md", "internal/report.html"
    return [Path(run) / place for place in places]


@pytest.mark.parametrize("name", ["gap, two hops", "classcode", "lpgnn", "mlp on records"])
def test_synthetic_data_without_a_ledger_have_no_entry(invoke: Invoke, tmp_path: Path, name: str) -> None:
    done = invoke("train", *TRAINED[name], "--dataset", "synthetic/tiny", "--out", "run")
    assert done.code == 0, done.err
    assert listed(invoke) == {}
    words = "no entry in a privacy ledger, because the data are synthetic"
    assert words in " ".join(done.out.split())
    assert all(words in " ".join(path.read_text().split()) for path in pages_of("run")[-2:])


def test_a_sweep_states_the_number_of_its_ledger_entries(invoke: Invoke, files: Files) -> None:
    flags = ("--unit", "undirected-edge", "--delta", "1e-7", "--epsilon", "1,4", "--runs", "2", *SHORT)
    done = invoke("sweep", "gap,mlp", *flags, *files.flags, "--out", "s", "--json")
    assert done.code == 0, done.err
    assert listed(invoke) == {"undirected-edge": done.json["total"]["releases"]} == {"undirected-edge": 4}
    assert "4 releases" in done.err


@pytest.mark.parametrize("mechanism", ["edge-rand", "lap-graph", "edge-rr"])
def test_a_released_graph_states_one_release(invoke: Invoke, files: Files, mechanism: str) -> None:
    flags = ("--unit", "undirected-edge", "--epsilon", "4")
    columns = files.flags[:6] + files.flags[8:]
    done = invoke("perturb", mechanism, *flags, *columns, "--out", "g", "--json")
    assert done.code == 0, done.err
    assert listed(invoke) == {"undirected-edge": 1} == of_guarantees(done.json["guarantee"])
    assert stated(done.json["guarantee"]["statement"]) == {"1 release"}
    assert all(stated(path.read_text()) <= {"1 release"} for path in Path("g").glob("*.md"))


def test_ldp_reports_of_a_table_are_one_release(invoke: Invoke, files: Files) -> None:
    from graphveil.local.collect import CollectionProtocol

    request = ("--eps-x", 6, "--columns", "age,height", "--low", -10, "--high", "10,20")
    label = ("--eps-y", 2, "--classes", "t0,t1,t2", "--purpose", "pilot")
    assert invoke("collect", "protocol", *request, *label, "--out", "s.json").code == 0
    flags = ("--protocol", "s.json", "--nodes", files.nodes, "--id", "user", "--label", "team")
    done = invoke("collect", "randomize", *flags, "--out", "m.csv", "--json")
    assert done.code == 0, done.err
    assert listed(invoke) == {"local-attributes": 1}
    assert CollectionProtocol.from_json(Path("s.json").read_text()).guarantee.releases == 1
