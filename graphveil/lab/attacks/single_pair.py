"""One pair of nodes, joined or not, everything else fixed: what the attack bound of a guarantee is about."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.data import Adjacency, Graph
from graphveil.lab.attacks.roc import Floats, RocCurve
from graphveil.lab.attacks.secret_edges import SecretEdges

Score = Callable[[Graph, int], float]  # a graph and the number of a repeat in, a score of the pair out


@checked
def toggle_edge(graph: Graph, pair: tuple[int, int]) -> Graph:
    """Return the undirected graph with the pair joined if it is not, and apart if it is.

    It has an edge set of its own, so what is asked of it is booked there.

    >>> import torch
    >>> apart = Graph.from_edges(torch.eye(3), [0, 1, 1], [0], [1], directed=False)
    >>> SecretEdges.from_adjacency(toggle_edge(apart, (1, 2)).adjacency).keys
    array([1, 5])
    """
    low, high = sorted(pair)
    keys = np.setxor1d(SecretEdges.from_adjacency(graph.adjacency).keys, [low * graph.num_nodes + high])
    source, target = np.divmod(keys, graph.num_nodes)
    edges = Adjacency.from_edges(source, target, num_nodes=graph.num_nodes, directed=False)
    return graph.replace(adjacency=edges)


@checked
def single_pair(score: Score, graph: Graph, pair: tuple[int, int], *, repeats: int = 2000) -> RocCurve:
    """Return how well a score tells whether one pair is joined, over repeated releases of two graphs.

    The two graphs differ in that pair alone, so under pure epsilon no score has an AUC above
    e^eps / (1 + e^eps) or a TPR - FPR above tanh(eps / 2), but for the chance of so many repeats.

    Args:
        score: releases a graph anew, attacks what comes out, and scores the pair.
        graph: the one of the two; the other has the pair toggled.
        pair: two nodes.
        repeats: releases of each of the two.
    """
    joined, apart = pair_scores(score, graph, pair, repeats=repeats)
    return RocCurve.from_scores(np.append(joined, apart), [True] * repeats + [False] * repeats)


@checked
def pair_scores(
    score: Score, graph: Graph, pair: tuple[int, int], *, repeats: int = 2000
) -> tuple[Floats, Floats]:
    """Return the scores of releases of the graph with the pair joined, and of the graph with it apart."""
    checks.integer_at_least(1, repeats=repeats)
    both = graph, toggle_edge(graph, pair)
    joined = SecretEdges.from_adjacency(graph.adjacency).joined(*np.array(sorted(pair))[:, None])[0]
    scores = [np.array([score(one, number) for number in range(repeats)], dtype=np.float64) for one in both]
    return (scores[0], scores[1]) if joined else (scores[1], scores[0])


@checked
@dataclass(frozen=True)
class PairTest:
    """A test of one slot, "joined" at a score above a threshold, that was chosen on other releases.

    The largest TPR - FPR over thresholds is above the truth by chance. Here the first half of the releases
    chooses the threshold and the second half counts, so counts are binomial, and Clopper and Pearson's
    bounds on them hold.

    Args:
        threshold: half way between two scores of the first half.
        tp: releases of the second half with the pair joined that the test calls so.
        fp: those with the pair apart.
        repeats: releases of either kind in the second half.
    """

    threshold: float
    tp: int
    fp: int
    repeats: int

    @classmethod
    @checked
    def from_scores(cls, joined: npt.ArrayLike, apart: npt.ArrayLike) -> "PairTest":
        """Choose by the first half of scores of either kind, and count in the second.

        >>> PairTest.from_scores([2.0, 3.0, 2.0, 1.0], [1.0, 0.0, 1.0, 3.0])
        PairTest(threshold=1.5, tp=1, fp=1, repeats=2)
        """
        there, away = np.asarray(joined, dtype=np.float64), np.asarray(apart, dtype=np.float64)
        checks.shape((-1,), joined=there, apart=away)
        checks.within(2, 1 << 53, releases=min(len(there), len(away)))
        half = min(len(there), len(away)) // 2
        first, other = np.sort(there[:half]), np.sort(away[:half])
        values = np.unique(np.append(first, other))
        cuts = np.append(values[0] - 1, (values[1:] + values[:-1]) / 2)
        scores = np.searchsorted(other, cuts) - np.searchsorted(first, cuts)  # in units of 1 / half
        threshold = float(cuts[scores.argmax()])
        second = slice(half, 2 * half)
        return cls(
            threshold, int((there[second] > threshold).sum()), int((away[second] > threshold).sum()), half
        )

    @property
    def advantage(self) -> float:
        """TPR - FPR of the test on the second half: its mean is the truth."""
        return (self.tp - self.fp) / self.repeats


@checked
def largest_advantage(roc: RocCurve) -> float:
    """Return the largest TPR - FPR over thresholds, which chance lifts; see :class:`PairTest`."""
    false, true = roc.rates
    return float((true - false).max())
