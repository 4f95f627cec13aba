"""Similarities by name, as a command line says them: ``multihop(n=3, delta=0.1)``."""

from graphveil._util.call_syntax import parse_arguments, parse_name
from graphveil._util.checks import suggestion
from graphveil.errors import ConfigError
from graphveil.local.structure.base import StructuralSimilarity
from graphveil.local.structure.embedding import DeepWalk, Factorized, Node2Vec
from graphveil.local.structure.multihop import MultiHop

SIMILARITIES: dict[str, type[StructuralSimilarity]] = {
    "multihop": MultiHop,
    "deepwalk": DeepWalk,
    "node2vec": Node2Vec,
    "factorized": Factorized,
}


def parse_similarity(text: str) -> StructuralSimilarity:
    """Return the similarity that a text names, with the parameters in brackets.

    >>> parse_similarity("multihop(n=3, transition=True)")
    MultiHop(n=3, delta=0.02, transition=True, drop_self=False)
    >>> parse_similarity("node2vec").q
    0.5

    Raises:
        ConfigError: no similarity has this name, or it does not take these parameters.
    """
    name = parse_name(text)
    if name not in SIMILARITIES:
        raise ConfigError(
            f"similarity={text!r} names no similarity{suggestion(name, SIMILARITIES)}; take one of "
            f"{', '.join(SIMILARITIES)}, with parameters if need be: multihop(n=3, delta=0.1)"
        )
    try:
        return SIMILARITIES[name](**parse_arguments(text))
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"similarity={text!r}: {name} takes no such parameters; write name=value pairs of its "
            "own, as in multihop(n=3, delta=0.1)"
        ) from None
