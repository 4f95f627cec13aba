"""Synthetic graphs have the statistics of their presets and depend on the seed alone."""

import numpy as np
import pytest
import torch

from graphveil.core.features import to_dense
from graphveil.data import Graph, dataset_info, load_dataset, synthetic
from graphveil.data.datasets import PRESETS
from graphveil.errors import ConfigError

# Median degree and homophily; all other numbers are exact.
SHAPES = {"tiny": (8, 0.7), "demo": (18, 0.6), "facebook": (62, 0.5)}
LARGE = {"reddit": (209, 0.75), "amazon": (22, 0.8), "large": (12, 0.8)}


@pytest.mark.parametrize("name", [*SHAPES, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_statistics_are_those_of_the_preset(name: str) -> None:
    preset, graph = PRESETS[name], synthetic(name)
    median, homophily = (SHAPES | LARGE)[name]
    degrees = graph.adjacency.indptr.diff().numpy()
    source, target = graph.adjacency.edge_index()
    assert (graph.num_nodes, graph.num_features) == (preset.nodes, preset.features)
    assert graph.num_classes == preset.classes and bool(graph.labeled.all())
    assert degrees.sum() == 2 * preset.edges
    assert np.median(degrees) == pytest.approx(median, abs=1 + 0.02 * median)
    assert float((graph.y[source] == graph.y[target]).double().mean()) == pytest.approx(homophily, abs=0.01)


def test_sizes_are_those_of_the_papers() -> None:
    found = {
        name: (PRESETS[name].nodes, 2 * PRESETS[name].edges) for name in ("facebook", "reddit", "amazon")
    }
    assert found == {
        "facebook": (26_406, 2_117_924),
        "reddit": (116_713, 46_233_380),
        "amazon": (1_790_731, 80_966_832),
    }


def test_the_seed_determines_the_graph_and_its_edge_set() -> None:
    first, again, other = synthetic("tiny"), synthetic("tiny"), synthetic("tiny", seed=3)
    assert torch.equal(first.adjacency.indices, again.adjacency.indices)
    assert torch.equal(to_dense(first.x), to_dense(again.x))
    assert not torch.equal(first.adjacency.indices, other.adjacency.indices)
    assert not torch.equal(to_dense(first.x), to_dense(other.x)) and not torch.equal(first.y, other.y)
    assert first.name == "synthetic/tiny" and first.edge_set.id == "dataset:synthetic/tiny"
    assert other.edge_set.id == "dataset:synthetic/tiny@3"


def test_rejects_an_unknown_preset() -> None:
    with pytest.raises(ConfigError, match=r"preset='redit' is not one of .*; did you mean 'reddit'\?"):
        synthetic("redit")


def test_features_are_one_hot_codes_or_bits() -> None:
    codes = synthetic("facebook").x
    assert not isinstance(codes, torch.Tensor)
    assert set(codes.data.tolist()) == {1.0} and np.diff(codes.indptr).max() <= 5
    assert np.bincount(codes.indices, minlength=501).all()
    bits = to_dense(synthetic("demo").x)
    assert set(bits.unique().tolist()) == {0.0, 1.0} and 0.1 < float(bits.mean()) < 0.35


def nearest_mean_accuracy(graph: Graph, x: torch.Tensor) -> float:
    train, test = graph.labeled_in("train"), graph.labeled_in("test")
    means = torch.stack([x[train & (graph.y == number)].mean(dim=0) for number in range(graph.num_classes)])
    return float((torch.cdist(x, means).argmin(dim=1) == graph.y)[test].double().mean())


def test_edges_of_the_demo_improve_a_nearest_mean_classifier() -> None:
    graph = load_dataset("synthetic/demo", seed=4)
    assert graph.has_split and dataset_info("synthetic/demo")["edges"] == 37_500
    x = to_dense(graph.x) - to_dense(graph.x).mean(dim=0)
    source, target = graph.adjacency.edge_index()
    summed = torch.nn.functional.normalize(torch.zeros_like(x).index_add(0, target, x[source]))
    alone, together = (nearest_mean_accuracy(graph, rows) for rows in (x, summed))
    assert 0.5 < alone < 0.7 and together > alone + 0.15
