"""The guarantee of a randomizer of one record: its budget, reasons against it, and its summary."""

import math
from dataclasses import dataclass

from graphveil._util.checks import checked
from graphveil._util.figures import ldp_statement
from graphveil.errors import ConfigError

REAL_VALUED = "real-valued sampler"
_EXPONENT = 1023  # maximum bit length of integers that floats can represent
MIN_BUDGET = 2.0**-30  # minimum budget: below, rounding to 64 bits would affect the estimates


@dataclass(frozen=True)
class LocalDPClaim:
    """A claim that a record's outputs are (epsilon, delta)-indistinguishable from any other record's.

    It is valid for any two records within the public bounds. ``epsilon`` is inf if nothing is randomized and
    0 if nothing is reported. Claims on parts of one record add up.

    >>> LocalDPClaim(1.0) + LocalDPClaim(0.5, delta=1e-10)
    LocalDPClaim(epsilon=1.5, delta=1e-10, deviations=())
    """

    epsilon: float
    delta: float = 0.0
    deviations: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether the claim is valid for the code as it runs."""
        return not self.deviations

    def __add__(self, other: "LocalDPClaim") -> "LocalDPClaim":
        return LocalDPClaim(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            tuple(dict.fromkeys(self.deviations + other.deviations)),
        )


def check_budget(**named: float) -> None:
    """Check that budgets are numbers above zero; inf means no noise.

    >>> check_budget(epsilon=0.0)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: epsilon=0.0 must be a number above 0 (inf adds no noise)
    """
    for name, value in named.items():
        if isinstance(value, int) and value.bit_length() > _EXPONENT:  # not representable as a float
            raise ConfigError(
                f"{name} is an integer of {value.bit_length()} bits. It must be a number above 0 (inf "
                "adds no noise)."
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{name}={value!r} must be a number above 0 (inf adds no noise)")
        if value < MIN_BUDGET:
            raise ConfigError(
                f"{name}={value!r} is below 2^-30, so the noise would hide all information. Use a larger "
                "value, or collect fewer values."
            )


def coth(x: float) -> float:
    """Return coth(x) for x > 0, accurate for small and large x."""
    return 1 / math.tanh(x)


NOT_RANDOMIZED = LocalDPClaim(math.inf)
NOT_COLLECTED = LocalDPClaim(0.0)


@checked
def node_features_statement(
    features: LocalDPClaim, label: LocalDPClaim, *, on_clients: bool | None = False
) -> str:
    """Return the guarantee summary of the unit ``local-attributes``, beginning with its deviations if any.

    Args:
        features: Claim on a node's features; ``NOT_RANDOMIZED`` if they are used without privacy.
        label: Claim on its label.
        on_clients: Whether only the nodes themselves ever held the raw data; None if only LDP reports
            arrived.

    Returns:
        The summary in sentences, which may be public.

    >>> print(node_features_statement(LocalDPClaim(1.0), LocalDPClaim(0.5))[:106])
    Each node's features are randomized on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    deltas = features.delta, label.delta
    text = ldp_statement([features.epsilon], [label.epsilon], deltas, on_clients=on_clients)
    deviations = (features + label).deviations
    if deviations:
        return f"No valid guarantee. Known deviations: {'; '.join(deviations)}. It would read: {text}"
    return text
