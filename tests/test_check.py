import numpy as np
import pytest

from graphveil._util import checks
from graphveil.errors import ConfigError

NOT_NUMBERS = [None, "1", True, [1], 1j]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, -1, float("nan"), float("inf")])
def test_positive_refuses_all_but_finite_numbers_above_zero(value: object) -> None:
    checks.positive(a=1, b=1e-300, c=2.5)
    with pytest.raises(ConfigError, match=r"epsilon=.* must be a finite number above 0"):
        checks.positive(epsilon=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1e-9, float("nan"), float("inf")])
def test_non_negative_admits_zero(value: object) -> None:
    checks.non_negative(a=0, b=0.0, c=3)
    with pytest.raises(ConfigError, match="slack="):
        checks.non_negative(slack=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -0.1, 1.1, float("nan")])
def test_within_includes_its_ends(value: object) -> None:
    checks.within(0, 1, a=0, b=1, c=0.5)
    with pytest.raises(ConfigError, match=r"dropout=.* must lie between 0 and 1"):
        checks.within(0, 1, dropout=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 1.0])
def test_whole_numbers_are_of_type_int(value: object) -> None:
    checks.integer_at_least(1, hops=1)
    with pytest.raises(ConfigError, match=r"hops=.* must be a whole number of at least 1"):
        checks.integer_at_least(1, hops=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 101, 10**12])
def test_what_is_built_one_by_one_is_bounded(value: object) -> None:
    checks.depth(hops=100)
    with pytest.raises(ConfigError, match=r"hops=.* must be"):
        checks.depth(hops=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 16_385])
def test_a_layer_is_bounded(value: object) -> None:
    checks.width(hidden=16_384)
    with pytest.raises(ConfigError, match=r"hidden=.* must be"):
        checks.width(hidden=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1, None, "no", float("nan"), []])
def test_a_switch_is_on_or_off(value: object) -> None:
    checks.switch(replace_one=True, private_metrics=False)
    with pytest.raises(ConfigError, match=r"replace_one=.* must be True or False"):
        checks.switch(replace_one=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 1, ["sum"]])
def test_what_is_no_text_is_no_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"combine=.* is not one of concat, sum"):
        checks.one_of({"concat": 0, "sum": 1}, combine=value)


def test_a_near_miss_is_suggested_and_a_far_one_is_not() -> None:
    checks.one_of(["concat", "sum"], combine="sum")
    with pytest.raises(ConfigError, match="did you mean 'concat'"):
        checks.one_of(["concat", "sum"], combine="conct")
    with pytest.raises(ConfigError) as caught:
        checks.one_of(["concat", "sum"], combine="attention")
    assert "did you mean" not in str(caught.value)


def test_the_first_bad_name_is_the_one_that_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"^delta=0 "):
        checks.positive(epsilon=1, delta=0, mu=-1)


@pytest.mark.parametrize("digits", [400, 5000])  # more than a float holds, and than Python prints
def test_numbers_without_measure_are_refused_in_few_words(digits: int) -> None:
    refusing = [
        checks.positive,
        checks.non_negative,
        lambda **named: checks.within(0, 1, **named),
        checks.depth,
    ]
    for refused in refusing:
        with pytest.raises(ConfigError, match="epsilon=a number of more than 30 digits must"):
            refused(epsilon=10**digits)
    with pytest.raises(ConfigError, match="hops=a number of more than 30 digits must"):
        checks.integer_at_least(1, hops=-(10**digits))


@pytest.mark.parametrize("number", [np.float32(0.5), np.float16(0.5), np.longdouble(0.5), np.float64(0.5)])
def test_numbers_of_numpy_are_the_numbers_that_they_are(number: object) -> None:
    assert (checks.plain(number), type(checks.plain(number))) == (0.5, float)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 3, 0.5, np.ones(1), np.array(1.0)])
def test_what_is_no_number_of_numpy_stays_as_it_is(value: object) -> None:
    assert checks.plain(value) is value
