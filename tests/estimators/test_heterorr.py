"""HeteroRR: two releases, two guarantees, and nothing else that predictions know of a record or an edge."""

import json
import math
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil import HeteroRR, load_model
from graphveil._util.threads import one_thread
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.core.unit import EdgeSubset, LocalAttributes
from graphveil.data import Graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.data.tables.encoding import ColumnRule, Encoding
from graphveil.errors import ConfigError, GraphError, UnitError
from graphveil.estimators.full_graph import FullGraphMethod
from graphveil.estimators.session import Session
from graphveil.local import heterorr, reports
from graphveil.papers import as_published
from graphveil.papers.as_published import PaperEdgeRR
from graphveil.perturb import EdgeRR, sample_public_edges
from graphveil.perturb.mechanism import adjacency_of, domain_of

QUICK: dict[str, Any] = {
    "unit": "edge-subset",
    "epsilon": 2.0,
    "eps_x": 4.0,
    "seed": 0,
    "epochs": 3,
    "hidden": 8,
    "perturb": "edge-rr(rounds=3)",
}


def made(kind: type[HeteroRR] = HeteroRR, **changes: Any) -> HeteroRR:
    return kind(**(QUICK | changes))


def tiny(fraction: float = 0.5) -> Graph:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    public = sample_public_edges(graph, fraction, seed=0)
    return graph.with_public(public, torch.ones(graph.num_nodes, dtype=torch.bool))


# -- two guarantees ----------------------------------------------------------------------------------------


def test_charges_and_states_both_guarantees() -> None:
    graph = tiny()
    model = made().fit(graph)
    entries = ledger_of(graph.edge_set).entries
    assert {type(entry.unit) for entry in entries} == {LocalAttributes, EdgeSubset}, "one is not booked"
    assert len(model.guarantee.additional) == 1, "features are not promised anything"
    edges, (features,) = model.guarantee, model.guarantee.additional
    assert (edges.unit, edges.epsilon, edges.releases) == ("edge-subset", 2.0, 1)
    assert (features.unit, features.epsilon, features.releases) == ("local-attributes", 4.0, 1)
    said = model.guarantee.formal_statement()
    assert "each holds on its own, and they are not added" in said
    assert "are (2, 0)-indistinguishable" in said and "randomized on their own at eps_x = 4:" in said
    assert "no prediction reads a true private edge or a true feature" in said


def test_states_what_is_not_protected() -> None:
    guarantee = made().preview(tiny()).guarantee
    for words in ("labels", "who is in the data and how many", "public edges", "the list of nodes"):
        assert words in guarantee.not_covered
    assert "features have a guarantee of their own" in guarantee.not_covered
    assert "Labels, edges and who is in the data are not hidden" in guarantee.additional[0].formal_statement()


@pytest.mark.parametrize(("eps_x", "failed"), [(4.0, False), (math.inf, True)])
def test_no_error_depends_on_features_that_are_protected(eps_x: float, failed: bool) -> None:
    graph = tiny()
    loud = graph.replace(x=torch.full_like(graph.x, 3e38))
    with pytest.raises(GraphError, match=r"above 2\^63") if failed else nullcontext():
        made(eps_x=eps_x).preview(loud)


def test_runs_compose_for_each_guarantee() -> None:
    together = made().preview(tiny()).guarantee.repeated(3)
    assert (together.epsilon, together.additional[0].epsilon) == (6.0, 12.0)


def test_features_of_several_graphs_compose_sequentially() -> None:
    model, other = made().fit(tiny()), tiny(0.9)
    apart = other.replace(adjacency=synthetic("tiny").adjacency)
    privacy_cost = model.privacy_cost(apart, assume_disjoint_edges=True)
    assert privacy_cost is not None and (privacy_cost.epsilon, privacy_cost.additional[0].epsilon) == (
        2.0,
        4.0,
    )
    assert model.predict_proba(apart, assume_disjoint_edges=True).shape[0] == apart.num_nodes
    after = model.guarantee_with_predictions
    assert (after.epsilon, after.additional[0].epsilon) == (2.0, 8.0)
    assert len(ledger_of(apart.edge_set).entries) == 2


