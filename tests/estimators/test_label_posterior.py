"""The label posterior as a method: queries, guarantee and predictions, from labels alone."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.errors import ConfigError, UnitError
from graphveil.local.collect import CollectionProtocol, Collector, randomize_records
from graphveil.local.posterior_mixture import PRIORS, diffusion_hops, mean_degree
from graphveil.local.reports import label_report_nodes
from graphveil.mechanisms import LabelRR, LocalHashing, MultiBit, SubsetSelection
from tests.estimators.conftest import CLASSES, grouped

LOCAL = {"unit": "local-attributes", "eps_y": 2.0, "seed": 0, "unsafe_noise_seed": 0}


def model(**changed: object) -> gv.LabelPosterior:
    return gv.LabelPosterior(**{**LOCAL, **changed})


# -- what is first, and what that costs ---------------------------------------------------------------------


@pytest.mark.parametrize("method", [gv.LabelPosterior, gv.LPGNN, gv.SimGAT])
@pytest.mark.parametrize(("classes", "size"), [(3, 1), (7, 2), (18, 5)])
def test_reports_several_classes_by_default_if_there_are_many(
    method: type[gv.LPGNN], classes: int, size: int
) -> None:
    law = method(unit="local-attributes", eps_x=0.0 if method is gv.LabelPosterior else 1.0, eps_y=1.0)
    found = law.label_mechanism(classes)
    assert isinstance(found, SubsetSelection)
    assert (found.size, found.epsilon) == (size, 1.0)


@pytest.mark.parametrize("labels", ["rr", "subset"])
def test_reports_a_label_and_no_features(labels: str) -> None:
    graph = grouped()
    found = model(labels=labels, unsafe_noise_seed=None).fit(graph)
    assert found.guarantee.local_budgets == (0.0, 2.0)
    assert found.guarantee.valid
    assert "eps_x = 0 and its label at eps_y = 2 (total 2" in found.guarantee.formal_statement()
    assert "features are not reported, so their budget is not spent" in found.guarantee.formal_statement()
    (row,) = found.preview(grouped()).rows
    assert (row.kind, row.values_per_node) == ("label", 1)
    (entry,) = ledger_of(graph.edge_set).entries
    assert entry.event == found.guarantee.event
    found.fit(graph)
    assert len(ledger_of(graph.edge_set).entries) == 2  # a second collection, which adds up


def test_features_are_not_read() -> None:
    graph = grouped()
    other = graph.replace(x=torch.rand(graph.num_nodes, 3))
    assert torch.equal(model().fit(graph).predict_proba(), model().fit(other).predict_proba())


def test_labels_of_test_nodes_and_raw_labels_are_not_read() -> None:
    graph = grouped()
    found = model().fit(graph)
    y = torch.where(label_report_nodes(graph), graph.y, (graph.y + 1) % CLASSES)
    assert torch.equal(found.predict_proba(), model().fit(graph.replace(y=y)).predict_proba())
    said = found.aggregates_["labels"]
    assert 0 < float((said == graph.y)[label_report_nodes(graph)].float().mean()) < 1


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("labels", ["rr", "subset"])
def test_every_prior_has_its_accuracy(prior: str, labels: str) -> None:
    graph = grouped(nodes=600)
    found = model(prior=prior, labels=labels, posterior_steps=4).fit(graph)
    assert torch.allclose(found.predict_proba().sum(dim=1), torch.ones(600), atol=1e-5)
    assert set(found.weights_) == set(PRIORS[prior])
    assert sum(found.weights_.values()) == pytest.approx(1)
    accuracy = found.score(graph)
    assert accuracy < 0.6 if prior == "nothing" else accuracy > 0.9
    kept = found.label_mechanism(CLASSES).keep
    assert found.agreement_["val"] == pytest.approx(kept if prior != "nothing" else 1 / 3, abs=0.15)
    assert found.score(graph, "val") <= 1


def test_few_hops_are_more_accurate_on_dense_graphs() -> None:
    nodes, degree, rng = 1000, 40, np.random.default_rng(0)
    y = rng.integers(CLASSES, size=nodes)
    source, target = rng.integers(nodes, size=(2, 2 * degree * nodes))
    kept = rng.random(len(source)) < np.where(y[source] == y[target], 0.35, 0.25)
    edges = source[kept], target[kept]
    graph = gv.Graph.from_edges(
        torch.ones(nodes, 1), torch.from_numpy(y), *edges, directed=False, num_classes=CLASSES
    )
    rank = torch.from_numpy(rng.permutation(nodes)) / nodes
    graph = graph.with_split(rank < 0.5, (rank >= 0.5) & (rank < 0.75), rank >= 0.75)
    edges_known = graph.adjacency
    assert mean_degree(edges_known) > 32 and diffusion_hops(edges_known) == 2
    chosen, two, many = (
        model(eps_y=1.0, prior="diffusion", posterior_steps=steps).fit(graph) for steps in ("auto", 2, 16)
    )
    assert torch.equal(chosen.predict_proba(), two.predict_proba())
    assert chosen.score(graph) > many.score(graph) + 0.05


def test_a_grown_graph_keeps_the_number_of_hops() -> None:
    graph = grouped()
    found = model(prior="diffusion").fit(graph)
    hops = diffusion_hops(graph.adjacency)
    friends = (graph.y == 1).nonzero()[:, 0].tolist()
    new = graph.num_nodes + np.repeat(np.arange(40), len(friends))
    larger = graph.grow(torch.zeros(40, graph.num_features), None, new.tolist(), friends * 40)
    assert diffusion_hops(larger.adjacency) < hops
    fixed = model(prior="diffusion", posterior_steps=hops).fit_same_reports(found, graph)
    assert torch.equal(found.predict_proba(larger), fixed.predict_proba(larger))


def test_uninformative_edges_give_chance_accuracy() -> None:
    graph = grouped(nodes=600)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(600))
    noise = graph.replace(y=graph.y[shuffled])  # labels that have nothing to do with edges
    assert model().fit(noise).score(noise) < 0.5


def test_exact_labels_are_the_reference() -> None:
    graph = grouped(nodes=600)
    exact = gv.LabelPosterior(unit="none", seed=0).fit(graph)
    assert exact.score(graph) > 0.95
    assert (exact.predict()[label_report_nodes(graph)] == graph.y[label_report_nodes(graph)]).all()


# -- rejected -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        ({"eps_x": 1.0}, ConfigError, "does not read features"),
        ({"eps_y": None}, ConfigError, "needs the budget eps_y of the label, but eps_y is missing"),
        ({"eps_y": 0}, ConfigError, "eps_y="),
        ({"epsilon": 1.0}, ConfigError, "spends on the label alone; pass eps_y="),
        ({"labels": "sets"}, ConfigError, "labels='sets' is not one of rr, subset"),
        ({"prior": "edges"}, ConfigError, "prior='edges' is not one of"),
        ({"posterior_steps": 0}, ConfigError, "posterior_steps=0"),
        (
            {"missing_labels": 0.2, "eps_y": math.inf},
            ConfigError,
            "missing_labels=0.2 is only for randomized labels",
        ),
        ({"unit": "undirected-edge"}, UnitError, "'local-attributes' and not"),
    ],
)
def test_rejects_invalid_options(changed: dict, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        model(**changed)


def test_rejects_graphs_without_reports() -> None:
    found = model().fit(grouped())
    with pytest.raises(ConfigError, match="no node of this graph has reported"):
        found.predict_proba(grouped(seed=1))


# -- afterwards --------------------------------------------------------------------------------------------


def test_predicts_grown_graphs_without_a_charge() -> None:
    graph = grouped(nodes=600)
    found = model().fit(graph)
    friends = (graph.y == 1).nonzero()[:8, 0]
    larger = graph.grow(torch.zeros(1, graph.num_features), None, [600] * 8, friends)
    assert found.privacy_cost(larger) is None
    grown = found.predict_proba(larger)
    assert grown.shape == (601, CLASSES)
    assert int(grown[600].argmax()) == 1
    assert found.guarantee_with_predictions.local_budgets == (0.0, 2.0)
    assert len(ledger_of(graph.edge_set).entries) == 1
    other = found.predict_proba(graph.replace(x=torch.zeros(600, graph.num_features)))
    assert torch.equal(other, found.predict_proba())  # features are not read


def test_saves_and_loads(tmp_path: Path) -> None:
    found = model(labels="subset").fit(grouped())
    found.save(tmp_path / "model")
    back = gv.load_model(tmp_path / "model")
    assert isinstance(back, gv.LabelPosterior)
    assert torch.equal(back.predict_proba(), found.predict_proba())
    assert back.guarantee.formal_statement() == found.guarantee.formal_statement()
    with pytest.raises(ConfigError, match="no node of this graph has reported"):
        back.predict_proba(grouped(seed=1))


def test_fits_the_reports_of_lpgnn_without_a_charge() -> None:
    graph = grouped()
    local = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0, "labels": "rr"}
    first = gv.LPGNN(**local, epochs=2, seed=0).fit(graph)  # type: ignore[arg-type]
    posterior = gv.LabelPosterior(unit="local-attributes", eps_y=2.0, labels="rr", seed=0)
    beside = posterior.fit_same_reports(first, graph)
    assert beside.guarantee == first.guarantee
    assert torch.equal(beside.aggregates_["labels"], first.aggregates_["labels"])
    assert len(ledger_of(graph.edge_set).entries) == 1
    with pytest.raises(ConfigError, match=r"labels='subset' differs from .*with which the reports were made"):
        model(labels="subset").fit_same_reports(first, graph)
    with pytest.raises(ConfigError, match="with which the reports were made"):
        gv.LPGNN(**local).fit_same_reports(beside, graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "label",
    [
        LabelRR(epsilon=3.0, classes=3),
        SubsetSelection(epsilon=0.5, classes=9),
        LocalHashing(epsilon=0.5, classes=9),
    ],
)
def test_fits_reports_of_clients(label: LabelRR | SubsetSelection | LocalHashing) -> None:
    graph, protocol = grouped(), CollectionProtocol(label=label)
    answered = range(10, graph.num_nodes)
    collector = Collector(protocol, graph.num_nodes)
    messages = randomize_records(protocol, nodes=answered, secret=bytes(32), labels=graph.y[10:].numpy())
    for node, message in zip(answered, messages, strict=True):
        collector.accept(message, node)
    found = gv.LabelPosterior.from_protocol(protocol, seed=0).fit_from_collector(collector, graph.adjacency)
    assert found.guarantee.received
    assert found.guarantee.local_budgets == (0.0, label.epsilon)
    assert found.predict_proba().shape == (graph.num_nodes, label.classes)
    if isinstance(label, LabelRR):
        assert float((found.predict()[:10] == graph.y[:10]).float().mean()) > 0.5
    with pytest.raises(ConfigError, match="does not read features"):
        found.fit_from_collector(collector, graph.adjacency, public_features=graph.x)
    both = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2), label=label)
    with pytest.raises(ConfigError, match="which this method does not use"):
        gv.LabelPosterior.from_protocol(both)
