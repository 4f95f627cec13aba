"""Pages from the templates in ``templates/``: HTML, where all text is escaped, and Markdown.

Characters that a terminal or a reader obeys are made visible in every value. In Markdown a value from outside
goes through the filter ``md``, and in YAML every value through ``yaml``.
"""

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import markdown, terminal

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """Return a page.

    >>> render("macros.html")
    ''
    """
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=PackageLoader("graphveil", "templates"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"md": markdown, "yaml": yaml_value}
    return made


def _visible(value: Any) -> Any:
    """Return text without control characters; finished markup has none left."""
    return terminal(value) if type(value) is str else value


def yaml_value(value: Any) -> str:
    """Return JSON that YAML 1.1 reads as the same values: its floats have a point before an exponent.

    >>> yaml_value({"name": "a: b", "delta": 1e-07})
    '{"name": "a: b", "delta": 1.0e-07}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {yaml_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    if isinstance(value, float):
        digits, mark, exponent = repr(value).partition("e")
        return digits if not mark else f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+03d}"
    return json.dumps(value)
