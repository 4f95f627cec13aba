"""Spectral: who is listed alike is alike; for graphs whose neighbors differ from each other."""

from graphveil.estimators.spectral.estimator import Spectral

__all__ = ["Spectral"]
