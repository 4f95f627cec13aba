"""ClassCode on graphs that it was not fitted on: what is sent there, what it costs, and what it says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, GraphError, NotImplementedGuaranteeError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.edge_method import TrainedEdgeLevelClassCode
from graphveil.estimators.classcode.edge_plan import TARGET, TRAIN
from graphveil.estimators.classcode.edge_rows import LikelihoodShape, Signal, fit_length
from graphveil.ledger import ledger_of
from graphveil.release import NeighborSumData, NeighborSumQuery, Release
from tests.estimators.conftest import grouped

PUBLIC: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
SEEDED = {**PUBLIC, "unsafe_noise_seed": 0}
Asked = list[tuple[Tensor, Tensor, tuple[int, ...]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was asked: the codes that were sent, the nodes' groups, and the shape of the answer."""
    seen: Asked = []
    ask = Release.answer

    def noting(self: Release, data: Any) -> Any:
        answer = ask(self, data)
        if isinstance(data, NeighborSumData):
            assert self._public.groups is not None
            seen.append((data.vectors, self._public.groups, tuple(answer.shape)))
        return answer

    monkeypatch.setattr(Release, "answer", noting)
    return seen


def without_labels(graph: Graph) -> Graph:
    return graph.replace(y=torch.full_like(graph.y, -1), train_mask=None, val_mask=None, test_mask=None)


def grow(graph: Graph, nodes: int = 3, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    new = graph.num_nodes + rng.integers(nodes, size=5 * nodes)
    other = rng.integers(graph.num_nodes + nodes, size=5 * nodes)
    return graph.grow(rng.random((nodes, graph.num_features)), None, new, other)


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(
    "options", [{}, {"weights": "half_cos"}, {"weights": "jaccard"}, {"self_training": True}]
)
def test_another_graph_is_asked_once_for_rows_alone(options: dict[str, Any]) -> None:
    graph, other = grouped(), without_labels(grouped(seed=1))
    model = ClassCode(**PUBLIC, **options).fit(graph)
    privacy_cost = model.privacy_cost(other, assume_disjoint_edges=True)
    assert privacy_cost is not None
    assert privacy_cost.epsilon <= 4.0
    assert privacy_cost.releases == 1
    assert len(privacy_cost.event.events) == 2  # two rounds where nobody has a label, and no counts
    first = model.predict_proba(other, assume_disjoint_edges=True)
    assert torch.equal(model.predict_proba(other), first)
    assert model.privacy_cost(other) is None
    assert (len(ledger_of(graph.edge_set).entries), len(ledger_of(other.edge_set).entries)) == (1, 1)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0)
    assert torch.allclose(first.sum(dim=1), torch.ones(150))


def two_classes(seed: int = 0) -> Graph:
    graph = grouped(seed=seed)
    return graph.replace(y=graph.y.clamp_max(1), num_classes=2, class_names=())


@pytest.mark.usefixtures("quick_classcode")
def test_two_classes_are_counted_at_both_ends_here_there_and_at_new_nodes() -> None:
    graph, other = two_classes(), two_classes(seed=1)
    model = ClassCode(**PUBLIC).fit(graph)
    (query,) = model.preview(graph).plan.queries
    assert (query.ranks, query.epsilon, model.guarantee.epsilon) == (None, 2.0, pytest.approx(4.0, rel=1e-4))
    assert ClassCode(**{**PUBLIC, "epsilon": 3.9}).preview(graph).plan.queries[0].ranks == (0, 1, 2)
    right = model.predict(other, assume_disjoint_edges=True) == other.y
    assert float(right[other.mask("test")].float().mean()) > 0.8
    grown = model.predict_proba(grow(other), assume_disjoint_edges=True)
    assert grown.shape == (153, 2)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-4)


@pytest.mark.usefixtures("quick_classcode")
def test_graphs_that_may_share_edges_add_up() -> None:
    graph, other = grouped(), grouped(seed=1)
    model = ClassCode(**PUBLIC).fit(graph)
    model.predict(other)
    assert (len(ledger_of(graph.edge_set).entries), len(ledger_of(other.edge_set).entries)) == (2, 1)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(model.guarantee.repeated(2).epsilon)


