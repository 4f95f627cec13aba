"""Held-out node pairs: a public choice by a keyed hash of both ids, independent of which pairs are edges."""

from dataclasses import dataclass

import numpy as np
import torch

from graphveil._util import checks
from graphveil.data.blocks import EdgeBlock
from graphveil.release.steps.orientation import Ids, Mask, mixed, pair_hash

MAX_SHARE = 0.9


@dataclass(frozen=True)
class HeldOutPairs:
    """Node pairs whose edges are not fitted, but measured. Any two different pairs are chosen independently.

    Args:
        share: Expected share of all node pairs, at most 0.9.
        key: Public key of the hash.

    Raises:
        ConfigError: If a field is outside its range.

    Privacy:
        The choice is a function of two public node ids and the public key, the same for both directions. A
        differing edge is therefore held out in both neighboring graphs or in neither.

    >>> held_out, up, down = HeldOutPairs(0.5, 1), np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((held_out.contains(up, down) == held_out.contains(down, up)).all())
    True
    """

    share: float
    key: int

    def __post_init__(self) -> None:
        """Check every field."""
        checks.within(0, MAX_SHARE, share=self.share)
        checks.integer_at_least(0, key=self.key)
        checks.within(0, (1 << 63) - 1, key=self.key)

    def contains(self, sources: Ids, targets: Ids) -> Mask:
        """Return which pairs are held out."""
        if not self.share:
            return np.zeros(len(sources), dtype=bool)
        hashed = mixed(mixed(pair_hash(sources, targets) ^ np.uint64(self.key)))
        return np.asarray(hashed < np.uint64(int(self.share * 2.0**64)))

    def without(self, edges: EdgeBlock) -> EdgeBlock:
        """Return the block without edges of held-out pairs."""
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
    """Return the source and the target of each edge of a block."""
    targets = np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy())
    return edges.sources.numpy().astype(np.int64), targets
