"""PrivateGNN on trees of exact neighbors: sensitivity, privacy cost, covered outputs, and files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.audit import neighbor_test
from graphveil.audit.small_graphs import SmallGraph
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, Route
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import PoissonRoots
from graphveil.core.ledger import ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.queries.bounded_lists import BoundedTrees, TreeRecords
from graphveil.core.queries.training_steps import DPSGDData
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, ReleaseError, UnitError
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee
from tests.estimators.gnn.modules import SMALL, Doubled, InterruptedFitError, Mean, interrupt
from tests.training.stateful import KINDS


def tiny(seed: int = 0) -> Graph:
    return RECIPES["gap"].split(synthetic("tiny", seed=seed), seed=0)


@pytest.fixture
def graph() -> Graph:
    return tiny()


@pytest.fixture(scope="module")
def fitted() -> gv.PrivateGNN:
    """Return a fit on the graph of the fixture."""
    return make().fit(tiny())


def make(**changes: Any) -> gv.PrivateGNN:
    given = {"module": Mean, "neighborhood": "neighbors", "unsafe_noise_seed": 0, "epochs": 2}
    return gv.PrivateGNN(**{**SMALL, **given, "leaves": None, "encoder_share": None, **changes})


def weights(model: gv.PrivateGNN) -> Tensor:
    return torch.cat([part.flatten() for part in model.module_.state_dict().values()])


# -- sensitivity -------------------------------------------------------------------------------------------


def clipped_sum(
    slots: int, depth: int, graph: SmallGraph, kind: type[nn.Module] = Mean, route: Route = "ghost"
) -> np.ndarray:
    """Return the sum of all roots' clipped gradients at fixed parameters, for one sample of the trees."""
    source, target = np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    adjacency = Adjacency.from_edges(source, target, num_nodes=graph.nodes, directed=True)
    trees = BoundedTrees(adjacency, slots=slots, cap=3, depth=depth, key=bytes(32))
    inputs = TreeRecords(torch.from_numpy(graph.x), torch.arange(graph.nodes), trees, 1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = kind(graph.x.shape[1], 3)
    labels = torch.from_numpy(np.where(graph.y < 0, -1, graph.y % 3))
    gradients = EgoGraphClippedSum(module, inputs, labels, route=route)
    gradients.add(torch.arange(graph.nodes), 0.5)
    return (gradients.sums / 0.5).numpy()


@pytest.mark.parametrize(("slots", "depth", "roots"), [(1, 1, 2), (2, 1, 3), (1, 2, 3)])
def test_no_record_moves_a_sum_by_more_than_its_roots(slots: int, depth: int, roots: int) -> None:
    sums, bound = partial(clipped_sum, slots, depth), 2 * roots - 1
    found = neighbor_test(sums, unit="node-record", sensitivity=bound, pairs=40, nodes=9)
    assert not found.broken and found.largest_mu > 1.0  # more than a record's own gradient


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_module_with_state_moves_a_sum_by_more_than_its_roots(kind: type[nn.Module]) -> None:
    sums = partial(clipped_sum, 1, 1, kind=kind, route="loop")
    assert not neighbor_test(sums, unit="node-record", sensitivity=3, pairs=6, nodes=6).broken


def test_a_sensitivity_of_the_own_root_alone_is_refuted() -> None:
    sums = partial(clipped_sum, 2, 1)
    assert neighbor_test(sums, unit="node-record", sensitivity=1.0, pairs=40, nodes=9).broken


@dataclass(kw_only=True)
class RecordingSession(Session):
    """A session that stores the clipped sum of the training."""

    sums: list[EgoGraphClippedSum] = field(default_factory=list)

    def open(self, graph: Graph, groups: Tensor | None = None, *, first: int = 0) -> Release:
        release, sums = super().open(graph, groups, first=first), self.sums

        class Recording:
            def answer(self, data: DPSGDData) -> Tensor:
                sums.append(data.gradients)
                return release.answer(data)

            def close(self) -> None:
                release.close()

        return Recording()  # type: ignore[return-value]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_node_is_in_no_more_trees_of_a_fit_than_it_is_charged_for(graph: Graph, slots: int) -> None:
    nodes = graph.num_nodes
    names = graph.replace(x=torch.eye(nodes))  # the features of a node are its id
    model = make(max_out_edges=slots, epochs=1, feature_scaling="none")
    plan = model.preview(names).plan
    session = RecordingSession(streams=PublicStreams(0), plan=plan, noise_seed=0)
    model.config.fit(names, session)
    records, most = session.sums[0]._records, []
    for step in range(0, plan.queries[0].steps, 5):
        records.begin(step)
        roots = session.sums[0].count
        x, _ = records.take(torch.arange(roots))
        most.append(int(x[:, 1:].sum(dim=(0, 1)).max()))  # in how many trees a node is not the root
    assert max(most) == slots


def test_missing_nodes_of_a_tree_have_features_of_zero() -> None:
    adjacency = Adjacency.from_edges([1], [2], num_nodes=4, directed=True)
    trees = BoundedTrees(adjacency, slots=1, cap=2, depth=1, key=bytes(32))
    inputs = TreeRecords(torch.arange(1.0, 5.0)[:, None], torch.arange(4), trees, 1)
    x, _ = inputs.take(torch.tensor([2, 3]))
    assert x[:, :, 0].tolist() == [[3.0, 2.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]]


# -- privacy cost and guarantee ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        ({}, (2, "add_remove")),
        ({"max_out_edges": 2, "layers": 2}, (7, "add_remove")),
        ({"replace_one": True}, (3, "replace")),
        ({"unit": "node-bounded-degree", "max_degree": 4}, (5, "add_remove")),
    ],
)
def test_a_fit_is_charged_for_all_roots_that_a_record_reaches(
    graph: Graph, changes: dict[str, Any], event: tuple[int, str]
) -> None:
    nodes = torch.arange(graph.num_nodes)  # each a neighbor of two before it and two after it
    source = torch.cat([nodes, nodes])
    target = torch.cat([(nodes + 1) % len(nodes), (nodes + 2) % len(nodes)])
    ring = Adjacency.from_edges(source, target, num_nodes=len(nodes), directed=False)
    fresh = graph.replace(adjacency=ring)
    model = make(unsafe_noise_seed=None, **changes).fit(fresh)
    (entry,) = ledger_of(fresh.edge_set).entries
    (steps,) = model.plan_.event.events
    assert entry.label == "gnn" and model.guarantee.valid and model.guarantee.edge_use == "neighbors"
    assert isinstance(steps, PoissonRoots) and (steps.roots, steps.relation) == event
    assert 0.999 <= model.guarantee.epsilon <= SMALL["epsilon"]
    assert bool(weights(model).isfinite().all())


