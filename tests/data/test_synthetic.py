import numpy as np
import pytest
import torch

from graphveil.data import dataset_info, load_dataset, synthetic, to_dense
from graphveil.data.synthetic_graphs import PRESETS
from graphveil.errors import ConfigError


def homophily(graph):
    source, target = graph.adjacency.edge_index()
    return float((graph.y[source] == graph.y[target]).double().mean())


# What the graphs are to look like: median degree and homophily; the rest is exact.
SHAPES = {"tiny": (8, 0.7), "demo": (18, 0.6), "facebook": (62, 0.5)}
LARGE = {"reddit": (209, 0.75), "amazon": (22, 0.8), "large": (12, 0.8)}


@pytest.mark.parametrize("name", [*SHAPES, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_the_statistics_are_those_of_the_preset(name):
    preset, graph = PRESETS[name], synthetic(name)
    median, same_class = (SHAPES | LARGE)[name]
    degrees = graph.adjacency.indptr.diff().numpy()
    assert (graph.num_nodes, graph.num_features) == (preset.nodes, preset.features)
    assert graph.num_classes == preset.classes and bool(graph.labeled.all())
    assert degrees.sum() == 2 * preset.edges
    assert np.median(degrees) == pytest.approx(median, abs=1 + 0.02 * median)
    assert homophily(graph) == pytest.approx(same_class, abs=0.01)


def test_the_published_sizes():
    stored = {name: 2 * PRESETS[name].edges for name in ("facebook", "reddit", "amazon")}
    assert stored == {"facebook": 2_117_924, "reddit": 46_233_380, "amazon": 80_966_832}
    nodes = [PRESETS[name].nodes for name in stored]
    assert nodes == [26_406, 116_713, 1_790_731]


def test_the_seed_decides_everything():
    first, again, other = synthetic("tiny"), synthetic("tiny"), synthetic("tiny", seed=1)
    assert torch.equal(first.adjacency.indices, again.adjacency.indices) and torch.equal(first.x, again.x)
    assert not torch.equal(first.adjacency.indices, other.adjacency.indices)
    assert not torch.equal(first.x, other.x) and not torch.equal(first.y, other.y)


def test_names():
    assert synthetic("tiny").edge_set.id == "dataset:synthetic/tiny"
    assert synthetic("tiny", seed=3).edge_set.id == "dataset:synthetic/tiny@3"
    assert synthetic("tiny").name == "synthetic/tiny"


def test_an_unknown_preset():
    with pytest.raises(ConfigError, match=r"preset='redit' is not one of .*; did you mean 'reddit'\?"):
        synthetic("redit")


def test_categorical_features_are_sparse_bits():
    x = synthetic("facebook").x
    assert set(x.data.tolist()) == {1.0} and np.diff(x.indptr).max() <= 5
    assert np.bincount(x.indices, minlength=501).all()


def test_binary_features_are_bits():
    x = to_dense(synthetic("demo").x)
    assert set(x.unique().tolist()) == {0.0, 1.0} and 0.1 < float(x.mean()) < 0.35


def test_loading_one_by_name():
    graph = load_dataset("synthetic/demo", seed=4)
    assert graph.has_split and graph.num_nodes == 3_000
    assert dataset_info("synthetic/demo")["edges"] == 37_500


def test_the_demo_gains_from_its_edges():
    # A nearest-class-mean rule on features alone, and on the features summed over the neighbors.
    graph = load_dataset("synthetic/demo")
    features = to_dense(graph.x) - to_dense(graph.x).mean(dim=0)
    source, target = graph.adjacency.edge_index()
    summed = torch.zeros_like(features).index_add(0, target, features[source])
    alone, together = (nearest_mean(graph, x) for x in (features, torch.nn.functional.normalize(summed)))
    assert 0.5 < alone < 0.7 and together > alone + 0.15


def nearest_mean(graph, x):
    train, test = graph.mask("train"), graph.mask("test")
    means = torch.stack([x[train & (graph.y == number)].mean(dim=0) for number in range(graph.num_classes)])
    return float((torch.cdist(x, means).argmin(dim=1) == graph.y)[test].double().mean())
