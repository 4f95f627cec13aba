"""Things by name with parameters in brackets, as a configuration says them: ``multihop(n=3, delta=0.1)``."""

import ast
import re

_FORM = re.compile(r"([\w-]+)(?:\((.*)\))?")


def parse_name(text: str) -> str:
    """Return the name that a text begins with; the whole text if it has another form.

    >>> parse_name("edge-rr(rounds=5)"), parse_name("no name")
    ('edge-rr', 'no name')
    """
    form = _FORM.fullmatch(text.strip())
    return text if form is None else form[1]


def parse_arguments(text: str) -> dict[str, object]:
    """Return the name=value pairs in a text's brackets; values are literals or bare words, never executed.

    Raises:
        ValueError, SyntaxError: there is something else in the brackets.

    >>> parse_arguments("edge-rr(structure=public, rounds=5)"), parse_arguments("arr")
    ({'structure': 'public', 'rounds': 5}, {})
    """
    form = _FORM.fullmatch(text.strip())
    call = ast.parse(f"f({'' if form is None else form[2] or ''})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("not name=value pairs")
    return {str(pair.arg): _value(pair.value) for pair in call.keywords}


def _value(node: ast.expr) -> object:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