@pytest.mark.parametrize(
    ("changes", "edges", "features"),
    [
        ({}, True, True),
        ({"unsafe_noise_seed": 1}, False, False),
        ({"scaling": "columns", "data_dependent_bounds": True}, True, False),
    ],
)
def test_each_guarantee_has_its_deviations(changes: dict[str, Any], edges: bool, features: bool) -> None:
    guarantee = made(perturb="edge-rr", **changes).preview(tiny()).guarantee
    assert (guarantee.valid, guarantee.additional[0].valid) == (edges, features)
    assert guarantee.all_valid == (edges and features)


def test_heterorr_as_published_states_its_deviations() -> None:
    guarantee = made(as_published.HeteroRR, perturb="edge-rr").preview(tiny()).guarantee
    said = guarantee.formal_statement()
    assert "twice the exponent of the exponential mechanism" in said
    assert "weights are public, the same for all records, and add up to one" in said
    method = made(as_published.HeteroRR, perturb="edge-rr").config
    law = method.report_config.mechanism(16)
    assert isinstance(method.mechanism, PaperEdgeRR) and method.mechanism.structure == "paper"
    assert repr(law) == repr(made(features="feature-rr-naive").config.report_config.mechanism(16))


# -- predictions know what was released, and no more -------------------------------------------------------


def test_predictions_depend_on_released_values_only() -> None:
    """Neither true edges nor true features matter once both releases are what they are."""
    found = list[Tensor]()
    for kept, loud in ((1.0, 0.0), (0.1, 1.0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                EdgeRR, "sample_edges", lambda self, release, domain: torch.arange(0, domain.size, 37)
            )
            patch.setattr("graphveil.core.release.Release.close", lambda self: None)
            patch.setattr(reports, "randomize_features", lambda mechanism, x, *rest: _fixed(*x.shape))
            graph = tiny()
            few = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(0)) < kept
            other = graph.replace(adjacency=graph.adjacency.without_crossing(few), x=graph.x * (1 - loud))
            model = made().fit(other)
            found += [
                model.predict_proba(),
                model.no_graph_baseline().fit(model.with_reported_features(other)).predict_proba(),
            ]
    assert torch.equal(found[0], found[2]), "predictions know true edges or features"
    assert torch.equal(found[1], found[3]), "the baseline knows true features"


def _fixed(nodes: int, features: int) -> dict[str, Tensor]:
    return {"values": torch.arange(nodes * features).reshape(nodes, -1).remainder(2).to(torch.uint8)}


@pytest.mark.parametrize("features", ["feature-rr", "multi-bit"])
def test_training_again_on_the_published_release_is_bit_identical(features: str, tmp_path: Path) -> None:
    """A network trained again on the published slots and reports predicts the same, to the last bit."""
    graph = tiny()
    model = made(features=features).fit(graph)
    model.save(tmp_path / "release")
    published, method = load_model(tmp_path / "release").aggregates_, model.fitted.method
    assert isinstance(method, heterorr.HeteroMethod)
    assert graph.public is not None
    zeros = graph.replace(x=torch.zeros(graph.num_nodes, graph.num_features))
    domain = domain_of(graph, EdgeSubset())
    noisy = adjacency_of(published["graph"], domain, graph.public.edges, "")
    estimates = method.estimates(method.view(zeros), published)
    again = graph.replace(x=estimates, adjacency=noisy, public=None)
    with one_thread():  # as in the fit: the order of a sum depends on the number of threads
        own = {part.name: getattr(method, part.name) for part in fields(FullGraphMethod)}
        exact = FullGraphMethod(**{**own, "mechanism": None})
        replayed = exact.fit(again, made()._session(lambda *_: None))
    assert torch.equal(replayed.proba, model.predict_proba())


