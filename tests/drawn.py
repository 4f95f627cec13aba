"""Noise that is drawn otherwise than it should be, whoever draws it."""

from collections.abc import Callable
from typing import Any

import pytest

from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.noise.random import RowStream


def draw_otherwise(patch: pytest.MonkeyPatch, draw: Callable[..., Any], law: type = DiscreteGaussian) -> None:
    """Have the noise of a distribution drawn by another function."""
    patch.setattr(law, "draw", draw)


def words_of_noise(patch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Call a function before words of secret noise are drawn, whatever law they are for."""
    encrypt = RowStream._encrypt

    def drawn(self: RowStream, counters: Any) -> Any:
        before()
        return encrypt(self, counters)

    patch.setattr(RowStream, "_encrypt", drawn)
