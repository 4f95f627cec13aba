"""Gradients on another device: the same sums, nothing left behind on the CPU, and a GPU in a fixed order.

``cpu:0`` is a device that is not ``cpu``: all is copied there and back as to a GPU, and the kernels are the
CPU's. A fake device has shapes and no numbers: whatever mixes it with the host fails there. Numbers of a real
GPU are compared where there is one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from graphveil.errors import ConfigError
from graphveil.estimators.gnn.execution_route import choose_route
from graphveil.estimators.own.module_checks import check_deterministic
from graphveil.training import clipped_sums, ego_graphs
from graphveil.training.clipped_sums import ClippedSum, GhostClippedSum
from graphveil.training.devices import CPU, deterministic_on, device_tag, private_device
from graphveil.training.ego_graphs import EgoGraphClippedSum, Route, StoredEgoGraphs, ego_graph_logits
from graphveil.training.ghost_modules import Activation, Affine, GhostBranches, GhostSequential, UnitRows
from graphveil.training.per_sample import PerSampleClippedSum

ELSEWHERE = torch.device("cpu", 0)
RECORDS, INPUTS, CLASSES, LEAVES = 9, 40, 3, 4
ROUTES: tuple[Route, ...] = ("ghost", "vmap", "loop")
ALL = torch.arange(RECORDS)

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


class Means(nn.Module):
    """Two maps, of which one reads a mean over messages."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.heard, self.out = (
            nn.Linear(INPUTS, 30),
            nn.Linear(INPUTS, 30, bias=False),
            nn.Linear(30, CLASSES),
        )
        self.register_buffer("part", torch.tensor(0.5))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        messages = x.index_select(0, source)
        places = target[:, None].expand_as(messages)
        heard = torch.zeros_like(x).scatter_add_(0, places, messages)
        return self.out(torch.relu(self.own(x) + self.part * self.heard(heard)))


def some_stars(dtype: torch.dtype = torch.float64) -> tuple[StoredEgoGraphs, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(RECORDS, LEAVES + 2, INPUTS, generator=generator, dtype=torch.float64).to(dtype)
    leaves = torch.arange(1, LEAVES + 1)
    edges = torch.stack([leaves, torch.zeros_like(leaves)]).expand(RECORDS, 2, LEAVES)
    labels = torch.arange(RECORDS) % CLASSES
    return StoredEgoGraphs(x, edges), labels


Built = Callable[[torch.device], ClippedSum]


def star_sum(route: Route = "ghost", dtype: torch.dtype = torch.float64) -> Built:
    torch.manual_seed(0)
    module, (made, labels) = Means(), some_stars()
    return lambda at: EgoGraphClippedSum(module, made, labels, route=route, dtype=dtype, device=at)


def records(kind: str) -> Any:
    x = np.random.default_rng(0).normal(size=(RECORDS, INPUTS)).astype(np.float32)
    x[np.abs(x) < 1] = 0
    if kind == "sparse":
        return sparse.csr_array(x)
    return torch.from_numpy(x) if kind == "dense" else (torch.from_numpy(x), torch.from_numpy(x[:, :5]))


def affine(inputs: int, outputs: int) -> Affine:
    layer = nn.Linear(inputs, outputs)
    return Affine(layer.weight.t(), layer.bias)


def ghost_sum(kind: str) -> Built:
    torch.manual_seed(0)
    first = GhostBranches(affine(INPUTS, 6), affine(5, 6)) if kind == "blocks" else affine(INPUTS, 12)
    chain = GhostSequential(first, Activation("selu"), UnitRows(), affine(12, CLASSES))
    x = records(kind)
    return lambda at: GhostClippedSum(chain, x, ALL % CLASSES, at)


def per_sample_sum() -> Built:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(INPUTS, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, CLASSES))
    x = records("dense")
    return lambda at: PerSampleClippedSum(network, x, ALL % CLASSES, at)


SUMS: dict[str, Callable[[], Built]] = {
    **{f"star {route}": partial(star_sum, route) for route in ROUTES},
    "star float32": partial(star_sum, "ghost", torch.float32),
    **{f"ghost {kind}": partial(ghost_sum, kind) for kind in ("dense", "sparse", "blocks")},
    "per sample": per_sample_sum,
}


def added(gradients: ClippedSum, clip: float = 0.5) -> Tensor:
    gradients.add(ALL, clip)
    return gradients.sums


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_elsewhere_is_the_sum_here(name: str) -> None:
    here, there = SUMS[name]()(CPU), SUMS[name]()(ELSEWHERE)
    for _ in range(2):  # at two sets of weights: the second ones have to get there, too
        torch.testing.assert_close(added(there), added(here), rtol=1e-12, atol=1e-14)
        for one in (here, there):
            one.weights.add_(0.01)
    assert there.sums.device == there.weights.device == CPU


@pytest.mark.parametrize("name", SUMS)
def test_weights_that_stay_behind_are_noticed(name: str) -> None:
    here, there = SUMS[name]()(CPU), SUMS[name]()(ELSEWHERE)
    there.weights.add_(0.5)
    assert not torch.allclose(added(there), added(here))


def test_predictions_elsewhere_are_those_here() -> None:
    made, _ = some_stars()
    module = Means()
    found = [ego_graph_logits(module, made, RECORDS, CLASSES, device=at) for at in (CPU, ELSEWHERE)]
    assert torch.equal(*found) and found[1].device == CPU


FAKE = torch.device("lazy")  # a kind that torch asks no driver for


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTensorMode:
    """A device without numbers: what asks for some is answered here."""
    monkeypatch.setattr(clipped_sums, "all_finite", lambda values: True)
    monkeypatch.setattr(ego_graphs, "run_masking_failures", lambda run, records: (run(*records), None))
    return FakeTensorMode(allow_non_fake_inputs=True)


