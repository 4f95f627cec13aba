"""Limits of a server, and the budget that it may spend."""

from dataclasses import dataclass, fields
from decimal import Decimal

from graphveil.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one server process; the rate applies to all its workers together.

    Args:
        body_bytes: largest body of a request; a larger one gets 413.
        ids: largest number of ids or records in a request; more get 413.
        under_way: requests for predictions that are answered at a time; one more is 429. A request counts
            from when its body is there until its answer is computed.
        connections: with or without a request. For one more, the oldest that waits for its client is closed:
            for a request or the rest of one, or for an answer to be read.
        held_bytes: of bodies in arrival, and as many of large answers that are not read yet. Above it, the
            oldest body gives way with 408, and a request for another large answer gets 429.
        rate: requests per second and key on average, or of all callers together for a server without keys;
            more get 429. None for no limit.
        burst: how many of them may arrive at once.
        releases: requests that may wait for a new release, of which one is made at a time; more get 429.
        head_seconds: between checks that close connections. A connection is closed if it has waited since the
            last check for the head of a request, or for its client to read an answer.
        body_seconds: until the whole body must have arrived; else 408.
        grace_seconds: to finish requests when the server stops.

    Raises:
        ConfigError: a limit is not above zero.
    """

    body_bytes: int = 1 << 20
    ids: int = 10_000
    under_way: int = 64
    connections: int = 256
    held_bytes: int = 64 << 20
    rate: float | None = None
    burst: int = 50
    releases: int = 4
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    grace_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Reject limits of zero or less."""
        for one in fields(self):
            bound = getattr(self, one.name)
            if bound is not None and not bound > 0:
                raise ConfigError(f"{one.name} must be above 0. Otherwise no request could be answered.")


@dataclass(frozen=True, kw_only=True)
class ReleaseBudget:
    """The epsilon that an operator allows for all new releases of a server together.

    Args:
        epsilon: at the delta of the served run.
        ledger: ``NAME``, ``URL`` or ``URL#NAME`` of a registered dataset, which is charged for all graphs
            that callers send.
    """

    epsilon: Decimal
    ledger: str

    def __post_init__(self) -> None:
        """Reject an epsilon that allows nothing."""
        if not (self.epsilon.is_finite() and self.epsilon > 0):
            raise ConfigError("--allow-releases needs an epsilon above 0, for example 1.0.")
