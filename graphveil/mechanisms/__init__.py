"""Noise on one value: central and local mechanisms."""

from graphveil.mechanisms.additive import (
    DiscreteGaussian,
    IntegerNoise,
    RoundedGaussian,
    choose_sampler,
)
from graphveil.mechanisms.steps import StepNoise, public_rate

__all__ = [
    "DiscreteGaussian",
    "IntegerNoise",
    "RoundedGaussian",
    "StepNoise",
    "choose_sampler",
    "public_rate",
]
