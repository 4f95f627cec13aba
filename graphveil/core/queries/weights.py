"""Edge weights of node pairs: the weight of u's message into v, from two public rows.

The rows are public or were released earlier. A weight therefore belongs to a pair of nodes, not to an edge:
adding or removing an edge changes its own contribution and no other. Degrees, softmax over neighbors and
common neighbors are functions of the edges, so no function here receives them.

A ``Similarity`` has a bound and prepares the tables of ``pair_weights.py``. ``parse_weight`` finds it by the
name used on a command line or in a stored configuration: ``exp_cos(0.5)``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import suggestion
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.features import Features
from graphveil.core.normalize import safe_unit
from graphveil.core.queries.pair_weights import (
    CELLS,
    FULL,
    BitSets,
    CategoryWeights,
    DotProductWeights,
    ListSets,
    NetworkWeights,
    PairWeights,
    StoredWeights,
    dense_sets,
    network,
    quantize_rows,
    quantize_weights,
    sparse_sets,
)
from graphveil.errors import ConfigError, InputError, ReleaseError, UnsupportedGuaranteeError

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Similarity(ABC):
    """0 <= w(z_u, z_v) <= bound for every ordered pair of nodes, with or without an edge between them.

    ``reads`` names the rows that a model should pass.

    Privacy:
        Unit: edge-level. The sum of w(z_u, z_v) c_u over in-neighbors, |c_u| <= 1, moves by at most ``bound``
        in one row for a directed edge. For an undirected edge it moves by at most ``bound`` in each of two
        rows, sqrt 2 * bound in total. Asymmetric weights need no more: max over pairs of sqrt(w_uv^2 +
        w_vu^2) <= sqrt 2 * bound.

        *Proof.* w is a function of rows that do not depend on the edges, so toggling u -> v adds or removes
        w(z_u, z_v) c_u in row v and leaves every other term unchanged. Its norm is at most bound. An
        undirected edge is two such changes, in different rows.
    """

    reads: ClassVar[str] = "rows"

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest weight over all possible ordered pairs of rows, from the formula alone."""

    @abstractmethod
    def prepare(self, keys: Any) -> PairWeights:
        """Return the weights' tables for these rows, before any edge is read."""

    def describe(self) -> dict[str, object]:
        """Return the values that determine the weight, for a release's descriptor."""
        return {"weight": type(self).__name__, **asdict(self), "bound": self.bound.hex()}


@dataclass(frozen=True)
class DotWeight(Similarity):
    """A weight that is a function of one dot product: w(z_u, z_v) = transform(phi(z_u) . psi(z_v)).

    Derive custom weights from this class; only ``transform`` is required. All three methods are called before
    the first edge is read: ``phi`` and ``psi`` once, with the rows of all nodes, and ``transform`` once, with
    a fixed grid over [-1, 1]. None of them has an argument that depends on an edge. The library evaluates the
    weights from the tables that they return: the dot product of rows truncated to 2^-11, then the value at
    the nearest of 4,097 grid points. Negative values count as 0. The bound is the largest value on the grid,
    so it is always correct.

    >>> class Sharp(DotWeight):
    ...     def transform(self, dots):
    ...         return 1.2 * np.maximum(0, dots) ** 3
    >>> Sharp().bound
    1.2
    """

    @abstractmethod
    def transform(self, dots: Values) -> Values:
        """Return the weights of these dot products: finite numbers, the same shape."""

    def phi(self, rows: Tensor) -> Tensor:
        """Return the vector of each source, (N, k); rows longer than one are scaled to one."""
        return safe_unit(rows)

    def psi(self, rows: Tensor) -> Tensor:
        """Return the vector of each target, (N, k); rows longer than one are scaled to one."""
        return self.phi(rows)

    @cached_property
    def values(self) -> Values:
        """The weights on the grid."""
        values = np.asarray(self.transform(np.linspace(-1.0, 1.0, CELLS)), dtype=np.float64)
        if values.shape != (CELLS,) or not np.isfinite(values).all():
            raise ConfigError(
                f"transform of {type(self).__name__} must return a finite number for each dot product"
            )
        if values.max() <= 0:
            raise ConfigError(
                f"All weights of {type(self).__name__} are zero, so the hop would release noise only. "
                "Return a positive weight for some dot products."
            )
        return np.maximum(values, 0.0)

    @property
    def bound(self) -> float:
        """The largest weight on the grid."""
        return float(self.values.max())

    @property
    def symmetric(self) -> bool:
        """Whether ``phi`` and ``psi`` are the same map."""
        return type(self).psi is DotWeight.psi

    def prepare(self, keys: Tensor) -> DotProductWeights:
        """Return both maps on their grids, and the table."""
        phi = quantize_rows(self.phi(keys))
        psi = phi if self.symmetric else quantize_rows(self.psi(keys))
        if phi.shape != psi.shape:
            raise InputError(
                f"phi and psi of {type(self).__name__} must return one row per node, both of the same width"
            )
        return DotProductWeights(phi, psi, quantize_weights(self.values, self.bound))


