"""Deprecated: what was here lies in graphveil.weights, graphveil.propagation and graphveil.release."""

import warnings
from importlib import import_module

_MOVED = {
    "DotWeight": "graphveil.weights",
    "parse_weight": "graphveil.weights",
    "register_weight": "graphveil.weights",
    "Propagation": "graphveil.propagation",
    "safe_unit": "graphveil.propagation",
    "InMemoryBackend": "graphveil.release",
    "Release": "graphveil.release",
    "ReleaseKey": "graphveil.release",
    "calibrate_plan": "graphveil.release",
}


def __getattr__(name: str) -> object:
    """Return what has moved, and say where to: the names that the documentation used, for one release."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _MOVED[name]
    warnings.warn(
        f"graphveil.aggregate.{name} has moved: import {name} from {home}; the old name goes with the next "
        "release",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(import_module(home), name)
