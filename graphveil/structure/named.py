"""Similarities by name, as a command line says them: ``multihop(n=3, delta=0.1)``."""

import ast
import re

from graphveil._check import suggestion
from graphveil.errors import ConfigError
from graphveil.structure.base import StructuralSimilarity
from graphveil.structure.embedding import DeepWalk, Factorised, Node2Vec
from graphveil.structure.multihop import MultiHop

SIMILARITIES: dict[str, type[StructuralSimilarity]] = {
    "multihop": MultiHop,
    "deepwalk": DeepWalk,
    "node2vec": Node2Vec,
    "factorised": Factorised,
}
_FORM = re.compile(r"(\w+)(?:\((.*)\))?")


def parse_similarity(text: str) -> StructuralSimilarity:
    """Return the similarity that a text names, with the parameters in brackets.

    >>> parse_similarity("multihop(n=3, transition=True)")
    MultiHop(n=3, delta=0.02, transition=True, drop_self=False)
    >>> parse_similarity("node2vec").q
    0.5

    Raises:
        ConfigError: no similarity has this name, or it does not take these parameters.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None or form[1] not in SIMILARITIES:
        name = text if form is None else form[1]
        raise ConfigError(
            f"similarity={text!r} names no similarity{suggestion(name, SIMILARITIES)}; take one of "
            f"{', '.join(SIMILARITIES)}, with parameters if need be: multihop(n=3, delta=0.1)"
        )
    try:
        return SIMILARITIES[form[1]](**_values(form[2] or ""))
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"similarity={text!r}: {form[1]} takes no such parameters; write name=value pairs of its "
            "own, as in multihop(n=3, delta=0.1)"
        ) from None


def _values(text: str) -> dict[str, object]:
    """Return the name=value pairs of a text; values are literals and are not executed."""
    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("not name=value pairs")
    return {str(pair.arg): ast.literal_eval(pair.value) for pair in call.keywords}
