"""The backend of an estimator does not affect results, saved files or resumed fits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.cluster.backend import RayBackend
from graphveil.core.backends import AggregationBackend, backend_by_name, backend_for, using
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import ledger_of
from graphveil.errors import ConfigError
from graphveil.estimators.saved import parameter_types
from tests.estimators.gnn.modules import Mean, Records

pytestmark = pytest.mark.usefixtures("quick_classcode")

EDGES = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-5, "seed": 3, "unsafe_noise_seed": 4}


class Watched(gv.backends.Memory):
    """Records that it was used."""

    def blocks(self, adjacency: Any, first: int = 0) -> Any:
        used.append(type(self).__name__)
        return super().blocks(adjacency, first)


used: list[str] = []
OWNER = {"unit": "node-record", "epsilon": 8.0, "seed": 0}
CONFIGURED: dict[str, dict[str, Any]] = {
    "classcode": EDGES,
    "gnn": OWNER | {"module": Mean, "leaves": 8},
    "lpgnet": EDGES,
    "heterorr": {"unit": "edge-subset", "epsilon": 2.0, "eps_x": 9.0},
    "module": OWNER | {"module": Records},
}


@pytest.mark.parametrize("method", sorted(gv.METHODS))
def test_every_estimator_takes_a_backend_that_is_not_saved(method: str) -> None:
    cls, keywords = gv.METHODS[method], CONFIGURED.get(method, {"unit": "none"})
    model = cls(**keywords, backend="memory")
    assert model.get_params()["backend"] == "memory" and "backend" not in model.recorded_params()
    assert not hasattr(model.config, "backend") and "backend" not in parameter_types(cls)
    for wrong in ("dask", 3, object()):
        with pytest.raises(ConfigError, match="backend="):
            cls(**keywords, backend=wrong)
    with pytest.raises(ConfigError, match="backend="):
        model.backend = "dask"


@pytest.mark.parametrize("method", ["gap", "classcode"])
def test_fits_and_predictions_are_bit_identical_for_every_backend(method: str, tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    backends: tuple[AggregationBackend | str | None, ...] = (
        None,
        "memory",
        gv.backends.Memory(40),
        Watched(11),
    )
    found = []
    for number, backend in enumerate(backends):
        used.clear()
        model = gv.METHODS[method](**EDGES, backend=backend).fit(graph)
        seen = model.predict_proba(another(graph), assume_disjoint_edges=True)
        assert (len(used) >= 2) == isinstance(backend, Watched)  # the fit, and the other graph
        model.save(tmp_path / str(number))
        found.append((torch.as_tensor(model.predict_proba(None)), torch.as_tensor(seen)))
        text = (tmp_path / str(number) / "model.json").read_text()
        assert "backend" not in text and gv.load_model(tmp_path / str(number)).backend is None
    assert all(torch.equal(one, found[0][part]) for pair in found for part, one in enumerate(pair))


def another(graph: gv.Graph) -> gv.Graph:
    """Return a graph of the same nodes and other edges."""
    source, target = graph.adjacency.edge_index()
    shifted = (target + 1) % graph.num_nodes
    edges = Adjacency.from_edges(source, shifted, num_nodes=graph.num_nodes, directed=False)
    return graph.replace(adjacency=edges)


def test_a_resumed_fit_may_use_another_backend(tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    first = gv.GAP(**EDGES).fit(graph, workspace=tmp_path)
    again = gv.GAP(**EDGES, backend=gv.backends.Memory(13)).fit(graph, workspace=tmp_path)
    assert np.array_equal(np.asarray(first.predict_proba(None)), np.asarray(again.predict_proba(None)))


def test_the_backend_of_fit_overrides_that_of_the_constructor() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    model = gv.GAP(**EDGES, backend="disk")
    model.fit(graph, backend="memory")
    with pytest.raises(ConfigError, match="graphveil prepare"):
        model.fit(graph)
    assert len(ledger_of(graph.edge_set).entries) == 1


def test_using_sets_the_backend_of_functions_without_one() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    used.clear()
    plain = gv.private_hops(graph, unit="undirected-edge", epsilon=1.0, delta=1e-5, unsafe_noise_seed=1)
    assert not used
    with gv.backends.using(Watched(9)):
        there = gv.private_hops(graph, unit="undirected-edge", epsilon=1.0, delta=1e-5, unsafe_noise_seed=1)
        noisy = gv.perturb.edge_rand(graph, unit="undirected-edge", epsilon=4.0, unsafe_noise_seed=1)
        with using(None), using("memory"):
            assert type(backend_for(None, graph.adjacency)) is gv.backends.Memory
        assert isinstance(backend_for(None, graph.adjacency), Watched)
    assert torch.equal(plain.rows, there.rows) and set(used) == {"Watched"}
    here = gv.perturb.edge_rand(graph, unit="undirected-edge", epsilon=4.0, unsafe_noise_seed=1)
    assert torch.equal(noisy.graph.adjacency.indices, here.graph.adjacency.indices)
    with pytest.raises(ConfigError, match="backend="), using("dask"):
        raise AssertionError
    assert type(backend_for(None, graph.adjacency)) is gv.backends.Memory


def test_addresses_are_for_ray_only() -> None:
    assert backend_by_name(None) is None and backend_by_name("disk") == "disk"
    assert backend_by_name("ray", "here:1") == RayBackend(address="here:1")
    for name in (None, "memory", "disk"):
        with pytest.raises(ConfigError, match="--backend ray"):
            backend_by_name(name, "here:1")
