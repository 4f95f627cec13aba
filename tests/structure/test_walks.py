"""Walks go along edges, and by node2vec's law exactly."""

import numpy as np
import pytest
from scipy import stats

from graphveil.papers.similarity import ENDED, PublicEdges, RandomWalk
from tests.structure.conftest import public, random_edges


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def law(edges: PublicEdges, came: int, here: int, p: float, q: float) -> np.ndarray:
    """Return the probabilities of the next node, by the definition."""
    joined = edges.matrix().toarray() > 0
    weight = np.where(joined[came], 1.0, 1 / q)
    weight[came] = 1 / p
    weight = np.where(joined[here], weight, 0)
    return np.asarray(weight / weight.sum())


def p_value(edges: PublicEdges, walk: RandomWalk, p: float, q: float) -> float:
    """Return the least p-value of second steps over the first steps taken, tested against node2vec(p, q)."""
    paths = walk.paths(edges, np.zeros(30_000, dtype=np.int32), rng=rng(1))
    least = 1.0
    for here in np.unique(paths[:, 1]):
        counts = np.bincount(paths[paths[:, 1] == here, 2], minlength=edges.num_nodes)
        expected = law(edges, 0, int(here), p, q) * counts.sum()
        possible = expected > 0
        assert counts[~possible].sum() == 0
        least = min(least, stats.chisquare(counts[possible], expected[possible]).pvalue)
    return least


@pytest.mark.parametrize("walk", [RandomWalk(length=9), RandomWalk(length=9, p=0.2, q=4.0)])
@pytest.mark.parametrize("directed", [False, True])
def test_every_step_is_an_edge_until_a_dead_end(walk: RandomWalk, directed: bool) -> None:
    edges = random_edges(2, edges=40, directed=directed)
    reaches = edges.matrix().toarray() > 0
    paths = walk.paths(edges, np.arange(30, dtype=np.int32), rng=rng())
    assert (paths[:, 0] == np.arange(30)).all()
    for path in paths:
        walked = path[path != ENDED]
        assert (path[len(walked) :] == ENDED).all()
        assert reaches[walked[:-1], walked[1:]].all()
        assert len(walked) == 9 or not reaches[walked[-1]].any()


def kite() -> PublicEdges:
    """Node 0 hears from 1, 2 and 3; 1 also from 2, 4 and 5: all three kinds of a second step."""
    return public([0, 0, 0, 1, 1, 1, 4], [1, 2, 3, 2, 4, 5, 5], 6)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 1.0), (1.0, 0.5), (4.0, 0.3), (0.5, 3.0)])
def test_second_steps_follow_the_law(p: float, q: float) -> None:
    assert p_value(kite(), RandomWalk(length=3, p=p, q=q), p, q) > 1e-4


def test_second_steps_on_directed_edges_follow_the_law() -> None:
    edges = public([1, 2, 0, 2, 3, 4], [0, 0, 1, 1, 1, 2], 5, directed=True)  # 0 hears from 1 and 2
    assert p_value(edges, RandomWalk(length=3, p=0.5, q=3.0), 0.5, 3.0) > 1e-4


@pytest.mark.parametrize(("p", "q"), [(3.0, 0.5), (0.5, 2.5), (1.0, 1.0)])
def test_the_test_of_the_law_can_fail(p: float, q: float) -> None:
    assert p_value(kite(), RandomWalk(length=3, p=0.5, q=3.0), p, q) < 1e-6


def test_the_same_generator_walks_the_same_way() -> None:
    starts, walk = np.arange(30, dtype=np.int32), RandomWalk(length=6, p=0.5, q=2.0)
    first, again, other = (walk.paths(random_edges(2), starts, rng=rng(seed)) for seed in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()
