"""ClassCode from graph to predictions, under edge-level units and under ``node-record``."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import ledger_of
from graphveil.core.queries import out_edge_sums
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.node import TrainedNodeLevelClassCode
from graphveil.estimators.public_sizes import members, record_groups
from tests.estimators.conftest import grouped

Options = dict[str, Any]
BUDGET: Options = {"epsilon": 4.0, "delta": 1e-5, "seed": 0}
COUNTS: Options = {"unit": "undirected-edge"}
SUMS: Options = {"unit": "undirected-edge", "noise": "gaussian"}
RECIPE_S: Options = {"unit": "node-record"}
RECIPE_R: Options = {"unit": "node-record", "read_own_edges": True}
ALL = pytest.mark.parametrize("options", [COUNTS, RECIPE_S, RECIPE_R], ids=["counts", "S", "R"])
NODE_LEVEL = pytest.mark.parametrize("options", [RECIPE_S, RECIPE_R], ids=["S", "R"])

pytestmark = pytest.mark.usefixtures("quick_classcode")


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


@pytest.fixture(scope="module")
def demo() -> Graph:
    return RECIPES["gap"].split(synthetic("demo"), seed=0)


def private(**options: Any) -> ClassCode:
    return ClassCode(**{**BUDGET, **options})


def seeded(**options: Any) -> ClassCode:
    return private(unsafe_noise_seed=0, **options)


# -- privacy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "aggregates"),
    [
        (COUNTS, {"rows1"}),
        (SUMS, {"counts", "rows1"}),
        (RECIPE_S, {"rows"}),
        (RECIPE_R, {"rows"}),
    ],
    ids=["counts", "sums", "S", "R"],
)
def test_a_fit_is_charged_as_one_release_at_the_target(
    graph: Graph, options: Options, aggregates: set[str]
) -> None:
    model = private(**options).fit(graph)
    (entry,) = ledger_of(graph.edge_set).entries
    assert entry.label == "classcode" and model.guarantee.valid and model.guarantee.releases == 1
    assert model.guarantee.epsilon == pytest.approx(4.0, rel=1e-5)
    assert model.guarantee.epsilon <= 4.0
    assert set(model.aggregates_) == aggregates
    torch.testing.assert_close(model.predict_proba().sum(dim=1), torch.ones(graph.num_nodes))
    statement = model.guarantee.formal_statement()
    assert ("at delta 0 it is 4" in statement) is (options is COUNTS)


def test_a_directed_graph_is_protected_by_stored_edge(graph: Graph) -> None:
    source, target = graph.adjacency.edge_index()
    directed = Adjacency.from_edges(source, target, num_nodes=graph.num_nodes, directed=True)
    model = private(unit="directed-edge").fit(graph.replace(adjacency=directed))
    assert model.guarantee.valid and model.guarantee.epsilon <= 4.0
    assert "stored directed edge" in model.guarantee.formal_statement()


def test_recipe_s_bounds_the_loss_of_an_edge_and_recipe_r_reads_own_edges(graph: Graph) -> None:
    strict, reading = (seeded(**options).fit(graph).guarantee for options in (RECIPE_S, RECIPE_R))
    assert strict.edge_epsilon is not None and strict.edge_epsilon > 4.0
    assert reading.edge_epsilon is None
    assert reading.edge_use == "read" and "own edge list" in reading.formal_statement()


@ALL
def test_the_same_seed_gives_the_same_bytes_and_private_noise_does_not(
    graph: Graph, options: Options
) -> None:
    first, second = seeded(**options).fit(graph), seeded(**options).fit(graph)
    assert torch.equal(first.predict_proba(), second.predict_proba())
    assert not first.guarantee.valid and "reproducible" in first.guarantee.formal_statement()
    strict = private(**options).fit(graph)
    for name, rows in first.aggregates_.items():
        assert not torch.equal(rows, strict.aggregates_[name])


@pytest.mark.parametrize(
    ("options", "unread"),
    [
        (COUNTS, ("test",)),
        (RECIPE_S, ("test",)),
        (RECIPE_R, ("test",)),
        ({**RECIPE_S, "private_metrics": True}, ("test", "val")),
        ({**RECIPE_R, "private_metrics": True}, ("test", "val")),
    ],
    ids=str,
)
def test_labels_outside_of_training_are_never_read(
    graph: Graph, options: Options, unread: tuple[str, ...]
) -> None:
    hidden = graph.y.clone()
    for split in unread:
        nodes = members(graph, split)
        hidden[nodes] = (hidden[nodes] + 1) % graph.num_classes
    before = seeded(**options).fit(graph).predict_proba()
    assert torch.equal(before, seeded(**options).fit(graph.replace(y=hidden)).predict_proba())


@NODE_LEVEL
def test_missing_labels_change_neither_groups_nor_plan(graph: Graph, options: Options) -> None:
    y = graph.y.clone()
    y[members(graph, "train")[:3]] = -1
    null = graph.replace(y=y)
    assert seeded(**options).fit(graph).plan_ == seeded(**options).fit(null).plan_
    assert torch.equal(record_groups(graph), record_groups(null))


def test_replace_one_has_twice_the_noise_except_in_sums_of_codes(graph: Graph) -> None:
    options = {**RECIPE_S, "encoder_share": 0.1}
    plans = [private(**options, replace_one=both).preview(graph).plan for both in (False, True)]
    classes, kinds = graph.num_classes, [query.kind for query in plans[0].queries]
    assert classes > 2 and kinds.count("rows") == 3
    for kind, one, other in zip(kinds, *(plan.noise_std for plan in plans), strict=True):
        change = math.sqrt(2 * classes / (classes - 1)) if kind == "rows" else 2
        assert other == pytest.approx(change * one, rel=1e-6)


@pytest.mark.parametrize("recipe", [RECIPE_S, RECIPE_R])
def test_messages_under_replace_one_are_within_the_hull(graph: Graph, recipe: Options) -> None:
    sent = list[npt.NDArray[np.bool_]]()
    original = out_edge_sums.truncate_to_grid

    def recorded(vectors: torch.Tensor, factors: Any, caps: Any, out: Any, squares: Any) -> None:
        sent.append(squares(np.trunc(vectors.double().numpy() * factors[:, None])) <= caps)
        original(vectors, factors, caps, out, squares)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_edge_sums, "truncate_to_grid", recorded)
        seeded(**recipe, replace_one=True).fit(graph)
    assert sent and all(fits.all() for fits in sent)


# -- accuracy ----------------------------------------------------------------------------------------------


@NODE_LEVEL
def test_edges_improve_accuracy_unless_they_are_random(demo: Graph, options: Options) -> None:
    rng, source = np.random.default_rng(0), demo.adjacency.edge_index()[0]
    random = rng.integers(demo.num_nodes, size=len(source))
    edges = Adjacency.from_edges(source, random, num_nodes=demo.num_nodes, directed=True)
    unrelated = demo.replace(adjacency=edges)
    features = seeded(**{**RECIPE_S, "epsilon": 8.0}, targets=(0,)).fit(demo).score(demo)
    homophilous, heterogeneous = (
        seeded(**{**options, "epsilon": 8.0}).fit(part).score(part) for part in (demo, unrelated)
    )
    assert homophilous > features + 0.1
    assert abs(heterogeneous - features) < 0.1


def test_private_accuracies_are_close_to_exact_ones(demo: Graph) -> None:
    model = seeded(**{**RECIPE_S, "epsilon": 8.0}, private_metrics=True).fit(demo)
    assert model.guarantee.epsilon <= 8.0
    for split in ("val", "test"):
        assert model.private_accuracy_[split] == pytest.approx(model.score(demo, split), abs=0.1)


@ALL
def test_a_graph_without_edges_is_supported(graph: Graph, options: Options) -> None:
    empty = Adjacency.from_edges([], [], num_nodes=graph.num_nodes, directed=False)
    assert bool(seeded(**options).fit(graph.replace(adjacency=empty)).predict_proba().isfinite().all())


# -- plans -------------------------------------------------------------------------------------------------


@ALL
def test_a_plan_is_the_same_before_and_after_a_preview_and_a_fit(options: Options) -> None:
    model, graph, sizes = private(**options), grouped(), {"num_nodes": 150, "num_classes": 3}
    before = model.plan(**sizes)
    previewed = model.preview(graph)
    assert model.plan(**sizes) == before
    assert model.fit(graph).plan_ == previewed.plan
    assert model.plan(**sizes) == before


def test_few_public_labels_are_queried_in_two_rounds() -> None:
    graph, part = grouped(), torch.arange(150)
    few = graph.with_split(part < 9, (part >= 9) & (part < 18), part >= 18)
    edges, nodes = private(**COUNTS), private(**RECIPE_S)
    assert [edges.config.sizes_of(one).labeled for one in (graph, few)] == [120, 18]
    assert nodes.config.sizes_of(few).labeled is None  # labels are protected there
    assert len(edges.preview(graph).plan.queries) == 1
    model = edges.fit(few)
    assert set(model.aggregates_) == {"counts", "rows1", "rows2"} and model.guarantee.epsilon <= 4.0
    one = seeded(**SUMS, few_labels=False).fit(few)
    assert set(one.aggregates_) == {"counts", "rows1"}


def test_parameters_that_are_set_later_affect_neither_costs_nor_the_fit() -> None:
    model, other = private(**COUNTS).fit(grouped()), grouped(seed=1)
    privacy_cost = model.privacy_cost(other)
    model.set_params(few_labels=True, weights="half_cos", epsilon=0.1)
    assert model.privacy_cost(other) == privacy_cost
    assert sum(model.gate_) == 1.0


# -- targets -----------------------------------------------------------------------------------------------


def released(model: ClassCode) -> Tensor:
    """Return the nodes whose aggregates are released."""
    return (model.aggregates_["rows"] != 0).any(dim=1).nonzero()[:, 0]


def test_nodes_outside_of_the_targets_are_predicted_from_their_features(graph: Graph) -> None:
    chosen = members(graph, "test")[:20]
    model = seeded(**RECIPE_S, targets=tuple(chosen.tolist())).fit(graph)
    assert torch.equal(released(model), chosen)
    trained, other = model.fitted.trained, torch.ones(graph.num_nodes, dtype=torch.bool)
    other[chosen] = False
    assert isinstance(trained, TrainedNodeLevelClassCode)
    assert trained.decider.tolist() == [1.0, 1.0]  # no training node has an aggregate
    features = trained.encoder.log_posteriors(graph.x).exp().float()
    torch.testing.assert_close(model.predict_proba()[other], features[other])


def test_targets_are_named_by_a_set_or_by_ids(graph: Graph) -> None:
    test = members(graph, "test")
    for name in ("test", "unlabeled"):
        assert torch.equal(released(seeded(**RECIPE_S, targets=name).fit(graph)), test)
    # With private metrics validation nodes are not used for training.
    counted = seeded(**RECIPE_S, targets="unlabeled", private_metrics=True).fit(graph)
    assert len(released(counted)) == len(test) + len(members(graph, "val"))
    named = graph.replace(ids=np.array([f"p{k}" for k in range(graph.num_nodes)]))
    assert released(seeded(**RECIPE_S, targets=("p3", "p5")).fit(named)).tolist() == [3, 5]
    with pytest.raises(
        ConfigError, match=r"is not in the graph. Use ids of the graph's nodes, 'unlabeled' or 'test'"
    ):
        seeded(**RECIPE_S, targets=("p3", "q")).fit(named)


def test_rejects_an_unknown_target_before_anything_is_charged(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="is not in the graph"):
        private(**RECIPE_S, targets=(10**9,)).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


# -- interrupted fits, and files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        (COUNTS, "classifier"),
        (RECIPE_S, "aggregate"),
        (RECIPE_R, "aggregate"),
        (RECIPE_R, "classifier"),
    ],
    ids=["counts", "S", "R after aggregation", "R after training"],
)
def test_an_interrupted_fit_is_resumed_with_the_same_bytes(
    graph: Graph, tmp_path: Path, options: Options, stage: str
) -> None:
    class KilledError(Exception):
        pass

    def kill(now: str, done: int, total: int) -> None:
        if now == stage and (done == total or options is COUNTS):
            raise KilledError

    with pytest.raises(KilledError):
        seeded(**options).fit(graph, on_progress=kill, workspace=tmp_path)
    expected = seeded(**options).fit(graph).predict_proba()
    for _ in range(2):  # a finished workspace is read again
        assert torch.equal(seeded(**options).fit(graph, workspace=tmp_path).predict_proba(), expected)


@pytest.mark.parametrize(
    "options",
    [
        COUNTS,
        {**COUNTS, "self_training": True},
        {**COUNTS, "weights": "learned_public"},
        {**COUNTS, "few_labels": True},
        RECIPE_S,
        RECIPE_R,
    ],
    ids=str,
)
def test_a_saved_model_is_loaded_with_the_same_predictions(tmp_path: Path, options: Options) -> None:
    model = seeded(**options).fit(grouped())
    protects_nodes = options["unit"] == "node-record"
    per_node = tmp_path / "rows" if protects_nodes else None
    model.save(tmp_path / "release", per_node=per_node)
    loaded = gv.load_model(tmp_path / "release", per_node=per_node)
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert loaded.get_params() == model.get_params()
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    states = [one.fitted.trained.state() for one in (loaded, model)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    if protects_nodes:
        alone = gv.load_model(tmp_path / "release")
        assert torch.equal(alone.aggregates_["rows"], model.aggregates_["rows"])
        return
    other = grouped(seed=1)
    bare = other.replace(y=torch.full_like(other.y, -1), train_mask=None, val_mask=None, test_mask=None)
    torch.testing.assert_close(loaded.predict_proba(bare, allow_spend=True), model.predict_proba(bare))


@NODE_LEVEL
def test_rejects_node_level_parameters_of_other_sizes(options: Options) -> None:
    fit = seeded(**options).fit(grouped()).fitted
    state = fit.trained.state()
    for name in ("encoder", "decider"):
        with pytest.raises(ArtifactError, match="do not fit 8 features and 3 classes"):
            fit.method.restore({**state, name: state[name][1:]}, fit.sizes, fit.released)


def test_rejects_edge_level_parameters_that_cannot_predict() -> None:
    fit = seeded(**COUNTS).fit(grouped()).fitted
    state = fit.trained.state()
    wrong: list[dict[str, Tensor]] = [
        {name: value for name, value in state.items() if not name.startswith("features/")},
        {name: value for name, value in state.items() if not name.startswith("features/3/")},
        {**state, "affinity": torch.ones(3, 2)},
        {**state, "affinity": state["affinity"] * torch.nan},
        {**state, "numbers": state["numbers"] * torch.nan},
        {**state, "features/0/_layers.0.weight": torch.ones(7, 4)},
    ]
    for each in wrong:
        with pytest.raises(ArtifactError):
            fit.method.restore(each, fit.sizes, {})
    fit.method.restore(state, fit.sizes, {})


# -- configurations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"unit": "none", "epsilon": None, "delta": "auto"}, UnitError, "needs a privacy budget"),
        ({**COUNTS, "epsilon": None}, ConfigError, "epsilon="),
        ({**COUNTS, "count_share": 0}, ConfigError, "count_share=0"),
        ({**COUNTS, "noise": "laplace", "few_labels": True}, ConfigError, "instead of summing codes"),
        ({**COUNTS, "noise": "laplace", "weights": "half_cos"}, ConfigError, "instead of summing codes"),
        ({**COUNTS, "noise": "laplace", "count_share": 0.1}, ConfigError, "instead of summing codes"),
        ({**COUNTS, "targets": "test"}, ConfigError, "applies to unit 'node-record' only"),
        ({**COUNTS, "read_own_edges": True}, ConfigError, "applies to unit 'node-record' only"),
        ({**COUNTS, "out_degree_bound": 3}, UnitError, "out_degree_bound"),
        ({**RECIPE_R, "targets": "test"}, ConfigError, "Omit targets"),
        ({**RECIPE_S, "targets": ()}, ConfigError, "Omit targets"),
        ({**RECIPE_S, "targets": "tset"}, ConfigError, "is not one of unlabeled, test; did you mean 'test'"),
        ({**RECIPE_S, "targets": 1.5}, ConfigError, "must be one of 'unlabeled', 'test' or a sequence"),
        ({**RECIPE_S, "targets": (1.5,)}, ConfigError, "must be one of 'unlabeled', 'test' or a sequence"),
        ({**RECIPE_S, "encoder_share": 0.9}, ConfigError, "encoder_share"),
        ({**RECIPE_S, "few_labels": True}, ConfigError, "few_labels=True applies to edge units only"),
        (
            {"unit": "node-bounded-degree", "max_degree": 9},
            NotImplementedGuaranteeError,
            "node-bounded-degree",
        ),
    ],
    ids=str,
)
def test_rejects_unusable_configurations(options: Options, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        private(**options)
