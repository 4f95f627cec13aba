"""Fixed sentences of guarantees under unit ``local-attributes``, whose records are randomized by clients.

Only numbers are inserted: the given budgets, in full, and their decimal sum. This module is in the lowest
layer because clients import it, and depends on NumPy alone.
"""

import math
from collections.abc import Sequence
from decimal import Decimal

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
    """Return the exact sum of numbers in their decimal notation."""
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
