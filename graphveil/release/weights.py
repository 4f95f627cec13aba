"""Edge weights: those that users define, and those that have a name.

Each prepares tables, which the core checks. ``parse_weight`` finds a weight by the name that a command line
or a stored configuration has: ``exp_cos(0.5)``.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util.checks import suggestion
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.features import Features, safe_unit
from graphveil.core.queries.weights import (
    CELLS,
    FULL,
    HALF,
    WORD,
    BitSets,
    DotProductWeights,
    GivenWeight,
    ListSets,
    PairWeights,
    Similarity,
)
from graphveil.errors import ConfigError, InputError

__all__ = ["DotWeight", "parse_weight", "register_weight"]

Values = npt.NDArray[np.float64]
_LANES = 16  # sampled products with another row width are several times slower
_ENTRIES = 1 << 17  # row entries per chunk: they fit into the cache
_BITS_A_MEMBER = 64  # bits that take as long to compare as one list member
_BITS = 1 << 10  # bits with negligible time
_LONGER = 4  # maximum ratio of the longest list to the mean: bits must also fit in memory


def quantize_weights(values: Values, bound: float) -> Tensor:
    """Return weights as integers: rounded to 2^-WEIGHT_BITS of their bound, which none may exceed."""
    levels = np.rint(np.maximum(values, 0.0) / bound * FULL)
    if not (levels <= FULL).all():
        raise ConfigError(
            f"an edge weight is larger than its bound {bound:g}; the bound must be the table's largest value"
        )
    return torch.from_numpy(levels.astype(np.float32))


def quantize_rows(rows: Tensor) -> Tensor:
    """Return rows times 2^11 as int16 integers, after scaling rows longer than one to norm one."""
    if rows.ndim != 2 or not bool(torch.isfinite(rows.sum(dtype=torch.float64))):
        raise InputError("weight functions must return finite numbers, one row per node")
    wide = np.zeros((len(rows), math.ceil(rows.shape[1] / _LANES) * _LANES), dtype=np.int16)
    at_once = max(1, _ENTRIES // max(1, rows.shape[1]))
    scratch = np.empty((min(len(rows), at_once), rows.shape[1]))
    for first in range(0, len(rows), at_once):
        exact = rows[first : first + at_once].detach().to(torch.float64).numpy()
        grid, out = scratch[: len(exact)], wide[first : first + at_once, : rows.shape[1]]
        norm = np.sqrt(np.einsum("nk,nk->n", exact, exact)) * (1 + 1e-6)
        np.multiply(exact, (HALF / np.maximum(1.0, norm))[:, None], out=grid)
        np.copyto(out, grid, casting="unsafe")  # toward zero
    return torch.from_numpy(wide)


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
        return float(self.values.max())

    @property
    def symmetric(self) -> bool:
        return type(self).psi is DotWeight.psi

    def prepare(self, keys: Tensor) -> DotProductWeights:
        phi = quantize_rows(self.phi(keys))
        psi = phi if self.symmetric else quantize_rows(self.psi(keys))
        if phi.shape != psi.shape:
            raise InputError(
                f"phi and psi of {type(self).__name__} must return one row per node, both of the same width"
            )
        return DotProductWeights(phi, psi, quantize_weights(self.values, self.bound))


_PAIRS = 1 << 20  # pairs per chunk


def weights_from(similarity: Similarity, keys: Any, sources: Tensor) -> Iterator[Tensor]:
    """Yield w(z_u, z_v) for some sources u and all nodes v, in blocks of shape (rows, sources), float32.

    These are the weights that a hop uses, for pairs chosen without reading an edge: a function of the keys
    alone.

    Args:
        sources: Nodes, in ascending order, shape (S).

    >>> from graphveil.papers.weights import HalfCos
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


def dense_sets(features: npt.NDArray[np.float32]) -> BitSets:
    count, width = features.shape
    bits = np.zeros((count, 2 * _words(width)), dtype=np.uint8)
    at_once = max(1, _ENTRIES // max(1, width))
    scratch = np.empty((min(count, at_once), width), dtype=bool)
    for first in range(0, count, at_once):
        some = features[first : first + at_once]
        members = np.not_equal(some, 0, out=scratch[: len(some)])
        packed = np.packbits(members, axis=1, bitorder="little")
        bits[first : first + at_once, : packed.shape[1]] = packed
    return BitSets(torch.from_numpy(bits.view(np.int16)))


def sparse_sets(sets: sparse.csr_array) -> BitSets:
    count, width = sets.shape
    bits = np.zeros((count, _words(width)), dtype=np.uint16)
    row = np.repeat(np.arange(count), np.diff(sets.indptr))
    np.bitwise_or.at(
        bits, (row, sets.indices // WORD), np.left_shift(1, sets.indices % WORD).astype(np.uint16)
    )
    return BitSets(torch.from_numpy(bits.view(np.int16)))


def _words(width: int) -> int:
    return max(1, -(-width // WORD))


ONE = "one"
_PAPERS = "graphveil.papers"
_NAMED: dict[str, Callable[..., Similarity] | str] = {  # weights of papers are loaded on first use
    "sigmoid_cos": f"{_PAPERS}.weights:SigmoidCos",
    "exp_cos": f"{_PAPERS}.weights:ExpCos",
    "half_cos": f"{_PAPERS}.weights:HalfCos",
    "relu_cos": f"{_PAPERS}.weights:ReluCos",
    "jaccard": Jaccard,
    "class_agree": f"{_PAPERS}.weights:ClassAgree",
    "posterior_dot": f"{_PAPERS}.weights:PosteriorDot",
    "learned_public": f"{_PAPERS}.weights:LearnedPublic",
    "attention": f"{_PAPERS}.attention:Attention",
    "given": GivenWeight,
}
_LANDMARKS = f"{_PAPERS}.weights:Landmarks"
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
        weight: Similarity = _loaded(_NAMED[form[1]])(*numbers)
        return weight if form[3] is None else _loaded(_LANDMARKS)(weight, int(form[3]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"weights={text!r} has the wrong number of arguments or an argument out of range. "
            "Examples are exp_cos(0.5) and class_agree(0.2)."
        ) from None


def _loaded(weight: Callable[..., Similarity] | str) -> Any:
    return resolve_name(weight) if isinstance(weight, str) else weight
