"""What a fitted estimator says: predictions, prices and guarantees, read from the fit and nothing else."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from torch import Tensor

from graphveil._util.files import as_path, writing_folder
from graphveil._util.threads import one_thread
from graphveil._util.typed import checked_except
from graphveil.data import EdgeSet, Graph
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ConfigError
from graphveil.estimators.features.scaling import aligned
from graphveil.estimators.fitted import FittedAttribute, FittedModel, none_before_fit, save_fitted
from graphveil.estimators.inference.graph_fingerprint import GraphFingerprint
from graphveil.estimators.inference.prediction_manager import PredictionManager
from graphveil.estimators.inference.requests import PredictionOptions, RequestFactory, graph_requests
from graphveil.estimators.method import State
from graphveil.estimators.requirements import as_graph, check_encoding
from graphveil.privacy import DirectedEdge, Guarantee, LocalAttributes, NodeUnit
from graphveil.release import ReleasePlan
from graphveil.training import EpochRecord


@dataclass(kw_only=True, eq=False)
class Predictor:
    """Half of an estimator: whatever follows from a fit. It has no parameters, so none can reach the fit."""

    _fit: FittedModel | None = field(default=None, init=False, repr=False)
    _predictions: PredictionManager | None = field(default=None, init=False, repr=False)

    guarantee_ = FittedAttribute[Guarantee | None](lambda fit: fit.guarantee, none_before_fit)
    proba_ = FittedAttribute[Tensor | None](lambda fit: fit.proba, none_before_fit)
    plan_ = FittedAttribute[ReleasePlan | None](lambda fit: fit.plan, none_before_fit)
    ids_ = FittedAttribute[npt.NDArray[Any] | None](lambda fit: fit.ids, none_before_fit)
    encoding_ = FittedAttribute[Encoding | None](lambda fit: fit.encoding, none_before_fit)
    class_names_ = FittedAttribute[tuple[str, ...]](lambda fit: fit.class_names, tuple)
    aggregates_ = FittedAttribute[State](lambda fit: dict(fit.released), dict)
    history_ = FittedAttribute[list[tuple[str, EpochRecord]]](lambda fit: list(fit.history), list)
    seconds_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.seconds), dict)
    private_accuracy_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.private_accuracy), dict)

    @checked_except("graph", "workspace")
    @one_thread()
    def predict_proba(
        self,
        graph: Graph | None = None,
        *,
        assume_disjoint_edges: bool = False,
        assume_disjoint_nodes: bool = False,
        allow_spend: bool = False,
        workspace: Path | None = None,
    ) -> Tensor:
        """Return probabilities (N, C) of classes or labels: free for the fitted graph, at a price for others.

        The fitted graph is recognized, also when it was read from its files once more. What was predicted
        once is free from then on, and the same to the last bit, as long as the graph's
        edges are in memory. A graph that has grown (:meth:`Graph.grow`) from one that was predicted pays for
        its new edges alone, and its old nodes keep their predictions. Other features on the same edges are
        another question.

        Args:
            graph: by default the fitted one.
            assume_disjoint_edges: your word that the graph shares no edge with the fitted one, nor with any
                other that this model has predicted: its release is then charged to its own edges only, and
                counts beside the others, not on top of them. Without it, it counts on top of all of them.
            assume_disjoint_nodes: the same for people, under unit ``local-attributes``: your word that nobody
                in the graph is in the fitted one, nor in any other that this model has predicted.
            allow_spend: ask a graph, and record it, although it may be the fitted one: a model that was
                loaded without its run's ``internal`` folder cannot know.
            workspace: a private folder of this question alone, for methods that ask edges. A process that is
                killed leaves the release there, and asking once more with it finishes the same one, with the
                same noise. The ledger has to know it again, too, so it has to be a durable one.

        Raises:
            UnitError: the unit does not fit the graph, or protects records, of which edges say nothing.
            ConfigError: the edges are known to be those of the fitted graph, or may be and no word was given.
            GraphError: the graph has other features than the fitted one.
            BudgetError: a ledger refuses the release, which is then not recorded; of a graph that has grown
                in several steps, those before it may be, and are kept.
            NotImplementedGuaranteeError: the method does not predict other graphs.
        """
        if graph is None:
            return self.fitted.own_proba
        graph = self._as_graph(graph)
        options = PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes, allow_spend, workspace)
        with self._with_backend():
            return self._prediction_manager.of(graph, options)

    @checked_except("graph")
    def privacy_cost(
        self, graph: Graph, *, assume_disjoint_edges: bool = False, assume_disjoint_nodes: bool = False
    ) -> Guarantee | None:
        """Return what predicting another graph would cost, or None if that asks nothing under a budget.

        It is the guarantee of that graph's release alone, and no more valid than the model's own; a graph
        that was predicted before has no price. Nothing is spent. Arguments and errors are those of
        :meth:`predict_proba`; :meth:`guarantee_after` says what everything together would then be.

        Privacy:
            Whether the result is None is an exact answer about the private edges: it compares them with those
            of the fitted graph and of graphs that were predicted before. Nothing is charged for it. Only
            people who are authorized to access these edges may see it. Never return it through a server.
        """
        graph = self._as_graph(graph)
        return self._prediction_manager.privacy_cost(
            graph, PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes)
        )

    def is_fitted_graph(self, graph: Graph) -> bool:
        """Return whether a graph is the fitted one, or was predicted before: it is answered for nothing.

        The fitted graph is recognized also when it was read from its files once more, but not by a model from
        a release alone, which does not know it.

        Privacy:
            The result is an exact equality test on private edges, and nothing is charged for it. Repeated
            calls with guessed graphs reveal single edges. Only people who are authorized to access the
            fitted edges may see it. Never return it through a server.

        >>> import graphveil as gv
        >>> graph = gv.load_dataset("synthetic/tiny")
        >>> model = gv.MLP(unit="none", seed=0, epochs=2, tuned=False).fit(graph)
        >>> model.is_fitted_graph(graph), model.is_fitted_graph(graph.subgraph(graph.y == 0))
        (True, False)
        """
        return self._prediction_manager.is_fitted_graph(self._as_graph(graph))

    @checked_except("graph")
    def guarantee_after(
        self, graph: Graph, *, assume_disjoint_edges: bool = False, assume_disjoint_nodes: bool = False
    ) -> Guarantee:
        """Return what :attr:`guarantee_with_predictions` would be after predicting this graph, too."""
        graph = self._as_graph(graph)
        return self._prediction_manager.guarantee_after(
            graph, PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes)
        )

    @checked_except("graph")
    def predict(
        self,
        graph: Graph | None = None,
        *,
        assume_disjoint_edges: bool = False,
        assume_disjoint_nodes: bool = False,
        allow_spend: bool = False,
    ) -> Tensor:
        """Return class numbers, shape (N), or label sets, bool (N, L); see :meth:`predict_proba`."""
        proba = self.predict_proba(
            graph,
            assume_disjoint_edges=assume_disjoint_edges,
            assume_disjoint_nodes=assume_disjoint_nodes,
            allow_spend=allow_spend,
        )
        return self.fitted.method.head.predicted(proba)

    def _as_graph(self, graph: Graph) -> Graph:
        """Return another graph, or a ``Data``, as a graph whose features may be read under the unit."""
        privacy_config = self.fitted.method.privacy_config
        found = as_graph(graph, directed=privacy_config.unit.name == DirectedEdge.name)
        check_encoding(
            found,
            privacy_config.unit,
            protects_records=isinstance(privacy_config.unit, NodeUnit | LocalAttributes),
        )
        return self.fitted.scaling.graph(aligned(found, self.fitted.encoding))

    @checked_except("graph")
    def score(self, graph: Graph, split: str = "test") -> float:
        """Return the accuracy on one part of a graph's split; of label sets the micro F1."""
        graph = as_graph(graph, directed=self.fitted.method.privacy_config.unit.name == DirectedEdge.name)
        mask, head = graph.mask(split), self.fitted.method.head
        return head.score(self.predict(graph)[mask], head.labels(graph)[mask])

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fitted object: its weights, its rows, its predictions of the fitted graph."""
        return self.fitted.guarantee

    @property
    def guarantee_with_predictions(self) -> Guarantee:
        """The guarantee of the fit and all predictions of other graphs together.

        Releases that may depend on one edge add up; graphs that were asserted to share no edge, and the steps
        in which a graph grew, count with the largest figure.
        """
        return self._prediction_manager.guarantee

    @property
    def fitted_edges(self) -> EdgeSet:
        """The identity of the fitted edges: its ledger is charged for other graphs that may share an edge.

        Of a model from a folder they are edges that nobody has here: attach the ledger of the training data
        before the first prediction of another graph.
        """
        return self._prediction_manager.edges

    def restore_prediction(self, edges: EdgeSet, privacy_cost: Guarantee, *, disjoint: bool = False) -> None:
        """Take note of a prediction of another graph that an earlier process made, and recorded.

        From then on :attr:`guarantee_with_predictions` counts it, and later predictions are charged to its
        edges, too, unless a word sets them apart. Call it in the order in which the graphs were asked.

        Args:
            edges: the other graph's, with its ledger attached.
            privacy_cost: what the prediction cost alone.
            disjoint: the word that was given for it (``assume_disjoint_edges`` or ``assume_disjoint_nodes``).
        """
        self._prediction_manager.restore_prediction(edges, privacy_cost, disjoint=disjoint)

    @checked_except("folder", "per_node")
    def save(self, folder: str | Path, *, per_node: str | Path | None = None) -> None:
        """Write the publishable part of a run to a folder, atomically (``graphveil.load_model`` reads it).

        Under node units predictions are no part of it; ``per_node`` names a second folder for what is
        withheld, of which row v is only for someone entitled to v's record.

        Raises:
            ConfigError: a folder holds something, or cannot be written.
        """
        path = as_path(folder, "folder")
        rows = path if per_node is None else as_path(per_node, "per_node")
        with writing_folder(path), writing_folder(rows):
            save_fitted(self.fitted, path, per_node=None if per_node is None else rows)

    @property
    def fitted(self) -> FittedModel:
        """The fit, as a value.

        Raises:
            ConfigError: there is none yet.
        """
        if self._fit is None:
            raise ConfigError("the model is not fitted yet; call fit(graph) first")
        return self._fit

    @property
    def _prediction_manager(self) -> PredictionManager:
        if self._predictions is None:
            raise ConfigError("the model is not fitted yet; call fit(graph) first")
        return self._predictions

    def _set_fit(
        self, fitted: FittedModel, edges: EdgeSet | None = None, own: GraphFingerprint | None = None
    ) -> Self:
        """Take a fit in place of the one before; without an edge set it is of edges that nobody here has."""
        self._fit, known = fitted, EdgeSet() if edges is None else edges
        self._predictions = PredictionManager(fitted, known, self._request_factory(), own)
        return self

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The label of each class, or its number where labels have no names."""
        return self.class_names_ or tuple(str(number) for number in range(self.fitted.sizes.classes))

    @property
    def graph_fingerprint(self) -> GraphFingerprint | None:
        """What tells the fitted graph from others: private, for a run's ``internal`` folder alone."""
        return self._prediction_manager.own

    def _with_backend(self) -> AbstractContextManager[None]:
        """Choose who reads the edges of graphs that are predicted: nobody else, by default."""
        return nullcontext()

    def _request_factory(self) -> RequestFactory:
        """Return what predicting another graph has to ask."""
        return graph_requests