def collected(model: HeteroRR, graph: Graph, session: Session) -> Tensor:
    """Return the feature reports of one collection."""
    method = model.config
    assert isinstance(method, heterorr.HeteroMethod)
    randomizer = method.report_config.randomizer(graph.num_features, graph.num_classes)
    return randomizer.collect(method.view(graph), session, "features", stored="features")["values"]


def test_the_privacy_loss_of_features_is_eps_x() -> None:
    """All have 0, or all have 1: the probabilities of a report differ by a factor of e^eps_x."""
    count, epsilon = 4000, 1.0
    labels = torch.arange(count) % 2
    base = Graph.from_edges(torch.zeros(count, 1), labels, [0], [1], directed=False)
    base = base.with_public(base.adjacency, torch.zeros(count) > 1)
    shares = []
    for value in (0.0, 1.0):
        graph = base.replace(x=torch.full((count, 1), value))
        released = collected(made(eps_x=epsilon), graph, made()._session(lambda *_: None))
        shares.append(float((released == 0).float().mean()))
    ratio = math.log(shares[0] / shares[1])
    error = 4 * math.sqrt(sum((1 - share) / (share * count) for share in shares))
    assert abs(ratio - epsilon) < error, "features do not keep their budget"


def communities(nodes: int = 600, features: int = 8) -> Graph:
    """Return a graph of two groups, whose features and edges both say which: three edges in four within."""
    rng = np.random.default_rng(0)
    y = np.arange(nodes) % 2
    x = (rng.random((nodes, features)) < np.where(y == 1, 0.8, 0.2)[:, None]).astype(np.float32)
    source, target = rng.integers(nodes, size=(2, 8 * nodes))
    kept = (y[source] == y[target]) | (rng.random(8 * nodes) < 1 / 3)
    graph = Graph.from_edges(x, y, source[kept], target[kept], directed=False)
    graph = RECIPES["gap"].split(graph, seed=0)
    public = sample_public_edges(graph, 0.2, seed=0)
    return graph.with_public(public, torch.ones(nodes, dtype=torch.bool))


def test_the_graph_increases_accuracy() -> None:
    graph = communities()
    model = made(
        epochs=60, hidden=16, perturb="edge-rr(rounds=20)", features="multi-bit", unsafe_noise_seed=0
    ).fit(graph)
    alone = (
        model.no_graph_baseline()
        .fit(model.with_reported_features(graph))
        .score(model.with_reported_features(graph))
    )
    assert model.score(graph) > max(0.8, alone + 0.05)


# -- once, and kept ----------------------------------------------------------------------------------------


