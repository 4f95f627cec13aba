"""Noise that is drawn otherwise than it should be, whoever draws it."""

from collections.abc import Callable
from typing import Any

import pytest

from graphveil.mechanisms import DiscreteGaussian, IntegerNoise


def draw_otherwise(patch: pytest.MonkeyPatch, draw: Callable[..., Any], law: type = DiscreteGaussian) -> None:
    """Have a law's noise drawn by a function; compiled sums do not draw it themselves meanwhile."""
    patch.setattr(law, "draw", draw)
    if issubclass(law, IntegerNoise):
        patch.setattr(law, "drawing", IntegerNoise.drawing)
