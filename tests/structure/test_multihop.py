"""Multi-hop transitions: the slides' numbers, a dense oracle, the bound on similar nodes."""

import numpy as np
import pytest

from graphveil.core.noise.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.papers.similarity import MultiHop, PublicEdges
from tests.structure.conftest import public, random_edges

STREAMS = PublicStreams(0)


def dense(edges: PublicEdges, law: MultiHop) -> np.ndarray:
    """Return S by the formula, with dense matrices."""
    step = edges.matrix().toarray()
    if law.transition:
        step /= np.maximum(1, step.sum(axis=1, keepdims=True))
    total = sum(np.linalg.matrix_power(step, m) for m in range(1, law.n + 1))
    if law.drop_self:
        np.fill_diagonal(total, 0)
    share = total / np.maximum(1e-300, total.sum(axis=1, keepdims=True))
    np.fill_diagonal(share, 0)
    return np.where(share > law.delta, share, 0)


def test_the_graph_of_the_slides(slide: PublicEdges) -> None:
    similar = MultiHop(n=2, delta=0.25)(slide, streams=STREAMS)
    expected = [[0, 2 / 7, 0, 2 / 7], [2 / 7, 0, 0, 2 / 7], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(similar.toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("transition", [False, True])
@pytest.mark.parametrize("drop_self", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_it_is_the_formula(n: int, drop_self: bool, transition: bool, directed: bool) -> None:
    edges = random_edges(n, directed=directed)
    law = MultiHop(n=n, delta=0.04, drop_self=drop_self, transition=transition)
    found = law(edges, streams=STREAMS)
    np.testing.assert_allclose(found.toarray(), dense(edges, law), rtol=1e-6)
    assert found.dtype == np.float32
    assert found.has_sorted_indices


@pytest.mark.parametrize("delta", [0.5, 0.2, 0.05, 0.01])
def test_fewer_than_one_over_delta_nodes_are_similar(delta: float) -> None:
    star = public([0] * 40, list(range(1, 41)), 41)  # every leaf has 40 ends of equal share
    for edges in (star, random_edges(3, edges=200)):
        for n in (1, 2, 3):
            counts = np.diff(MultiHop(n=n, delta=delta)(edges, streams=STREAMS).indptr)
            assert counts.max() < 1 / delta


@pytest.mark.parametrize("transition", [False, True])
def test_blocks_of_rows_do_not_affect_results(transition: bool) -> None:
    edges = random_edges(5, nodes=1500, edges=40_000)  # more walks than one block holds
    law = MultiHop(n=2, delta=0.002, transition=transition)
    np.testing.assert_allclose(law(edges, streams=STREAMS).toarray(), dense(edges, law), rtol=1e-5)


def test_nodes_without_edges_are_similar_to_none() -> None:
    assert MultiHop()(public([0], [1], 3), streams=STREAMS)[[2]].nnz == 0
    assert MultiHop()(public([], [], 2), streams=STREAMS).nnz == 0


def test_rejects_too_many_walks() -> None:
    clique = public([i for i in range(8) for _ in range(8)], list(range(8)) * 8, 8)
    with pytest.raises(ConfigError, match="transition=True"):
        MultiHop(n=400)(clique, streams=STREAMS)
    assert MultiHop(n=400, transition=True)(clique, streams=STREAMS).nnz == 56


@pytest.mark.parametrize("wrong", [{"n": 0}, {"delta": 0.0}, {"delta": 1.5}, {"delta": float("nan")}])
def test_parameters_out_of_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        MultiHop(**wrong)  # type: ignore[arg-type]
