"""All that a fitted model predicts: its own graph for free, others asked once, booked, and then kept."""

from collections.abc import Sequence
from threading import RLock

from torch import Tensor

from graphveil._random import PublicStreams
from graphveil.graph import EdgeSet, Graph
from graphveil.models.fitted import Fitted
from graphveil.models.inference.cache import Answer, PredictionCache
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.inference.requests import Books, PredictionRequest, Requesting, Words, check_words
from graphveil.models.requirements import check_features, check_unit
from graphveil.models.session import Session
from graphveil.privacy import Guarantee


class Predictions:
    """The books of one fitted model, and the only way to what it has not predicted yet.

    One lock stands around looking up, asking and entering: of threads that ask the same, one pays, and no
    entry is lost.

    Args:
        fitted: the model.
        edges: the edge set that it was fitted on; a fresh one for a model from a file.
        requesting: what predicting another graph has to ask, by the kind of method.
    """

    def __init__(self, fitted: Fitted, edges: EdgeSet, requesting: Requesting) -> None:
        """Begin with the fit alone."""
        self._books = Books(fitted=fitted, ledger=PredictionLedger(edges), cache=PredictionCache())
        self._requesting, self._lock = requesting, RLock()

    def keep(self, graph: Graph, answer: Answer) -> None:
        """Keep what is known of the fitted graph, so that one that grows from it asks for what is new."""
        self._books.cache.keep(graph.adjacency.version, graph.x, answer)

    def of(self, graph: Graph, words: Words) -> Tensor:
        """Return probabilities (N, C); what has not been asked yet is asked and booked."""
        with self._lock:
            for request in self._requests(graph, words):
                request.ask(self._books)
            known = self._known(graph)
            if known is None:
                fitted = self._books.fitted
                session = Session(streams=PublicStreams(fitted.method.terms.seed))
                known = fitted.trained.answer(graph, session, None)
            return known.proba

    def price(self, graph: Graph, words: Words) -> Guarantee | None:
        """Return what predicting a graph would cost alone, or None where it asks nothing."""
        with self._lock:
            asked = self._requests(graph, words)
            if not asked:
                return None
            first, *others = asked
            ledger = PredictionLedger(first.graph.edge_set)
            for request in others:
                request.enter(ledger)
            return ledger.with_fit(first.price)

    def guarantee_after(self, graph: Graph, words: Words) -> Guarantee:
        """Return what the fit and all predictions would promise after this one, too."""
        with self._lock:
            ledger = self._books.ledger.copy()
            for request in self._requests(graph, words):
                request.enter(ledger)
            return ledger.with_fit(self._books.fitted.guarantee)

    @property
    def guarantee(self) -> Guarantee:
        """What the fit and all predictions of other graphs promise together."""
        with self._lock:
            return self._books.ledger.with_fit(self._books.fitted.guarantee)

    def _known(self, graph: Graph) -> Answer | None:
        return self._books.cache.find(graph.adjacency.version, graph.x)

    def _requests(self, graph: Graph, words: Words) -> Sequence[PredictionRequest]:
        """Return what predicting a graph asks under a budget: nothing if it was predicted before."""
        fitted = self._books.fitted
        terms = fitted.method.terms
        check_words(terms.unit.name, words)
        if self._known(graph) is not None:
            return []
        check_unit(terms, graph, reads_edges=fitted.method.reads_edges)
        check_features(graph, fitted.sizes.width)
        fitted.trained.check(graph)
        return self._requesting(self._books, graph, words)
