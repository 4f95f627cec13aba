"""Regression: numbers in the unit of the target, public ranges, errors, and rejections."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as of

import graphveil as gv
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError, GraphError, GraphveilError
from graphveil.training.heads import RegressionHead

EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 4.0, "seed": 0, "task": "regression"}
RECORDS: dict[str, Any] = {
    "unit": "node-record",
    "epsilon": 8.0,
    "seed": 0,
    "task": "regression",
    "target_range": (0.0, 200.0),
    "unsafe_noise_seed": 1,
}


class Net(torch.nn.Linear):
    """A linear module for tests."""


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (gv.MLP, {**EDGES, "epsilon": None}),
    "mlp-small": (gv.MLP, {**EDGES, "epsilon": None, "layers": 2}),
    "gap": (gv.GAP, EDGES),
    "gap-none": (gv.GAP, {**EDGES, "unit": "none", "epsilon": None}),
    "mlp-records": (gv.MLP, RECORDS),
    "gap-records": (gv.GAP, {**RECORDS, "out_degree_bound": 5, "epochs": 10}),
    "module-records": (gv.PrivateModule, {**RECORDS, "module": "net"}),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph whose target is linear in the features: mean 100, standard deviation 20."""
    gv.register(Net, "net")
    found = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=found.num_features))
    numbers = found.x.double() @ weights
    return found.replace(targets=100 + 20 * (numbers - numbers.mean()) / numbers.std())


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_numbers_that_a_saved_model_repeats(name: str, graph: Graph, tmp_path: Path) -> None:
    cls, settings = MODELS[name]
    model = cls(**settings).fit(graph)
    predicted, tested = model.predict(), graph.labeled_in("test")
    assert predicted.shape == (graph.num_nodes,)
    assert predicted.dtype == torch.float32
    found = model.evaluate(graph)
    truth, given = graph.targets[tested].numpy(), predicted[tested].double().numpy()
    assert found["r2"] == pytest.approx(of.r2_score(truth, given)) == model.score(graph)
    assert found["mae"] == pytest.approx(of.mean_absolute_error(truth, given))
    assert found["rmse"] == pytest.approx(of.root_mean_squared_error(truth, given))
    if not name.startswith("gap-records"):  # its hops of one-column messages are mostly noise here
        assert found["r2"] > 0.5
    with pytest.raises(ConfigError, match="Use predict"):
        model.predict_proba()
    records = settings["unit"] == "node-record"
    model.save(tmp_path / "release", per_node=tmp_path / "rows" if records else None)
    loaded = gv.load_model(tmp_path / "release", per_node=tmp_path / "rows" if records else None)
    assert torch.equal(loaded.predict(), predicted)
    other = graph.replace(adjacency=graph.adjacency)
    if model.plan_ is None or name == "mlp-records":  # other graphs without another release
        assert torch.allclose(loaded.predict(other), predicted, rtol=1e-5)


def test_targets_beyond_the_public_range_are_those_at_its_ends(graph: Graph) -> None:
    low, high = 90.0, 110.0
    clipped = graph.replace(targets=graph.targets.clamp(low, high))
    assert not torch.equal(clipped.targets, graph.targets)
    settings = {**RECORDS, "target_range": (low, high)}
    one, other = (gv.MLP(**settings).fit(given) for given in (graph, clipped))
    assert torch.equal(one.predict(), other.predict())
    assert float(one.predict().min()) >= low
    assert float(one.predict().max()) <= high


def test_a_record_without_a_target_contributes_nothing(graph: Graph) -> None:
    node = int(graph.labeled_in("train").nonzero()[0, 0])
    missing = graph.targets.clone()
    missing[node] = torch.nan
    without = graph.replace(targets=missing)
    assert not without.labeled[node]
    assert torch.isfinite(gv.MLP(**RECORDS).fit(without).predict()).all()


def test_a_threshold_is_rejected(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="predicts a number"):
        gv.MLP(**RECORDS).fit(graph).evaluate(graph, threshold=0.5)


def test_the_statement_names_the_public_range(graph: Graph) -> None:
    statement = gv.MLP(**RECORDS).preview(graph).guarantee.formal_statement()
    assert "targets are clipped to the range 0 to 200, which is public" in statement


def test_the_range_is_scaled_to_one() -> None:
    head = RegressionHead((-10.0, 30.0))
    graph = Graph.from_edges(
        torch.eye(5), None, [0], [1], directed=False, targets=[-10.0, 30.0, 10.0, 1e9, float("nan")]
    )
    assert head.labels(graph)[:4].tolist() == [-1.0, 1.0, 0.0, 1.0]
    assert head.labels(graph)[4].isnan()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**RECORDS, "target_range": None}, "--target-range LOW HIGH"),
        ({**RECORDS, "target_range": (5.0, 5.0)}, "is not a range"),
        ({**RECORDS, "target_range": (0.0, float("inf"))}, "is not a range"),
        ({**RECORDS, "task": "classification"}, "applies to regression only"),
        ({**RECORDS, "task": "ranking"}, "is not one of classification, regression"),
        ({**RECORDS, "private_metrics": True}, "counts correct predictions"),
    ],
)
def test_settings_without_effect_or_meaning_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        gv.MLP(**settings)


