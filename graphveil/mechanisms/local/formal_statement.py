"""The unit ``local-attributes`` in words: what each node's features and label are protected by."""

import math

from graphveil._util.ldp_statements import ldp_statement
from graphveil._util.typed import checked
from graphveil.mechanisms.claim import LocalDPClaim

NOT_RANDOMIZED = LocalDPClaim(math.inf)
NOT_COLLECTED = LocalDPClaim(0.0)


@checked
def node_features_statement(
    features: LocalDPClaim, label: LocalDPClaim, *, on_clients: bool | None = False
) -> str:
    """Return the guarantee of the unit ``local-attributes`` in words, beginning with its deviations if any.

    Args:
        features: what a node's features are protected by; ``NOT_RANDOMIZED`` if they are used as they are.
        label: the same for its label.
        on_clients: nobody but the nodes themselves ever held the raw data; None where only reports arrived.

    >>> print(node_features_statement(LocalDPClaim(1.0), LocalDPClaim(0.5))[:106])
    Each node's features are randomized on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    deltas = features.delta, label.delta
    text = ldp_statement([features.epsilon], [label.epsilon], deltas, on_clients=on_clients)
    deviations = (features + label).deviations
    if deviations:
        return f"NOT A VALID GUARANTEE. Known deviations: {'; '.join(deviations)}. It would read: {text}"
    return text