@pytest.mark.parametrize("name", [name for name in SUMS if name != "ghost sparse"])
def test_nothing_of_a_sum_is_left_on_the_host(name: str, fake: FakeTensorMode) -> None:
    built = SUMS[name]()
    with fake:
        gradients = built(FAKE)
        gradients.add(ALL, 0.5)
        weights, sums = gradients._there
    assert weights.device.type == sums.device.type == FAKE.type and gradients.sums.device == CPU


def test_predictions_mix_no_devices(fake: FakeTensorMode) -> None:
    (made, _), module = some_stars(), Means()
    with fake:
        assert ego_graph_logits(module, made, RECORDS, CLASSES, device=FAKE).device == CPU


def test_a_fake_device_notices_what_is_left_behind(fake: FakeTensorMode) -> None:
    """The two tests above can fail."""
    built = SUMS["star vmap"]()
    with fake:
        gradients = built(FAKE)
        assert isinstance(gradients, EgoGraphClippedSum)
        gradients._fixed["part"] = torch.ones(30)
        with pytest.raises(Exception, match=r"same device|two different devices"):
            gradients.add(ALL, 0.5)


class TestFixedOrder:
    def test_a_gpu_adds_in_a_fixed_order_while_gradients_are_formed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
        torch.set_float32_matmul_precision("medium")
        try:
            with deterministic_on(torch.device("cuda")):
                assert torch.are_deterministic_algorithms_enabled()
                assert not torch.is_deterministic_algorithms_warn_only_enabled()
                assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.are_deterministic_algorithms_enabled()
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.set_float32_matmul_precision("highest")

    def test_it_ends_with_an_error_too(self) -> None:
        with pytest.raises(KeyError), deterministic_on(torch.device("cuda")):
            raise KeyError
        assert not torch.are_deterministic_algorithms_enabled()

    def test_auto_is_the_cpu_beside_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert private_device("auto") == private_device("cpu") == CPU
        assert private_device("cuda").type == "cuda"

    def test_emulated_float64_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "1")
        with pytest.raises(ConfigError, match="CUBLAS_EMULATE_DOUBLE_PRECISION"):
            private_device("cuda")
        assert private_device("auto") == CPU

    def test_noise_is_bound_to_the_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"H100 of {device}")
        assert device_tag(CPU) == ()
        (one,) = device_tag(torch.device("cuda"))
        assert bytes(one.numpy()).decode() == "cuda: H100 of cuda"
        (other,) = device_tag(ELSEWHERE)
        assert not torch.equal(one[: len(other)], other)


class TestProbes:
    def test_a_module_that_is_the_same_elsewhere_is_taken(self) -> None:
        torch.manual_seed(0)
        found, here = (choose_route(Means(), INPUTS, CLASSES, device) for device in (ELSEWHERE, CPU))
        assert (found.route, found.dtype) == (here.route, here.dtype) == ("ghost", torch.float32)

    def test_one_that_is_another_elsewhere_is_refused(self) -> None:
        module = nn.Linear(2, 2)
        with pytest.raises(ConfigError, match="Linear comes to other numbers on device='cpu'"):
            check_deterministic(module, torch.zeros(2), lambda: torch.ones(2), ELSEWHERE)

    def test_one_that_is_not_the_same_twice_is_refused(self) -> None:
        numbers = iter((0.0, 1e-12))
        with pytest.raises(ConfigError, match="not to the same twice"):
            check_deterministic(
                nn.Linear(2, 2), torch.zeros(1), lambda: torch.tensor([next(numbers)]), ELSEWHERE
            )

    def test_one_without_a_fixed_order_is_refused(self) -> None:
        def unordered() -> Tensor:
            raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

        with pytest.raises(ConfigError, match=r"in a fixed order.*cumsum_cuda_kernel.*use device='cpu'"):
            check_deterministic(nn.Linear(2, 2), torch.zeros(1), unordered, ELSEWHERE)

    def test_records_that_round_each_other_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel that looks at the whole batch: the sum moves by the last bits of what has no label."""
        honest = EgoGraphClippedSum._maps

        def rounding(self: EgoGraphClippedSum, inputs: list[Tensor], deltas: list[Tensor]) -> Any:
            seen = 1e-16 * inputs[0].abs().max() if inputs else 0.0
            return honest(self, [part + seen for part in inputs], deltas)

        monkeypatch.setattr(EgoGraphClippedSum, "_maps", rounding)
        torch.manual_seed(0)
        with pytest.raises(ConfigError, match="rounds one record's gradient by the others' numbers"):
            choose_route(Means(), INPUTS, CLASSES, ELSEWHERE)


@needs_a_gpu
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_on_a_gpu_is_the_sum_here(name: str) -> None:
    here, there = added(SUMS[name]()(CPU)), added(SUMS[name]()(torch.device("cuda")))
    close = 1e-4 if "float32" in name else 1e-10
    torch.testing.assert_close(there, here, rtol=close, atol=close)


@needs_a_gpu
@pytest.mark.parametrize("name", SUMS)
def test_a_gpu_gives_the_same_bits_twice(name: str) -> None:
    assert torch.equal(*(added(SUMS[name]()(torch.device("cuda"))) for _ in range(2)))


@needs_a_gpu
@pytest.mark.parametrize("name", SUMS)
def test_no_record_adds_more_than_the_clip_on_a_gpu(name: str) -> None:
    for record in range(RECORDS):
        gradients = SUMS[name]()(torch.device("cuda"))
        gradients.add(torch.tensor([record]), 1e-3)
        assert float(gradients.sums.norm()) <= 1e-3
