"""Edge weights of papers, by similarity of public rows: found by name, and recommended by no page.

Each prepares tables that the core checks. ``graphveil.papers.attention`` has weights learned from edges.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from graphveil._util import checks
from graphveil.core.clipping.dpsgd import Adam
from graphveil.core.queries.weights import (
    CategoryWeights,
    DotProductWeights,
    PairWeights,
    Similarity,
)
from graphveil.errors import ConfigError, InputError
from graphveil.estimators.edge_weighting import PublicNetworkWeight
from graphveil.nn.layers import FeedForward
from graphveil.release.weights import DotWeight, Values, all_pairs, quantize_weights

_WIDTHS = (32, 16)  # hidden and output width of the network of learned_public
_STEPS, _PAIRS, _RATE = 300, 4096, 0.01
_SHARP = 5.0  # factor from cosines to logits


@dataclass(frozen=True)
class SigmoidCos(DotWeight):
    """w = 1 / (1 + exp(-cos(z_u, z_v))), in [0.269, 0.731] (Shpilevskiy, Mello, Liu: Weighted Aggregations).

    The cosine is at most 1, so the bound is sigmoid(1), not the 1 that the paper charges. At the same
    budget this reduces the noise by 27 %.

    >>> round(SigmoidCos().bound, 9)
    0.731058579
    """

    def transform(self, dots: Values) -> Values:
        return 1 / (1 + np.exp(-dots))


@dataclass(frozen=True)
class ExpCos(DotWeight):
    """w = exp((cos(z_u, z_v) - 1) / t), in (0, 1]; a smaller t weights similar nodes more strongly.

    >>> ExpCos(0.5).bound, round(float(ExpCos(0.5).values[0]), 6)
    (1.0, 0.018316)
    """

    temperature: float = 0.5

    def __post_init__(self) -> None:
        checks.positive(temperature=self.temperature)

    def transform(self, dots: Values) -> Values:
        return np.exp((dots - 1) / self.temperature)


@dataclass(frozen=True)
class HalfCos(DotWeight):
    """w = (1 + cos(z_u, z_v)) / 2, in [0, 1].

    >>> HalfCos().bound, float(HalfCos().values[0])
    (1.0, 0.0)
    """

    def transform(self, dots: Values) -> Values:
        return (1 + dots) / 2


@dataclass(frozen=True)
class ReluCos(DotWeight):
    """w = max(0, cos(z_u, z_v)), in [0, 1]: nodes in opposite directions exchange no messages.

    >>> ReluCos().bound, float(ReluCos().values[0])
    (1.0, 0.0)
    """

    def transform(self, dots: Values) -> Values:
        return np.maximum(0.0, dots)


@dataclass(frozen=True)
class LearnedPublic(PublicNetworkWeight):
    """w = sigmoid(s cos(f(z_u), f(z_v))) for a network f that was trained on public data, at most sigmoid(s).

    f is trained on random pairs of nodes, linked or not, to predict which of them share a public label. It
    reads no edges, so training does not spend privacy budget. The bound is valid for any f; pass f's outputs
    as rows.

    >>> round(LearnedPublic().bound, 6)
    0.993307
    """

    sharpness: float = 5.0

    def __post_init__(self) -> None:
        checks.positive(sharpness=self.sharpness)

    def transform(self, dots: Values) -> Values:
        return 1 / (1 + np.exp(-self.sharpness * dots))

    def network(self, width: int, generator: torch.Generator) -> FeedForward:
        return FeedForward([width, *_WIDTHS], generator=generator, activation="selu")

    def fit(self, network: FeedForward, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Train the network in place: outputs get a high cosine if labels agree, on random labeled pairs.

        Pairs that agree have the same total weight as those that do not.
        """
        optimizer = Adam(network.parameters())
        agreeing = float((y.bincount() / len(y)).square().sum())
        balance = torch.tensor((1 - agreeing) / agreeing)
        for _ in range(_STEPS):
            u, v = torch.randint(len(y), (2, _PAIRS), generator=generator)
            cosine = (normalize(network(x[u]), dim=1) * normalize(network(x[v]), dim=1)).sum(dim=1)
            agree = (y[u] == y[v]).float()
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(_SHARP * cosine, agree, pos_weight=balance)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step(rate=_RATE)


_MAX_CLASSES = 256


