"""Argument checks, by value and by annotation. Each raises a ``ConfigError`` that names ``name=value``."""

import ast
import dataclasses
import difflib
import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError

MAX_DEPTH, MAX_WIDTH = 100, 1 << 14
_DIGITS = 30  # of a whole number that a message repeats
NEVER_SUGGESTED = frozenset({"none", "paper"})  # choices without a valid guarantee, which are never suggested


def positive(**named: float) -> None:
    """Require finite numbers above zero.

    >>> positive(epsilon=1.0)
    >>> positive(epsilon=0)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: epsilon=0 must be a finite number above 0
    """
    _require(named, lambda value: _is_finite(value) and value > 0, "be a finite number above 0")


def non_negative(**named: float) -> None:
    _require(named, lambda value: _is_finite(value) and value >= 0, "be a finite number of at least 0")


def within(low: float, high: float, **named: float) -> None:
    _require(named, lambda value: _is_number(value) and low <= value <= high, f"lie between {low} and {high}")


def integer_at_least(minimum: int, **named: int) -> None:
    _require(
        named,
        lambda value: _is_number(value) and isinstance(value, int) and value >= minimum,
        f"be a whole number of at least {minimum}",
    )


def depth(**named: int) -> None:
    """Require integers from one to a hundred, such as numbers of layers or hops.

    >>> depth(hops=10**12)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: hops=1000000000000 must be at most 100: ...
    """
    integer_at_least(1, **named)
    _at_most(MAX_DEPTH, "each of them is built or queried separately", named)


def width(**named: int) -> None:
    integer_at_least(1, **named)
    _at_most(MAX_WIDTH, "a layer has as many weights as the square of it", named)


def _at_most(most: int, why: str, named: Mapping[str, int]) -> None:
    _require(named, lambda value: value <= most, f"be at most {most:,}: {why}. Use a smaller value.")


def switch(**named: bool) -> None:
    """Require True or False: other truthy values would be recorded incorrectly.

    >>> switch(replace_one="no")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: replace_one='no' must be True or False
    """
    _require(named, lambda value: isinstance(value, bool), "be True or False")


def _require(named: Mapping[str, Any], accepts: Callable[[Any], bool], words: str) -> None:
    """Raise an error for the first value that is not accepted; ``words`` are what it must do."""
    for name, value in named.items():
        if not accepts(value):
            raise ConfigError(f"{name}={_shown(value)} must {words}", parameters=(name,))


_LISTED = 8  # choices in a message, the nearest first if there are more


def one_of(choices: Collection[str], **named: object) -> None:
    """Require one of the given names; the error suggests a near match.

    >>> one_of(["concat", "sum"], combine="conct")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: combine='conct' is not one of concat, sum; did you mean 'concat'?
    """
    for name, value in named.items():
        if not isinstance(value, str) or value not in choices:
            known = list(choices)
            if len(known) > _LISTED:
                text = str(value)
                known.sort(key=lambda choice: -difflib.SequenceMatcher(None, choice, text).ratio())
                known[_LISTED:] = ["..."]
            message = f"{name}={value!r} is not one of {', '.join(known)}{suggestion(value, choices)}"
            raise ConfigError(message, parameters=(name,))