@dataclass(frozen=True)
class SigmoidCos(DotWeight):
    """w = 1 / (1 + exp(-cos(z_u, z_v))), in [0.269, 0.731] (Shpilevskiy, Mello, Liu: Weighted Aggregations).

    The cosine is at most 1, so the bound is sigmoid(1), not the 1 that the paper charges. At the same
    budget this reduces the noise by 27 %.

    >>> round(SigmoidCos().bound, 9)
    0.731058579
    """

    def transform(self, dots: Values) -> Values:
        """Return the logistic function."""
        return 1 / (1 + np.exp(-dots))


@dataclass(frozen=True)
class ExpCos(DotWeight):
    """w = exp((cos(z_u, z_v) - 1) / t), in (0, 1]; a smaller t weights similar nodes more strongly.

    >>> ExpCos(0.5).bound, round(float(ExpCos(0.5).values[0]), 6)
    (1.0, 0.018316)
    """

    temperature: float = 0.5

    def __post_init__(self) -> None:
        """Check the temperature."""
        checks.positive(temperature=self.temperature)

    def transform(self, dots: Values) -> Values:
        """Return the exponential."""
        return np.exp((dots - 1) / self.temperature)


@dataclass(frozen=True)
class HalfCos(DotWeight):
    """w = (1 + cos(z_u, z_v)) / 2, in [0, 1].

    >>> HalfCos().bound, float(HalfCos().values[0])
    (1.0, 0.0)
    """

    def transform(self, dots: Values) -> Values:
        """Return the shifted cosine."""
        return (1 + dots) / 2


@dataclass(frozen=True)
class ReluCos(DotWeight):
    """w = max(0, cos(z_u, z_v)), in [0, 1]: nodes in opposite directions exchange no messages.

    >>> ReluCos().bound, float(ReluCos().values[0])
    (1.0, 0.0)
    """

    def transform(self, dots: Values) -> Values:
        """Return the positive part."""
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
        """Check the sharpness."""
        checks.positive(sharpness=self.sharpness)

    def transform(self, dots: Values) -> Values:
        """Return the logistic function of the scaled cosine."""
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
        """Check the weight of a pair with different classes."""
        checks.within(0, 1, otherwise=self.otherwise)

    @property
    def bound(self) -> float:
        """One: any two nodes may agree."""
        return 1.0

    def prepare(self, keys: Tensor) -> PairWeights:
        """Return each node's class and the table of weights."""
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
        """Return the dot product."""
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
        """Return the network's parts on their grids."""
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
        """Return the sets."""
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


