"""Figures as text: bounds rounded up, rates in percent, counts with their nouns, and sums of LDP budgets.

Clients of a collection import this module, so it needs nothing but the standard library.
"""

import math
from collections.abc import Sequence
from decimal import Decimal


def counted(count: int, what: str, several: str = "") -> str:
    """Return a number with its noun in singular or plural.

    >>> counted(1, "release"), counted(2000, "release")
    ('1 release', '2,000 releases')
    >>> counted(3, "class", "classes")
    '3 classes'
    """
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def format_delta(value: float) -> str:
    """Return a delta with six digits, rounded up. None is rounded away: a delta is given, not computed.

    >>> format_delta(1e-7), format_delta(0.0), format_delta(1.23456789e-7)
    ('1e-07', '0', '1.23457e-07')
    >>> format_delta(1.2345611e-7)
    '1.23457e-07'
    """
    return _up(value, 6, excess=0.0)


def format_epsilon_delta(epsilon: float, delta: float) -> str:
    """Return epsilon and delta of a guarantee as text.

    >>> format_epsilon_delta(5.99201, 1e-7)
    'epsilon 5.993 at delta 1e-07'
    """
    return f"epsilon {format_upper_bound(epsilon)} at delta {format_delta(delta)}"


def format_upper_bound(value: float, digits: int = 4) -> str:
    """Return an epsilon (or a mu) with the given number of digits, rounded up.

    >>> format_upper_bound(5.99201), format_upper_bound(4.0), format_upper_bound(0.1 + 0.2)
    ('5.993', '4', '0.3')
    """
    return _up(value, digits, excess=1e-9)  # so small an excess is rounding of the number itself


def percent_up(rate: float) -> str:
    """Return a rate in percent with two decimals, rounded up, so that "at most" is true.

    >>> percent_up(0.01732), percent_up(0.01)
    ('1.74', '1.00')
    """
    hundredths = math.ceil(1e4 * rate * (1 - 1e-9))  # which rounding of the number itself may exceed
    return f"{hundredths / 100:.2f}"


def _up(value: float, digits: int, *, excess: float) -> str:
    nearest = float(f"{value:.{digits}g}")
    if nearest < value * (1 - excess):
        nearest += 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{nearest:.{digits}g}"


# -- unit local-attributes: budgets in full, and their decimal sum ----
_RANDOMIZED = (
    "Each node's features are randomized on their own at eps_x = {eps_x} and its label at eps_y = {eps_y} "
    "(total {total}; inf = not protected). Edges, identities and test labels (used in the clear for the test "
    "score) are not protected. "
)
RAW_DATA_HELD = "This process held the raw data; the guarantee covers the output of the randomizer."
_ON_DEVICES = "Each node's own device ran the randomizer; the guarantee covers its output."
_RECEIVED = "This process saw only what had left the randomizer; the guarantee is about that."
_WHERE = {False: RAW_DATA_HELD, True: _ON_DEVICES, None: _RECEIVED}
_DIGITS = 15  # before the point, from which numbers are written with an exponent
_GAUSSIAN = (
    " The guarantee is (epsilon, delta)-indistinguishability with delta = {delta}, which is weaker than the "
    "epsilon-LDP of other mechanisms at the same epsilon."
)


def ldp_statement(
    features: Sequence[float],
    label: Sequence[float],
    delta: Sequence[float] = (),
    *,
    on_clients: bool | None = False,
) -> str:
    """Return the guarantee summary.

    >>> print(ldp_statement([1.0], [0.5])[:106])
    Each node's features are randomized on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    text = _RANDOMIZED.format(
        eps_x=exact_sum_text(*features), eps_y=exact_sum_text(*label), total=exact_sum_text(*features, *label)
    )
    text += _WHERE[on_clients]
    return text + (_GAUSSIAN.format(delta=exact_sum_text(*delta)) if any(delta) else "")


def exact_sum(values: Sequence[float]) -> Decimal:
    if any(math.isinf(value) for value in values):
        return Decimal("Infinity")
    return sum((Decimal(repr(float(value))) for value in values), Decimal(0))


def exact_sum_text(*values: float) -> str:
    """Return the exact sum of numbers in their decimal notation, as text.

    >>> exact_sum_text(0.1, 0.2), exact_sum_text(1.0, math.inf), exact_sum_text(1e-7), exact_sum_text(1e300)
    ('0.3', 'inf', '1e-7', '1e+300')
    """
    total = exact_sum(values)
    if total.is_infinite():
        return "inf"
    total = total.normalize()
    return f"{total:f}" if -4 <= total.adjusted() <= _DIGITS else f"{total:e}"
