"""Argument checks, by value and by annotation. Each raises a ``ConfigError`` that names ``name=value``."""

import ast
import dataclasses
import difflib
import functools
import inspect
import math
import os
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    for name, value in named.items():
        if not _is_finite(value) or value <= 0:
            raise ConfigError(f"{name}={_shown(value)} must be a finite number above 0")


def non_negative(**named: float) -> None:
    """Require finite numbers of at least zero."""
    for name, value in named.items():
        if not _is_finite(value) or value < 0:
            raise ConfigError(f"{name}={_shown(value)} must be a finite number of at least 0")


def within(low: float, high: float, **named: float) -> None:
    """Require numbers in the closed interval [low, high]."""
    for name, value in named.items():
        if not _is_number(value) or not low <= value <= high:
            raise ConfigError(f"{name}={_shown(value)} must lie between {low} and {high}")


def integer_at_least(minimum: int, **named: int) -> None:
    """Require integers of at least ``minimum``."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"{name}={_shown(value)} must be a whole number of at least {minimum}")


def depth(**named: int) -> None:
    """Require integers from one to a hundred, such as numbers of layers or hops.

    >>> depth(hops=10**12)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: hops=1000000000000 must be at most 100: ...
    """
    integer_at_least(1, **named)
    _at_most(MAX_DEPTH, "each of them is built or queried separately", named)


def width(**named: int) -> None:
    """Require integers from one to 16,384, such as widths of a network's layers."""
    integer_at_least(1, **named)
    _at_most(MAX_WIDTH, "a layer has as many weights as the square of it", named)


def _at_most(most: int, why: str, named: dict[str, int]) -> None:
    for name, value in named.items():
        if value > most:
            raise ConfigError(f"{name}={_shown(value)} must be at most {most:,}: {why}; choose fewer")


def switch(**named: bool) -> None:
    """Require True or False: other truthy values would be recorded incorrectly.

    >>> switch(replace_one="no")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: replace_one='no' must be True or False
    """
    for name, value in named.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r} must be True or False")


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
            raise ConfigError(
                f"{name}={value!r} is not one of {', '.join(known)}{suggestion(value, choices)}"
            )


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
                f"{name} has letters that are not known here; set a locale of UTF-8 (LC_ALL=C.UTF-8)"
            ) from None


def places(below: int, **named: Any) -> None:
    """Require vectors of integers from zero to just under ``below``, such as rows of a matrix.

    >>> places(3, nodes=np.array([0, 3]))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: nodes must be a vector of whole numbers from 0 to 2.
    """
    for name, value in named.items():
        if np.ndim(value) != 1 or (np.asarray(value) < 0).any() or (np.asarray(value) >= below).any():
            raise ConfigError(f"{name} must be a vector of whole numbers from 0 to {below - 1}.")


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
            raise ConfigError(f"{name} has the shape {found}, and must have the shape ({words}).")


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


# -- annotations ----
# A union; a named alias of it from Python 3.12 on, whose members are behind ``__value__``.
_ARRAY_LIKE = getattr(npt.ArrayLike, "__value__", npt.ArrayLike)
Named = TypeVar("Named", bound=Callable[..., Any])
_TOO_LARGE = 1 << 63  # for whole numbers
_LONGEST = 60  # characters of a value that a message repeats
_NO_SEQUENCE = (str, bytes, bytearray, memoryview, Mapping)
_KINDS = {"f": "fiub", "i": "iu", "u": "iu", "b": "b"}  # of arrays, by the kind that is annotated
_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    types.NoneType: "None",
}


def checked(named: Named) -> Named:
    """Return a function or class that rejects arguments that do not fit its annotations.

    Text is never a sequence, a bool is never a number, and lists are converted where an array is annotated.
    Annotations that cannot be resolved at the time of the call are not checked.

    Args:
        named: Function, or class whose constructor is checked.

    Returns:
        The function or class, which raises a ``ConfigError`` on an argument of another type.
    """
    return checked_except()(named)


def checked_except(*names: str) -> Callable[[Named], Named]:
    """Apply ``checked``, except for some arguments, which the function validates itself."""

    def wrap(named: Named) -> Named:
        if isinstance(named, type):
            type.__setattr__(named, "__init__", _wrapped(named.__init__, names))  # type: ignore[misc]  # of this class
            return named
        wrapped: Named = _wrapped(named, names)
        return wrapped

    return wrap


def _wrapped(function: Any, names: tuple[str, ...]) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        hints = hints_of(function)
        for name, value in given.arguments.items():
            variable = signature.parameters[name].kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            )
            if name in hints and name not in names and not variable:
                given.arguments[name] = fitting(name, value, hints[name])
        return function(*given.args, **given.kwargs)

    return called


@functools.cache
def hints_of(function: Any) -> dict[str, Any]:
    """Return the annotations that can be resolved; others are imported for type checkers alone."""
    unknown = dict[str, Any]()
    while True:
        try:
            return get_type_hints(function, localns=unknown)
        except NameError as error:
            if error.name is None or error.name in unknown:
                return {}
            unknown[error.name] = Any


