"""How much a server takes on at once."""

from dataclasses import dataclass, fields

from graphveil.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one server process.

    Args:
        body_bytes: of a question; a larger one is 413.
        ids: in a question; more are 413.
        under_way: questions at a time; one more is 429.
        body_seconds: until the whole question must be there; else 408.
        grace_seconds: for what is under way when the server is told to stop.

    Raises:
        ConfigError: a bound that is not above zero.
    """

    body_bytes: int = 1 << 20
    ids: int = 10_000
    under_way: int = 64
    body_seconds: float = 10.0
    grace_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Refuse bounds that let nothing through."""
        for one in fields(self):
            if not getattr(self, one.name) > 0:
                raise ConfigError(f"{one.name} must be above 0: nothing could be answered otherwise")
