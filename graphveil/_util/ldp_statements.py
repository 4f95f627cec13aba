"""The sentences of unit ``local-attributes``, whose records are randomized one by one before anybody sees
them.

They are fixed; only figures go in: the given budgets, in full, and their decimal sum. They stand in the
ground layer because a device reads them, which has no more than NumPy.
"""

import math
from collections.abc import Sequence
from decimal import Decimal

_RANDOMIZED = (
    "Each node's features are randomized on their own at eps_x = {eps_x} and its label at eps_y = {eps_y} "
    "(total {total}; inf = not protected). Edges, identities and test labels (used in the clear for the test "
    "score) are not protected. "
)
RAW_DATA_HELD = "This process held the raw data; the guarantee is about what leaves the randomizer."
_ON_DEVICES = "Each node's own device ran the randomizer; the guarantee is about what leaves it."
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
    """Return the guarantee in words.

    Args:
        features: the budgets of all reports on a record's features.
        label: those of all reports on its label.
        delta: the deltas of all of them.
        on_clients: nobody but the nodes themselves ever held the raw data; None where only reports arrived.

    >>> print(ldp_statement([1.0], [0.5])[:106])
    Each node's features are randomized on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    text = _RANDOMIZED.format(
        eps_x=exact_sum_text(*features), eps_y=exact_sum_text(*label), total=exact_sum_text(*features, *label)
    )
    text += _WHERE[on_clients]
    return text + (_GAUSSIAN.format(delta=exact_sum_text(*delta)) if any(delta) else "")


def exact_sum(values: Sequence[float]) -> Decimal:
    """Return the sum of numbers as they are written, without rounding."""
    if any(math.isinf(value) for value in values):
        return Decimal("Infinity")
    return sum((Decimal(repr(float(value))) for value in values), Decimal(0))


def exact_sum_text(*values: float) -> str:
    """Return the sum of numbers as they are written, without rounding, as text.

    >>> exact_sum_text(0.1, 0.2), exact_sum_text(1.0, math.inf), exact_sum_text(1e-7), exact_sum_text(1e300)
    ('0.3', 'inf', '1e-7', '1e+300')
    """
    total = exact_sum(values)
    if total.is_infinite():
        return "inf"
    total = total.normalize()
    return f"{total:f}" if -4 <= total.adjusted() <= _DIGITS else f"{total:e}"
