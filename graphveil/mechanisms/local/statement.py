"""The unit ``node-features`` in words: what each node's features and label are protected by."""

import math

from graphveil._local_words import local_statement
from graphveil._typed import checked
from graphveil.mechanisms.claim import Claim

NOT_RANDOMISED = Claim(math.inf)
NOT_COLLECTED = Claim(0.0)


@checked
def node_features_statement(features: Claim, label: Claim, *, on_devices: bool | None = False) -> str:
    """Return the guarantee of the unit ``node-features`` in words, beginning with its deviations if any.

    Args:
        features: what a node's features are protected by; ``NOT_RANDOMISED`` if they are used as they are.
        label: the same for its label.
        on_devices: nobody but the nodes themselves ever held the raw data; None where only reports arrived.

    >>> print(node_features_statement(Claim(1.0), Claim(0.5))[:106])
    Each node's features are randomised on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    deltas = features.delta, label.delta
    text = local_statement([features.epsilon], [label.epsilon], deltas, on_devices=on_devices)
    deviations = (features + label).deviations
    if deviations:
        return f"NOT A VALID GUARANTEE. Known deviations: {'; '.join(deviations)}. It would read: {text}"
    return text
