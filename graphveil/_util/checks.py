"""Argument checks: each prints ``name=value`` and the range expected, and raises :class:`ConfigError`."""

import dataclasses
import difflib
import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from graphveil.errors import ConfigError

MAX_DEPTH, MAX_WIDTH = 100, 1 << 14
_DIGITS = 30  # of a whole number that a message repeats


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
    """Require whole numbers of at least ``minimum``."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"{name}={_shown(value)} must be a whole number of at least {minimum}")


def depth(**named: int) -> None:
    """Require whole numbers from one to a hundred, of what something is built or asked for, each.

    >>> depth(hops=10**12)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: hops=1000000000000 must be at most 100: ...
    """
    integer_at_least(1, **named)
    _at_most(MAX_DEPTH, "each of them is built or asked for on its own", named)


def width(**named: int) -> None:
    """Require whole numbers from one to 16,384, of entries in the rows of a network's layers."""
    integer_at_least(1, **named)
    _at_most(MAX_WIDTH, "a layer has as many weights as the square of it", named)


def _at_most(most: int, why: str, named: dict[str, int]) -> None:
    for name, value in named.items():
        if value > most:
            raise ConfigError(f"{name}={_shown(value)} must be at most {most:,}: {why}; choose fewer")


def plain(value: Any) -> Any:
    """Return a number of NumPy as Python's number that it is, and anything else as it was.

    Arithmetic of float32 would round what a guarantee is computed from, and files have no word for it.

    >>> import numpy as np
    >>> plain(np.float32(0.5)), plain(np.uint8(3)), plain(np.longdouble(2)), plain("auto")
    (0.5, 3, 2.0, 'auto')
    """
    if isinstance(value, np.longdouble):
        return float(value)
    return value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value


def plain_fields(of: Any) -> None:
    """Replace numbers of NumPy among a dataclass's fields (:func:`plain`); it may be frozen."""
    for part in dataclasses.fields(of):
        object.__setattr__(of, part.name, plain(getattr(of, part.name)))


def letters(**named: str) -> None:
    """Refuse text that no file could hold: a word of the command line where the locale knows no UTF-8.

    >>> letters(name="friends")
    """
    for name, value in named.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{name} has letters that are not known here; set a locale of UTF-8 (LC_ALL=C.UTF-8)"
            ) from None


def switch(**named: bool) -> None:
    """Require True or False: anything else that counts as true would be booked as what it is not.

    >>> switch(replace_one="no")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: replace_one='no' must be True or False
    """
    for name, value in named.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r} must be True or False")


def one_of(choices: Collection[str], **named: object) -> None:
    """Require one of the given names; a near miss is suggested.

    >>> one_of(["concat", "sum"], combine="conct")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: combine='conct' is not one of concat, sum; did you mean 'concat'?
    """
    for name, value in named.items():
        if not isinstance(value, str) or value not in choices:
            known = ", ".join(choices)
            raise ConfigError(f"{name}={value!r} is not one of {known}{suggestion(value, choices)}")


def places(below: int, **named: Any) -> None:
    """Require vectors of whole numbers from zero to just under ``below``, such as rows of a matrix.

    >>> places(3, nodes=np.array([0, 3]))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: nodes must be a vector of whole numbers from 0 to 2.
    """
    for name, value in named.items():
        if np.ndim(value) != 1 or (np.asarray(value) < 0).any() or (np.asarray(value) >= below).any():
            raise ConfigError(f"{name} must be a vector of whole numbers from 0 to {below - 1}.")


def shape(wanted: tuple[int, ...], **named: Any) -> None:
    """Require arrays of a shape, in which -1 stands for any length.

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


NEVER_SUGGESTED = frozenset({"none", "paper"})  # choices without a valid guarantee, which are never suggested


def suggestion(value: object, choices: Iterable[str], *, least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest choice, or an empty string.

    Choices without a valid guarantee are never suggested.

    >>> suggestion("strct", ["strict", "paper"]), suggestion("non", ["none"]), suggestion("papr", ["paper"])
    ("; did you mean 'strict'?", '', '')
    """
    safe = [choice for choice in choices if choice not in NEVER_SUGGESTED]
    near = difflib.get_close_matches(str(value), safe, n=1, cutoff=least)
    return f"; did you mean {near[0]!r}?" if near else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold: whole numbers have no largest."""
    try:
        return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]  # it is a number
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """Return a value as it is printed; Python refuses to print a whole number of thousands of digits."""
    if isinstance(value, int) and abs(value) > 10**_DIGITS:
        return f"a number of more than {_DIGITS} digits"
    return repr(value)