def fitting(name: str, value: Any, hint: Any) -> Any:
    """Return a value that fits an annotation, as an array where one is annotated.

    Raises:
        ConfigError: Value of another type.

    >>> fitting("epsilon", 1, float | None)
    1
    """
    hint = getattr(hint, "__value__", hint)
    arrays = [one for one in _members(hint) if _is_array(one)]
    if arrays and not any(_fits(value, one) for one in _members(hint) if not _is_array(one)):
        found = _as_array(value, arrays[0])
        if found is not None:
            return found
    elif _fits(value, hint):
        return value
    choices = [choice for one in _members(hint) if get_origin(one) is Literal for choice in get_args(one)]
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


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, with ``npt.ArrayLike``, a union of its own, as one of them."""
    if hint == _ARRAY_LIKE or get_origin(hint) not in (Union, types.UnionType):
        return (hint,)
    inner, of_arrays = get_args(hint), get_args(_ARRAY_LIKE)
    inner = tuple(getattr(one, "__value__", one) for one in inner)
    if not set(of_arrays) <= set(inner):
        return inner
    return (_ARRAY_LIKE, *(one for one in inner if one not in of_arrays))


def _fits(value: Any, hint: Any) -> bool:
    hint = getattr(hint, "__value__", hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object or isinstance(hint, TypeVar | str) or hint is inspect.Parameter.empty:
        return True
    if hint == _ARRAY_LIKE:
        try:
            return np.asarray(_detached(value)).dtype.kind in "biuf"
        except (TypeError, ValueError, RuntimeError):
            return False
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in _members(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is str:
        return isinstance(value, str)
    if hint in (int, float):
        numbers = int | np.integer if hint is int else int | float | np.integer | np.floating
        too_large = isinstance(value, int) and abs(value) >= _TOO_LARGE
        return isinstance(value, numbers) and not isinstance(value, bool) and not too_large
    if _is_array(hint):
        return _as_array(value, hint) is not None
    return _fits_class(value, origin or hint, inner)


def _fits_class(value: Any, kind: Any, inner: tuple[Any, ...]) -> bool:
    """Whether a value is of a class, and its items are of the classes in brackets."""
    if kind is Callable or kind is type:
        return callable(value) if kind is Callable else isinstance(value, type)
    if kind is os.PathLike or not isinstance(kind, type):
        return isinstance(value, os.PathLike) if kind is os.PathLike else True
    if issubclass(kind, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(part, hint) for item in value.items() for part, hint in zip(item, inner, strict=False)
        )
    if kind is tuple:
        if not isinstance(value, list | tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_fits(item, inner[0]) for item in value)
        return not inner or (len(value) == len(inner) and all(map(_fits, value, inner)))
    if kind in (Sequence, list, set, frozenset):
        # Text is a sequence of letters and a table one of its column names, which no caller means.
        if isinstance(value, _NO_SEQUENCE):
            return False
        sequence = isinstance(value, Sequence) or getattr(value, "ndim", None) == 1
        members = isinstance(value, set | frozenset) if kind in (set, frozenset) else sequence
        return members and all(_fits(item, hint) for hint in inner for item in value)
    if kind is Iterable:
        return isinstance(value, Iterable) and not isinstance(value, _NO_SEQUENCE)
    if getattr(kind, "_is_protocol", False):
        names = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", {})} | {
            name for name, member in vars(kind).items() if not name.startswith("_") and callable(member)
        }
        return not isinstance(value, type) and all(hasattr(value, name) for name in names)
    return isinstance(value, kind)


def _is_array(hint: Any) -> bool:
    return hint is np.ndarray or get_origin(hint) is np.ndarray


def _detached(value: Any) -> Any:
    """Return a torch tensor without its gradient, and anything else unchanged."""
    return value.detach() if hasattr(value, "detach") else value


def _as_array(value: Any, hint: Any) -> npt.NDArray[Any] | None:
    """Return an array of the annotated kind; None if no array is annotated."""
    (dtypes,) = get_args(hint)[1:] or (None,)
    kinds = [one for one in get_args(dtypes) if isinstance(one, type) and one not in (np.generic, Any)]
    dtype = np.dtype(kinds[0]) if kinds and kinds[0] not in (np.floating, np.integer, np.number) else None
    known = "biuf" if dtype is None else _KINDS.get(dtype.kind, dtype.kind)
    try:
        found = np.asarray(_detached(value))
        if found.ndim == 0 or found.dtype.kind not in known:
            return None
        return found if dtype is None else found.astype(dtype, copy=False)
    except (TypeError, ValueError, RuntimeError):
        return None


def _described(hint: Any) -> str:
    """Return an annotation as readable text."""
    hint = getattr(hint, "__value__", hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint == _ARRAY_LIKE or _is_array(hint):
        return "an array of numbers"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, _members(hint))))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if hint in _WORDS:
        return _WORDS[hint]
    kind = origin or hint
    if kind in (Sequence, list, tuple, Iterable):
        of = {"a number": "numbers", _WORDS[int]: "whole numbers", "text": "texts"}
        words = {of.get(_described(one), _described(one)) for one in inner if one is not Ellipsis}
        return "a sequence" + (f" of {words.pop()}" if len(words) == 1 else "")
    if kind is Callable:
        return "a function"
    return f"a {getattr(kind, '__name__', str(kind))}"


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

    Raises:
        ValueError, SyntaxError: Another text in the brackets.

    >>> parse_arguments("edge-rr(structure=public, rounds=5)"), parse_arguments("arr")
    ({'structure': 'public', 'rounds': 5}, {})
    """
    form = _FORM.fullmatch(text.strip())
    call = ast.parse(f"f({'' if form is None else form[2] or ''})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("not name=value pairs")
    given = {str(pair.arg): pair.value for pair in call.keywords}
    return {
        name: node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
        for name, node in given.items()
    }
