"""Predictions of other graphs are charged to that graph, the training data, and earlier graphs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import NODES, Files, Invoke, read, write

from cli.conftest import Prepare, inside
from graphveil.core.release import Release

GAP = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--no-baseline", "--set", "epochs=2"]


@pytest.fixture
def run(invoke: Invoke, prepare: Prepare) -> Iterator[dict[str, Any]]:
    """A run in ``a``, and what it reports of the ledger."""
    out = ["--out", "a"]
    with inside(prepare("charged", lambda files: [["train", "gap", *files.flags, *GAP, *out]])):
        yield json.loads(Path("a/internal/metrics.json").read_text())["ledger"]


def other(files: Files, name: str, seed: int, *, first: int = 40) -> list[str]:
    """Write another graph, of people from a first number on; the flags that name it.

    A third of them are in the training data: too few to take them for the same people.
    """
    rng, folder = np.random.default_rng(seed), files.nodes.parent
    nodes, edges = folder / f"{name}-nodes.csv", folder / f"{name}-edges.csv"
    head, *rows = read(files.nodes)
    write(nodes, [head, *([f"u{int(row[0][1:]) + first}", f"{rng.normal()}", *row[2:]] for row in rows)])
    ends = first + rng.integers(NODES, size=(150, 2))
    write(edges, [["a", "b"], *([f"u{a}", f"u{b}"] for a, b in ends)])
    return ["--nodes", str(nodes), "--edges", str(edges)]


def releases(invoke: Invoke) -> dict[str, int]:
    listed = invoke("ledger list --json").json["data_sets"]
    return {one["name"]: one["releases"] for one in listed}


def test_every_graph_that_may_share_an_edge_is_charged(
    invoke: Invoke, files: Files, run: dict[str, Any]
) -> None:
    first = invoke("predict a", *other(files, "first", 1), "--json")
    found = first.json
    assert (found["ledger"]["releases"], found["training_ledger"]["releases"]) == (1, 2)
    assert found["training_ledger"]["data_set"] == run["data_set"]
    assert found["training_ledger"]["epsilon"] == pytest.approx(
        found["guarantee_with_predictions"]["epsilon"]
    )
    assert first.err.count("Ledger:") == 2
    second = invoke("predict a", *other(files, "second", 2, first=80), "--json")
    assert "including 1 earlier prediction of other graphs" in " ".join(second.err.split())
    found = second.json
    assert found["guarantee_with_predictions"]["epsilon"] == pytest.approx(
        found["training_ledger"]["epsilon"]
    )
    assert releases(invoke) == {"data-1": 3, "data-2": 2, "data-3": 1}
    explained = invoke("explain a --json").json
    assert [one["data_set"] for one in explained["prediction_receipts"]] == [
        "data-2",
        "data-1",
        "data-3",
        "data-1",
    ]
    free = invoke("predict a --json").json
    assert free["guarantee_with_predictions"] == found["guarantee_with_predictions"]
    assert invoke("ledger verify --json").json["breaks"] == []


def test_an_assumption_spares_other_accounts_only_if_ids_confirm_it(
    invoke: Invoke, files: Files, run: dict[str, Any]
) -> None:
    strangers = invoke("predict a --assume-disjoint-edges --json", *other(files, "far", 1, first=NODES - 1))
    assert strangers.json["training_ledger"] is None  # one id in common, and so no edge
    assert releases(invoke) == {"data-1": 1, "data-2": 1}
    near = invoke("predict a", *other(files, "near", 2, first=NODES - 2), "--assume-disjoint-edges", "--json")
    assert near.json["training_ledger"]["releases"] == 2
    assert "an assumption does not lift the limit of a ledger" in " ".join(near.err.split())
    assert releases(invoke) == {"data-1": 2, "data-2": 2, "data-3": 1}  # of the first stranger, too
    known = invoke("predict a", *other(files, "near", 2, first=NODES - 2), "--assume-disjoint-edges")
    assert (known.code, "The ledger has these data as 'data-3'" in known.err) == (2, True)


def test_the_limit_of_the_training_data_holds(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'team.sqlite'}"
    limit = ["--unit", "undirected-edge", "--epsilon", "1.2", "--delta", "1e-7"]
    assert invoke("ledger init friends", *limit, "--ledger", place).code == 0
    assert invoke("train gap", *files.flags, *GAP, "--out", "a", "--ledger", f"{place}#friends").code == 0
    rejected = invoke("predict a", *other(files, "first", 1))
    assert (rejected.code, "is already spent (data set 'friends'" in rejected.err) == (2, True)
    assert not list(Path("a/internal").glob("prediction_charges/*"))
    (tmp_path / "team.sqlite").rename(tmp_path / "elsewhere.sqlite")
    lost = invoke("predict a", *other(files, "first", 1))
    assert (lost.code, "does not exist. Restore it" in lost.err) == (2, True)
    assert releases(invoke) == {}


def test_a_prediction_without_a_charge_is_not_stored(
    invoke: Invoke, files: Files, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Release, "open", _stop)
        assert invoke("predict a", *other(files, "first", 1)).code == 1
    assert not list(Path("a/internal/prediction_charges").iterdir())
    invoke("predict a", *other(files, "first", 1))
    (kept,) = Path("a/internal/prediction_charges").glob("*.json")
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"disjoint": True}))
    damaged = invoke("predict a", *other(files, "second", 2))
    assert (damaged.code, "is damaged" in damaged.err) == (2, True)


def _stop(*given: object, **named: object) -> None:
    raise RuntimeError


def test_a_release_folder_does_not_identify_the_training_data(
    invoke: Invoke, files: Files, run: dict[str, Any]
) -> None:
    columns = ["--id", "user", "--source", "a", "--target", "b", "--label", "team", "--allow-spend"]
    found = invoke("predict a/release", *other(files, "first", 1), *columns, "--json")
    assert "earlier predictions add to it" in " ".join(found.err.split())
    assert (found.json["training_ledger"], releases(invoke)) == (None, {"data-1": 1, "data-2": 1})
