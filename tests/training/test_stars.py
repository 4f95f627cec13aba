"""Stars in float32 and rows that are not read: what is added is clipped by its own norm, record by record."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from graphveil.core.clipping import clipped_sums, ego_graphs
from graphveil.core.clipping.clipped_sums import clip_factors
from graphveil.core.clipping.ego_graphs import AffineGradients, EgoGraphClippedSum, StoredEgoGraphs
from graphveil.estimators.gnn.module_training import choose_route

with warnings.catch_warnings():  # of torch.jit, which torch_geometric still calls as it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATv2Conv, GINConv, SAGEConv, TransformerConv

Patch = pytest.MonkeyPatch

INPUTS, CLASSES, LEAVES, COUNT, ONE, CLIP = 40, 3, 4, 9, 4, 0.05
WIDTH = LEAVES + 2


class Net(nn.Module):
    """Convolutions and a linear map."""

    def __init__(self, conv: Callable[[int], nn.Module], rounds: int = 1) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(INPUTS if k == 0 else 16) for k in range(rounds)])
        self.out = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = torch.relu(conv(x, edge_index))
        return self.out(x)


CONVOLUTIONS: dict[str, Callable[[int], nn.Module]] = {
    "sage": lambda inputs: SAGEConv(inputs, 16),
    "max": lambda inputs: SAGEConv(inputs, 16, aggr="max", project=True),
    "gin": lambda inputs: GINConv(nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, 16))),
    "transformer": lambda inputs: TransformerConv(inputs, 16),
    "gatv2": lambda inputs: GATv2Conv(inputs, 16, add_self_loops=False),
}


class Difference(nn.Module):
    """One wide map of the root less the same map of a leaf, whose gradients cancel where these are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(INPUTS, 20)
        self.register_buffer("last", torch.randn(20, CLASSES, generator=torch.Generator().manual_seed(3)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.wide(x)
        return (hidden - hidden.roll(-1, 0)) @ self.last  # type: ignore[operator]


def some(count: int = COUNT) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, WIDTH, INPUTS, generator=generator)
    edges = torch.full((count, 2, LEAVES), WIDTH - 1)
    for star in range(count):
        k = star % (LEAVES + 1)
        edges[star, 0, :k], edges[star, 1, :k] = torch.arange(1, k + 1), 0
    return x, edges


def summed(
    module: nn.Module, x: Tensor, edges: Tensor, index: Tensor, clip: float = CLIP, **how: Any
) -> Tensor:
    labels = torch.arange(len(x)) % CLASSES
    gradients = EgoGraphClippedSum(module, StoredEgoGraphs(x, edges), labels, **how)
    gradients.add(index, clip)
    return gradients.sums


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("huge", [1.0, 1e30])
def test_what_one_record_holds_changes_no_bit_of_the_others_in_float32(
    name: str, huge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[Tensor] = []

    def keep(squares: Tensor, *given: Any) -> tuple[Tensor, Tensor | None]:
        norms.append(squares)
        return clip_factors(squares, *given)

    monkeypatch.setattr(ego_graphs, "clip_factors", keep)
    torch.manual_seed(0)
    module, (x, edges) = Net(CONVOLUTIONS[name]), some()
    before = summed(module, x, edges, torch.arange(COUNT), dtype=torch.float32)
    x[ONE], edges[ONE] = x[ONE].flip(0) * huge, WIDTH - 1
    after = summed(module, x, edges, torch.arange(COUNT), dtype=torch.float32)
    others = torch.arange(COUNT) != ONE
    assert torch.equal(norms[0][others], norms[1][others])
    assert 0 < float((after - before).norm()) <= 2 * CLIP


@pytest.mark.parametrize("route", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_no_record_adds_more_than_the_clipping_norm_in_float32(name: str, route: Any) -> None:
    torch.manual_seed(0)
    module, (x, edges) = Net(CONVOLUTIONS[name]), some()
    for record in range(COUNT):
        alone = summed(module, x, edges, torch.tensor([record]), route=route, dtype=torch.float32)
        assert CLIP * (1 - 1e-5) < float(alone.norm()) <= CLIP


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_sums_are_those_of_a_loop_in_float64(name: str, rounds: int) -> None:
    torch.manual_seed(0)
    module, (x, edges) = Net(CONVOLUTIONS[name], rounds), some()
    looped = summed(module, x, edges, torch.arange(COUNT), 1e3, route="loop")
    for dtype, close in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        found = summed(module, x, edges, torch.arange(COUNT), 1e3, dtype=dtype)
        torch.testing.assert_close(found, looped, rtol=close, atol=close)


class Overhears(nn.Module):
    """Reads rows of a wide map that no gradient goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(INPUTS, 20), nn.Linear(20, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.wide(x)
        return self.out(torch.tanh(hidden + hidden.detach().roll(-1, 0)))


def test_rows_that_are_read_without_a_gradient_pass_the_map() -> None:
    torch.manual_seed(0)
    module, (x, edges) = Overhears(), some()
    found, looped = (
        summed(module, x, edges, torch.arange(COUNT), 1e3, route=route) for route in ("ghost", "loop")
    )
    torch.testing.assert_close(found, looped, rtol=1e-11, atol=1e-11)


# -- rows that cancel --------------------------------------------------------------------------------------


def largest_alone(size: float, dtype: torch.dtype) -> float:
    """The longest that one record adds whose two rows are large and much the same."""
    torch.manual_seed(0)
    module, (x, edges) = Difference(), some()
    x = x.double()
    x[:, 1] += x[:, 0]
    x[:, :2] += size
    sums = [summed(module, x, edges, torch.tensor([one]), dtype=dtype) for one in range(COUNT)]
    return max(float(alone.norm()) for alone in sums)


@pytest.mark.parametrize("size", [0.0, 1e2, 1e6, 1e10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_rows_that_cancel_are_clipped_all_the_same(size: float, dtype: torch.dtype) -> None:
    assert 0 <= largest_alone(size, dtype) <= CLIP


def test_a_norm_that_is_nothing_but_rounding_would_clip_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ego_graphs, "_CANCELLATION_THRESHOLD", 0.0)
    assert largest_alone(1e10, torch.float64) > 2 * CLIP


def test_rows_that_do_not_cancel_have_their_own_norm() -> None:
    generator = torch.Generator().manual_seed(0)
    h, delta = (torch.randn(7, 5, d, generator=generator, dtype=torch.float64) for d in (30, 6))
    formed = torch.einsum("bnd,bne->bed", h, delta)
    own = formed.square().sum(dim=(1, 2))
    part = AffineGradients(h, delta)
    torch.testing.assert_close(part.square_norms(bias=False), own, rtol=1e-12, atol=0)
    with_bias = own + delta.sum(dim=1).square().sum(dim=1)
    torch.testing.assert_close(part.square_norms(bias=True), with_bias, rtol=1e-12, atol=0)
    assert ego_graphs._CANCELLATION_THRESHOLD * 5**2 < 1e-3  # rows that do not cancel are far above the floor


class Scaled(nn.Module):
    """Affine maps whose rows and logits are multiplied by tiny numbers."""

    def __init__(self, rows: float, logits: float) -> None:
        super().__init__()
        self.wide, self.last, self.scales = nn.Linear(INPUTS, 20), nn.Linear(20, CLASSES), (rows, logits)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.wide(x) * self.scales[0]) * self.scales[1]


@pytest.mark.parametrize("route", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize(
    ("huge", "rows", "logits", "clip"),
    [(1e24, 1e-24, 1.0, 1e-3), (1e30, 1e-30, 1.0, 1e-3), (1, 1, 1e-25, 1e-28)],
)
def test_squares_beyond_float32_are_clipped_by_their_norm(
    route: Any, huge: float, rows: float, logits: float, clip: float
) -> None:
    """Deltas of 10^-24 have squares of 0 in float32."""
    torch.manual_seed(0)
    module, (x, edges) = Scaled(rows, logits), some()
    for record in range(COUNT):
        alone = summed(
            module, x * huge, edges, torch.tensor([record]), clip=clip, route=route, dtype=torch.float32
        )
        assert clip * (1 - 1e-4) < float(alone.norm()) <= clip


# -- rows that are picked ----------------------------------------------------------------------------------


PICKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, index: x.index_select(0, index),
    "gather": lambda x, index: x.gather(0, index[:, None].expand(2, 3)),
    "index_add": lambda x, index: torch.zeros_like(x).index_add(0, index, x[:2]),
    "scatter_add": lambda x, index: torch.zeros_like(x).scatter_add(0, index[:, None].expand(2, 3), x[:2]),
}


@pytest.mark.parametrize("record", [0, 1])
@pytest.mark.parametrize("beyond", [5, 7, -1])
@pytest.mark.parametrize("pick", PICKS)
def test_no_index_reaches_another_records_rows(pick: str, beyond: int, record: int) -> None:
    """Under vmap torch refuses an index beyond a record's own rows: the isolation of stars rests on it."""
    x, index = torch.ones(2, 5, 3), torch.tensor([[0, 1], [1, 0]])
    index[record, 0] = beyond
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        vmap(PICKS[pick])(x, index)


class Pairs(nn.Module):
    """Picks both ends of every edge, and needs both to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(INPUTS, 20), nn.Linear(20, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        sent, own = x.index_select(0, source), x.index_select(0, target)
        hidden = torch.tanh(self.wide(sent) * self.wide(own))
        there = hidden.new_zeros(len(x), 20).index_add(0, target, hidden * sent[:, :20] * own[:, 20:])
        return self.out(there)


@pytest.mark.parametrize("route", ["ghost", "vmap"])
def test_pieces_change_no_sum(route: Any, monkeypatch: Patch) -> None:
    torch.manual_seed(0)
    module, (x, edges) = Pairs(), some(20)
    x[3] = torch.inf
    looped = summed(module, x, edges, torch.arange(20), route="loop")
    monkeypatch.setattr(clipped_sums, "_CHUNK_NUMBERS", 2000)  # two records' gradients
    monkeypatch.setattr(clipped_sums, "_PIECE_NUMBERS", 1 << 13)  # several chunks
    found = summed(module, x, edges, torch.arange(20), route=route)
    torch.testing.assert_close(found, looped, rtol=1e-11, atol=1e-11)
    for record in (0, 7, 19):
        alone = summed(module, x, edges, torch.tensor([record]), route=route, dtype=torch.float32)
        assert float(alone.norm()) <= CLIP


# -- what a module computes in -----------------------------------------------------------------------------


class Doubled(Net):
    """Makes float64 numbers of its own."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x + torch.ones(INPUTS, dtype=torch.float64) - 1.0, edge_index)


class Coarse(Net):
    """Comes to something else in float32."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + ((x[:, :CLASSES] + 1e8) - 1e8)


@pytest.mark.parametrize(("kind", "dtype"), [(Net, "float32"), (Doubled, "float64"), (Coarse, "float64")])
def test_a_module_runs_in_float32_where_it_comes_to_the_same(kind: type[Net], dtype: str) -> None:
    torch.manual_seed(0)
    found = choose_route(kind(CONVOLUTIONS["sage"]), INPUTS, CLASSES)
    assert found.dtype == getattr(torch, dtype) and found.route == "ghost"
