"""Learned attributes: what an estimator's names that end in an underscore read of its fit."""

from collections.abc import Callable
from typing import Generic, NoReturn, Protocol, TypeVar

from graphveil.errors import ConfigError
from graphveil.estimators.fitted_model import FittedModel

T = TypeVar("T")


class HasFit(Protocol):
    """Whatever keeps a fit."""

    _fit: FittedModel | None


class FittedAttribute(Generic[T]):
    """A read-only attribute that is taken from the fit, and has a plain value before there is one.

    Args:
        read: takes it from the fit.
        absent: makes the value that stands where nothing is fitted.
    """

    def __init__(self, read: Callable[[FittedModel], T], absent: Callable[[], T]) -> None:
        """Take both ways to the value."""
        self._read, self._absent = read, absent

    def __get__(self, model: HasFit | None, owner: type | None = None) -> T:
        """Return the value."""
        return self._absent() if model is None or model._fit is None else self._read(model._fit)

    def __set__(self, model: HasFit, value: T) -> NoReturn:
        """Refuse: what was learned is not set."""
        raise ConfigError("learned attributes follow from the fit and cannot be set; fit again instead")


def learned(name: str, absent: Callable[[], T]) -> FittedAttribute[T]:
    """Return an attribute that the method itself calls by this name in its outcome."""

    def read(fit: FittedModel) -> T:
        found: T = fit.learned.get(name, absent())
        return found

    return FittedAttribute(read, absent)


def none_before_fit() -> None:
    """Return None, for what is absent before a fit."""
