"""Predictions of a fitted model: stored ones for its training graph, new releases for other graphs.

``PredictionManager`` returns a cached prediction, or creates the requests that are needed. Each request is a
release: of the whole graph, or of the new edges of a graph that has grown. Its noisy aggregates are cached
for as long as the graph is in memory. The cache key is the version of the in-edges and the features that were
sent along them. Other features on the same edges are a different query. Repeating a query draws no noise and
returns bit-identical results.

A release is charged to the ledgers of all edge sets that its edges may belong to. These are their own set
and those queried before, except sets that are known to be disjoint. For any edge, the ledger of the first
queried set that contains it therefore records every release of this model that may depend on the edge.
Proof: ``docs/privacy/proofs/ledger.md``. Under unit ``local-attributes`` an edge set represents the people
of its graph, and the same is true for each of them.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Protocol

from pydantic import Field
from torch import Tensor

from graphveil.core.edges.adjacency import AdjacencyVersion, EdgeSet, GrowthStep
from graphveil.core.ledger import joint_ledger
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import NeighborCountQuery
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.release import check_max_degree, check_weights
from graphveil.core.unit import LocalAttributes
from graphveil.data import Graph
from graphveil.data.fingerprint import GRAPH_FINGERPRINT_FILE, GraphFingerprint
from graphveil.data.graph import Batch, batches
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.requirements import (
    check_features,
    check_magnitudes,
)
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee
from graphveil.publish.schemas import StrictSchema, read_schema, write_schema

ASSERTED_EDGES = (
    "graphs that were asserted to share no edge count with the larger of their figures, not the sum"
)
ASSERTED_NODES = ASSERTED_EDGES.replace("no edge", "no person")


@dataclass(frozen=True)
class PredictionRelease:
    """One release of a prediction: its own cost, and the edge sets whose ledgers are charged for it."""

    guarantee: Guarantee
    charged: tuple[EdgeSet, ...]


class PredictionComposition:
    """What one fitted model released: its fit, and every prediction of another graph.

    >>> released, other = PredictionComposition(EdgeSet()), EdgeSet()
    >>> len(released.charged_edge_sets(other)), len(released.apart(other).charged_edge_sets(other))
    (2, 1)
    """

    def __init__(self, fitted: EdgeSet) -> None:
        self.asserted = False
        self._fitted = self._queried = fitted.parts  # in order
        self._apart = frozenset[frozenset[EdgeSet]]()
        self._releases: tuple[PredictionRelease, ...] = ()

    def copy(self) -> "PredictionComposition":
        """Return the same ledger, to try what a further release would make of it."""
        return copy(self)

    def fitted(self, edge_set: EdgeSet) -> bool:
        return any(part in self._fitted for part in edge_set.parts)

    def apart(self, edge_set: EdgeSet, others: Iterable[EdgeSet] | None = None) -> "PredictionComposition":
        """Mark the edges as disjoint from other edge sets; return itself.

        Args:
            others: All sets queried before by default; the caller asserts that they are disjoint.
        """
        self.asserted |= others is None
        from_all = self._queried if others is None else tuple(others)
        self._apart |= {frozenset((part, other)) for part in edge_set.parts for other in from_all}
        return self

    def charged_edge_sets(self, edge_set: EdgeSet) -> tuple[EdgeSet, ...]:
        """Return the edge sets whose ledgers record a release of these edges."""
        own = edge_set.parts
        also = [
            other
            for other in self._queried
            if any(frozenset((part, other)) not in self._apart for part in own)
        ]
        return tuple(dict.fromkeys((*own, *also)))

    def note(self, edge_set: EdgeSet, guarantee: Guarantee) -> None:
        self._releases = (*self._releases, PredictionRelease(guarantee, self.charged_edge_sets(edge_set)))
        self._queried = tuple(dict.fromkeys((*self._queried, *edge_set.parts)))

    @property
    def releases(self) -> int:
        return len(self._releases)

    @property
    def last(self) -> PredictionRelease:
        return self._releases[-1]

    def total_guarantee(self, fit: Guarantee) -> Guarantee:
        """Return the guarantee of the fit and of all predictions together: that of the worst ledger."""
        if not self._releases:
            return fit
        # Entries of the ledger of each edge set, as indices of releases, -1 for the fit.
        held = {
            frozenset(
                ({-1} if part in self._fitted else set())
                | {place for place, release in enumerate(self._releases) if part in release.charged}
            )
            for part in self._queried
        }
        guarantees = []
        # A ledger whose entries are all in another one cannot be the worst.
        for places in sorted((one for one in held if not any(one < other for other in held)), key=min):
            first, *others = (fit if k < 0 else self._releases[k].guarantee for k in sorted(places))
            guarantees.append(Guarantee.compose([replace(first, delta=fit.delta), *others]))
        whole = Guarantee.compose_parallel(guarantees)
        counted = fit.releases + sum(release.guarantee.releases for release in self._releases)
        asserted = {LocalAttributes.name: ASSERTED_NODES}.get(fit.unit, ASSERTED_EDGES)
        notes = (*fit.notes, asserted) if self.asserted else fit.notes
        everything = Guarantee.compose([fit, *(release.guarantee for release in self._releases)])
        notes, additional = tuple(dict.fromkeys(notes)), everything.additional if fit.additional else ()
        return replace(whole, notes=notes, releases=counted, additional=additional)


@dataclass(frozen=True)
class PredictionOptions:
    """Assumptions, confirmations and resources of the caller for a prediction of another graph."""

    assume_disjoint_edges: bool = False
    assume_disjoint_nodes: bool = False
    allow_spend: bool = False
    workspace: Path | None = None  # where an interrupted release can be resumed


@dataclass(kw_only=True, eq=False)
class PredictionState:
    """The cached predictions of a fitted model, and their privacy accounting."""

    fitted: FittedModel
    ledger: PredictionComposition
    cache: PredictionCache


class PredictionRequest(Protocol):
    """A release that a prediction needs: its privacy cost, its ledger entry, and its execution."""

    @property
    def graph(self) -> Graph:
        """The graph that is queried."""

    @property
    def privacy_cost(self) -> Guarantee:
        """The guarantee of this release alone."""

    def record_in(self, ledger: PredictionComposition) -> PredictionComposition:
        """Add the release to a model's ledger, and return the ledger."""

    def execute(self, prediction_state: PredictionState) -> None:
        """Record the release, query the edges, and cache the result."""


