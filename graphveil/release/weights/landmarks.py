"""Weights between landmarks: the same weights on fewer distinct rows, for speed."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.release.weights.base import DotWeight, Similarity
from graphveil.release.weights.public_pairs import all_pairs
from graphveil.release.weights.tables import CategoryWeights, DotProductWeights, PairWeights

_MAX_LANDMARKS = 128
_SAMPLE = 1 << 11  # rows that the landmarks are made from
_ROUNDS = 4
_ROWS = 1 << 14  # placed at a time


@dataclass(frozen=True)
class Landmarks(Similarity):
    """w(c_u, c_v) for a weight by dot product w, with c_v the landmark nearest to v's row.

    Landmarks are means of rows, found by Lloyd's algorithm in every (N / 2048)th row. The dot product of two
    landmarks is the mean of those between their rows, so what is lost is the spread around it. A hop looks
    two bytes up instead of multiplying two rows. The bound is that of w.

    >>> from graphveil.release.weights import SigmoidCos
    >>> round(Landmarks(SigmoidCos(), 32).bound, 6)
    0.731059
    """

    weight: Similarity
    landmarks: int = 32

    def __post_init__(self) -> None:
        """Check that there is a dot product, and the number of landmarks."""
        if not isinstance(self.weight, DotWeight):
            raise ConfigError(
                f"landmarks are for weights by dot product, not for {type(self.weight).__name__}"
            )
        checks.integer_at_least(1, landmarks=self.landmarks)
        checks.within(1, _MAX_LANDMARKS, landmarks=self.landmarks)

    @property
    def reads(self) -> str:  # type: ignore[override]
        """What the weight reads."""
        return self.weight.reads

    @property
    def bound(self) -> float:
        """The bound of the weight."""
        return self.weight.bound

    def describe(self) -> dict[str, object]:
        """Return the landmarks' number and the weight's description."""
        return {"weight": "Coarse", "of": self.weight.describe(), "landmarks": self.landmarks}

    def prepare(self, keys: Any) -> PairWeights:
        """Return each node's landmark, and the weights between landmarks."""
        assert isinstance(self.weight, DotWeight)
        dots = self.weight.prepare(keys)
        maps = [dots.phi] if self.weight.symmetric else [dots.phi, dots.psi]
        rows = torch.cat(maps, dim=1).to(torch.float32)
        step = max(1, len(rows) // _SAMPLE)
        centers = _landmarks(rows[::step][:_SAMPLE], self.landmarks)
        width = dots.phi.shape[1]
        phi, psi = (part.to(torch.int16) for part in (centers[:, :width], centers[:, -width:]))
        alike = DotProductWeights(phi, psi, dots.levels)
        between = all_pairs(alike, torch.arange(len(centers)), 0, len(centers))
        return CategoryWeights(_nearest(rows, centers).to(torch.uint8).numpy(), between)


def _landmarks(rows: Tensor, count: int) -> Tensor:
    """Return means of rows, from evenly spaced rows on; whole numbers, so that it is the same everywhere."""
    centers = rows[torch.linspace(0, len(rows) - 1, min(count, len(rows))).long()]
    for _ in range(_ROUNDS):
        member = (_nearest(rows, centers) == torch.arange(len(centers))[:, None]).to(torch.float32)
        size = member.sum(dim=1, keepdim=True)
        centers = torch.where(size > 0, (member @ rows / size.clamp_min(1)).to(torch.int32), centers)
    return centers


def _nearest(rows: Tensor, centers: Tensor) -> Tensor:
    """Return the place of each row's nearest center, the first if several are."""
    half = centers.square().sum(dim=1) / 2
    places = torch.zeros(len(rows), dtype=torch.int32)
    for first in range(0, len(rows), _ROWS):
        closeness = centers @ rows[first : first + _ROWS].t() - half[:, None]  # exact, in whole halves
        best, place = closeness[0].clone(), places[first : first + _ROWS]
        for center in range(1, len(centers)):
            place.masked_fill_(closeness[center] > best, center)
            torch.maximum(best, closeness[center], out=best)
    return places
