"""The edge weights that have a name, and those that users define.

Each prepares tables that the core checks. ``parse_weight`` finds a weight by the name used on a command line
or in a stored configuration: ``exp_cos(0.5)``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import suggestion
from graphveil.core.features import Features
from graphveil.core.queries.weights import (
    CELLS,
    CategoryWeights,
    DotProductWeights,
    DotWeight,
    GivenWeight,
    ListSets,
    PairWeights,
    Similarity,
    Values,
    all_pairs,
    dense_sets,
    network,
    quantize_weights,
    sparse_sets,
)
from graphveil.errors import ConfigError, InputError

__all__ = ["DotWeight", "parse_weight", "register_weight"]


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
class LearnedPublic(DotWeight):
    """w = sigmoid(s cos(f(z_u), f(z_v))) for a network f that was trained on public data, at most sigmoid(s).

    f is trained on random pairs of nodes, linked or not, to predict which of them share a public label. It
    reads no edges, so training does not spend privacy budget. The bound is valid for any f; pass f's outputs
    as rows.

    >>> round(LearnedPublic().bound, 6)
    0.993307
    """

    reads = "learned"

    sharpness: float = 5.0

    def __post_init__(self) -> None:
        checks.positive(sharpness=self.sharpness)

    def transform(self, dots: Values) -> Values:
        return 1 / (1 + np.exp(-self.sharpness * dots))


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


_REACH = 8.0  # maximum logit of the table


@dataclass(frozen=True)
class Attention(Similarity):
    """w = sigmoid(tanh(A z_u + B z_v + b) . w + c), a two-layer network on both rows, at most sigmoid(8).

    The network's parameters are public or were released. The keys are values of one node or of none:
    (A z_u for all u, B z_v + b for all v, w, c), of shapes (N, h), (N, h), (h) and (). Logits and halves of
    hidden units are clipped to [-8, 8], in steps of 2^-8. The tangent is accurate to 0.027, which
    moves a weight by at most 0.007 |w|_1. Weights are in steps of 2^-5.

    >>> round(Attention().bound, 6)
    0.999665
    """

    reads: ClassVar[str] = "attention"

    @property
    def bound(self) -> float:
        """The logistic function at the largest logit."""
        return float(_sigmoid(np.array(_REACH)))

    def prepare(self, keys: tuple[Tensor, Tensor, Tensor, Tensor]) -> PairWeights:
        return network(*keys, values=_sigmoid(np.linspace(-_REACH, _REACH, CELLS)), bound=self.bound)


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))


_BITS_A_MEMBER = 64  # bits that take as long to compare as one list member
_BITS = 1 << 10  # bits with negligible time
_LONGER = 4  # maximum ratio of the longest list to the mean: bits must also fit in memory


@dataclass(frozen=True)
class Jaccard(Similarity):
    """w = |A_u & A_v| / |A_u | A_v| for the sets A of nonzero features, in [0, 1].

    Two nodes without any feature have similarity 0. Features are public. The time per pair is proportional to
    the number of features or, if these are sparse and many, to the size of the largest set.

    >>> Jaccard().bound
    1.0
    """

    reads: ClassVar[str] = "features"

    @property
    def bound(self) -> float:
        """One: two nodes may have the same features."""
        return 1.0

    def prepare(self, keys: Features) -> PairWeights:
        if isinstance(keys, Tensor):
            return dense_sets(keys.numpy())
        sets = sparse.csr_array(keys, copy=True)
        sets.sum_duplicates()
        sets.eliminate_zeros()
        sizes = np.diff(sets.indptr)
        longest = min(sizes.max(initial=0), _LONGER * sizes.sum() / max(1, len(sizes)))
        if sets.shape[1] <= max(_BITS, _BITS_A_MEMBER * longest):
            return sparse_sets(sets)
        ones = np.ones(len(sets.indices), dtype=np.int32)
        return ListSets(sparse.csr_array((ones, sets.indices, sets.indptr), shape=sets.shape))


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

    >>> from graphveil.release.weights import SigmoidCos
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


ONE = "one"
_NAMED: dict[str, Callable[..., Similarity]] = {
    "sigmoid_cos": SigmoidCos,
    "exp_cos": ExpCos,
    "half_cos": HalfCos,
    "relu_cos": ReluCos,
    "jaccard": Jaccard,
    "class_agree": ClassAgree,
    "posterior_dot": PosteriorDot,
    "learned_public": LearnedPublic,
    "attention": Attention,
    "given": GivenWeight,
}
_FORM = re.compile(r"(\w+)(?:\(([^()]*)\))?(?:@(\d+))?")


def register_weight(name: str, weight: Callable[..., DotWeight]) -> None:
    """Register a custom weight under a name, for every ``weights`` parameter.

    Args:
        name: Name of letters, digits and underscores.
        weight: Function that takes the numbers in brackets, if any, and returns a ``DotWeight``.

    Raises:
        ConfigError: If the name is taken, or has other characters than letters, digits and underscores.
    """
    if name == ONE or name in _NAMED:
        raise ConfigError(f"The weight {name!r} is already registered. Use another name.")
    if not name.isidentifier():
        raise ConfigError(f"A weight's name must consist of letters, digits and underscores, got {name!r}")
    _NAMED[name] = weight


def parse_weight(text: str) -> Similarity | None:
    """Return the weight that a text names, None for ``one``; ``@32`` requests 32 landmarks.

    >>> parse_weight("exp_cos(0.5)")
    ExpCos(temperature=0.5)
    >>> parse_weight("half_cos@32")
    Landmarks(weight=HalfCos(), landmarks=32)
    >>> parse_weight("one") is None
    True

    Raises:
        ConfigError: If no weight has this name, or it does not take these numbers.
    """
    if text == ONE:
        return None
    form = _FORM.fullmatch(str(text))  # a number is not a name
    if form is None or form[1] not in _NAMED:
        name = text if form is None else form[1]
        names = (ONE, *_NAMED)
        raise ConfigError(
            f"weights={text!r} is not a known weight{suggestion(name, names)}. Known weights are "
            f"{', '.join(names)}; "
            "some take a number: exp_cos(0.5), class_agree(0.2)."
        )
    try:
        numbers = [float(part) for part in (form[2] or "").split(",") if part.strip()]
        weight = _NAMED[form[1]](*numbers)
        return weight if form[3] is None else Landmarks(weight, int(form[3]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"weights={text!r} has the wrong number of arguments or an argument out of range. "
            "Examples are exp_cos(0.5) and class_agree(0.2)."
        ) from None
