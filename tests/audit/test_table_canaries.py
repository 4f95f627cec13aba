"""Canaries in fits of tables: rows and persons certify at least half of a claim, and never more than it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.audit.bounds import summed_gaussian
from graphveil.audit.canaries import CanaryGraph, audit_training, insert_edges, insert_records
from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.estimators.relational.rows import Places
from graphveil.runs.run_audit import audit_run
from tests.estimators.relational.drawn import drawn

DELTA = 1e-5


def tables(persons: int, items: int = 0) -> gv.Tables:
    """Return persons of two classes without rows, which may have one row each, or far ends among items."""
    ids = np.char.add("p", np.arange(persons).astype(str)).astype(object)
    kinds = np.random.default_rng(0).integers(2, size=persons)
    rows: dict[str, Any] = {"user": ids[:0]} | ({"item": np.array([], dtype=np.int64)} if items else {})
    return gv.Tables(
        {"user": ids, "kind": np.where(kinds, "a", "b"), "level": np.ones(persons)},
        id="user",
        label="kind",
        classes=["a", "b"],
        features=["level"],
        rows={"seen": gv.Rows(rows, owner="user", far="item" if items else None)},
        public={"item": np.arange(items)} if items else None,
    )


def split(train: int) -> Callable[[Graph], Graph]:
    """Split with so many tenths in training or validation."""

    def found(graph: Graph) -> Graph:
        place = torch.arange(graph.num_nodes)
        of_v = place % 10 < train
        return graph.with_split(of_v & (place % 20 != 0), place % 20 == 0, ~of_v)

    return found


def rows_of(graph: Graph) -> set[tuple[int, int]]:
    source, target = graph.adjacency.edge_index().tolist()
    return set(zip(source, target, strict=True))


def test_canary_rows_are_the_only_ones_of_their_owners() -> None:
    graph = drawn(4, mutual=False).built().graph
    found = insert_edges(graph, 20, np.random.default_rng(1))
    owners = set(found.places[:, 0].tolist())
    assert len(owners) == 20 and found.places[:, 1].min() >= graph.num_nodes
    canaries = {tuple(place) for place in found.places[found.present].tolist()}
    assert rows_of(found.graph) == {row for row in rows_of(graph) if row[0] not in owners} | canaries


def test_canary_persons_have_one_row_and_are_nulled_by_coins() -> None:
    graph = drawn(4, mutual=False).built().graph
    found = insert_records(graph, 20, np.random.default_rng(1))
    places = set(found.places.tolist())
    own = [row for row in rows_of(found.query_graph) if row[0] in places]
    assert sorted(row[0] for row in own) == sorted(places) and len({row[1] for row in own}) == 20
    nulled = set(found.places[~found.present].tolist())
    gone = {row for row in own if row[0] in nulled}
    assert rows_of(found.graph) == rows_of(found.query_graph) - gone
    assert all(int(found.graph.y[place]) == -1 for place in nulled)


@pytest.mark.parametrize(
    ("persons", "epsilon"),
    [(3000, 1.0), (3000, 2.0), pytest.param(40_000, 0.5, marks=pytest.mark.slow)],
)
def test_rows_in_one_fit_certify_half_of_the_claim(
    persons: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row counts at its owner, who has no other: its noisy count is published."""
    counted = list[tuple[Any, Any]]()
    blocks = Places.blocks

    def recorded(self: Places, at_far: Any, at_owners: Any) -> Any:
        counted.append((self.row, at_owners.reshape(self.layout.others, -1)))
        return blocks(self, at_far, at_owners)

    monkeypatch.setattr(Places, "blocks", recorded)

    def score(model: Estimator, inserted: CanaryGraph) -> Any:
        row, counts = counted[-1]
        place = row[inserted.places[:, 0]]
        return np.where(place < 0, 0.5, counts[place].sum(axis=1))  # persons in R have no count

    model = gv.RelationalClassifier(unit="row", epsilon=epsilon, codes=1, seed=0, unsafe_noise_seed=2)
    found = audit_training(model, tables(persons).graph, split=split(1), canaries=persons, score=score)
    assert found.is_valid and found.gaussian is None
    assert 0.5 * epsilon < found.bound.epsilon <= found.claimed <= epsilon < found.bound.max_certifiable


@pytest.mark.parametrize(
    ("persons", "epsilon"), [(8000, 4.0), pytest.param(40_000, 1.0, marks=pytest.mark.slow)]
)
def test_persons_in_one_fit_certify_half_of_the_claim(persons: int, epsilon: float) -> None:
    """A person owns one row, to an item that is no other's: its parameters follow from this person alone."""
    scores = list[tuple[Any, Any]]()

    def score(model: Estimator, inserted: CanaryGraph) -> Any:
        weights = model.fitted.trained.state()["weights"].numpy()
        source, target = inserted.query_graph.adjacency.edge_index().tolist()
        item = dict(zip(source, (far - persons for far in target), strict=True))
        own = weights[len(weights) - 1 - persons :][[item[place] for place in inserted.places.tolist()]]
        labels = inserted.query_graph.y.numpy()[inserted.places]
        scores.append((own[np.arange(len(own)), labels] - own.mean(axis=1), inserted.present))
        return scores[-1][0]

    model = gv.RelationalClassifier(
        unit="person", epsilon=epsilon, delta=DELTA, items=True, seed=0, unsafe_noise_seed=2
    )
    data = tables(persons, persons).graph
    found = audit_training(model, data, split=split(9), canaries=persons, score=score)
    assert found.is_valid and found.gaussian is not None
    (values, present) = scores[0]
    bound = summed_gaussian(values[present], values[~present], delta=DELTA)
    assert 0.5 * epsilon < bound.epsilon <= found.claimed <= epsilon


@pytest.mark.parametrize("unit", ["row", "person"])
def test_predictions_of_tables_are_within_the_claim(unit: str) -> None:
    model = gv.RelationalClassifier(unit=unit, epsilon=2.0, delta=DELTA, seed=0)
    found = audit_training(model, tables(400, 400).graph, split=split(7), canaries=300)
    assert found.is_valid


@pytest.mark.parametrize(
    ("unit", "more"),
    [
        ("row", {}),
        ("person", {}),
        ("person", {"replace_one": True}),
        pytest.param("person", {"private_metrics": True}, marks=pytest.mark.slow),
    ],
)
def test_an_audit_of_a_run_certifies_most_of_its_claim(
    unit: str, more: dict[str, Any], tmp_path: Path
) -> None:
    model = gv.RelationalClassifier(unit=unit, epsilon=2.0, delta=DELTA, seed=0, **more)
    model.fit(drawn(4, mutual=False).built()).save(tmp_path / "release")
    (tmp_path / "internal").mkdir()
    found = audit_run(tmp_path, pairs=60)
    assert found.faults == () and found.unit == unit
    assert found.planned == pytest.approx(found.claimed, rel=1e-9)
    assert found.canaries is not None
    assert 0.5 < found.canaries.share <= 1
    assert len(found.canaries.planted) == (2 if unit == "row" else 1)  # metrics are of other persons
    assert not any(report.broken for _, report in found.replays)
    assert unit == "person" or all(report.attained["0-0"] in (0.0, 1.0) for _, report in found.replays)
