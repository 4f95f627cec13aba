"""How much a server takes on at once, and how much it may spend."""

from dataclasses import dataclass, fields
from decimal import Decimal

from graphveil.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one server process; the rate is of all its workers together.

    Args:
        body_bytes: of a question; a larger one is 413.
        ids: in a question; more are 413.
        under_way: requests for predictions that are answered at a time; one more is 429. A request counts
            from when its body is there until its answer is computed.
        connections: at a time, with or without a request. For one more, the connection that has waited
            longest for its client is closed: for the rest of a request, or for an answer to be read. If all
            are being answered, the new one gets 429.
        held_bytes: of bodies in arrival, and as many of answers that are not read yet. Above it, the oldest
            gives way: a body with 408, an answer with a closed connection.
        rate: questions a second that a key may ask in the long run, or, where there are no keys, everybody
            together; more are 429. None for no bound.
        burst: how many of them may come at once.
        releases: questions that may wait for a fresh release, of which one is made at a time; more are 429.
        head_seconds: until the head of a request must be there; else the connection is closed.
        body_seconds: until the whole question must be there; else 408.
        grace_seconds: for what is under way when the server is told to stop, and for who reads an answer.

    Raises:
        ConfigError: a bound that is not above zero.
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
        """Refuse bounds that let nothing through."""
        for one in fields(self):
            bound = getattr(self, one.name)
            if bound is not None and not bound > 0:
                raise ConfigError(f"{one.name} must be above 0: nothing could be answered otherwise")


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What an operator allows: so much epsilon for all fresh releases of a server together.

    Args:
        epsilon: at the delta of the run that is served.
        ledger: ``NAME``, ``URL`` or ``URL#NAME`` of a registered data set, which stands for all the graphs
            that callers send.
    """

    epsilon: Decimal
    ledger: str

    def __post_init__(self) -> None:
        """Refuse what allows nothing."""
        if not (self.epsilon.is_finite() and self.epsilon > 0):
            raise ConfigError("--allow-releases takes an epsilon above 0, for example 1.0")
