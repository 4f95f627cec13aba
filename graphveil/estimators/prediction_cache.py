"""Cache of noisy aggregates that were charged, kept for as long as their graph is in memory.

The cache key is the version of the in-edges and the digest of the features that were sent along them. Other
features on the same edges are a different query. Repeating a query draws no noise and returns bit-identical
results.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphveil.core.edges.adjacency import AdjacencyVersion
from graphveil.core.plan import ReleasePlan
from graphveil.core.view import per_node


@dataclass(frozen=True, eq=False)
class CachedPrediction:
    """The release of one graph: the plan, the noisy aggregates by hop, and the predictions.

    Predictions of protected records may be given as a handle. They are for the nodes themselves.
    """

    plan: ReleasePlan | None
    rows: tuple[Tensor, ...]
    proba: Tensor
    reports: Any = None  # LDP reports that the predictions are based on

    def __post_init__(self) -> None:
        object.__setattr__(self, "proba", per_node(self.proba))

    def grown(self, new: "CachedPrediction") -> "CachedPrediction":
        return CachedPrediction(new.plan, new.rows, torch.cat([self.proba, new.proba]))


class PredictionCache:
    """The cached predictions of one fitted model. An entry is deleted when its edges are no longer used.

    >>> import torch
    >>> answers, version = PredictionCache(), AdjacencyVersion()
    >>> answers.keep(version, "digest", CachedPrediction(None, (), torch.eye(2)))
    >>> answers.find(version, "digest") is None, answers.find(version, "another") is None
    (False, True)
    """

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[AdjacencyVersion, dict[str, CachedPrediction]] = WeakKeyDictionary()

    def keep(self, version: AdjacencyVersion, features: str, answer: CachedPrediction) -> None:
        """Store the result of a query that sent functions of features along these in-edges."""
        self._kept.setdefault(version, {})[features] = answer

    def find(self, version: AdjacencyVersion, features: str) -> CachedPrediction | None:
        return self._kept.get(version, {}).get(features)
