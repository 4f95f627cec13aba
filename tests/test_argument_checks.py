"""Checks of arguments by value: accepted limits, and errors that name the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch import Tensor
from typing_extensions import TypeAliasType

from graphveil._util import checks
from graphveil.errors import ConfigError

NOT_NUMBERS = [None, "1", True, [1], 1j]
NAN, INFINITE = float("nan"), float("inf")


def within(**named: Any) -> None:
    checks.within(0, 1, **named)


def at_least_one(**named: Any) -> None:
    checks.integer_at_least(1, **named)


def combine(**named: Any) -> None:
    checks.one_of({"concat": 0, "sum": 1}, **named)


CASES: dict[str, tuple[Callable[..., None], list[Any], list[Any], str]] = {  # accepted, and rejected
    "positive": (
        checks.positive,
        [1, 1e-300, 2.5],
        [*NOT_NUMBERS, 0, -1, NAN, INFINITE],
        "a finite number above 0",
    ),
    "non_negative": (checks.non_negative, [0, 0.0, 3], [*NOT_NUMBERS, -1e-9, NAN, INFINITE], "of at least 0"),
    "within": (within, [0, 1, 0.5], [*NOT_NUMBERS, -0.1, 1.1, NAN], "lie between 0 and 1"),
    "integer": (at_least_one, [1, 9], [*NOT_NUMBERS, 0, 1.0], "a whole number of at least 1"),
    "depth": (checks.depth, [1, 100], [*NOT_NUMBERS, 0, 101, 10**12], ""),
    "width": (checks.width, [1, 16_384], [*NOT_NUMBERS, 0, 16_385], ""),
    "switch": (checks.switch, [True, False], [0, 1, None, "no", NAN, []], "True or False"),
    "one_of": (combine, ["concat", "sum"], [None, 1, ["sum"], "attention"], "is not one of concat, sum"),
}


@pytest.mark.parametrize("name", CASES)
def test_checks_accept_valid_values_and_name_invalid_ones(name: str) -> None:
    check, valid, invalid, message = CASES[name]
    for value in valid:
        check(given=value)
    for value in invalid:
        with pytest.raises(ConfigError, match=f"given=.*{message}"):
            check(given=value)


def test_the_first_invalid_argument_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"^delta=0 "):
        checks.positive(epsilon=1, delta=0, mu=-1)


def test_only_similar_names_are_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean 'concat'"):
        combine(given="conct")
    with pytest.raises(ConfigError) as error:
        combine(given="attention")
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize("digits", [400, 5000])  # more than a float can hold, and than Python prints
def test_huge_numbers_are_rejected_without_printing_them(digits: int) -> None:
    for check in (checks.positive, checks.non_negative, within, checks.depth):
        with pytest.raises(ConfigError, match="given=a number of more than 30 digits must"):
            check(given=10**digits)
    with pytest.raises(ConfigError, match="given=a number of more than 30 digits must"):
        at_least_one(given=-(10**digits))


@pytest.mark.parametrize("number", [np.float32(0.5), np.float16(0.5), np.longdouble(0.5), np.float64(0.5)])
def test_numpy_numbers_become_equal_python_numbers(number: object) -> None:
    assert (checks.plain(number), type(checks.plain(number))) == (0.5, float)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 3, 0.5, np.ones(1), np.array(1.0)])
def test_other_values_are_unchanged(value: object) -> None:
    assert checks.plain(value) is value


def test_a_named_union_of_arrays_is_read_as_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    # NumPy names its union from Python 3.12 on.
    named = TypeAliasType("named", npt.ArrayLike)  # type: ignore[valid-type]  # made at run time
    monkeypatch.setattr(npt, "ArrayLike", named)
    for hint in (named, named | None, Tensor | named, npt.NDArray[np.int64] | None, float | None):
        assert checks.fitting("given", np.array([1, 2]) if hint != float | None else 2.5, hint) is not None
        with pytest.raises(ConfigError, match="given='a' must be "):
            checks.fitting("given", "a", hint)
    with pytest.raises(ConfigError, match=r"must be None or an array of numbers, and is of type list\.$"):
        checks.fitting("given", ["a"], named | None)
