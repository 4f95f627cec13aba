"""Noise that is drawn otherwise than it should be, whoever draws it."""

from collections.abc import Callable
from typing import Any

import pytest

from graphveil.mechanisms import DiscreteGaussian


def draw_otherwise(patch: pytest.MonkeyPatch, draw: Callable[..., Any], law: type = DiscreteGaussian) -> None:
    """Have the noise of a distribution drawn by another function."""
    patch.setattr(law, "draw", draw)