def test_a_large_budget_gets_the_smallest_noise_that_can_be_accounted_for(graph: Graph) -> None:
    plan = make(epsilon=60.0).preview(graph).plan
    assert plan.noise_std[-1] == 0.75 and plan.epsilon < 60.0


def test_more_sampled_edges_are_planned_if_high_noise_is_allowed(graph: Graph) -> None:
    plan = make(layers=2, max_out_edges=3, allow_high_noise=True, epsilon=16.0).preview(graph).plan
    assert plan.event.events[0].roots == 13


def test_the_guarantee_covers_parameters_and_no_prediction(graph: Graph) -> None:
    guarantee = make(unsafe_noise_seed=None).preview(graph).guarantee
    words = guarantee.formal_statement()
    assert "the released weights are (1, 1e-05)-indistinguishable. The prediction for v would be" in words
    assert "it is not covered by this statement" in words and "for 1 layer of messages" in words
    assert "noisy aggregates" not in words and "predictions for all nodes" not in words
    assert "all predictions" in guarantee.not_covered and guarantee.edge_epsilon is None
    assert f"{guarantee.epsilon:.4g}" in words
    event = PoissonRoots(9.0, 0.1, 5, 5)
    bounded = Guarantee.from_event(
        NodeBoundedDegree(4), event, delta=1e-5, releases=1, edge_use="neighbors"
    ).formal_statement()
    assert "no node has degree above 4" in bounded and "the released weights are" in bounded
    assert "own row" not in bounded


def test_nothing_is_predicted(graph: Graph, fitted: gv.PrivateGNN, tmp_path: Path) -> None:
    model, other = fitted, tiny(seed=5)
    for query in (
        model.predict_proba,
        model.predict,
        lambda: model.predict_proba(graph),
        lambda: model.predict(other),
        lambda: model.score(graph),
        lambda: model.privacy_cost(other),
        lambda: model.save(tmp_path / "a", per_node=tmp_path / "b"),
    ):
        with pytest.raises(UnitError, match=r"(covers its|protects the) parameters only"):
            query()
    assert model.proba_ is None and not (tmp_path / "b").exists()