@pytest.mark.parametrize("method", sorted(set(gv.METHODS) - {"gap", "mlp", "module", "gnn", "relational"}))
def test_other_methods_name_those_that_predict_numbers(method: str) -> None:
    with pytest.raises(GraphveilError) as caught:
        gv.METHODS[method](unit="none", task="regression")
    if "predicts classes only" in str(caught.value):
        assert "gap, mlp, module, and gnn" in str(caught.value)


def test_gap_and_gnn_reject_parts_that_are_for_classes() -> None:
    with pytest.raises(ConfigError, match="weights='one'"):
        gv.GAP(**EDGES, weights="sigmoid_cos")
    with pytest.raises(ConfigError, match="neighborhood='neighbors'"):
        gv.PrivateGNN(**RECORDS, module="sage")


def test_a_graph_of_the_other_task_is_rejected_before_a_charge(graph: Graph) -> None:
    classes = synthetic("tiny")
    with pytest.raises(GraphError, match="task='regression'"):
        gv.ClassCode(unit="undirected-edge", epsilon=1.0).fit(graph)
    with pytest.raises(GraphError, match="no numeric target"):
        gv.GAP(**EDGES).fit(RECIPES["gap"].split(classes, seed=0))
    constant = graph.replace(targets=torch.ones(graph.num_nodes))
    with pytest.raises(GraphError, match="fewer than two distinct values"):
        gv.MLP(**EDGES | {"epsilon": None}).fit(constant)


def test_gnn_trains_on_numbers_of_exact_neighbors(graph: Graph) -> None:
    model = gv.PrivateGNN(**RECORDS | {"epsilon": 1.0}, module=Sums, neighborhood="neighbors", epochs=2).fit(
        graph
    )
    assert model.module_.out.weight.shape == (1, graph.num_features)
    assert model.guarantee.epsilon <= 1.0


class Sums(torch.nn.Module):
    """A linear map of a node's features and the sum of its neighbors'."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.out = torch.nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        source, target = edge_index
        return self.out(x + torch.zeros_like(x).index_add(0, target, x[source]))


def test_scikit_learn_sees_a_regressor() -> None:
    from sklearn.base import is_classifier, is_regressor

    assert is_regressor(gv.GAP(**EDGES))
    assert is_classifier(gv.GAP(**EDGES | {"task": "classification"}))


def test_folders_without_the_task_are_of_classes(tmp_path: Path) -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    gv.MLP(unit="none", seed=0, layers=2, epochs=2).fit(graph).save(tmp_path / "release")
    file = tmp_path / "release" / "model.json"
    plain = json.loads(file.read_text())
    for name in ("task", "target_range"):
        del plain["parameters"][name]
    file.write_text(json.dumps(plain))
    assert gv.load_model(tmp_path / "release").task == "classification"
    plain["parameters"]["task"] = "regression"
    file.write_text(json.dumps(plain))
    with pytest.raises(ArtifactError):
        gv.load_model(tmp_path / "release").predict(graph)


@pytest.mark.parametrize("name", MODELS)
def test_targets_of_test_nodes_change_nothing(name: str, graph: Graph) -> None:
    """Also where most nodes are tested: scales, parameters and predictions are of the other nodes."""
    cls, settings = MODELS[name]
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3)) / graph.num_nodes
    few = graph.with_split(order < 0.2, (order >= 0.2) & (order < 0.3), order >= 0.3)
    assert few.targets is not None
    settings = {**settings, "unsafe_noise_seed": None if settings["unit"] == "none" else 1, "epochs": 2}
    fits = []
    for change in (torch.zeros(graph.num_nodes), None, 1000 * torch.rand(graph.num_nodes)):
        if change is None and settings["unit"] == "node-record":
            continue  # which nodes have a target is part of a record
        tested = few.labeled_in("test")
        targets = few.targets.clone()
        targets[tested] = torch.nan if change is None else targets[tested] + change[tested]
        fits.append(cls(**settings).fit(few.replace(targets=targets)))
    first, *others = fits
    for other in others:
        assert torch.equal(first.predict(), other.predict())
        states = first.fitted.trained.state(), other.fitted.trained.state()
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
        assert first.guarantee == other.guarantee


def outlying(values: Any, more: float) -> Graph:
    """Return a graph of 100 training and 20 test nodes; the last test node has a target of this size."""
    targets = torch.tensor([*values, more], dtype=torch.float64)
    nodes = torch.arange(len(targets))
    graph = Graph.from_edges(torch.eye(len(targets)), None, [0], [1], directed=False, targets=targets)
    return graph.with_split(nodes < 100, nodes == 100, nodes > 100)


def test_the_scale_of_targets_is_that_of_training_nodes() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, 119)
    heads = [RegressionHead().fitted(outlying(values, more)) for more in (5.0, 1e9)]
    assert heads[0] == heads[1]
    assert heads[0].scale == (pytest.approx(values[:100].mean()), pytest.approx(values[:100].std()))
    assert heads[0].limit is None


def test_outliers_among_public_targets_do_not_set_the_scale() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, 119)
    values[7] = 1e7
    graph = outlying(values, 5.0)
    head = RegressionHead().fitted(graph)
    assert head.scale == (pytest.approx(5.0, abs=0.6), pytest.approx(2.0, abs=0.6))
    assert float(head.labels(graph).max()) == 10.0
    assert float(head.proba(torch.tensor([[1e3]]))) > 1e3  # predictions are not clipped
