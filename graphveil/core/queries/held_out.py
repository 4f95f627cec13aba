"""Public choices by a hash of both ids of a node pair, independent of which pairs are edges."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import ByGroup, Composed, Event

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Hashes = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)  # the mixing of SplitMix64 (Steele, Lea, Flood, 2014)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def counts_at_target(sources: Ids, targets: Ids, ranks: Ids) -> Mask:
    """Return which stored edges of an undirected graph count: exactly one direction per undirected edge.

    An edge counts at the end of higher rank. Between two nodes of equal rank, a hash of both ids decides.

    Args:
        ranks: Rank of each node, shape (N).

    Privacy:
        The direction is a function of the two node ids and of ``ranks``, all public. Adding or removing an
        undirected edge therefore changes the inputs of one target only.

    >>> up, down, ranks = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([0, 0, 1])
    >>> counts_at_target(up, down, ranks)[1:].tolist()
    [True, True]
    >>> bool((counts_at_target(up, down, ranks) ^ counts_at_target(down, up, ranks)).all())
    True
    """
    ahead = ranks[targets] - ranks[sources]
    return np.where(ahead == 0, is_chosen_direction(sources, targets), ahead > 0)


def is_chosen_direction(sources: Ids, targets: Ids) -> Mask:
    """Return which stored edges a hash of both ids chooses: exactly one direction per undirected edge.

    >>> up, down = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((is_chosen_direction(up, down) ^ is_chosen_direction(down, up)).all())
    True
    """
    coin = (pair_hash(sources, targets) >> np.uint64(63)).astype(bool)  # fixed for each pair of nodes
    return np.asarray((targets > sources) == coin)


def pair_hash(sources: Ids, targets: Ids) -> Hashes:
    """Return a public hash of both node ids, the same for both directions of an undirected edge.

    >>> up, down = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((pair_hash(up, down) == pair_hash(down, up)).all())
    True
    """
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    return mixed((low.astype(np.uint64) << np.uint64(32)) + high.astype(np.uint64))


def mixed(words: Hashes) -> Hashes:
    """Return each word after the first two rounds of SplitMix64."""
    words = words + _ODD
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    return (words ^ (words >> np.uint64(27))) * _SECOND


MAX_SHARE = 0.9
PAIR_PARTS = "fitted pairs/held-out pairs"


@dataclass(frozen=True)
class HeldOutPairs:
    """Held-out node pairs, which are evaluated and not fitted. Pairs are chosen independently.

    Args:
        share: Expected share of all node pairs, at most 0.9.

    Privacy:
        The choice is a function of two public node ids and the public key, the same for both directions. A
        differing edge is therefore held out in both neighboring graphs or in neither, and is charged for
        queries of its own part only (``docs/privacy/proofs/links.md``).

    >>> held_out, up, down = HeldOutPairs(0.5, 1), np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((held_out.contains(up, down) == held_out.contains(down, up)).all())
    True
    """

    share: float
    key: int

    def __post_init__(self) -> None:
        checks.within(0, MAX_SHARE, share=self.share)
        checks.integer_at_least(0, key=self.key)
        checks.within(0, (1 << 63) - 1, key=self.key)

    def charged(self, event: Event, *, held: bool = False) -> Event:
        """Return the cost of an answer that reads edges of one part only: fitted pairs, or held-out pairs.

        The name of the partition has share and key, so only queries with the same choice share it.

        >>> from graphveil.privacy import Gaussian
        >>> HeldOutPairs(0.5, 1).charged(Gaussian(1.0)).events
        (Gaussian(mu=1.0), Composed(events=()))
        """
        if not self.share:
            return event
        parts = (Composed(()), event) if held else (event, Composed(()))
        return ByGroup(f"{PAIR_PARTS}/{self.share!r}/{self.key}", parts)

    def contains(self, sources: Ids, targets: Ids) -> Mask:
        if not self.share:
            return np.zeros(len(sources), dtype=bool)
        hashed = mixed(mixed(pair_hash(sources, targets) ^ np.uint64(self.key)))
        return np.asarray(hashed < np.uint64(int(self.share * 2.0**64)))

    def without(self, edges: EdgeBlock) -> EdgeBlock:
        if not self.share:
            return edges
        sources, targets = ends(edges)
        kept = ~self.contains(sources, targets)
        offsets = np.zeros(len(edges) + 1, dtype=np.int32)
        np.cumsum(np.bincount(targets[kept] - edges.start, minlength=len(edges)), out=offsets[1:])
        return EdgeBlock(
            edges.start, edges.stop, torch.from_numpy(offsets), edges.sources[torch.from_numpy(kept)]
        )


def ends(edges: EdgeBlock) -> tuple[Ids, Ids]:
    targets = np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy())
    return edges.sources.numpy().astype(np.int64), targets