def test_labels_outside_of_training_are_never_read(graph: Graph, fitted: gv.PrivateGNN) -> None:
    hidden = graph.y.clone()
    hidden[graph.labeled_in("test")] = 0
    assert torch.equal(weights(fitted), weights(make().fit(graph.replace(y=hidden))))


# -- files and interrupted fits ----------------------------------------------------------------------------


@pytest.mark.usefixtures("own_names")
def test_parameters_are_saved_without_predictions(graph: Graph, tmp_path: Path) -> None:
    model = make(unsafe_noise_seed=None).fit(graph)
    model.save(tmp_path / "release")
    assert not (tmp_path / "release" / "predictions.parquet").exists()
    gv.register(Mean)
    loaded = gv.load_model(tmp_path / "release")
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    other = synthetic("tiny", seed=5)
    with torch.no_grad():  # on a graph whose records may be read
        logits = loaded.module_(other.x, other.adjacency.edge_index().long())
    assert logits.shape == (other.num_nodes, graph.num_classes) and logits.isfinite().all()
    with pytest.raises(UnitError, match=r"(covers its|protects the) parameters only"):
        loaded.predict_proba()


def test_an_interrupted_fit_is_resumed_with_the_same_bytes(
    graph: Graph, fitted: gv.PrivateGNN, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedFitError):  # in the second pass, whose trees are others
        make().fit(graph, on_progress=interrupt("module", 27), workspace=tmp_path)
    assert torch.equal(weights(make().fit(graph, workspace=tmp_path)), weights(fitted))


def other_features(graph: Graph) -> Graph:
    x = graph.x.clone()
    x[5] += 1
    return graph.replace(x=x)


def other_labels(graph: Graph) -> Graph:
    y, node = graph.y.clone(), int(graph.labeled_in("train").nonzero()[0, 0])
    y[node] = (y[node] + 1) % graph.num_classes
    return graph.replace(y=y)


def other_training_nodes(graph: Graph) -> Graph:
    masks = [graph.labeled_in(part).clone() for part in ("train", "val", "test")]
    inside, outside = (int(mask.nonzero()[0, 0]) for mask in (masks[0], masks[2]))
    masks[0][[inside, outside]] = torch.tensor([False, True])
    masks[2][[inside, outside]] = torch.tensor([True, False])
    y = graph.y.clone()
    y[outside] = y[inside]
    return graph.replace(y=y).with_split(*masks)


@pytest.mark.parametrize(
    ("data", "module", "why"),
    [
        (other_features, Mean, "different data"),
        (other_labels, Mean, "different data"),
        (other_training_nodes, Mean, "different data"),
        (lambda graph: graph, Doubled, None),
    ],
    ids=["features", "labels", "training nodes", "code"],
)
def test_an_interrupted_fit_is_not_resumed_with_other_data_or_code(
    graph: Graph, data: Callable[[Graph], Graph], module: type[nn.Module], why: str | None, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedFitError):
        make().fit(graph, on_progress=interrupt("module", 3), workspace=tmp_path)
    with pytest.raises(ReleaseError, match=why):
        make(module=module).fit(data(graph), workspace=tmp_path)


# -- rejected configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"unit": "undirected-edge"}, UnitError, "private_hops"),
        ({"private_metrics": True}, ConfigError, "sensitivity of the counts is unbounded"),
        ({"layers": 2, "max_out_edges": 3}, ConfigError, "13 ego graphs"),
        (
            {"layers": 2, "max_out_edges": 20, "allow_high_noise": True},
            ConfigError,
            "421 ego graphs.*fewer slots",
        ),
        ({"unit": "node-bounded-degree", "max_degree": 1110}, ConfigError, "1111 ego graphs.*'node-record'"),
        ({"layers": 0}, ConfigError, "layers"),
        ({"max_out_edges": 0}, ConfigError, "max_out_edges"),
        ({"out_degree_bound": 3}, ConfigError, "max_out_edges"),
        ({"encoder_share": 0.2}, ConfigError, "encoder_share"),
    ],
    ids=str,
)
def test_rejects_unusable_configurations(changes: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(**changes)
