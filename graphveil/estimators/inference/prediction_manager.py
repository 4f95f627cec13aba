"""All that a fitted model predicts: its own graph for free, others asked once, recorded, and then kept."""

from collections.abc import Sequence
from threading import RLock

from torch import Tensor

from graphveil._util.random import PublicStreams
from graphveil.data import EdgeSet, Graph
from graphveil.errors import ConfigError
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.inference.graph_fingerprint import GraphFingerprint
from graphveil.estimators.inference.ledger import PredictionLedger
from graphveil.estimators.inference.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.inference.requests import (
    PredictionOptions,
    PredictionRequest,
    PredictionState,
    RequestFactory,
    check_prediction_options,
)
from graphveil.estimators.requirements import check_features, check_magnitudes, check_unit
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee


class PredictionManager:
    """The ledgers of one fitted model, and the only way to what it has not predicted yet.

    One lock stands around looking up, asking and entering: of threads that ask the same, one pays, and no
    entry is lost.

    Args:
        fitted: the model.
        edges: the edge set that it was fitted on; a fresh one for a model from a file.
        request_factory: what predicting another graph has to ask, by the kind of method.
        own: tells the fitted graph from others; None where nobody knows it.
    """

    def __init__(
        self,
        fitted: FittedModel,
        edges: EdgeSet,
        request_factory: RequestFactory,
        own: GraphFingerprint | None = None,
    ) -> None:
        """Begin with the fit alone."""
        self._state = PredictionState(fitted=fitted, ledger=PredictionLedger(edges), cache=PredictionCache())
        self._request_factory, self.own, self._lock = request_factory, own, RLock()
        self.edges = edges

    def keep(self, graph: Graph, answer: CachedPrediction) -> None:
        """Keep what is known of the fitted graph, so that one that grows from it asks for what is new."""
        self._state.cache.keep(graph.adjacency.version, graph.x, answer)

    def restore_prediction(self, edges: EdgeSet, privacy_cost: Guarantee, *, disjoint: bool) -> None:
        """Enter a prediction of another graph that an earlier process made, and recorded."""
        with self._lock:
            if disjoint:
                self._state.ledger.apart(edges)
            self._state.ledger.note(edges, privacy_cost)

    def of(self, graph: Graph, options: PredictionOptions) -> Tensor:
        """Return probabilities (N, C); what has not been asked yet is asked and recorded."""
        with self._lock:
            known = self._known(graph)
            requests = self._requests(graph, options, known)
            if requests and self.own is None and not options.confirms_charge:
                self._refuse_unknown()
            for request in requests:
                request.execute(self._state)
            if requests:  # the last request stored the answer; the whole graph need not be hashed again
                known = self._state.cache.find(graph.adjacency.version, graph.x)
            if known is None:
                fitted = self._state.fitted
                session = Session(streams=PublicStreams(fitted.method.privacy_config.seed))
                known = fitted.trained.answer(graph, session, None)
            return known.proba

    def privacy_cost(self, graph: Graph, options: PredictionOptions) -> Guarantee | None:
        """Return what predicting a graph would cost alone, or None where it asks nothing."""
        with self._lock:
            requested = self._requests(graph, options, self._known(graph))
            if not requested:
                return None
            first, *others = requested
            ledger = PredictionLedger(first.graph.edge_set)
            for request in others:
                request.record_in(ledger)
            return ledger.total_guarantee(first.privacy_cost)

    def is_fitted_graph(self, graph: Graph) -> bool:
        """Return whether a graph is the fitted one, or one that was predicted before."""
        with self._lock:
            return self._known(graph) is not None

    def guarantee_after(self, graph: Graph, options: PredictionOptions) -> Guarantee:
        """Return the guarantee of the fit and all predictions, this one included."""
        with self._lock:
            ledger = self._state.ledger.copy()
            for request in self._requests(graph, options, self._known(graph)):
                request.record_in(ledger)
            return ledger.total_guarantee(self._state.fitted.guarantee)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fit and all predictions of other graphs together."""
        with self._lock:
            return self._state.ledger.total_guarantee(self._state.fitted.guarantee)

    def _known(self, graph: Graph) -> CachedPrediction | None:
        """Return what is kept of a graph; the fitted one is recognized though it was read anew."""
        kept = self._state.cache.find(graph.adjacency.version, graph.x)
        if kept is None and self.own is not None and self.own.matches(graph):
            fitted = self._state.fitted
            kept = CachedPrediction(fitted.plan, tuple(fitted.released.values()), fitted.own_proba)
            self.keep(graph, kept)
        return kept

    def _refuse_unknown(self) -> None:
        """Refuse to book where the graph may be the fitted one, whose predictions are there for nothing."""
        raise ConfigError(
            "this model comes from a release without the run's internal/ folder, so nobody can tell whether "
            "the graph is the one that it was fitted on, whose predictions are stored and free: predict() "
            "without a graph returns them. To ask this graph again, at the price that price(graph) names, "
            "pass allow_spend=True (--allow-spend), or load the run folder"
        )

    def _requests(
        self, graph: Graph, options: PredictionOptions, known: CachedPrediction | None
    ) -> Sequence[PredictionRequest]:
        """Return what predicting a graph asks under a budget: nothing if it was predicted before."""
        fitted = self._state.fitted
        privacy_config = fitted.method.privacy_config
        check_prediction_options(privacy_config.unit.name, options)
        if known is not None:
            return []
        check_unit(privacy_config, graph, reads_edges=fitted.method.reads_edges)
        check_features(graph, fitted.sizes.width)
        if not fitted.method.protects_features:
            check_magnitudes(graph)
        fitted.trained.check(graph, fitted.class_names)
        return self._request_factory(self._state, graph, options)