@pytest.mark.usefixtures("quick_classcode")
def test_public_labels_of_another_graph_are_sent_and_those_of_its_test_nodes_never(
    asked: Asked,
) -> None:
    model = ClassCode(**SEEDED, noise="gaussian").fit(grouped())
    other = grouped(seed=1)
    hidden = other.y.clone()
    hidden[other.mask("test")] = (hidden[other.mask("test")] + 1) % 3
    asked.clear()
    first = model.predict_proba(other)
    assert torch.equal(model.predict_proba(grouped(seed=1).replace(y=hidden)), first)
    (codes, groups, _), (again, *_) = asked
    public = other.mask("train") | other.mask("val")
    assert torch.equal(codes, again)
    assert torch.equal(codes[public], simplex_codes(3)[other.y[public]])
    assert torch.equal(groups != TARGET, public)


@pytest.mark.usefixtures("quick_classcode")
def test_labels_of_other_classes_are_refused_before_anything_is_booked() -> None:
    model, other = ClassCode(**PUBLIC).fit(grouped()), grouped(seed=1)
    more = other.replace(y=other.y + 1, num_classes=4, class_names=())
    with pytest.raises(GraphError, match="other classes"):
        model.predict(more)
    assert not ledger_of(more.edge_set).entries
    model.predict(without_labels(more))


def test_records_are_not_predicted_elsewhere() -> None:
    model = ClassCode(unit="node-record", epsilon=4.0, delta=1e-5, seed=0).fit(grouped())
    other = grouped(seed=1)
    with pytest.raises(NotImplementedGuaranteeError, match="use gap"):
        model.predict(other)
    assert not ledger_of(other.edge_set).entries


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(
    "options", [{}, {"self_training": True}, {"weights": "learned_public"}, {"few_labels": True}]
)
def test_a_model_from_a_folder_predicts_what_the_first_one_does(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    model = ClassCode(**SEEDED, **options).fit(grouped())
    model.save(tmp_path / "run")
    loaded = gv.load_model(tmp_path / "run")
    there = loaded.predict_proba(without_labels(grouped(seed=1)), allow_spend=True)
    torch.testing.assert_close(there, model.predict_proba(without_labels(grouped(seed=1))))


@pytest.mark.usefixtures("quick_classcode")
def test_weights_that_could_not_read_a_row_are_refused() -> None:
    fit = ClassCode(**SEEDED).fit(grouped()).fitted
    whole = fit.trained.state()
    wrong: list[dict[str, Tensor]] = [
        {name: value for name, value in whole.items() if not name.startswith("features/")},
        {name: value for name, value in whole.items() if not name.startswith("features/3/")},
        {**whole, "affinity": torch.ones(3, 2)},
        {**whole, "affinity": whole["affinity"] * torch.nan},
        {**whole, "numbers": whole["numbers"] * torch.nan},
        {**whole, "features/0/_layers.0.weight": torch.ones(7, 4)},
    ]
    for state in wrong:
        with pytest.raises(ArtifactError):
            fit.method.restore(state, fit.sizes, {})
    fit.method.restore(whole, fit.sizes, {})


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("options", [{"noise": "gaussian"}, {"weights": "half_cos"}])
def test_nodes_that_come_later_hear_old_ones_at_full_weight_and_pay_for_new_edges_alone(
    asked: Asked, options: dict[str, Any]
) -> None:
    graph = grouped()
    model = ClassCode(**PUBLIC, **options).fit(graph)
    grown = grow(graph)
    privacy_cost = model.privacy_cost(grown)
    assert privacy_cost is not None
    assert privacy_cost.epsilon <= 4.0
    asked.clear()
    proba = model.predict_proba(grown)
    assert torch.equal(proba[:150], model.predict_proba())
    ((codes, groups, shape),) = asked
    assert shape == (3, 2)  # rows of new nodes, and no others
    assert set(groups[:150].tolist()) == {TRAIN}
    assert set(groups[150:].tolist()) == {TARGET}
    public = graph.mask("train") | graph.mask("val")
    targets = (~public).nonzero()[:, 0]
    assert torch.equal(codes[:150][public], simplex_codes(3)[graph.y[public]])
    torch.testing.assert_close(codes[targets], model.predict_proba()[targets].double() @ simplex_codes(3))
    books = [len(ledger_of(part).entries) for part in grown.edge_set.parts]
    assert books == [1, 1]
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0)
    again = grow(grown, seed=1)
    assert torch.equal(model.predict_proba(again)[:153], proba)
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0)


