"""Sums on a GPU have the bytes of those in memory. Without one the same way is taken on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.data import Adjacency
from graphveil.errors import ConfigError
from graphveil.ledger import MemoryLedger, ledger_of
from graphveil.privacy import UndirectedEdge
from graphveil.propagation import safe_unit
from graphveil.release import InMemoryBackend, Release, ReleaseKey, ReleasePlan
from graphveil.release.backends import CudaBackend, RowRange
from graphveil.release.neighbor_sums import NeighborSumData
from graphveil.release.plan import hops
from graphveil.release.row_sums import CompactRows, NoisyRows, RowNoise, Sums
from release.test_disk_engine import drawn, stored
from release.test_engines import ASKED, asked, star

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]
EDGES = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-5, "seed": 3, "unsafe_noise_seed": 4}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ASKED)
def test_every_query_answers_with_the_same_bytes(name: str, device: str) -> None:
    here = asked(name, InMemoryBackend())
    for block_rows in (1, 7, 1 << 17):
        assert torch.equal(asked(name, CudaBackend(device, block_rows)), here)
    assert torch.equal(asked(name, RowRange(9, CudaBackend(device, 4))), asked(name, RowRange(9)))


def hop(graph: Adjacency, mu: float, backend: InMemoryBackend | CudaBackend, dim: int = 5) -> torch.Tensor:
    rows = torch.ones(graph.num_nodes, dim)  # every entry of a sum is as large as it can be
    plan = ReleasePlan(UndirectedEdge(), hops(mu, 1, dim, UndirectedEdge()), delta=1e-3)
    key = ReleaseKey.from_seed(5, "cuda")
    release = Release.open(plan, graph, budget=MemoryLedger(), key=key, backend=backend)
    answer: torch.Tensor = release.answer(NeighborSumData(safe_unit(rows)))
    return answer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mu", [1.0, 0.005])  # noise in float32, and in float64
@pytest.mark.parametrize("leaves", [1_000, 5_000, 300_000])  # in one piece of a sum, in some, in many
def test_rows_too_long_for_float32_are_summed_in_integers(leaves: int, mu: float, device: str) -> None:
    ends = np.arange(1, leaves + 1), np.zeros(leaves, dtype=np.int64)
    graph = Adjacency.from_edges(*ends, num_nodes=leaves + 1, directed=False)
    assert torch.equal(hop(graph, mu, CudaBackend(device)), hop(graph, mu, InMemoryBackend()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [1, 7, 8, 130])
def test_every_width_and_a_graph_of_many_blocks(dim: int, device: str) -> None:
    rng = np.random.default_rng(0)
    graph = Adjacency.from_edges(*rng.integers(3000, size=(2, 9000)), num_nodes=3000, directed=False)
    backend = CudaBackend(device, 1024)
    assert torch.equal(hop(graph, 2.0, backend, dim), hop(graph, 2.0, InMemoryBackend(), dim))


@pytest.mark.parametrize("device", DEVICES)
def test_nodes_without_edges_have_their_noise(device: str) -> None:
    nothing = Adjacency.from_edges([], [], num_nodes=9, directed=False)
    assert torch.equal(hop(nothing, 2.0, CudaBackend(device)), hop(nothing, 2.0, InMemoryBackend()))


@pytest.mark.parametrize("device", DEVICES)
def test_edges_on_disk_are_read_from_there(tmp_path: Path, device: str) -> None:
    graph = drawn()
    found = stored(tmp_path, graph).adjacency
    for rows in (5, 100):
        there = hop(found, 1.0, CudaBackend(device, rows))
        assert torch.equal(there, hop(graph.adjacency, 1.0, InMemoryBackend()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["gap", "classcode"])
def test_a_fit_has_the_same_bytes(method: str, device: str) -> None:
    graph, backend = gv.load_dataset("synthetic/tiny"), CudaBackend(device, 40)
    here, there = (
        gv.METHODS[method](**EDGES, backend=one, device="cpu").fit(graph) for one in (None, backend)
    )
    assert np.array_equal(np.asarray(here.predict_proba(None)), np.asarray(there.predict_proba(None)))


@pytest.mark.parametrize("device", DEVICES)
def test_the_table_is_there_and_what_comes_back_is_here(device: str) -> None:
    compact = CompactRows.empty(6, 3, 12)
    compact.rows.fill_(2)
    noise = RowNoise(None, (gv.mechanisms.DiscreteGaussian(100.0),), (1.0,))
    for rows in (compact, torch.full((6, 3), 2.0)):
        work = NoisyRows(Sums(rows, 100), noise, bytes(32)).on(device)
        assert isinstance(work.sums.rows, torch.Tensor) and work.sums.rows.device.type == device
        block = next(CudaBackend(device).blocks(star(5)))
        answer = work(block)
        assert answer.device.type == "cpu"
        assert torch.equal(answer, NoisyRows(Sums(torch.full((6, 3), 2.0), 100), noise, bytes(32))(block))


def test_a_gpu_that_is_not_here_is_refused_before_anything_is_spent() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    with pytest.raises(ConfigError, match=r"torch finds \d+ such GPUs here; use backend='memory'"):
        gv.GAP(unit="undirected-edge", epsilon=1.0).fit(graph, backend=gv.backends.Cuda("cuda:99"))
    assert not ledger_of(graph.edge_set).entries


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device here")
def test_so_is_its_name_without_one() -> None:
    with pytest.raises(ConfigError, match="torch finds 0 such GPUs"):
        gv.GAP(unit="undirected-edge", epsilon=1.0, backend="cuda").fit(gv.load_dataset("synthetic/tiny"))


@pytest.mark.parametrize("wrong", ["mps", "cuda:", "cuda:x", "cpu:0:1", ""])
def test_other_devices_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not 'cuda'"):
        CudaBackend(wrong)
    with pytest.raises(ConfigError, match="block_rows=0"):
        CudaBackend(block_rows=0)
