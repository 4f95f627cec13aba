"""Unit ``node``: what a fit charges, states, resumes and rejects."""

from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil import METHODS, perturb
from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.clipping.dpsgd import clipped_sum
from graphveil.core.events import ApproximateDP, compose, without_failures
from graphveil.core.features import ProtectedRows
from graphveil.core.ledger import ledger_of
from graphveil.core.queries.projected_sums import DegreeHIndexQuery, ProjectedSumQuery
from graphveil.core.unit import Node
from graphveil.core.view import own_rows, protected_view
from graphveil.data import Interactions
from graphveil.errors import ConfigError, GraphveilError, ProtectedDataError, UnitError
from graphveil.estimators import choice
from graphveil.links.link_predictor import LinkPredictor
from graphveil.links.recommender import Recommender
from graphveil.nn.layers import Linear
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from tests.estimators.conftest import grouped
from tests.estimators.gnn.modules import Mean
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same

WHOLE: dict[str, Any] = {"unit": "node", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
SHORT: dict[str, Any] = {"epochs": 120}


def make(method: str, **more: Any) -> Any:
    short = SHORT if method in ("gap", "mlp") else {}
    return METHODS[method](**{**WHOLE, **short, **more})


# -- the plan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])
@pytest.mark.parametrize("method", ["gap", "mlp", "classcode", "auto"])
def test_a_plan_costs_at_most_the_target_and_little_less(
    method: str, epsilon: float, replace_one: bool
) -> None:
    ready = make(method, epsilon=epsilon, replace_one=replace_one).preview(grouped())
    plan, guarantee = ready.plan, ready.guarantee
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    assert guarantee.valid and guarantee.epsilon <= epsilon
    degrees = [query for query in plan.queries if isinstance(query, DegreeHIndexQuery)]
    assert len(degrees) == (method != "mlp")
    assert all(query.failure == pytest.approx(plan.delta / 10) for query in degrees)
    failures = [one for one in compose(guarantee.event).events if isinstance(one, ApproximateDP)]
    assert failures == [ApproximateDP(0.0, query.failure) for query in degrees]


def test_a_degree_bound_that_fails_more_often_leaves_less_of_delta() -> None:
    event = make("classcode").preview(grouped()).guarantee.event
    small, large = (
        Guarantee.from_event(Node(), compose(event, ApproximateDP(0.0, failure)), delta=1e-5, releases=1)
        for failure in (1e-9, 5e-6)
    )
    assert small.epsilon < large.epsilon


# -- the guarantee -------------------------------------------------------------------------------------------


def fitted(method: str, **more: Any) -> Any:
    return make(method, **more).fit(grouped())


def test_the_statement_of_own_lists_names_the_bound_of_a_coalition() -> None:
    model = fitted("classcode")
    guarantee = model.guarantee
    assert guarantee.edge_use == "read"
    assert guarantee.coalition_epsilon > guarantee.epsilon
    words = guarantee.formal_statement()
    assert f"protected at eps = {format_upper_bound(guarantee.coalition_epsilon)}" in words
    assert "all edges in which q takes part" in words and "Nothing is assumed about degrees" in words
    sums = next(query for query in model.plan_.queries if isinstance(query, ProjectedSumQuery))
    ratio = sums.coalition_sensitivity(Node()) / sums.sensitivity(Node())
    failure = make("classcode").preview(grouped()).plan.queries[0].failure
    assert guarantee.coalition_mu > ratio * sums.sensitivity(Node()) / sums.sigma
    left = guarantee.delta - guarantee.slack - failure
    assert guarantee.coalition_epsilon == pytest.approx(epsilon_of(guarantee.coalition_mu, left))


@pytest.mark.parametrize(
    ("method", "more"), [("gap", {}), ("mlp", {}), ("classcode", {"read_own_edges": False})]
)
def test_a_coalition_learns_no_more_from_predictions_without_own_lists(method: str, more: Any) -> None:
    guarantee = make(method, **more).preview(grouped()).guarantee
    assert guarantee.coalition_epsilon == guarantee.epsilon
    assert "predictions for all nodes other than q" in guarantee.formal_statement()


@pytest.mark.parametrize("method", ["classcode", "gap", "mlp"])
def test_a_guarantee_survives_json(method: str) -> None:
    guarantee = make(method).preview(grouped()).guarantee
    back = guarantee_from_plain(guarantee_to_plain(guarantee))
    assert back == guarantee
    assert back.coalition_epsilon == guarantee.coalition_epsilon
    assert back.formal_statement() == guarantee.formal_statement()


def test_two_runs_compose_with_both_failures_and_both_coalitions() -> None:
    one = make("classcode").preview(grouped()).guarantee
    both = Guarantee.compose([one, one])
    failures = [event.delta for event in compose(both.event).events if isinstance(event, ApproximateDP)]
    assert failures == pytest.approx([1e-6, 1e-6])
    assert both.epsilon > 2**0.5 * one.epsilon
    assert both.coalition_mu == pytest.approx(2**0.5 * one.coalition_mu)
    left = both.delta - both.slack - sum(failures)
    assert both.coalition_epsilon == pytest.approx(epsilon_of(both.coalition_mu, left))


def test_a_run_without_own_lists_costs_more_next_to_one_with_them() -> None:
    """A coalition that knows edges from one run compares graphs in which these stay, in both runs."""
    reads, queries = (make(method).preview(grouped()).guarantee for method in ("classcode", "gap"))
    plain = total_mu(without_failures(queries.event))
    assert plain is not None and queries.coalition_mu > 1.2 * plain
    both = Guarantee.compose([queries, reads])
    assert both.edge_use == "read"
    assert both.coalition_mu == pytest.approx(np.hypot(reads.coalition_mu, queries.coalition_mu))
    assert both.coalition_epsilon > both.epsilon


# -- resumed fits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "stage", "done"),
    [
        ("gap", "encoder", 117),
        ("gap", "aggregate", 1),
        ("gap", "classifier", 60),
        ("mlp", "classifier", 117),
        ("classcode", "encoder", 1),
        ("classcode", "aggregate", 1),
        ("auto", "choice", 1),
    ],
)
def test_a_resumed_fit_is_bit_identical_and_charges_nothing(
    method: str, stage: str, done: int, tmp_path: Any
) -> None:
    more = {"unsafe_noise_seed": 4}
    whole, graph = fitted(method, **more), grouped()
    with pytest.raises(InterruptedFit):
        make(method, **more).fit(graph, workspace=tmp_path, on_progress=interrupted_at(stage, done))
    resumed = make(method, **more).fit(graph, workspace=tmp_path)
    assert same(whole, resumed)
    assert len(ledger_of(graph.edge_set).entries) == 1


