"""How a module is run on one star at a time: many at once where it can be, one after the other elsewhere."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphveil.errors import ConfigError
from graphveil.models.gnn.start import FromCodes
from graphveil.models.own.probing import check_same, random_tree, training_fault
from graphveil.train.copies import FreshCopies
from graphveil.train.devices import CPU
from graphveil.train.nulls import on_synthetic_records
from graphveil.train.reach import full_stars
from graphveil.train.stars import Route, StarSum, star_logits

_CLOSE, _ALIKE = 1e-9, 1e-4
_AT_ONCE: tuple[Route, ...] = ("ghost", "vmap")
_STARS, _LEAVES, _SEED = 6, 4, 11


class Way(NamedTuple):
    """The route, what the module makes of fixed random stars, and what it computes in."""

    route: Route
    code: Tensor
    dtype: torch.dtype


def route_of(module: nn.Module, inputs: int, classes: int, device: torch.device = CPU) -> Way:
    """Return the route for a module, and what it makes of fixed random stars: a fingerprint of its code.

    The quickest is taken that gives the sums of clipped gradients and the logits that a loop gives. Some
    modules cannot be run at once (self-loops that are added by a mask), and their steps are many times
    slower; some read the weights of an affine map besides it, and their gradients are all formed.

    It computes in float32 if it can, and comes to much the same there. On another device it must come to what
    a loop on the CPU does, twice to the same bits, and one record's numbers may not move another's by a bit.

    Raises:
        ConfigError: no route does on this device.
    """
    with FreshCopies(module).run() as fresh:
        return _route_of(fresh.to(torch.float64).eval(), inputs, classes, device)


def _route_of(probe: nn.Module, inputs: int, classes: int, device: torch.device) -> Way:
    looped = _probed(probe, inputs, classes, "loop")
    for route in _AT_ONCE:
        try:
            together = _probed(probe, inputs, classes, route, device=device)
        except Exception:  # whatever a user's module or torch raises under vmap: it can be run in a loop
            continue
        if torch.allclose(looped, together, rtol=_CLOSE, atol=_CLOSE):
            return _in_dtype(probe, inputs, classes, route, together, device)
    if device != CPU:
        check_same(probe, looped, lambda: _probed(probe, inputs, classes, "loop", device=device), device)
    return _in_dtype(probe, inputs, classes, "loop", looped, device)


def check_trainable(
    module: nn.Module, inputs: int, classes: int, parents: Tensor, device: torch.device = CPU
) -> None:
    """Train and predict as a fit does, on synthetic records of the shapes that the fit has.

    Args:
        module: not changed.
        inputs: numbers that a node has.
        classes: C.
        parents: the place above each place but the root's.
        device: where gradients are formed.

    Raises:
        ConfigError: the module fails in its forward or its backward pass.
    """
    try:
        way = route_of(module, inputs, classes, device)
        _run_once(module, inputs, classes, parents, way, device)
    except ConfigError:
        raise
    except Exception as error:
        inner = module.module if isinstance(module, FromCodes) else module
        raise ConfigError(training_fault(inner, error)) from error


def _run_once(
    module: nn.Module, inputs: int, classes: int, parents: Tensor, way: Way, device: torch.device
) -> None:
    x, edges = full_stars(parents, inputs, torch.float64)
    labels = torch.arange(len(x)) % classes

    def stars(index: Tensor) -> tuple[Tensor, Tensor]:
        return x[index], edges[index]

    with on_synthetic_records():
        gradients = StarSum(
            module,
            stars,
            labels,
            x.shape[1],
            route=way.route,
            parents=parents,
            dtype=way.dtype,
            device=device,
        )
        gradients.add(torch.arange(2), 1.0)
        star_logits(module, stars, 2, x.shape[1], classes, route=way.route, device=device)


def _in_dtype(
    module: nn.Module, inputs: int, classes: int, route: Route, wide: Tensor, device: torch.device
) -> Way:
    """Return how the module is run: in float32 unless it fails there, or comes to something else."""
    try:
        narrow = _probed(module, inputs, classes, route, torch.float32, device=device)
    except Exception:  # a module that makes float64 numbers of its own
        return Way(route, wide, torch.float64)
    alike = torch.allclose(wide, narrow, rtol=_ALIKE, atol=_ALIKE)
    if device != CPU:
        _check_apart(module, inputs, classes, route, torch.float32 if alike else torch.float64, device)
    # The fingerprint tells the two apart: a run is not resumed in the other.
    return Way(route, torch.cat([wide, narrow]), torch.float32) if alike else Way(route, wide, torch.float64)


def _check_apart(
    module: nn.Module, inputs: int, classes: int, route: Route, dtype: torch.dtype, device: torch.device
) -> None:
    """Refuse a device on which a star that teaches nothing moves the others' gradients by a bit."""
    sums = [_probed(module, inputs, classes, route, dtype, device, silent=scale) for scale in (1.0, 1.0, 1e3)]
    if not all(torch.equal(sums[0], other) for other in sums[1:]):
        raise ConfigError(
            f"{type(module).__name__} rounds one record's gradient by the others' numbers on "
            f"device={device.type!r}, or not the same twice; use device='cpu'"
        )


def _probed(
    module: nn.Module,
    inputs: int,
    classes: int,
    route: Route,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    silent: float | None = None,
) -> Tensor:
    """Return a sum of clipped gradients and all logits on random stars of different lengths.

    With ``silent`` the last star has no label, and its numbers are multiplied by it: the sum alone is told.
    """
    x, edges = _random_stars(inputs)
    labels = torch.arange(_STARS) % classes
    if silent is not None:
        x[-1] *= silent
        labels[-1] = -1

    def stars(index: Tensor) -> tuple[Tensor, Tensor]:
        return x[index], edges[index]

    with torch.random.fork_rng(devices=[]), on_synthetic_records():
        gradients = StarSum(module, stars, labels, _LEAVES + 2, route=route, dtype=dtype, device=device)
        gradients.add(torch.arange(_STARS), 1.0)
        if silent is not None:
            return gradients.sums
        logits = star_logits(module, stars, _STARS, _LEAVES + 2, classes, route=route, device=device)
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
