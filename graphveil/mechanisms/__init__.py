"""Noise on one value: central and local mechanisms."""

from graphveil.mechanisms.additive import (
    DiscreteGaussian,
    IntegerNoise,
    RoundedGaussian,
    choose_sampler,
)

__all__ = ["DiscreteGaussian", "IntegerNoise", "RoundedGaussian", "choose_sampler"]
