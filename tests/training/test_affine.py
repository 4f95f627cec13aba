"""Gradients of affine maps that are never formed: the same sums as star by star."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs, affine_parts
from graphveil.estimators.gnn.module_training import choose_route

INPUTS, CLASSES, WIDTH = 40, 3, 4


class Wide(nn.Module):
    """A wide map that is called twice, one without a bias, and a weight that is no map's."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.from_neighbors = nn.Linear(inputs, 20), nn.Linear(inputs, 20, bias=False)
        self.out, self.scale = nn.Linear(20, classes), nn.Parameter(torch.linspace(0.5, 1.5, 20))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        from_own = torch.tanh(self.first(x) + self.first(x.flip(-1)))
        from_neighbors = torch.zeros_like(from_own).index_add(0, target, self.from_neighbors(x)[source])
        return self.out(self.scale * from_own + from_neighbors)


class Tied(Wide):
    """Reads the weight of an affine map besides it."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + (x @ self.first.weight.t())[:, :3]


class Shared(Wide):
    """One weight is two maps'."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.from_neighbors.weight = self.first.weight


class Alike(Wide):
    """Calls a wide map with rows that are the same for all records."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(
            self.first(torch.ones(WIDTH, INPUTS, dtype=x.dtype)) * self.from_neighbors(x) * self.scale
        )


def stars(count: int) -> Any:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, WIDTH, INPUTS, generator=generator, dtype=torch.float64)
    edges = torch.full((count, 2, WIDTH - 2), WIDTH - 1)
    for star in range(count):
        edges[star, 0, : star % 3], edges[star, 1, : star % 3] = torch.arange(1, star % 3 + 1), 0
    return x, StoredEgoGraphs(x, edges)


def sums(module: nn.Module, route: Any, clip: float, x: Any = None) -> Tensor:
    found, made = stars(9)
    if x is not None:
        found[x] = float("nan")
    labels = torch.arange(9) % CLASSES
    gradients = EgoGraphClippedSum(module, made, labels, route=route)
    gradients.add(torch.arange(9), clip)
    return gradients.sums


@pytest.mark.parametrize("kind", [Wide, Shared])
@pytest.mark.parametrize("clip", [0.1, 1e3])
def test_sums_are_those_of_a_loop(kind: type[nn.Module], clip: float) -> None:
    torch.manual_seed(0)
    module = kind(INPUTS, CLASSES).double()
    assert set(affine_parts(module, WIDTH)) == ({"first", "from_neighbors"} if kind is Wide else set())
    looped = sums(module, "loop", clip)
    for route in ("ghost", "vmap"):
        torch.testing.assert_close(sums(module, route, clip), looped, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", [Wide, Alike])
def test_a_record_without_finite_numbers_is_dropped_alone(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind(INPUTS, CLASSES).double()
    ghost, looped = (sums(module, route, 0.1, x=4) for route in ("ghost", "loop"))
    assert ghost.isfinite().all()
    torch.testing.assert_close(ghost, looped, rtol=1e-11, atol=1e-12)


def test_no_record_adds_more_than_the_clipping_norm() -> None:
    torch.manual_seed(0)
    module, (_, made) = Wide(INPUTS, CLASSES).double(), stars(9)
    for record in range(9):
        gradients = EgoGraphClippedSum(module, made, torch.arange(9) % CLASSES)
        gradients.add(torch.tensor([record]), 0.05)
        assert 0.0499 < float(gradients.sums.norm()) <= 0.05


def test_a_weight_that_is_read_besides_its_map_is_found_out() -> None:
    assert choose_route(Wide(INPUTS, CLASSES), INPUTS, CLASSES)[0] == "ghost"
    assert choose_route(Tied(INPUTS, CLASSES), INPUTS, CLASSES)[0] == "vmap"


def test_small_maps_are_formed_and_nothing_stays_on_the_module() -> None:
    module = Wide(INPUTS, CLASSES)
    assert not affine_parts(module, 100)
    sums(module.double(), "ghost", 1.0)
    assert not any(part._forward_hooks for part in module.modules())