def suggestion(value: object, choices: Iterable[str], *, least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest choice, or an empty string.

    Choices without a valid guarantee are never suggested.

    >>> suggestion("strct", ["strict", "paper"]), suggestion("non", ["none"]), suggestion("papr", ["paper"])
    ("; did you mean 'strict'?", '', '')
    """
    safe = [choice for choice in choices if choice not in NEVER_SUGGESTED]
    near = difflib.get_close_matches(str(value), safe, n=1, cutoff=least)
    return f"; did you mean {near[0]!r}?" if near else ""


def letters(**named: str) -> None:
    """Raise an error for text that is not valid UTF-8, such as an argument in another encoding.

    >>> letters(name="friends")
    """
    for name, value in named.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{name} contains characters that the current locale does not support. Set a UTF-8 "
                "locale: export LC_ALL=C.UTF-8"
            ) from None


def places(below: int, **named: Any) -> None:
    """Require vectors of integers from zero to just under ``below``, such as rows of a matrix.

    >>> places(3, nodes=np.array([0, 3]))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: nodes must be a vector of whole numbers from 0 to 2.
    """
    for name, value in named.items():
        if np.ndim(value) != 1 or (np.asarray(value) < 0).any() or (np.asarray(value) >= below).any():
            raise ConfigError(
                f"{name} must be a vector of whole numbers from 0 to {below - 1}.", parameters=(name,)
            )


def shape(wanted: tuple[int, ...], **named: Any) -> None:
    """Require arrays of a shape, in which -1 means any length.

    >>> shape((-1, 2), x=np.zeros((4, 3)))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: x has the shape (4, 3), and must have the shape (n, 2).
    """
    for name, value in named.items():
        found = np.shape(value)
        if len(found) != len(wanted) or any(
            one not in (-1, size) for one, size in zip(wanted, found, strict=True)
        ):
            words = ", ".join("n" if size == -1 else str(size) for size in wanted)
            raise ConfigError(
                f"{name} has the shape {found}, and must have the shape ({words}).", parameters=(name,)
            )


def plain(value: Any) -> Any:
    """Convert a NumPy number to the equal Python number, and a fraction to a float; else return the value.

    Arithmetic in float32 would round the inputs of a guarantee, and JSON cannot store NumPy numbers.

    >>> import numpy as np
    >>> plain(np.float32(0.5)), plain(np.uint8(3)), plain(np.longdouble(2)), plain("auto")
    (0.5, 3, 2.0, 'auto')
    >>> plain(Fraction(1, 2)), plain(Decimal("0.1"))
    (0.5, 0.1)
    """
    if isinstance(value, np.longdouble | Fraction | Decimal):
        return real(value)
    return value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value


def real(value: Any) -> Any:
    """Convert a number to a float, and one beyond all floats to infinity; return what is no number unchanged.

    >>> real(2), real(10**400), real(True), real("2")
    (2.0, inf, True, '2')
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | Fraction | Decimal):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signaling nan of Decimal
        return math.nan


