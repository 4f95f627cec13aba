"""How a module is run on one star at a time: many at once where it can be, one after the other elsewhere."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphveil.models.own.probing import random_tree
from graphveil.train.stars import Route, StarSum, star_logits

_CLOSE, _ALIKE = 1e-9, 1e-4
_AT_ONCE: tuple[Route, ...] = ("ghost", "vmap")
_STARS, _LEAVES, _SEED = 6, 4, 11


class Way(NamedTuple):
    """The route, what the module makes of fixed random stars, and what it computes in."""

    route: Route
    code: Tensor
    dtype: torch.dtype


def route_of(module: nn.Module, inputs: int, classes: int) -> Way:
    """Return the route for a module, and what it makes of fixed random stars: a fingerprint of its code.

    The quickest is taken that gives the sums of clipped gradients and the logits that a loop gives. Some
    modules cannot be run at once (self-loops that are added by a mask), and their steps are many times
    slower; some read the weights of an affine map besides it, and their gradients are all formed.

    It computes in float32 if it can, and comes to much the same there.
    """
    probe = copy.deepcopy(module).to(torch.float64).eval()
    looped = _probed(probe, inputs, classes, "loop")
    for route in _AT_ONCE:
        try:
            together = _probed(probe, inputs, classes, route)
        except Exception:  # whatever a user's module or torch raises under vmap: it can be run in a loop
            continue
        if torch.allclose(looped, together, rtol=_CLOSE, atol=_CLOSE):
            return _in_dtype(probe, inputs, classes, route, together)
    return _in_dtype(probe, inputs, classes, "loop", looped)


def _in_dtype(module: nn.Module, inputs: int, classes: int, route: Route, wide: Tensor) -> Way:
    """Return how the module is run: in float32 unless it fails there, or comes to something else."""
    try:
        narrow = _probed(module, inputs, classes, route, torch.float32)
    except Exception:  # a module that makes float64 numbers of its own
        return Way(route, wide, torch.float64)
    alike = torch.allclose(wide, narrow, rtol=_ALIKE, atol=_ALIKE)
    # The fingerprint tells the two apart: a run is not resumed in the other.
    return Way(route, torch.cat([wide, narrow]), torch.float32) if alike else Way(route, wide, torch.float64)


def _probed(
    module: nn.Module, inputs: int, classes: int, route: Route, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return a sum of clipped gradients and all logits on random stars of different lengths."""
    x, edges = _random_stars(inputs)
    labels = torch.arange(_STARS) % classes

    def stars(index: Tensor) -> tuple[Tensor, Tensor]:
        return x[index], edges[index]

    with torch.random.fork_rng(devices=[]):
        gradients = StarSum(module, stars, labels, _LEAVES + 2, route=route, dtype=dtype)
        gradients.add(torch.arange(_STARS), 1.0)
        logits = star_logits(module, stars, _STARS, _LEAVES + 2, route=route)
    return torch.cat([gradients.sums, logits.flatten()])


def _random_stars(inputs: int) -> tuple[Tensor, Tensor]:
    import numpy as np

    rng = np.random.default_rng(_SEED)
    x = torch.zeros(_STARS, _LEAVES + 2, inputs, dtype=torch.float64)
    edges = torch.full((_STARS, 2, _LEAVES), _LEAVES + 1)
    for number in range(_STARS):
        star = random_tree(rng, inputs, depth=1)
        leaves = min(number, len(star.x) - 1, _LEAVES)  # the first star has none
        x[number, : leaves + 1] = star.x[: leaves + 1]
        edges[number, 0, :leaves], edges[number, 1, :leaves] = torch.arange(1, leaves + 1), 0
    return x, edges
