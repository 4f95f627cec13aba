"""What predicting another graph asks: the whole graph once, or of a graph that has grown what is new."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from graphveil._util.random import PublicStreams
from graphveil.data import Graph, rows
from graphveil.data.adjacency import AdjacencyVersion, GrowthStep
from graphveil.data.graph import Batch, batches
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.inference.ledger import PredictionLedger
from graphveil.estimators.inference.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee, LocalAttributes, joint_ledger
from graphveil.release import NeighborCountQuery, NeighborSumQuery, ReleasePlan
from graphveil.release.release import check_weights


@dataclass(frozen=True)
class PredictionOptions:
    """What the caller asserts, accepts, or provides when another graph is predicted."""

    assume_disjoint_edges: bool = False
    assume_disjoint_nodes: bool = False
    allow_spend: bool = False
    workspace: Path | None = None  # where a release that is interrupted can be finished

    @property
    def confirms_charge(self) -> bool:
        """Whether the caller knows that another graph is asked, and is charged."""
        return self.assume_disjoint_edges or self.assume_disjoint_nodes or self.allow_spend


@dataclass(kw_only=True, eq=False)
class PredictionState:
    """What a fitted model has told, and what it keeps of it."""

    fitted: FittedModel
    ledger: PredictionLedger
    cache: PredictionCache


class PredictionRequest(Protocol):
    """What predicting a graph asks under a budget: its price, its entry in the ledger, the asking."""

    @property
    def graph(self) -> Graph:
        """The graph that is asked."""

    @property
    def privacy_cost(self) -> Guarantee:
        """What it costs alone."""

    def record_in(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter it into a model's ledger, and return that."""

    def execute(self, prediction_state: PredictionState) -> None:
        """Record it, ask it, and keep the answer."""


RequestFactory = Callable[[PredictionState, Graph, PredictionOptions], Sequence[PredictionRequest]]


