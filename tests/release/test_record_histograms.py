"""Histograms of records over public cells."""

import pytest
import torch
from contracts.laws import has_the_law

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import Gaussian
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.record_counts import (
    FeatureHistogramData,
    FeatureHistogramQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.errors import ConfigError, ReleaseError, UnitError

EMPTY = Adjacency.from_edges([], [], num_nodes=5, directed=True)
CELLS = torch.tensor([0, 2, -1, 2, 1])


def opened(query: RecordHistogramQuery | FeatureHistogramQuery, seed: int) -> Release:
    plan = ReleasePlan(NodeRecord(), (query,), delta=1e-5)
    return Release.open(plan, EMPTY, budget=MemoryLedger(), key=ReleaseKey.from_seed(seed, "histogram"))


def test_each_record_is_counted_in_its_cell_and_no_other() -> None:
    plan = zero_noise_plan(NodeRecord(), (RecordHistogramQuery(cells=4, sigma=2.0),) * 2)
    release = Release.open(plan, EMPTY, budget=MemoryLedger())
    counts = release.answer(RecordHistogramData(CELLS))
    assert (counts.dtype, counts.tolist()) == (torch.float64, [1, 1, 2, 0])
    # A value that is no cell is not counted, and raises no error that would reveal it.
    assert release.answer(RecordHistogramData(torch.tensor([-7, 4, 3, 99, 3]))).tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize("seed", range(2))
def test_every_count_has_the_charged_noise(seed: int) -> None:
    query = RecordHistogramQuery(cells=3, sigma=7.0)
    answers = [opened(query, 3000 * seed + n).answer(RecordHistogramData(CELLS)) for n in range(1200)]
    drawn = torch.stack(answers) - torch.tensor([1, 1, 2])
    for counts in drawn.T:
        has_the_law(counts.numpy() * query.unit_steps, 7.0 * query.unit_steps)
    correlations = torch.corrcoef(drawn.T) - torch.eye(3)
    assert float(correlations.abs().max()) < 0.1


def test_a_nulled_record_moves_one_count_and_a_replaced_one_two() -> None:
    query = RecordHistogramQuery(cells=9, sigma=2.0)
    add_remove, replaced = NodeRecord(), NodeRecord(replace_one=True)
    assert (query.sensitivity(add_remove), query.changed(add_remove)) == (1.0, 1)
    assert (query.sensitivity(replaced), query.changed(replaced)) == (pytest.approx(2**0.5), 2)
    assert query.event(replaced) == Gaussian(2**0.5 / 2)
    assert query.sensitivity(NodeBoundedDegree(max_degree=3)) == 1.0
    with pytest.raises(UnitError):
        query.event(UndirectedEdge())


@pytest.mark.parametrize("cells", [CELLS.float(), CELLS[:, None], CELLS.to(torch.int32)])
def test_cells_of_another_kind_are_rejected(cells: torch.Tensor) -> None:
    release = opened(RecordHistogramQuery(cells=3, sigma=2.0), 0)
    with pytest.raises(ReleaseError, match="needs one int64 column"):
        release.answer(RecordHistogramData(cells))
    assert release.answer(RecordHistogramData(CELLS)).shape == (3,)


@pytest.mark.parametrize("wrong", [{"cells": 1}, {"cells": 1 << 21}, {"cells": 2.5}, {"sigma": 0.0}])
def test_fields_outside_their_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RecordHistogramQuery(**{"cells": 4, "sigma": 2.0, **wrong})  # type: ignore[arg-type]


COLUMNS = torch.tensor([[0, 2], [0, -1], [3, 2], [-7, 9]], dtype=torch.int16)


def test_each_record_is_counted_once_in_each_column() -> None:
    plan = zero_noise_plan(NodeRecord(), (FeatureHistogramQuery(columns=2, cells=4, sigma=2.0),))
    counts = Release.open(plan, EMPTY, budget=MemoryLedger()).answer(FeatureHistogramData(COLUMNS))
    assert (counts.dtype, counts.tolist()) == (torch.float64, [[2, 0, 0, 1], [0, 0, 2, 0]])


def test_every_count_of_a_column_has_the_charged_noise() -> None:
    query = FeatureHistogramQuery(columns=6, cells=1000, sigma=7.0)
    unaffected = torch.full((3, 6), -1, dtype=torch.int16)
    drawn = opened(query, 1).answer(FeatureHistogramData(unaffected)).numpy()
    for column in drawn:
        has_the_law(column * query.unit_steps, 7.0 * query.unit_steps)
    correlations = torch.corrcoef(torch.from_numpy(drawn)) - torch.eye(6)
    assert float(correlations.abs().max()) < 0.15


def test_a_record_is_charged_for_all_columns() -> None:
    query = FeatureHistogramQuery(columns=9, cells=4, sigma=2.0)
    add_remove, replaced = NodeRecord(), NodeRecord(replace_one=True)
    assert (query.sensitivity(add_remove), query.changed(add_remove)) == (3.0, 9)
    assert (query.sensitivity(replaced), query.changed(replaced)) == (pytest.approx(18**0.5), 18)
    assert query.event(add_remove) == Gaussian(1.5)
    with pytest.raises(UnitError):
        query.event(UndirectedEdge())


@pytest.mark.parametrize("cells", [COLUMNS.long(), COLUMNS[:, 0], COLUMNS[:, :1]])
def test_cells_of_other_columns_are_rejected(cells: torch.Tensor) -> None:
    with pytest.raises(ReleaseError, match="table of int16 with 2 columns"):
        opened(FeatureHistogramQuery(columns=2, cells=4, sigma=2.0), 0).answer(FeatureHistogramData(cells))


@pytest.mark.parametrize("wrong", [{"columns": 0}, {"cells": 1 << 15}, {"cells": 1}, {"sigma": -1.0}])
def test_fields_of_columns_outside_their_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        FeatureHistogramQuery(**{"columns": 2, "cells": 4, "sigma": 2.0, **wrong})  # type: ignore[arg-type]
