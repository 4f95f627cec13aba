"""Which pairs of nodes an attack is measured on."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.lab.attacks.secret_edges import Bools, Integers, SecretEdges

Sampling = Literal["unbalanced", "balanced", "lo", "hi"]
SAMPLINGS: tuple[Sampling, ...] = ("unbalanced", "balanced", "lo", "hi")
CUTOFFS = {"lo": 5, "hi": 10}  # of LinkTeller's graphs of this size; larger ones take 15 and 30


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Pairs of drawn nodes, by place in the draw, with what is true of them.

    Args:
        nodes: the drawn nodes, in the order of the draw.
        one, other: places in ``nodes``, the earlier drawn first.
        joined: whether the pair is an edge.
    """

    nodes: Integers
    one: Integers
    other: Integers
    joined: Bools

    @property
    def ends(self) -> tuple[Integers, Integers]:
        """Both ends as node numbers."""
        return self.nodes[self.one], self.nodes[self.other]

    @property
    def density(self) -> float:
        """The share of edges among all pairs that are asked."""
        return float(self.joined.mean())


@checked
def draw_pairs(
    edges: SecretEdges,
    *,
    count: int = 500,
    sampling: Sampling = "unbalanced",
    cutoff: int | None = None,
    seed: int = 0,
) -> Pairs:
    """Return the pairs among some nodes, as LinkTeller draws them (Wu, Long, Zhang, Li, S&P 2022).

    Args:
        edges: the true ones.
        count: how many nodes are drawn.
        sampling: ``"unbalanced"`` takes all pairs of nodes drawn uniformly; ``"balanced"`` of these all edges
            and as many non-edges, so that AUC can be compared and average precision cannot; ``"lo"`` and
            ``"hi"`` draw nodes of at most, or at least, ``cutoff`` neighbors.
        cutoff: by default 5 for ``"lo"`` and 10 for ``"hi"``.
        seed: of the draw.

    Raises:
        ConfigError: fewer than two nodes qualify, or no pair of them is joined.
    """
    checks.one_of(SAMPLINGS, sampling=sampling)
    checks.integer_at_least(2, count=count)
    rng = PublicStreams(seed).numpy(f"pairs-{sampling}")
    eligible = _eligible(edges, sampling, CUTOFFS.get(sampling, 0) if cutoff is None else cutoff)
    if len(eligible) < 2:
        raise ConfigError(
            f"sampling={sampling!r} leaves fewer than two nodes to draw from; change the cutoff"
        )
    nodes = rng.permutation(eligible)[:count]
    one, other = (part.astype(np.int64) for part in np.triu_indices(len(nodes), k=1))
    joined = edges.joined(nodes[one], nodes[other])
    if not joined.any() or joined.all():
        raise ConfigError(
            f"the pairs among the nodes drawn by sampling={sampling!r} are all alike, so nothing can be told "
            "apart; draw more nodes"
        )
    if sampling == "balanced":
        apart = np.flatnonzero(~joined)
        some = rng.permutation(apart)[: int(joined.sum())]
        kept = np.sort(np.concatenate([np.flatnonzero(joined), some]))
        one, other, joined = one[kept], other[kept], joined[kept]
    return Pairs(nodes, one, other, joined)


def _eligible(edges: SecretEdges, sampling: Sampling, cutoff: int) -> Integers:
    degrees = edges.degrees
    if sampling == "lo":
        return np.flatnonzero(degrees <= cutoff)
    if sampling == "hi":
        return np.flatnonzero(degrees >= cutoff)
    return np.arange(edges.nodes)
