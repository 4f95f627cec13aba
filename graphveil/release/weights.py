"""The edge weights that have a name, and those that users define.

Each prepares tables that the core checks. ``parse_weight`` finds a weight by the name used on a command line
or in a stored configuration: ``exp_cos(0.5)``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar

import numpy as np
from scipy import sparse
from torch import Tensor

from graphveil._util.checks import suggestion
from graphveil.core.features import Features
from graphveil.core.queries.weights import (
    DotWeight,
    GivenWeight,
    ListSets,
    PairWeights,
    Similarity,
    dense_sets,
    sparse_sets,
)
from graphveil.errors import ConfigError

__all__ = ["DotWeight", "parse_weight", "register_weight"]

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
        weight = _loaded(_NAMED[form[1]])(*numbers)
        return weight if form[3] is None else _loaded(_LANDMARKS)(weight, int(form[3]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"weights={text!r} has the wrong number of arguments or an argument out of range. "
            "Examples are exp_cos(0.5) and class_agree(0.2)."
        ) from None


def _loaded(weight: Callable[..., Similarity] | str) -> Callable[..., Similarity]:
    if not isinstance(weight, str):
        return weight
    named: Callable[..., Similarity] = resolve_name(weight)
    return named