@dataclass(frozen=True)
class ClassAgree(Similarity):
    """w = 1 if both nodes' most probable classes agree, and ``otherwise`` if not.

    Probabilities are public or released, shape (N, C), so both classes are as well.

    >>> ClassAgree(0.2).bound
    1.0
    """

    reads: ClassVar[str] = "posteriors"

    otherwise: float = 0.0

    def __post_init__(self) -> None:
        checks.within(0, 1, otherwise=self.otherwise)

    @property
    def bound(self) -> float:
        """One: any two nodes may agree."""
        return 1.0

    def prepare(self, keys: Tensor) -> PairWeights:
        classes = keys.shape[1]
        if not 1 <= classes <= _MAX_CLASSES or not bool(torch.isfinite(keys).all()):
            raise InputError(f"class_agree needs finite probabilities of 1 to {_MAX_CLASSES} classes")
        table = np.where(np.eye(classes, dtype=bool), 1.0, self.otherwise)
        return CategoryWeights(keys.argmax(dim=1).to(torch.uint8).numpy(), quantize_weights(table, 1.0))


@dataclass(frozen=True)
class PosteriorDot(DotWeight):
    """w = <p_u, p_v>, at most 1: the probability that draws from both nodes' posteriors agree.

    Probabilities are public or released, shape (N, C).

    >>> PosteriorDot().bound
    1.0
    """

    reads: ClassVar[str] = "posteriors"

    def phi(self, rows: Tensor) -> Tensor:
        """Return the probabilities unchanged: their norm is at most one."""
        return rows

    def transform(self, dots: Values) -> Values:
        return np.maximum(0.0, dots)


_MAX_LANDMARKS = 128
_SAMPLE = 1 << 11  # rows that the landmarks are computed from
_ROUNDS = 4
_ROWS = 1 << 14  # rows assigned per chunk


@dataclass(frozen=True)
class Landmarks(Similarity):
    """w(c_u, c_v) for a weight by dot product w, with c_v the landmark nearest to v's row.

    Landmarks are means of rows, computed by Lloyd's algorithm on every (N / 2048)th row. The dot product of
    two landmarks is the mean of those between their rows, so only the spread around it is lost. A hop looks
    up two bytes instead of multiplying two rows. The bound is that of w.

    >>> from graphveil.papers.weights import SigmoidCos
    >>> round(Landmarks(SigmoidCos(), 32).bound, 6)
    0.731059
    """

    weight: Similarity
    landmarks: int = 32

    def __post_init__(self) -> None:
        if not isinstance(self.weight, DotWeight):
            raise ConfigError(
                f"landmarks need a weight derived from DotWeight, not a {type(self.weight).__name__}"
            )
        checks.integer_at_least(1, landmarks=self.landmarks)
        checks.within(1, _MAX_LANDMARKS, landmarks=self.landmarks)

    @property
    def reads(self) -> str:  # type: ignore[override]
        return self.weight.reads

    @property
    def bound(self) -> float:
        return self.weight.bound

    def describe(self) -> dict[str, object]:
        return {"weight": "Coarse", "of": self.weight.describe(), "landmarks": self.landmarks}

    def prepare(self, keys: Any) -> PairWeights:
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
    """Return means of rows, starting from evenly spaced rows; integers, so they are platform-independent."""
    centers = rows[torch.linspace(0, len(rows) - 1, min(count, len(rows))).long()]
    for _ in range(_ROUNDS):
        member = (_nearest(rows, centers) == torch.arange(len(centers))[:, None]).to(torch.float32)
        size = member.sum(dim=1, keepdim=True)
        centers = torch.where(size > 0, (member @ rows / size.clamp_min(1)).to(torch.int32), centers)
    return centers


def _nearest(rows: Tensor, centers: Tensor) -> Tensor:
    """Return the index of each row's nearest center, the first in case of ties."""
    half = centers.square().sum(dim=1) / 2
    places = torch.zeros(len(rows), dtype=torch.int32)
    for first in range(0, len(rows), _ROWS):
        closeness = centers @ rows[first : first + _ROWS].t() - half[:, None]  # exact, in multiples of 1/2
        best, place = closeness[0].clone(), places[first : first + _ROWS]
        for center in range(1, len(centers)):
            place.masked_fill_(closeness[center] > best, center)
            torch.maximum(best, closeness[center], out=best)
    return places