@dataclass(frozen=True)
class GivenWeight(Similarity):
    """w_uv / max_weight: each edge's own weight, as a share of the public bound that it is clipped to.

    The rows are in units of ``max_weight``.

    Privacy:
        Unit: edge-level. Neighboring datasets differ in the weight of one edge, by any change inside [0,
        max_weight]; an absent edge has weight 0. The sum of w_uv c_u / max_weight, |c_u| <= 1, moves by at
        most 1 in one row for a directed edge, and in each of two rows for an undirected one, which has one
        weight: by max_weight, or sqrt 2 max_weight, on the scale of the weights.

        *Proof.* Clipping to [0, max_weight], and then truncating to multiples of 2^-5 of it, is a function of
        the one weight. So one integer between 0 and 2^5 changes, and its edge's term with it, which moves by
        at most its full size; all other terms stay the same.

    >>> GivenWeight().bound
    1.0
    """

    @property
    def bound(self) -> float:
        """One: weights are shares of their bound."""
        return 1.0

    def prepare(self, keys: Any) -> StoredWeights:
        """Return a reader of the graph's edge weights; only the number of keys is used."""
        return StoredWeights(len(keys))


_PAIRS = 1 << 20  # pairs per chunk


def weights_from(similarity: Similarity, keys: Any, sources: Tensor) -> Iterator[Tensor]:
    """Yield w(z_u, z_v) for some sources u and all nodes v, in blocks of shape (rows, sources), float32.

    These are the weights that a hop uses, for pairs chosen without reading an edge: a function of the keys
    alone.

    Args:
        similarity: Weight w.
        keys: Inputs of the similarity for each node.
        sources: Nodes, in ascending order, shape (S).

    >>> from graphveil.core.queries.weights import HalfCos
    >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> torch.cat(list(weights_from(HalfCos(), rows, torch.tensor([0, 2])))).tolist()
    [[1.0, 0.5], [0.0, 0.5], [0.5, 1.0]]
    """
    pairs = similarity.prepare(keys)
    at_once = max(1, _PAIRS // len(sources))
    for first in range(0, pairs.num_nodes, at_once):
        last = min(pairs.num_nodes, first + at_once)
        yield all_pairs(pairs, sources, first, last) * (similarity.bound / FULL)


def all_pairs(pairs: PairWeights, sources: Tensor, start: int, stop: int) -> Tensor:
    """Return the weights of all pairs of a source and a target from ``start`` on, by the target first."""
    count, rows = len(sources), stop - start
    offsets = torch.arange(0, rows * count + 1, count, dtype=torch.int32)
    edges = EdgeBlock(start, stop, offsets, sources.to(torch.int32).repeat(rows))
    return pairs.of(edges).reshape(rows, count)


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

    >>> from graphveil.core.queries.weights import SigmoidCos
    >>> round(Landmarks(SigmoidCos(), 32).bound, 6)
    0.731059
    """

    weight: Similarity
    landmarks: int = 32

    def __post_init__(self) -> None:
        """Check that w is a weight by dot product, and the number of landmarks."""
        if not isinstance(self.weight, DotWeight):
            raise ConfigError(
                f"landmarks need a weight derived from DotWeight, not a {type(self.weight).__name__}"
            )
        checks.integer_at_least(1, landmarks=self.landmarks)
        checks.within(1, _MAX_LANDMARKS, landmarks=self.landmarks)

    @property
    def reads(self) -> str:  # type: ignore[override]
        """The rows that the weight reads."""
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
# Classes in this set receive edges, so registering a name does not add to it.
_TRUSTED = (DotProductWeights, CategoryWeights, BitSets, ListSets, NetworkWeights, StoredWeights)
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


def check_trusted(pairs: PairWeights, num_nodes: int) -> None:
    """Reject untrusted weights, which could read the edges passed to them, and tables that do not fit.

    The check depends only on the tables, not on the edges.
    """
    if type(pairs) not in _TRUSTED:
        raise UnsupportedGuaranteeError(
            "Custom weights must be derived from DotWeight, whose tables are computed before an edge "
            "is read. Use class MyWeight(DotWeight)."
        )
    if not pairs.is_valid:
        raise UnsupportedGuaranteeError(
            "The weight tables do not bound the weight of every pair of nodes. Derive custom weights "
            "from DotWeight, which makes valid tables."
        )
    if pairs.num_nodes != num_nodes:
        raise ReleaseError(
            f"the weight keys have {pairs.num_nodes} rows, but the graph has {num_nodes} nodes; the "
            "release stays charged"
        )
