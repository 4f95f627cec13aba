"""Work for workers, in a module that is imported in no time."""


def half(number: int) -> float:
    """Return half of a number; 13 is unlucky."""
    if number == 13:
        raise ValueError(number)
    return number / 2
