"""Weights by name, as a command line or a stored configuration says them: ``exp_cos(0.5)``."""

import re
from collections.abc import Callable

from graphveil._check import suggestion
from graphveil.errors import ConfigError
from graphveil.weights.attention import Attention
from graphveil.weights.base import DotWeight, Similarity
from graphveil.weights.cosine import ExpCos, HalfCos, LearnedPublic, ReluCos, SigmoidCos
from graphveil.weights.given import GivenWeight
from graphveil.weights.jaccard import Jaccard
from graphveil.weights.landmarks import Landmarks
from graphveil.weights.posterior import ClassAgree, PosteriorDot

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