def test_a_resumed_fit_has_the_degree_bound_of_the_first(tmp_path: Any) -> None:
    """Without a seed: another noisy h-index would have other weights and rows."""
    graph = grouped()
    with pytest.raises(InterruptedFit):
        make("classcode").fit(graph, workspace=tmp_path, on_progress=interrupted_at("aggregate", 1))
    first = make("classcode").fit(graph, workspace=tmp_path)
    assert same(first, make("classcode").fit(graph, workspace=tmp_path))
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(("stage", "done"), [("choice", 1), ("encoder", 1), ("classifier", 0)])
def test_a_choice_of_classcode_uses_its_h_index_and_resumes(
    stage: str, done: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LEAST_EVIDENCE", "_EVIDENCE_OVER_FEATURES"):
        monkeypatch.setattr(choice, name, 0.0)
    more = {"unsafe_noise_seed": 4}
    whole, graph = fitted("auto", **more), grouped()
    assert whole.chosen_ == "classcode"
    with pytest.raises(InterruptedFit):
        make("auto", **more).fit(graph, workspace=tmp_path, on_progress=interrupted_at(stage, done))
    assert same(whole, make("auto", **more).fit(graph, workspace=tmp_path))
    (entry,) = ledger_of(graph.edge_set).entries
    failures = [one.delta for one in compose(entry.event).events if isinstance(one, ApproximateDP)]
    assert failures == pytest.approx([1e-6])


# -- rejected ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, True])
def test_metrics_of_predictions_from_own_lists_are_rejected(given: bool | None) -> None:
    with pytest.raises(ConfigError, match="counts of them have no bound"):
        make("classcode", private_metrics=True, read_own_edges=given)


def test_metrics_without_own_lists_are_released() -> None:
    model = fitted("classcode", private_metrics=True, read_own_edges=False)
    assert set(model.private_accuracy_) == {"val", "test"}
    assert model.guarantee.edge_use == "queried" and model.guarantee.epsilon <= 4


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("spectral", {}),
        ("lpgnet", {}),
        ("gcn", {"perturb": "edge-rand"}),
        ("gat", {"perturb": "edge-rand"}),
        ("sage", {"perturb": "edge-rand"}),
        ("gnn", {"module": Mean}),
        ("lpgnn", {}),
        ("heterorr", {}),
        ("simgat", {}),
        ("gap", {"weights": "jaccard"}),
        ("gap", {"out_degree_bound": 4}),
        ("gap", {"max_degree": 4}),
        ("classcode", {"targets": "test"}),
        ("classcode", {"unlabeled_send": False}),
        ("classcode", {"out_degree_bound": 4}),
    ],
)
def test_what_has_no_bound_is_rejected_uncharged(method: str, more: dict[str, Any]) -> None:
    graph = grouped()
    with pytest.raises(GraphveilError, match=r"'node'|applies to|node-level units|--out-degree-bound"):
        make(method, **more).fit(graph)
    assert not ledger_of(graph.edge_set).entries


