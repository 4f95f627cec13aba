"""Noisy rows that were charged, kept for as long as the graph that they are about.

They are found by the version of the in-edges and by the features that were sent along them: other features on
the same edges are another query. The same query again draws no noise, and returns the same bytes.
"""

import hashlib
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse
from torch import Tensor

from graphveil.data import Features
from graphveil.data.adjacency import AdjacencyVersion
from graphveil.release import ReleasePlan


@dataclass(frozen=True, eq=False)
class CachedPrediction:
    """What was released about one graph: the plan, the noisy rows by hop, and what they predict."""

    plan: ReleasePlan | None
    rows: tuple[Tensor, ...]
    proba: Tensor


class PredictionCache:
    """The answers of one fitted model. No graph is kept alive: an answer goes with the last use of its edges.

    >>> import torch
    >>> answers, version = PredictionCache(), AdjacencyVersion()
    >>> answers.keep(version, torch.eye(2), CachedPrediction(None, (), torch.eye(2)))
    >>> answers.find(version, torch.eye(2)) is None, answers.find(version, torch.ones(2, 2)) is None
    (False, True)
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: WeakKeyDictionary[AdjacencyVersion, dict[str, CachedPrediction]] = WeakKeyDictionary()

    def keep(self, version: AdjacencyVersion, x: Features, answer: CachedPrediction) -> None:
        """Keep an answer to a question that sent functions of ``x`` along these in-edges."""
        self._kept.setdefault(version, {})[_digest(x)] = answer

    def find(self, version: AdjacencyVersion, x: Features) -> CachedPrediction | None:
        """Return the answer to this very question, if it has been asked."""
        kept = self._kept.get(version)
        return kept.get(_digest(x)) if kept else None


def _digest(x: Features) -> str:
    """Return the digest of features; it stays in this process."""
    arrays = (x.data, x.indices, x.indptr) if isinstance(x, sparse.csr_array) else (x.numpy(),)
    digest = hashlib.blake2b(f"{tuple(x.shape)}".encode())
    for array in arrays:
        flat = np.ascontiguousarray(array)
        digest.update(f"{flat.dtype}".encode())
        digest.update(flat.data.cast("B") if flat.size else b"")
    return digest.hexdigest()