def test_a_resumed_fit_uses_the_stored_reports(tmp_path: Path) -> None:
    graph = tiny()
    first = made().fit(graph, workspace=tmp_path)
    again = made().fit(graph, workspace=tmp_path)
    assert torch.equal(first.aggregates_["feature_values"], again.aggregates_["feature_values"])
    assert torch.equal(first.predict_proba(), again.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 2


def test_a_workspace_holds_no_digest_of_private_edges(tmp_path: Path) -> None:
    graph = tiny()
    made().fit(graph, workspace=tmp_path)
    fewer = graph.replace(adjacency=graph.adjacency.without_crossing(graph.y == 0))
    again = collected(made(), fewer, made()._session(lambda *_: None, workspace=tmp_path))
    assert len(again)  # the stored reports are accepted, whatever the edges are


def test_rejects_stored_reports_of_other_settings(tmp_path: Path) -> None:
    made().fit(tiny(), workspace=tmp_path)
    with pytest.raises(Exception, match="with other settings, data"):
        made(eps_x=5.0).fit(tiny(), workspace=tmp_path)


def test_a_saved_model_has_both_guarantees(tmp_path: Path) -> None:
    graph = tiny()
    model = made(features="multi-bit").fit(graph)
    model.save(tmp_path / "release")
    back = load_model(tmp_path / "release")
    assert back.guarantee == model.guarantee and back.guarantee.additional[0].epsilon == 4.0
    assert torch.equal(back.predict_proba(), model.predict_proba())
    assert isinstance(back, HeteroRR)


def test_rejects_a_changed_additional_guarantee(tmp_path: Path) -> None:
    made().fit(tiny()).save(tmp_path / "release")
    path = tmp_path / "release" / "privacy.json"
    record = json.loads(path.read_text())
    record["guarantee"]["additional"][0]["epsilon"] = 0.1
    path.write_text(json.dumps(record))
    with pytest.raises(Exception, match="was changed after it was written"):
        load_model(tmp_path / "release")


def test_a_ledger_with_a_limit_rejects_two_units() -> None:
    graph = tiny()
    ledger = MemoryLedger(epsilon=100.0, delta=1e-7)
    attach_ledger(graph.edge_set, ledger)
    with pytest.raises(Exception, match="different privacy units"):
        made().fit(graph)
    assert {type(entry.unit) for entry in ledger.entries} == {LocalAttributes}


def test_seeds_reproduce_results() -> None:
    one, two = (made(unsafe_noise_seed=3).fit(tiny()) for _ in range(2))
    assert torch.equal(one.predict_proba(), two.predict_proba())
    assert torch.equal(one.aggregates_["feature_values"], two.aggregates_["feature_values"])


def test_collections_under_one_seed_differ() -> None:
    graph = tiny()
    model = made(unsafe_noise_seed=3).fit(graph)
    session = made(unsafe_noise_seed=3)._session(lambda *_: None)
    session.collection_index = 0
    told_again = collected(model, graph, session)
    assert not torch.equal(told_again, model.aggregates_["feature_values"])


# -- what is failed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"unit": None}, UnitError, "no default privacy unit"),
        ({"unit": "undirected-edge"}, UnitError, "needs unit='edge-subset'.*with_public.*--public-edges"),
        ({"unit": "undirected-edge"}, UnitError, "If all edges are private, use 'classcode'"),
        ({"unit": "none"}, UnitError, "without noise use method 'gcn'"),
        ({"eps_x": None}, ConfigError, "the one for features is missing"),
        ({"eps_x": -1.0}, ConfigError, "eps_x=-1.0 must be a number above 0"),
        ({"epsilon": None}, ConfigError, "needs a privacy budget"),
        ({"perturb": None}, ConfigError, "needs a mechanism"),
        ({"delta": 1e-6}, ConfigError, "is only for features='agm'"),
        ({"k": 5, "features": "multi-bit"}, ConfigError, "are only for features='feature-rr'"),
        ({"scaling": "columns"}, ConfigError, "must be set together"),
        ({"theta": ((0.5, 0.5), (1.0, 0.0))}, Exception, "theta"),
    ],
)
def test_rejects_contradicting_options(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        made(**changes).preview(tiny())


def test_requires_the_list_of_private_nodes() -> None:
    graph = tiny().replace(public=None)
    with pytest.raises(UnitError, match="needs the public list of nodes"):
        made().fit(graph)
    assert not ledger_of(graph.edge_set).entries


# -- encodings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eps_x", "failed"), [(4.0, True), (math.inf, False)])
def test_fit_and_predict_reject_the_same_encodings(eps_x: float, failed: bool) -> None:
    graph = tiny()
    columns = Encoding(rules=(ColumnRule(name="team", kind="list", width=graph.num_features, fitted=True),))
    derived = graph.replace(encoding=columns, adjacency=tiny(0.9).adjacency)
    model = made(eps_x=eps_x).fit(graph)
    calls = (made(eps_x=eps_x).fit, lambda other: model.predict(other, allow_spend=True))
    for call in calls:
        with pytest.raises(UnitError, match="was computed from all records") if failed else nullcontext():
            call(derived)
    assert bool(len(ledger_of(derived.edge_set))) != failed