def test_links_lists_hops_and_perturbed_graphs_are_rejected_uncharged() -> None:
    graph = grouped()
    lists = Interactions.from_matrix(np.random.default_rng(0).random((20, 5)) < 0.4)
    budget = {"unit": "node", "epsilon": 1.0, "delta": 1e-5}
    for call in (
        lambda: LinkPredictor(**budget).fit(graph),
        lambda: Recommender(**budget).fit(lists),
        lambda: gv.private_hops(graph, **budget),
        lambda: perturb.edge_rand(graph, unit="node", epsilon=1.0),
        lambda: perturb.lap_graph(graph, unit="node", epsilon=1.0),
    ):
        with pytest.raises(GraphveilError, match=r"unit|node"):
            call()
    assert not ledger_of(graph.edge_set).entries
    assert not ledger_of(lists.graph.edge_set).entries


def test_training_steps_read_no_rows_from_own_lists() -> None:
    graph = grouped()
    view = protected_view(graph, Node())
    (listed,) = own_rows(view.adjacency, torch.ones(graph.num_nodes, 3))
    assert isinstance(listed, ProtectedRows)
    with pytest.raises(ProtectedDataError, match="no query may read rows that depend on a node's own list"):
        clipped_sum(Linear(3, 3, generator=torch.Generator()).ghost(), listed, view.y)


def test_a_sum_over_neighbors_has_no_bound() -> None:
    with pytest.raises(UnitError, match="Use a DegreeHIndexQuery and then a ProjectedSumQuery"):
        Node().pair_sensitivity(1.0, 1.0)


# -- accuracy ------------------------------------------------------------------------------------------------


def test_own_lists_and_aggregates_add_to_features() -> None:
    graph = gv.load_dataset("synthetic/demo", seed=0, by_id=True)
    fits = {
        "auto": make("auto", epsilon=8.0),
        "own lists": make("classcode", epsilon=8.0),
        "aggregates": make("classcode", epsilon=8.0, read_own_edges=False),
        "features": METHODS["mlp"](**{**WHOLE, "epsilon": 8.0}),
    }
    accuracy = {name: model.fit(graph).score(graph) for name, model in fits.items()}
    assert fits["auto"].chosen_ == "classcode"
    assert min(accuracy["auto"], accuracy["own lists"]) > accuracy["features"] + 0.1
    assert accuracy["own lists"] > accuracy["aggregates"] + 0.06
