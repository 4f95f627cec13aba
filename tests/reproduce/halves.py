"""Work for workers, in a module that is imported in no time."""

from graphveil._util.processes import ParentRequest


def half(number: int, _: ParentRequest) -> float:
    """Return half of a number; 13 is unlucky."""
    if number == 13:
        raise ValueError(number)
    return number / 2


def told(number: int, ask: ParentRequest) -> float:
    """Return what the first process answers."""
    return float(ask(number))