@pytest.mark.usefixtures("quick_classcode")
def test_where_neighbors_are_counted_later_nodes_hear_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    combined_aggregates: list[tuple[Tensor, Tensor, Tensor]] = []
    ask = Release.answer

    def noting(self: Release, data: Any) -> Any:
        answer = ask(self, data)
        combined_aggregates.append((data.classes, self._public.groups, answer))  # type: ignore[arg-type]
        return answer

    monkeypatch.setattr(Release, "answer", noting)
    graph = grouped()
    model = ClassCode(**PUBLIC).fit(graph)
    grown = grow(graph)
    proba = model.predict_proba(grown)
    (taught, first, rows), (classes, groups, later) = combined_aggregates
    public = graph.mask("train") | graph.mask("val")
    assert torch.equal(taught[public], graph.y[public])
    assert torch.equal(taught[public], classes[:150][public])
    assert torch.equal(classes[:150][~public], model.predict_proba()[~public].argmax(dim=1))
    assert rows.shape == (150, 3)
    assert later.shape == (3, 3)
    assert bool((rows == rows.round()).all())
    assert torch.equal(first == TARGET, ~public)
    assert set(groups[:150].tolist()) == {TRAIN}
    assert torch.equal(proba[:150], model.predict_proba())
    assert model.guarantee_with_predictions.epsilon == pytest.approx(4.0, rel=1e-5)


@pytest.mark.usefixtures("quick_classcode")
def test_new_rows_have_the_noise_of_old_ones() -> None:
    graph = grouped()
    model = ClassCode(**PUBLIC, noise="gaussian").fit(graph)
    grown = grow(graph)
    model.predict(grown)
    kept = model._prediction_manager._known(grown)
    assert kept is not None
    assert kept.plan is not None
    assert model.plan_ is not None
    assert kept.plan.queries == tuple(q for q in model.plan_.queries if isinstance(q, NeighborSumQuery))


def test_the_length_of_rows_is_found_in_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (800,), generator=generator)
    means = (0.8 * simplex_codes(3)).repeat(800, 1, 1)
    rows = 12 * means[0][y] + torch.randn(800, 2, generator=generator, dtype=torch.float64)
    ones = torch.ones((), dtype=torch.float64)
    flat = torch.full((800, 3), 1 / 3, dtype=torch.float64).log()
    for start in (2.0, 12.0, 50.0):
        signal = Signal(torch.full((800,), start, dtype=torch.float64), means, ones)
        fitted = fit_length(rows, signal, LikelihoodShape(0.6, 0.0, 1.0), flat)
        assert 10 < float(fitted.length[0]) < 16
    silent = fit_length(
        rows[:0], Signal(torch.ones(0), means[:0], ones), LikelihoodShape(0.6, 0.0, 1.0), flat[:0]
    )
    assert len(silent.length) == 0


def test_another_graph_gains_from_its_edges_with_labels_and_without() -> None:
    graph = RECIPES["gap"].split(synthetic("demo"), seed=0)
    half = torch.arange(graph.num_nodes) % 2 == 0
    model = ClassCode(**PUBLIC).fit(graph.subgraph(half))
    rest = graph.subgraph(~half)
    trained = model.fitted.trained
    assert isinstance(trained, TrainedEdgeLevelClassCode)
    test = rest.mask("test")

    def accuracy(proba: Tensor) -> float:
        return float((proba.argmax(dim=1)[test] == rest.y[test]).float().mean())

    features = accuracy(trained.inductive_predictor.prior(rest))
    bare = without_labels(rest)
    assert accuracy(model.predict_proba(bare)) > features
    assert (
        accuracy(model.predict_proba(rest.subgraph(torch.ones(rest.num_nodes, dtype=torch.bool)))) > features
    )