def plain_fields(of: Any) -> None:
    """Convert NumPy numbers in a dataclass's fields (``plain``), also if it is frozen."""
    for part in dataclasses.fields(of):
        object.__setattr__(of, part.name, plain(getattr(of, part.name)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    """Whether a number fits into a float: Python's integers have no upper limit."""
    try:
        return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]  # it is a number
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """Return a value as text; Python raises an error for integers of thousands of digits."""
    if isinstance(value, int) and abs(value) > 10**_DIGITS:
        return f"a number of more than {_DIGITS} digits"
    return repr(value)


# -- types ----
Named = TypeVar("Named", bound=Callable[..., Any])
_TOO_LARGE = 1 << 63  # for whole numbers
_LONGEST = 60  # characters of a value that a message repeats
_TEXTS = (str, bytes, bytearray, memoryview, Mapping)  # sequences of letters or keys, which no caller means
_KINDS = {"f": "fiub", "i": "iu", "u": "iu", "b": "b"}  # of arrays that an annotated kind is converted from
# Types that are not read by ``isinstance`` alone: the classes that each accepts, and for scalars their words.
_SEQUENCES: dict[Any, Any] = {
    Sequence: Sequence,
    list: Sequence,
    tuple: list | tuple,
    set: set | frozenset,
    Iterable: Iterable,
}
_SCALARS: dict[Any, tuple[Any, str]] = {
    bool: (bool | np.bool_, "True or False"),
    int: (int | np.integer, "a whole number"),
    float: (int | float | np.integer | np.floating, "a number"),
    str: (str, "text"),
    types.NoneType: (types.NoneType, "None"),
}


def checked(named: Named, skip: Collection[str] = ()) -> Named:
    """Return a function or class that rejects arguments that do not fit its annotations, by ``fitting``."""
    function: Any = vars(named)["__init__"] if isinstance(named, type) else named
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        hints = hints_of(function)
        for name, value in given.arguments.items():
            if name in hints and name not in skip:
                given.arguments[name] = fitting(name, value, hints[name])
        return function(*given.args, **given.kwargs)

    if isinstance(named, type):
        type.__setattr__(named, "__init__", called)
        return named
    return cast(Named, called)


@functools.cache
def hints_of(function: Any) -> dict[str, Any]:
    """Return the annotations of a function or class. Types imported for type checkers alone are ``Any``."""
    unknown = dict[str, Any]()
    while True:
        try:
            return get_type_hints(function, localns=unknown)
        except NameError as error:
            if error.name is None or error.name in unknown:
                return {}
            unknown[error.name] = Any


def fitting(name: str, value: Any, hint: Any) -> Any:
    """Return a value that is of an annotated type, as an array where one is annotated.

    Text is never a sequence, and a bool never a number.

    >>> fitting("epsilon", 1, float | None)
    1
    """
    members = _members(hint)
    fit = next((one for one in members if _fits(value, one)), None)
    if fit is not None:
        return _as_array(value, fit) if get_origin(fit) is np.ndarray else value
    choices = [choice for one in members if get_origin(one) is Literal for choice in get_args(one)]
    if choices and isinstance(value, str):
        one_of(choices, **{name: value})
    # Only short numbers, text and None are repeated: other values may hold data, and Python does not print
    # integers of thousands of digits.
    shown = "(...)"
    if isinstance(value, str | bytes | float | types.NoneType) or (
        isinstance(value, int) and abs(value) < 10**_DIGITS
    ):
        text = repr(value)
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    raise ConfigError(f"{name}={shown} must be {_described(hint)}, and is of type {type(value).__name__}.")


@functools.cache
def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, with ``npt.ArrayLike``, a union of its own, as one of them."""
    members, of_arrays = _flat(hint), _flat(npt.ArrayLike)
    if not set(of_arrays) <= set(members):
        return members
    return (*(one for one in members if one not in of_arrays), npt.ArrayLike)


def _flat(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union and of the unions in it, which may have names (``type A = B | C``)."""
    hint = getattr(hint, "__value__", hint)
    if get_origin(hint) not in (Union, types.UnionType):
        return (hint,)
    return tuple(member for one in get_args(hint) for member in _flat(one))


def _fits(value: Any, hint: Any) -> bool:
    if len(_members(hint)) > 1:
        return any(_fits(value, one) for one in _members(hint))
    (hint,) = _members(hint)
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if hint is npt.ArrayLike or kind is np.ndarray:
        return _as_array(value, hint) is not None
    if kind is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if kind in _SCALARS:
        number = kind is bool or not isinstance(value, bool)
        too_large = isinstance(value, int) and abs(value) >= _TOO_LARGE
        return isinstance(value, _SCALARS[kind][0]) and number and not too_large
    if kind is Any or not isinstance(kind, type):  # such as a type variable
        return True
    if issubclass(kind, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(part, one) for item in value.items() for part, one in zip(item, inner, strict=False)
        )
    if kind not in _SEQUENCES:
        return isinstance(value, kind)
    vector = kind in (Sequence, list) and getattr(value, "ndim", None) == 1
    if isinstance(value, _TEXTS) or not (vector or isinstance(value, _SEQUENCES[kind])):
        return False
    if kind is Iterable or not inner:  # may be read once only
        return True
    items = inner if kind is tuple and Ellipsis not in inner else inner[:1] * len(value)
    return len(items) == len(value) and all(map(_fits, value, items))


def _as_array(value: Any, hint: Any) -> npt.NDArray[Any] | None:
    try:
        found = np.asarray(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if hint is npt.ArrayLike:
        return found if found.dtype.kind in "biuf" else None
    (of,) = get_args(get_args(hint)[1])
    dtype = found.dtype if of is Any else np.dtype(of)
    fits = found.ndim and found.dtype.kind in _KINDS.get(dtype.kind, "")
    return found.astype(dtype, copy=False) if fits else None


def _described(hint: Any) -> str:
    words = []
    for one in _members(hint):
        kind, inner = get_origin(one) or one, get_args(one)
        if one is npt.ArrayLike or kind is np.ndarray:
            words.append("an array of numbers")
        elif kind is Literal:
            words.append("one of " + ", ".join(map(repr, inner)))
        elif kind in _SCALARS:
            words.append(_SCALARS[kind][1])
        elif kind in _SEQUENCES:
            several = {"a number": "numbers", "a whole number": "whole numbers", "text": "texts"}
            of = {several.get(text, text) for text in (_described(item) for item in inner if item is not ...)}
            words.append("a sequence" + (f" of {of.pop()}" if len(of) == 1 else ""))
        else:
            words.append("a function" if kind is Callable else f"a {getattr(kind, '__name__', kind)}")
    return " or ".join(dict.fromkeys(words))


# -- names with parameters in brackets ----
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

    >>> parse_arguments("edge-rr(structure=public, rounds=5)"), parse_arguments("arr")
    ({'structure': 'public', 'rounds': 5}, {})
    """
    form = _FORM.fullmatch(text.strip())
    call = ast.parse(f"f({'' if form is None else form[2] or ''})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("the text must consist of name=value pairs")
    given = {str(pair.arg): pair.value for pair in call.keywords}
    return {
        name: node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
        for name, node in given.items()
    }
