"""A fit is repeated on neighbors with the answers of the first fit: scores depend on nothing else."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.queries.pair_sums import PairHistogramQuery, PairTerms
from graphveil.core.unit import parse_unit
from graphveil.data import Graph
from graphveil.links.link_predictor import LinkPredictor
from tests.estimators.replay import Replay

NODES = 24
ALL = np.stack(np.triu_indices(NODES, 1))


def graph_of(edges: set[tuple[int, int]], *, directed: bool) -> Graph:
    x = torch.from_numpy(np.random.default_rng(2).random((NODES, 5)).astype(np.float32))
    return Graph.from_edges(x, torch.arange(NODES) % 2, *np.array(sorted(edges)).T, directed=directed)


def flat(values: Any) -> list[Tensor]:
    """Return all tensors of the inputs of a query."""
    if isinstance(values, Tensor):
        return [values]
    return [
        array for one in (values.arrays if isinstance(values, PairTerms) else values) for array in flat(one)
    ]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])  # of no, one and two counts by cluster
@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_a_differing_edge_moves_each_answer_by_at_most_one_and_nothing_else(
    unit: str, epsilon: float
) -> None:
    rng, directed = np.random.default_rng(0), unit == "directed-edge"
    edges = {(int(u), int(v)) for u, v in ALL.T if rng.random() < 0.3}
    model = LinkPredictor(unit=unit, epsilon=epsilon, delta=1e-6, held_out=0.4, seed=3, unsafe_noise_seed=0)
    with pytest.MonkeyPatch.context() as patch:
        before = Replay()
        with before.in_place(patch):
            scores = model.fit(graph_of(edges, directed=directed)).decision_function(ALL)
        held = model.is_held_out(ALL)
        toggled, largest = [*ALL.T[held][:12], *ALL.T[~held][:12]], np.zeros(len(before.queries))
        for u, v in toggled:
            after = Replay(before)
            with after.in_place(patch):
                neighbor = graph_of(edges ^ {(int(u), int(v))}, directed=directed)
                assert np.array_equal(model.fit(neighbor).decision_function(ALL), scores)
            for was, now in zip(before.queried, after.queried, strict=True):
                assert all(map(torch.equal, flat(was), flat(now))), "queries depend on edges"
            inside = bool(model.is_held_out([[int(u)], [int(v)]])[0])
            for number, query in enumerate(before.queries):
                change = float((after.sums[number] - before.sums[number]).norm()) * query.noise[0]
                assert change <= query.sensitivity(parse_unit(unit)) + 1e-6
                assert (change > 0) == (inside == isinstance(query, PairHistogramQuery))
                largest[number] = max(largest[number], change)
    assert (largest > 0.5).all(), largest