@dataclass(frozen=True, eq=False)
class GraphRequest:
    """One release for predictions: the queried graph, its plan, its privacy cost, and its cache key.

    With a ``step``, the graph has the edges of one growth step only, and aggregates of previous nodes are
    kept. ``disjoint`` is the caller's assumption that these edges were not queried before.
    """

    graph: Graph
    version: AdjacencyVersion
    plan: ReleasePlan
    privacy_cost: Guarantee
    step: GrowthStep | None
    disjoint: bool
    workspace: Path | None = None

    def record_in(self, ledger: PredictionComposition) -> PredictionComposition:
        if self.step is not None:
            ledger.apart(self.graph.edge_set, self.step.apart)
        if self.disjoint:
            ledger.apart(self.graph.edge_set)
        ledger.note(self.graph.edge_set, self.privacy_cost)
        return ledger

    def execute(self, prediction_state: PredictionState) -> None:
        kept = (
            None if self.step is None else _cached_before_step(self.graph, self.step, prediction_state.cache)
        )
        answer = prediction_state.fitted.trained.answer(
            prediction_state.fitted.method.view(self.graph),
            prediction_session(prediction_state, self, self.plan, self.workspace),
            kept,
        )
        prediction_state.cache.keep(self.version, self.graph.features_digest(), answer)


def prediction_session(
    prediction_state: PredictionState,
    pending_request: PredictionRequest,
    plan: ReleasePlan | None = None,
    workspace: Path | None = None,
) -> Session:
    """Return the session that records a release in its ledgers and then in the model's accounting."""
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
        label=method.stream_name,
        noise_seed=method.privacy_config.unsafe_noise_seed,
        ledger=joint_ledger(updated_ledger.last.charged),
        on_recorded=charged,
        workspace=workspace,
        collection_index=prediction_state.ledger.releases,
    )


