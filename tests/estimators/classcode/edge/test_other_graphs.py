"""ClassCode on graphs that it was not fitted on: messages, privacy cost, and accuracy."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.events import compose
from graphveil.core.ledger import ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.core.release import Release
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import GraphError, NotImplementedGuaranteeError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.edge import TARGET, TRAIN, TrainedEdgeLevelClassCode
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.saved import load_model
from graphveil.estimators.session import Session
from tests.estimators.conftest import grouped

BUDGET: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-5, "seed": 0}


@dataclass
class RecordingRelease:
    """A release that stores what each query sends, the nodes' groups, and the answer."""

    release: Release
    groups: Tensor
    calls: list[tuple[Any, Tensor, Tensor]]

    def answer(self, data: Any) -> Any:
        answer = self.release.answer(data)
        self.calls.append((data, self.groups, answer))
        return answer

    def close(self) -> None:
        self.release.close()


@dataclass(kw_only=True)
class RecordingSession(Session):
    """A session whose releases record their calls."""

    calls: list[tuple[Any, Tensor, Tensor]] = field(default_factory=list)

    def open(self, graph: Graph, groups: Tensor | None = None, *, first: int = 0) -> Release:
        assert groups is not None
        release = super().open(graph, groups, first=first)
        return RecordingRelease(release, groups, self.calls)  # type: ignore[return-value]


def call_of(
    model: ClassCode, graph: Graph, kept: CachedPrediction | None = None
) -> tuple[Any, Tensor, Tensor]:
    """Return the only query of a prediction: its data, the groups of nodes, and the answer."""
    trained, sizes = model.fitted.trained, model.fitted.sizes
    plan = trained.plan_for(trained.sizes_for(graph, sizes))
    session = RecordingSession(streams=PublicStreams(0), plan=plan, noise_seed=0)
    trained.answer(graph, session, kept)
    (call,) = session.calls
    return call


def without_labels(graph: Graph) -> Graph:
    return graph.replace(y=torch.full_like(graph.y, -1), train_mask=None, val_mask=None, test_mask=None)


def grow(graph: Graph, nodes: int = 3, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    new = graph.num_nodes + rng.integers(nodes, size=5 * nodes)
    other = rng.integers(graph.num_nodes + nodes, size=5 * nodes)
    return graph.grow(rng.random((nodes, graph.num_features)), None, new, other)


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(
    ("options", "rounds"),
    [({}, 1), ({"self_training": True}, 1), ({"weights": "half_cos"}, 2), ({"weights": "jaccard"}, 2)],
    ids=str,
)
def test_another_graph_is_queried_once_for_aggregates_only(options: dict[str, Any], rounds: int) -> None:
    graph, other = grouped(), without_labels(grouped(seed=1))
    model = ClassCode(**BUDGET, **options).fit(graph)
    privacy_cost = model.privacy_cost(other, assume_disjoint_edges=True)
    assert privacy_cost.epsilon <= 4.0 and privacy_cost.releases == 1
    events = privacy_cost.event.events if rounds > 1 else (privacy_cost.event,)
    assert len(events) == rounds  # no class-pair counts; sums in two rounds if no label is known
    first = model.predict_proba(other, assume_disjoint_edges=True)
    assert torch.equal(model.predict_proba(other), first)
    assert model.privacy_cost(other) is None
    assert (len(ledger_of(graph.edge_set).entries), len(ledger_of(other.edge_set).entries)) == (1, 1)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-4)
    assert torch.allclose(first.sum(dim=1), torch.ones(150))


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(("few", "kind"), [(False, "neighbor_counts"), (True, "rows")])
def test_another_graph_is_queried_with_the_noise_of_the_fit(few: bool, kind: str, tmp_path: Path) -> None:
    graph, part = grouped(), torch.arange(150)
    if few:
        graph = graph.with_split(part < 9, (part >= 9) & (part < 18), part >= 18)
    model = ClassCode(**BUDGET).fit(graph)
    model.save(tmp_path / "release")
    for saved in (model, load_model(tmp_path / "release")):
        for other in (grouped(seed=1), without_labels(grouped(seed=1))):
            trained = saved.fitted.trained
            plan = trained.plan_for(trained.sizes_for(other, saved.fitted.sizes))
            assert {query.kind for query in plan.queries} == {kind}
    cost = model.privacy_cost(without_labels(grouped(seed=1)))
    assert cost.max_tpr() == pytest.approx(model.guarantee.max_tpr(), rel=0.02)


@pytest.mark.usefixtures("quick_classcode")
def test_graphs_that_may_share_edges_add_up() -> None:
    graph, other = grouped(), grouped(seed=1)
    model = ClassCode(**BUDGET).fit(graph)
    model.predict(other)
    assert (len(ledger_of(graph.edge_set).entries), len(ledger_of(other.edge_set).entries)) == (2, 1)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(model.guarantee.repeated(2).epsilon)


@pytest.mark.usefixtures("quick_classcode")
def test_edges_of_two_classes_count_at_both_ends_of_every_graph() -> None:
    def two_classes(seed: int) -> Graph:
        graph = grouped(seed=seed)
        return graph.replace(y=graph.y.clamp_max(1), num_classes=2, class_names=())

    graph, other = two_classes(0), two_classes(1)
    model = ClassCode(**BUDGET).fit(graph)
    (query,) = model.preview(graph).plan.queries
    assert (query.ranks, query.epsilon, model.guarantee.epsilon) == (None, 2.0, pytest.approx(4.0, rel=1e-4))
    assert ClassCode(**{**BUDGET, "epsilon": 3.9}).preview(graph).plan.queries[0].ranks == (0, 1, 2)
    right = model.predict(other, assume_disjoint_edges=True) == other.y
    assert float(right[other.labeled_in("test")].float().mean()) > 0.8
    assert model.predict_proba(grow(other), assume_disjoint_edges=True).shape == (153, 2)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-4)


