"""Node pairs that an attack scores, and the true edges. Everything here is internal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.roc import Bools, Floats
from graphveil.audit.secret_edges import Integers, SecretEdges
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError

Sampling = Literal["unbalanced", "balanced", "lo", "hi"]
CUTOFFS = {"lo": 5, "hi": 10}  # of LinkTeller's graphs of this size; larger ones take 15 and 30
Score = Callable[[Graph, int], float]  # from a graph and the number of a repeat to a score of the pair


# -- all pairs among some nodes ----------------------------------------------------------------------------


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Pairs of sampled nodes, by index in the sample, with their true state.

    Args:
        nodes: The sampled nodes, in the order of the draw.
        one, other: Indices into ``nodes``, the earlier drawn first.
        joined: Whether the pair is an edge.

    Privacy:
        Contains the true state of node pairs. Internal.
    """

    nodes: Integers
    one: Integers
    other: Integers
    joined: Bools

    @property
    def ends(self) -> tuple[Integers, Integers]:
        """Both ends as node numbers."""
        return self.nodes[self.one], self.nodes[self.other]


@checked
def draw_pairs(
    edges: SecretEdges,
    *,
    count: int = 500,
    sampling: Sampling = "unbalanced",
    cutoff: int | None = None,
    seed: int = 0,
) -> Pairs:
    """Draw nodes and return all pairs of them, as LinkTeller does (Wu, Long, Zhang, Li, S&P 2022).

    Args:
        edges: True edges.
        count: Number of nodes to draw.
        sampling: ``"unbalanced"`` for all pairs of uniformly drawn nodes; ``"balanced"`` for all edges among
            them and as many non-edges, so that AUC can be compared and average precision cannot; ``"lo"`` and
            ``"hi"`` for nodes with at most, or at least, ``cutoff`` neighbors.
        cutoff: Degree of ``"lo"`` and ``"hi"``; 5 and 10 by default.
        seed: Seed of the draw.

    Returns:
        The pairs with their true state.

    Raises:
        ConfigError: If fewer than two nodes qualify, or all pairs are of one kind.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    checks.integer_at_least(2, count=count)
    rng = PublicStreams(seed).numpy(f"pairs-{sampling}")
    limit, eligible = CUTOFFS.get(sampling, 0) if cutoff is None else cutoff, np.arange(edges.nodes)
    if sampling == "lo":
        eligible = np.flatnonzero(edges.degrees <= limit)
    elif sampling == "hi":
        eligible = np.flatnonzero(edges.degrees >= limit)
    if len(eligible) < 2:
        raise ConfigError(
            f"sampling={sampling!r} leaves fewer than two nodes to sample from. Change the degree cutoff."
        )
    nodes = rng.permutation(eligible)[:count]
    one, other = (part.astype(np.int64) for part in np.triu_indices(len(nodes), k=1))
    joined = edges.joined(nodes[one], nodes[other])
    if not joined.any() or joined.all():
        raise ConfigError(
            f"The node pairs from sampling={sampling!r} are all edges or all non-edges, so the attack "
            "cannot be scored. Sample more nodes."
        )
    if sampling == "balanced":
        apart = np.flatnonzero(~joined)
        some = rng.permutation(apart)[: int(joined.sum())]
        kept = np.sort(np.concatenate([np.flatnonzero(joined), some]))
        one, other, joined = one[kept], other[kept], joined[kept]
    return Pairs(nodes, one, other, joined)


# -- one pair, everything else fixed: the setting of a guarantee's attack bound ----------------------------


@checked
def toggle_edge(graph: Graph, pair: tuple[int, int]) -> Graph:
    """Remove one edge of an undirected graph if it exists, and add it otherwise.

    Args:
        graph: Undirected graph.
        pair: Two nodes.

    Returns:
        The changed graph. It has a new edge set, so its queries are charged separately.

    Privacy:
        Reads: the exact edges. The result is internal.

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
def pair_scores(
    score: Score, graph: Graph, pair: tuple[int, int], *, repeats: int = 2000
) -> tuple[Floats, Floats]:
    """Score one node pair over repeated releases of two neighboring graphs.

    The two graphs differ in that pair alone. Under pure epsilon-DP the scores therefore have no AUC above
    e^eps / (1 + e^eps) and no TPR - FPR above tanh(eps / 2), except by chance (``RocCurve``).

    Args:
        score: Function that makes a new release of a graph, attacks it, and scores the pair.
        graph: First graph; the second one has the pair toggled.
        pair: Two nodes.
        repeats: Number of releases of each graph.

    Returns:
        The scores of releases with the edge, and those without it.

    Raises:
        ConfigError: If ``repeats`` is below 1.

    Privacy:
        Unit: one undirected edge. Charges: whatever ``score`` releases. The result is internal.
    """
    checks.integer_at_least(1, repeats=repeats)
    both = graph, toggle_edge(graph, pair)
    joined = SecretEdges.from_adjacency(graph.adjacency).joined(*np.array(sorted(pair))[:, None])[0]
    scores = [np.array([score(one, number) for number in range(repeats)], dtype=np.float64) for one in both]
    return (scores[0], scores[1]) if joined else (scores[1], scores[0])