def graph_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return the requests that predicting a graph needs, in order; empty if nothing is queried.

    Raises:
        UnitError, ConfigError: If the caller's assumption has no effect, or is known to be false.
    """
    fitted = prediction_state.fitted
    plan = fitted.trained.plan_for(fitted.trained.sizes_for(graph, fitted.sizes))
    if plan is None:
        return []
    check_weights(plan, fitted.method.view(graph).adjacency)
    privacy_cost, version = prediction_privacy_cost(fitted, plan, graph), graph.version
    whole = GraphRequest(
        graph, version, plan, privacy_cost, None, options.assume_disjoint_edges, options.workspace
    )
    requests = _growth_requests(prediction_state, graph, options.assume_disjoint_edges) or [whole]
    if not options.assume_disjoint_edges:
        return requests
    privacy_config = fitted.method.privacy_config
    if privacy_config.on_records:
        raise UnitError(
            "assume_disjoint_edges (--assume-disjoint-edges) is not available under unit "
            f"{privacy_config.unit.name!r}, which protects node records: a person may be in both "
            "graphs. Omit it. The costs of the two releases add up."
        )
    if any(prediction_state.ledger.fitted(request.graph.edge_set) for request in requests):
        raise ConfigError(
            "assume_disjoint_edges (--assume-disjoint-edges) is false here: this graph is built from "
            "the edge set that the model was fitted on. Omit it, or build the two graphs from "
            "separate edge sets."
        )
    return requests


def prediction_privacy_cost(fitted: FittedModel, plan: ReleasePlan, graph: Graph) -> Guarantee:
    """Return the guarantee of another graph's release alone, invalid if the model's own guarantee is."""
    return fitted.method.guarantee(plan, graph).invalidated_by(fitted.guarantee)


def _growth_requests(prediction_state: PredictionState, graph: Graph, disjoint: bool) -> list[GraphRequest]:
    """Return the growth steps after the last cached state of a graph; empty if there is none.

    Under node-level units an old node's record grows as well, so new and old data cannot be separated.
    """
    method = prediction_state.fitted.method
    if not method.supports_growing_graphs or method.privacy_config.on_records:
        return []
    pending = list[Batch]()
    for batch in reversed(list(batches(graph))):
        pending.insert(0, batch)
        kept = _cached_before_step(batch.graph, batch.step, prediction_state.cache)
        if kept is not None and kept.plan is not None:
            # New aggregates have the noise of the old ones; other results of the fit apply to them as well.
            queries = (NeighborSumQuery, NeighborCountQuery)
            plan = replace(
                kept.plan, queries=tuple(query for query in kept.plan.queries if isinstance(query, queries))
            )
            return [
                GraphRequest(
                    new.graph,
                    new.version,
                    plan,
                    prediction_privacy_cost(prediction_state.fitted, plan, new.graph),
                    new.step,
                    disjoint,
                )
                for new in pending
            ]
    return []


def _cached_before_step(graph: Graph, step: GrowthStep, answers: PredictionCache) -> CachedPrediction | None:
    return answers.find(step.base, graph.features_digest(step.base_nodes))


class PredictionManager:
    """The privacy accounting and the cache of one fitted model's predictions.

    A lock covers lookup, query and recording. If several threads request the same prediction, it is charged
    once, and no entry is lost.
    """

    def __init__(
        self,
        fitted: FittedModel,
        edges: EdgeSet,
        own: GraphFingerprint | None = None,
    ) -> None:
        self._state = PredictionState(
            fitted=fitted, ledger=PredictionComposition(edges), cache=PredictionCache()
        )
        self.own, self._lock = own, RLock()
        self.edges = edges

    def keep(self, graph: Graph, answer: CachedPrediction) -> None:
        """Cache the prediction of the fitted graph, so that only new edges are queried if it grows."""
        self._state.cache.keep(graph.version, graph.features_digest(), answer)

    def restore_prediction(self, edges: EdgeSet, privacy_cost: Guarantee, *, disjoint: bool) -> None:
        with self._lock:
            if disjoint:
                self._state.ledger.apart(edges)
            self._state.ledger.note(edges, privacy_cost)

    def of(self, graph: Graph, options: PredictionOptions) -> Tensor:
        """Return probabilities (N, C). Predictions that are not cached are queried and charged."""
        with self._lock:
            known = self._known(graph)
            requests = self._requests(graph, options, known)
            confirmed = options.assume_disjoint_edges or options.assume_disjoint_nodes or options.allow_spend
            if requests and self.own is None and not confirmed:
                # It may be the fitted graph, whose predictions do not spend privacy budget.
                raise ConfigError(
                    "The model was loaded without the run's internal/ folder, so it cannot tell whether this "
                    "is its training graph. predict() without a graph returns the stored predictions at no "
                    "cost. Load the run folder, or pass allow_spend=True (--allow-spend) to spend "
                    "privacy_cost(graph)."
                )
            for request in requests:
                request.execute(self._state)
            if requests:  # the last request stored the answer; the whole graph need not be hashed again
                known = self._state.cache.find(graph.version, graph.features_digest())
            if known is None:
                fitted = self._state.fitted
                session = Session(streams=PublicStreams(fitted.method.privacy_config.seed))
                known = fitted.trained.answer(fitted.method.view(graph), session, None)
            return known.proba

    def privacy_cost(self, graph: Graph, options: PredictionOptions) -> Guarantee | None:
        with self._lock:
            requested = self._requests(graph, options, self._known(graph))
            if not requested:
                return None
            first, *others = requested
            ledger = PredictionComposition(first.graph.edge_set)
            for request in others:
                request.record_in(ledger)
            return ledger.total_guarantee(first.privacy_cost)

    def is_fitted_graph(self, graph: Graph) -> bool:
        with self._lock:
            return self._known(graph) is not None

    def guarantee_after(self, graph: Graph, options: PredictionOptions) -> Guarantee:
        with self._lock:
            ledger = self._state.ledger.copy()
            for request in self._requests(graph, options, self._known(graph)):
                request.record_in(ledger)
            return ledger.total_guarantee(self._state.fitted.guarantee)

    @property
    def guarantee(self) -> Guarantee:
        with self._lock:
            return self._state.ledger.total_guarantee(self._state.fitted.guarantee)

    def _known(self, graph: Graph) -> CachedPrediction | None:
        """Return the cached prediction of a graph. The fitted graph is recognized if it was read again."""
        kept = self._state.cache.find(graph.version, graph.features_digest())
        if kept is None and self.own is not None and self.own.matches(graph):
            kept = self._state.fitted.prediction
            self.keep(graph, kept)
        return kept

    def _requests(
        self, graph: Graph, options: PredictionOptions, known: CachedPrediction | None
    ) -> Sequence[PredictionRequest]:
        fitted = self._state.fitted
        privacy_config = fitted.method.privacy_config
        unit = privacy_config.unit.name
        of_people = unit == LocalAttributes.name
        if options.assume_disjoint_edges and of_people:
            raise UnitError(
                f"assume_disjoint_edges (--assume-disjoint-edges) is not available under unit {unit!r}, "
                "which protects node records. If no person is in both graphs, pass assume_disjoint_nodes "
                "(--assume-disjoint-nodes). Otherwise omit it, and the costs add up."
            )
        if options.assume_disjoint_nodes and not of_people:
            raise UnitError(
                "assume_disjoint_nodes (--assume-disjoint-nodes) needs unit 'local-attributes', under "
                f"which each node is charged for its own LDP reports, but the unit is {unit!r}. Omit it."
            )
        if known is not None:
            return []
        view = fitted.method.view(graph)
        fitted.method.check_edges(view)
        if fitted.method.reads_edges:
            check_max_degree(view.adjacency, privacy_config.unit)
        check_features(view, fitted.sizes.width)
        if not fitted.method.protects_features:
            check_magnitudes(view)
        fitted.trained.check(view, fitted.class_names)
        requests = fitted.method.prediction_requests or graph_requests
        found: Sequence[PredictionRequest] = requests(self._state, graph, options)
        return found


class GraphFingerprintSchema(StrictSchema):
    """``internal/graph_fingerprint.json``."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    tag: str = Field(pattern=r"^[0-9a-f]{64}$")


def read_graph_fingerprint(folder: Path) -> GraphFingerprint | None:
    path = folder / GRAPH_FINGERPRINT_FILE
    if not path.is_file() or path.is_symlink():
        return None
    file = read_schema(path, GraphFingerprintSchema)
    return GraphFingerprint(bytes.fromhex(file.key), bytes.fromhex(file.tag))


def write_graph_fingerprint(folder: Path, fingerprint: GraphFingerprint) -> None:
    record = GraphFingerprintSchema(key=fingerprint.key.hex(), tag=fingerprint.tag.hex())
    write_schema(folder / GRAPH_FINGERPRINT_FILE, record)