@dataclass(frozen=True, eq=False)
class GraphRequest:
    """One release: the graph whose edges it asks, its plan and price, and what its answer is kept under.

    With a ``step`` the graph has the edges of one step of growth alone, and the rows of the nodes that were
    there before are kept. ``disjoint`` is the caller's word that the edges were not asked before.
    """

    graph: Graph
    version: AdjacencyVersion
    plan: ReleasePlan
    privacy_cost: Guarantee
    step: GrowthStep | None
    disjoint: bool
    workspace: Path | None = None

    def record_in(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter the release into a model's ledger, and return it."""
        if self.step is not None:
            ledger.apart(self.graph.edge_set, self.step.apart)
        if self.disjoint:
            ledger.apart(self.graph.edge_set)
        ledger.note(self.graph.edge_set, self.privacy_cost)
        return ledger

    def execute(self, prediction_state: PredictionState) -> None:
        """Record the release, ask the edges, and keep the answer."""
        kept = (
            None if self.step is None else _cached_before_step(self.graph, self.step, prediction_state.cache)
        )
        answer = prediction_state.fitted.trained.answer(
            self.graph, prediction_session(prediction_state, self, self.plan, self.workspace), kept
        )
        prediction_state.cache.keep(self.version, self.graph.x, answer)


def prediction_session(
    prediction_state: PredictionState,
    pending_request: PredictionRequest,
    plan: ReleasePlan | None = None,
    workspace: Path | None = None,
) -> Session:
    """Return the session that records a release where it belongs, and then enters it into the ledger."""
    updated_ledger, method = (
        pending_request.record_in(prediction_state.ledger.copy()),
        prediction_state.fitted.method,
    )

    def charged() -> None:
        prediction_state.ledger = updated_ledger

    return Session(
        streams=PublicStreams(method.privacy_config.seed),
        plan=plan,
        guarantee=pending_request.privacy_cost,
        label=method.name,
        noise_seed=method.privacy_config.unsafe_noise_seed,
        ledger=joint_ledger(updated_ledger.last.charged),
        on_recorded=charged,
        workspace=workspace,
        collection_index=prediction_state.ledger.releases,
    )


def graph_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return what has to be asked of a graph's edges, in order, before it can be predicted; None for nothing.

    Raises:
        UnitError, ConfigError: the caller's word settles nothing, or cannot be true.
        NotImplementedGuaranteeError: the method has no answer from such a graph.
    """
    fitted = prediction_state.fitted
    plan = fitted.trained.plan_for(fitted.trained.sizes_for(graph, fitted.sizes))
    if plan is None:
        return []
    check_weights(plan, graph.adjacency)
    privacy_cost, version = prediction_privacy_cost(fitted, plan, graph), graph.adjacency.version
    whole = GraphRequest(
        graph, version, plan, privacy_cost, None, options.assume_disjoint_edges, options.workspace
    )
    pending_request = _growth_requests(prediction_state, graph, options.assume_disjoint_edges) or [whole]
    if options.assume_disjoint_edges:
        for request in pending_request:
            _check_disjoint_edges(prediction_state, request.graph)
    return pending_request


def check_no_groups(name: str, plan: ReleasePlan) -> None:
    """Refuse a plan that asks by who has a public label, which another graph need not say."""
    if any(query.groups > 1 for query in plan.queries):
        raise NotImplementedGuaranteeError(
            f"{name} under its unit asks by who has a public label, which another graph need not say, and "
            "does not yet predict one; fit it on that graph (its own release and budget), or use gap, which "
            "predicts other graphs"
        )


def prediction_privacy_cost(fitted: FittedModel, plan: ReleasePlan, graph: Graph) -> Guarantee:
    """Return the guarantee of another graph's release alone, no more valid than the model's own."""
    return fitted.method.guarantee(plan, graph).invalidated_by(fitted.guarantee)


def _growth_requests(prediction_state: PredictionState, graph: Graph, disjoint: bool) -> list[GraphRequest]:
    """Return the steps of growth after the last state that something is known about; none if there is none.

    Under a unit of records an old node's record grows, too, so what is new cannot be told from what is old.
    """
    method = prediction_state.fitted.method
    if not method.supports_growing_graphs or method.privacy_config.on_records:
        return []
    pending = list[Batch]()
    for batch in reversed(list(batches(graph))):
        pending.insert(0, batch)
        kept = _cached_before_step(batch.graph, batch.step, prediction_state.cache)
        if kept is not None and kept.plan is not None:
            plan = _aggregation_queries(kept.plan)
            return [_growth_request(prediction_state.fitted, new, plan, disjoint) for new in pending]
    return []


def _growth_request(fitted: FittedModel, new: Batch, plan: ReleasePlan, disjoint: bool) -> GraphRequest:
    privacy_cost = prediction_privacy_cost(fitted, plan, new.graph)
    return GraphRequest(new.graph, new.version, plan, privacy_cost, new.step, disjoint)


def _aggregation_queries(plan: ReleasePlan) -> ReleasePlan:
    """Return the plan for new rows, with the noise of the old ones: what else a fit asked holds for them."""
    return replace(
        plan,
        queries=tuple(
            query for query in plan.queries if isinstance(query, NeighborSumQuery | NeighborCountQuery)
        ),
    )


def _cached_before_step(graph: Graph, step: GrowthStep, answers: PredictionCache) -> CachedPrediction | None:
    """Return what is known of the graph before a step of growth."""
    return answers.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))


def _check_disjoint_edges(prediction_state: PredictionState, graph: Graph) -> None:
    """Refuse an assertion that says nothing about what is protected, or that is known to be false."""
    privacy_config = prediction_state.fitted.method.privacy_config
    if privacy_config.on_records:
        raise UnitError(
            "assume_disjoint_edges (--assume-disjoint-edges) says nothing about records, which unit "
            f"{privacy_config.unit.name!r} protects: somebody may be in both graphs. Drop it; the two "
            "releases add up"
        )
    if prediction_state.ledger.fitted(graph.edge_set):
        raise ConfigError(
            "assume_disjoint_edges (--assume-disjoint-edges) does not hold: the graph's edges belong to the "
            "edge set that "
            "the model was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )


def check_prediction_options(unit: str, options: PredictionOptions) -> None:
    """Refuse a word about edges where it is people who tell, and about people where edges are asked."""
    of_people = unit == LocalAttributes.name
    if options.assume_disjoint_edges and of_people:
        raise UnitError(
            "assume_disjoint_edges (--assume-disjoint-edges) says nothing about records, which unit "
            f"{unit!r} protects: "
            "somebody may be in both graphs. If you know that nobody is, pass assume_disjoint_nodes "
            "(--assume-disjoint-nodes); else drop it, and the reports add up"
        )
    if options.assume_disjoint_nodes and not of_people:
        raise UnitError(
            "assume_disjoint_nodes (--assume-disjoint-nodes) is for unit 'local-attributes', where each "
            "person pays for its "
            f"own reports, and the unit is {unit!r}; drop it"
        )
