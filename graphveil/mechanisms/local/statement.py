"""The unit ``node-features`` in words: what each node's features and label are protected by.

The sentences are fixed; only figures go in. They are the given budgets, in full, and their decimal sum.
"""

import math
from decimal import Decimal

from graphveil.mechanisms.claim import Claim

NOT_RANDOMISED = Claim(math.inf)
NOT_COLLECTED = Claim(0.0)

_RANDOMISED = (
    "Each node's features are randomised on their own at eps_x = {eps_x} and its label at eps_y = {eps_y} "
    "(total {total}; inf = not protected). Edges, identities and test labels (used in the clear for the test "
    "score) are not protected. "
)
_HELD = "This process held the raw data; the guarantee is about what leaves the randomiser."
_ON_DEVICES = "Each node's own device ran the randomiser; the guarantee is about what leaves it."
_GAUSSIAN = (
    " The guarantee is (epsilon, delta)-indistinguishability with delta = {delta}, which is weaker than the "
    "epsilon-LDP of other mechanisms at the same epsilon."
)


def node_features_statement(features: Claim, label: Claim, *, on_devices: bool = False) -> str:
    """Return the guarantee of the unit ``node-features`` in words, beginning with its deviations if any.

    Args:
        features: what a node's features are protected by; ``NOT_RANDOMISED`` if they are used as they are.
        label: the same for its label.
        on_devices: nobody but the nodes themselves ever held the raw data.

    >>> print(node_features_statement(Claim(1.0), Claim(0.5))[:106])
    Each node's features are randomised on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    both = features + label
    text = _RANDOMISED.format(
        eps_x=_figure(features.epsilon),
        eps_y=_figure(label.epsilon),
        total=_figure(features.epsilon, label.epsilon),
    )
    text += _ON_DEVICES if on_devices else _HELD
    if both.delta:
        text += _GAUSSIAN.format(delta=_figure(features.delta, label.delta))
    if both.deviations:
        return f"NOT A VALID GUARANTEE. Known deviations: {'; '.join(both.deviations)}. It would read: {text}"
    return text


def _figure(*values: float) -> str:
    """Return the sum of numbers as they are written, without rounding."""
    if any(math.isinf(value) for value in values):
        return "inf"
    total = sum((Decimal(repr(float(value))) for value in values), Decimal(0)).normalize()
    return f"{total:f}" if total.adjusted() >= -4 else f"{total:e}"
