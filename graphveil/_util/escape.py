"""Escape untrusted text for each output format, and render pages from ``templates/``.

Names of classes, ids and paths are untrusted. Each format interprets some text: a terminal executes control
characters, Markdown and HTML have markup, and a spreadsheet evaluates cells that begin with ``=``. All
printed text goes through one of these functions. Harmless text is unchanged.

Templates escape all text in HTML. In Markdown untrusted values go through the filter ``md``, and in
YAML every value through ``yaml``.
"""

import html as _html
import json
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # controls, marks of direction, halves of pairs, line ends
_JOINERS = "\u200c\u200d"  # Persian and Indic words are spelt with them
_MARKUP = re.compile(r"([\\`*{}\[\]()<>#|~!&]|(?<![^\W_])_|_(?![^\W_]))")  # a _ inside a word is not markup
_LATEX = str.maketrans(
    {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "~": r"$\sim$", "∞": r"$\infty$"}
)
_FORMULA = ("=", "+", "-", "@")
_PASSWORD = re.compile(r"(:/{1,2}[^:/@\s]*:)\S+(@)|((?:password|secret|_key)=)[^&#\s]+")  # as libpq has them


def terminal(text: str) -> str:
    r"""Escape terminal control characters; line ends are kept.

    >>> terminal("a\x1b[2Jb"), terminal("größe")
    ('a\\x1b[2Jb', 'größe')
    """
    if text.isascii() and text.isprintable():
        return text
    obeyed = (
        letter != "\n" and letter not in _JOINERS and unicodedata.category(letter) in _HIDDEN
        for letter in text
    )
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if hidden else letter
        for letter, hidden in zip(text, obeyed, strict=True)
    )


def one_line(text: str) -> str:
    r"""Return text for a terminal on one line: each run of white space becomes a blank.

    >>> one_line("a\n b\x07")
    'a b\\x07'
    """
    return terminal(" ".join(text.split()))


def without_password(text: str) -> str:
    """Return a command-line argument without the password of a URL.

    >>> without_password("postgresql://me:p@ss#1@db/team#friends"), without_password("sqlite:////a:b@c")
    ('postgresql://me:***@db/team#friends', 'sqlite:////a:b@c')
    >>> without_password("--ledger=postgresql://me@db/team?password=word&port=1")
    '--ledger=postgresql://me@db/team?password=***&port=1'
    """
    return _PASSWORD.sub(lambda found: f"{found[1] or found[3]}***{found[2] or ''}", text)


def markdown(text: str) -> str:
    r"""Escape text for a line of Markdown.

    >>> print(markdown("<b>|*x*"))
    \<b\>\|\*x\*
    """
    return _MARKUP.sub(r"\\\1", one_line(text))


def latex(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> print(latex("a_b ± 5 %"))
    a\_b $\pm$ 5 \%
    """
    return terminal(text).translate(_LATEX)


def html(text: str) -> str:
    """Escape text for HTML, in an element or in a quoted attribute.

    >>> html('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return _html.escape(terminal(text))


def csv_cell(text: str) -> str:
    """Escape text for a cell of a CSV, so that no spreadsheet evaluates it; numbers are unchanged.

    >>> csv_cell("=1+1"), csv_cell("-5"), csv_cell("@home"), csv_cell("red")
    ("'=1+1", '-5', "'@home", 'red')
    """
    shown = terminal(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) and not _is_number(shown) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- templates ----


def render(template: str, **values: Any) -> str:
    """Render a template.

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
        # Text without control characters; finished markup, which is no plain text, has none left.
        finalize=lambda value: terminal(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"md": markdown, "tex": latex, "yaml": yaml_value}
    return made


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
