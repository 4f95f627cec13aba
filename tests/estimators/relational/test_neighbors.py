"""Neighbors of random sets of tables: a row moves one integer of one answer, and a person at most a norm."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.accountant import privacy_curve, total_mu
from graphveil.core.ledger import MemoryLedger, ledger_of
from graphveil.core.queries.row_counts import RowCountData
from graphveil.core.release import Release
from graphveil.data.relational import RelationalGraph
from graphveil.errors import UnitError
from graphveil.estimators.public_sizes import record_groups
from graphveil.estimators.relational import rows as row_method
from graphveil.estimators.relational.persons import features_of, num_features
from tests.estimators.relational.drawn import (
    MUTUAL,
    PERSONS,
    DrawnTables,
    any_row,
    drawn,
    without_record,
)
from tests.estimators.test_replay_records import bounds, change, run, scales

ASK = Release.answer
ROW: dict[str, Any] = {"unit": "row", "epsilon": 2.0, "seed": 0}
PERSON: dict[str, Any] = {"unit": "person", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
FEW, MANY = range(8), range(8, 100)
SEEDS = [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]


# -- unit row ------------------------------------------------------------------------------------------------


@dataclass
class Answers:
    """Takes the place of answers: notes exact counts, and hands out known noisy ones if there are some."""

    known: list[Tensor] | None = None
    queried: list[RowCountData] = field(default_factory=list)
    exact: list[Tensor] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)
    groups: list[Tensor | None] = field(default_factory=list)
    queries: list[Any] = field(default_factory=list)

    def answer(self, release: Release, data: RowCountData) -> Tensor:
        query, edges = release.next_query, release._private._adjacency
        plan = zero_noise_plan(release._plan.unit, (query,))
        alone = Release.open(plan, edges, release._public.groups, budget=MemoryLedger())
        self.exact.append(ASK(alone, data))
        self.queried.append(data)
        self.queries.append(query)
        self.groups.append(release._public.groups)
        own = ASK(release, data)
        self.given.append(own if self.known is None else self.known[len(self.given)])
        return self.given[-1].clone()


def fitted(tables: gv.Tables, known: list[Tensor] | None = None) -> tuple[gv.RelationalClassifier, Answers]:
    answers, model = Answers(known), gv.RelationalClassifier(**ROW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "answer", lambda release, data: answers.answer(release, data))
        patch.setattr(row_method, "_PENALTIES", (0.03,))
        model.fit(tables)
    return model, answers


def published(model: gv.RelationalClassifier) -> list[Tensor]:
    fit = model.fitted
    return [model.proba_, *fit.trained.state().values(), *fit.released.values()]


def other_rows(found: DrawnTables, rng: np.random.Generator) -> list[DrawnTables]:
    """Return the tables with one row more, and with one row less, for each table."""
    others = []
    for table, rows in found.rows.items():
        others.append(found.with_rows(table, [*rows, any_row(rng, found, table)]))
        if rows:
            gone = int(rng.integers(len(rows)))
            others.append(found.with_rows(table, [row for k, row in enumerate(rows) if k != gone]))
    return others


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_moves_one_integer_of_one_answer_and_nothing_else(seed: int) -> None:
    found = drawn(seed, mutual=True)
    tables = found.built()
    model, before = fitted(tables)
    (entry,) = ledger_of(tables.graph.edge_set).entries
    assert privacy_curve(entry.event).epsilon(0.0) == pytest.approx(ROW["epsilon"])
    assert model.guarantee.epsilon <= ROW["epsilon"]
    assert len(before.exact) == 2
    edges = stored(tables.graph)
    for other in other_rows(found, np.random.default_rng(seed)):
        neighbor = other.built()
        again, after = fitted(neighbor, before.given)
        assert all(map(torch.equal, published(model), published(again)))
        for was, now in zip(before.queried, after.queried, strict=True):
            assert all(torch.equal(vars(was)[name], vars(now)[name]) for name in vars(was))
        assert all(map(torch.equal, before.groups, after.groups))
        moved = [float((now - was).abs().sum()) for was, now in zip(before.exact, after.exact, strict=True)]
        changed = edges ^ stored(neighbor.graph)
        assert len(changed) <= 1
        assert sum(moved) <= len(changed)
        for owner, far in changed:  # the answer that may move is that of the owner's group
            (table,) = (each for each in tables.graph.relations if each.first <= far < each.stop)
            assert moved[1 - int(before.groups[0][owner])] == 0.0
            assert sum(moved) == 1 or table.persons is not None  # all rows to a catalog are counted


def stored(graph: RelationalGraph) -> set[tuple[int, int]]:
    source, target = graph.adjacency.edge_index().tolist()
    return set(zip(source, target, strict=True))


def test_drawn_tables_have_odd_rows() -> None:
    """Duplicates, rows in two tables, empty tables, persons without rows, and one with half of all rows."""
    every = [drawn(seed, mutual=True) for seed in range(40)]
    tables = [rows for found in every for rows in found.rows.values()]
    assert any(len(set(rows)) < len(rows) for rows in tables) and any(not rows for rows in tables)
    assert any(2 * sum(row[0] == 0 for row in rows) >= len(rows) > 0 for rows in tables)
    owners = [{row[0] for rows in found.rows.values() for row in rows} for found in every]
    assert any(0 < len(each) < PERSONS for each in owners)
    assert any({"seen", "rated"} <= set(found.rows) for found in every)
    assert any(MUTUAL in found.rows and found.rows[MUTUAL] for found in every)


# -- unit person ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_features_of_a_person_follow_from_the_own_record(seed: int, items: bool) -> None:
    found = drawn(seed, mutual=False)
    graph = found.built().graph
    features, rng = features_of(graph, items), np.random.default_rng(seed)
    assert np.sqrt(features.multiply(features).sum(axis=1)).max() <= 5 + 1e-9
    for person in {0, *rng.integers(PERSONS, size=3).tolist()}:
        other = features_of(without_record(graph, found, person), items)
        others = np.arange(PERSONS) != person
        assert features[others].toarray().tobytes() == other[others].toarray().tobytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_number_of_features_is_public(seed: int) -> None:
    graph = drawn(seed, mutual=False).built().graph
    sizes = gv.RelationalClassifier(**PERSON).config.sizes_of(graph)
    for items in (False, True):
        assert features_of(graph, items).shape == (PERSONS, num_features(sizes, items))


@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize("seed", [0, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_a_person_moves_each_gradient_sum_by_the_clipping_norm_and_no_other_prediction(
    seed: int, replace_one: bool
) -> None:
    """Under one transcript: the sums of all steps, what is published, and predictions of all others."""
    found = drawn(seed, mutual=False)
    settings = {**PERSON, "unsafe_noise_seed": 1, "items": bool(seed % 2), "replace_one": replace_one}
    tables = found.built()
    model, groups = gv.RelationalClassifier(**settings), record_groups(tables.graph)
    transcript, rng, attained = run(model, tables, None), np.random.default_rng(seed), 0.0
    assert len(transcript.sums) == len(scales(model))
    for person in {0, *rng.integers(PERSONS, size=3).tolist()}:
        other = gv.RelationalClassifier(**settings)
        null = without_record(tables.graph, found, person)
        seen = run(other, null, transcript)
        assert seen.records == transcript.records
        allowed = bounds(model, int(groups[person]))
        moved = [change(*both, None) for both in zip(transcript.sums, seen.sums, strict=True)]
        assert all(far <= most * (1 + 1e-9) for far, most in zip(moved, allowed, strict=True))
        attained = max(attained, *moved)
        others = torch.arange(PERSONS) != person
        assert torch.equal(model.proba_[others], other.proba_[others])
        assert torch.equal(*(each.fitted.trained.state()["weights"] for each in (model, other)))
        assert model.guarantee.event == other.guarantee.event
    assert attained > 0.9
    shift = model.protected_unit.change * np.sqrt(np.square(1 / np.array(scales(model))).sum())
    assert total_mu(model.plan_.event) == pytest.approx(shift, rel=1e-6)


def test_mutual_tables_are_rejected_uncharged_under_unit_person() -> None:
    seed = next(k for k in range(99) if MUTUAL in drawn(k, mutual=True).rows)
    tables = drawn(seed, mutual=True).built()
    model = gv.RelationalClassifier(**PERSON)
    for call in (model.fit, model.preview):
        with pytest.raises(UnitError, match="mutual rows, which are in the records of two persons"):
            call(tables)
    assert not ledger_of(tables.graph.edge_set).entries