@pytest.mark.usefixtures("quick_classcode")
def test_public_labels_of_another_graph_are_sent_and_those_of_its_test_nodes_never() -> None:
    model, other = ClassCode(**BUDGET, noise="gaussian").fit(grouped()), grouped(seed=1)
    hidden = other.y.clone()
    hidden[other.labeled_in("test")] = (hidden[other.labeled_in("test")] + 1) % 3
    data, groups, rows = call_of(model, other)
    again, _, same = call_of(model, grouped(seed=1).replace(y=hidden))
    public = other.labeled_in("train", "val")
    assert torch.equal(data.vectors, again.vectors) and torch.equal(rows, same)
    assert torch.equal(data.vectors[public], simplex_codes(3)[other.y[public]])
    assert torch.equal(groups != TARGET, public)


@pytest.mark.usefixtures("quick_classcode")
def test_rejects_labels_of_other_classes_before_anything_is_charged() -> None:
    model, other = ClassCode(**BUDGET).fit(grouped()), grouped(seed=1)
    more = other.replace(y=other.y + 1, num_classes=4, class_names=())
    with pytest.raises(GraphError, match="are not the"):
        model.predict(more)
    assert not ledger_of(more.edge_set).entries
    model.predict(without_labels(more))


def test_node_level_models_do_not_predict_other_graphs() -> None:
    model = ClassCode(**{**BUDGET, "unit": "node-record"}).fit(grouped())
    other = grouped(seed=1)
    for query in (model.predict, model.privacy_cost):
        with pytest.raises(NotImplementedGuaranteeError, match="use method gap"):
            query(other)
    assert not ledger_of(other.edge_set).entries


# -- graphs that have grown --------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("options", [{}, {"noise": "gaussian"}, {"weights": "half_cos"}], ids=str)
def test_new_nodes_are_charged_for_their_new_edges_only(options: dict[str, Any]) -> None:
    graph = grouped()
    model = ClassCode(**BUDGET, **options).fit(graph)
    grown = grow(graph)
    assert model.privacy_cost(grown).epsilon <= 4.0
    proba = model.predict_proba(grown)
    assert torch.equal(proba[:150], model.predict_proba())
    assert [len(ledger_of(part).entries) for part in grown.edge_set.parts] == [1, 1]
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-5)
    again = grow(grown, seed=1)
    assert torch.equal(model.predict_proba(again)[:153], proba)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-5)


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_old_nodes_send_to_new_ones_at_full_weight_and_get_no_new_aggregates(noise: str) -> None:
    graph = grouped()
    model = ClassCode(**BUDGET, noise=noise).fit(graph)
    proba = model.predict_proba()
    kept = CachedPrediction(model.plan_, tuple(model.aggregates_.values()), proba)
    data, groups, answer = call_of(model, grow(graph), kept)
    public = graph.labeled_in("train", "val")
    assert set(groups[:150].tolist()) == {TRAIN} and set(groups[150:].tolist()) == {TARGET}
    if noise == "laplace":
        assert answer.shape == (3, 3) and bool((answer == answer.round()).all())
        expected = torch.where(public, graph.y, proba.argmax(dim=1))
        assert torch.equal(data.classes[:150], expected)
    else:
        assert answer.shape == (3, 2)
        assert torch.equal(data.vectors[:150][public], simplex_codes(3)[graph.y[public]])
        targets = (~public).nonzero()[:, 0]
        torch.testing.assert_close(data.vectors[targets], proba[targets].double() @ simplex_codes(3))


@pytest.mark.usefixtures("quick_classcode")
def test_aggregates_of_new_nodes_have_the_noise_of_old_ones() -> None:
    graph = grouped()
    model = ClassCode(**BUDGET, noise="gaussian").fit(graph)
    sums = [query for query in model.plan_.queries if isinstance(query, NeighborSumQuery)]
    expected = compose(*(query.event(model.protected_unit) for query in sums))
    assert model.privacy_cost(grow(graph)).event == expected


# -- accuracy ----------------------------------------------------------------------------------------------


def test_edges_of_another_graph_improve_accuracy_with_labels_and_without() -> None:
    graph = RECIPES["gap"].split(synthetic("demo"), seed=0)
    half = torch.arange(graph.num_nodes) % 2 == 0
    model = ClassCode(**BUDGET).fit(graph.subgraph(half))
    rest = graph.subgraph(~half)
    trained = model.fitted.trained
    assert isinstance(trained, TrainedEdgeLevelClassCode)
    test = rest.labeled_in("test")

    def accuracy(proba: Tensor) -> float:
        return float((proba.argmax(dim=1)[test] == rest.y[test]).float().mean())

    features, everything = accuracy(trained.prior(rest)), torch.ones(rest.num_nodes, dtype=torch.bool)
    assert accuracy(model.predict_proba(without_labels(rest))) > features
    assert accuracy(model.predict_proba(rest.subgraph(everything))) > features
