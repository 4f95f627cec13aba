"""Weights by name, as a command line or a stored configuration says them: ``exp_cos(0.5)``.

Beside the names stand the tables that a hop takes: a weight of a new shape is one file, and its lines here.
"""

import re
from collections.abc import Callable

from graphveil._util.checks import suggestion
from graphveil.errors import ConfigError, ReleaseError, UnsupportedGuaranteeError
from graphveil.release.weights.attention import Attention
from graphveil.release.weights.base import DotWeight, Similarity
from graphveil.release.weights.cosine import ExpCos, HalfCos, LearnedPublic, ReluCos, SigmoidCos
from graphveil.release.weights.jaccard import Jaccard
from graphveil.release.weights.landmarks import Landmarks
from graphveil.release.weights.network import NetworkWeights
from graphveil.release.weights.posterior import ClassAgree, PosteriorDot
from graphveil.release.weights.set_overlap import BitSets, ListSets
from graphveil.release.weights.stored import GivenWeight
from graphveil.release.weights.tables import CategoryWeights, DotProductWeights, PairWeights, StoredWeights

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
# Whatever is in here is given edges, so no name that is registered adds to it.
_TRUSTED = (DotProductWeights, CategoryWeights, BitSets, ListSets, NetworkWeights, StoredWeights)
_FORM = re.compile(r"(\w+)(?:\(([^()]*)\))?(?:@(\d+))?")


def register_weight(name: str, weight: Callable[..., DotWeight]) -> None:
    """Let a weight of your own be called by name, wherever ``weights`` is a parameter.

    ``weight`` takes the numbers in brackets, if there are any, and returns a :class:`DotWeight`.

    Raises:
        ConfigError: the name is taken, or not letters, digits and underscores.
    """
    if name == ONE or name in _NAMED:
        raise ConfigError(f"the weight {name!r} is there already; call yours something else")
    if not name.isidentifier():
        raise ConfigError(f"a weight's name is letters, digits and underscores, got {name!r}")
    _NAMED[name] = weight


def parse_weight(text: str) -> Similarity | None:
    """Return the weight that a text names, None for ``one``; ``@32`` asks for 32 landmarks.

    >>> parse_weight("exp_cos(0.5)")
    ExpCos(temperature=0.5)
    >>> parse_weight("half_cos@32")
    Landmarks(weight=HalfCos(), landmarks=32)
    >>> parse_weight("one") is None
    True

    Raises:
        ConfigError: no weight has this name, or it does not take these numbers.
    """
    if text == ONE:
        return None
    form = _FORM.fullmatch(str(text))  # a number names none, either
    if form is None or form[1] not in _NAMED:
        name = text if form is None else form[1]
        names = (ONE, *_NAMED)
        raise ConfigError(
            f"weights={text!r} names no weight{suggestion(name, names)}; weights are {', '.join(names)}, "
            "some with a number in brackets: exp_cos(0.5), class_agree(0.2)"
        )
    try:
        numbers = [float(part) for part in (form[2] or "").split(",") if part.strip()]
        weight = _NAMED[form[1]](*numbers)
        return weight if form[3] is None else Landmarks(weight, int(form[3]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"weights={text!r} does not take these numbers") from None


def check_trusted(pairs: PairWeights, num_nodes: int) -> None:
    """Refuse weights from elsewhere, since what is given edges could read them, and tables that do not fit.

    All of it is decided by tables, whatever the edges are.
    """
    if type(pairs) not in _TRUSTED:
        raise UnsupportedGuaranteeError(
            "a hop takes weights whose tables are made before an edge is read; derive your own from DotWeight"
        )
    if not pairs.is_valid:
        raise UnsupportedGuaranteeError(
            "the tables of the hop's weights do not hold a weight within the bound for every pair of nodes; "
            "derive your own from DotWeight, which makes them"
        )
    if pairs.num_nodes != num_nodes:
        raise ReleaseError(
            f"the keys of the hop's weights have {pairs.num_nodes} rows and the graph has {num_nodes} nodes; "
            "the release stays charged"
        )
