"""Scores of node pairs under edge-level privacy: which pairs are likely to be edges."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.threads import one_thread
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.held_out import MAX_SHARE, HeldOutPairs
from graphveil.core.queries.pair_sums import MAX_PRODUCT_DIM, EdgeProductQuery
from graphveil.core.unit import EdgeSubset, LocalAttributes, NoUnit
from graphveil.data import Graph
from graphveil.data.relational import Tables, check_tables
from graphveil.data.tables.encoding import UNLABELED
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.method import PreparedFit, State
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import NODE_LEVEL, Rejections, as_graph, rejected
from graphveil.estimators.session import OnProgress
from graphveil.links.link_method import DIM, LinkMethod, PairScores
from graphveil.links.pair_model import VECTOR_STEPS, ScoreCurves
from graphveil.links.pairs import PairModel
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard
from graphveil.publish.results import LINKS
from graphveil.training.metrics import Interval, metric_value

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
NodePairs = Tensor | npt.ArrayLike

_LIMITS = (
    "Scores are for pairs of nodes of the fitted graph. New nodes need a new release.",
    "Lists of candidates contain existing edges, since leaving them out would reveal them.",
    "Metrics compare held-out edges with random pairs. Accuracy on other data is unknown.",
)
_VERSION = 3  # of the folder: version 2 has other noise, and version 1 three features


@dataclass(kw_only=True, eq=False, repr=False)
class LinkPredictor(PairModel):
    """Link prediction with edge-level differential privacy.

    The score of a pair is a linear discriminant of three to five features: the cosine of public feature
    vectors, an interaction x_u^T M x_v, and the log degrees of both nodes. From epsilon 0.75 on, a cosine of
    latent positions is added, and two from epsilon 2.5 on. M comes from a noisy sum of products over edges,
    degrees and positions from noisy counts of neighbors by cluster, and the weights from noisy sums of the
    features over edges. All scores are post-processing of these releases.

    Shapes: pairs (2, P) or (P, 2) to scores (P).

    Args:
        unit: ``"undirected-edge"`` or ``"directed-edge"``, or ``"row"`` for ``Tables``.
        epsilon, delta: Budget of a fit.
        held_out: Share of node pairs whose edges are not fitted, and measured in ``private_metrics_``. A
            public hash of both ids chooses them. Use 0 if the graph is a training split.
        dim: Maximum number of columns of feature vectors. None for 128, or 64 above 500,000 nodes.
        seed: Seed of public randomness: the hash of held-out pairs, and samples of pairs. None draws one.
        unsafe_noise_seed: Makes the noise reproducible, for tests. The guarantee is then invalid.
        max_units: Public bound on the number of protected edges, for ``delta="auto"``.

    Raises:
        ConfigError: If an argument is of another type or outside its range.
        UnitError: If the unit is not one edge.

    Privacy:
        Unit: edge-level. Reads: private edges. Features and labels are public. Charges: one release per fit,
        recorded in the graph's ledger before the edges are read. A differing edge moves one or two noisy
        counts of each query by one, the sum of products by a matrix of Frobenius norm at most one, and the
        sums of features by a vector of norm at most one. If it is held out, it moves one number of a
        histogram instead, so the guarantee is the maximum of both parts
        (``docs/privacy/proofs/links.md``). Public: the fitted model, its scores, and
        ``private_metrics_``.

    >>> from graphveil.data import synthetic
    >>> model = LinkPredictor(unit="undirected-edge", epsilon=2.0, seed=0).fit(synthetic("tiny"))
    >>> model.predict_proba([[0, 1], [2, 3]]).shape
    (2,)
    >>> model.guarantee.epsilon <= 2.0, model.top_k([0, 5], k=3)[0].shape
    (True, (2, 3))
    """

    method: ClassVar[str] = LINKS
    rejections: ClassVar[Rejections] = {
        **rejected(
            "LinkPredictor protects single edges, but unit {unit!r} protects a node with all its edges, and "
            "their number has no bound here. Use unit='undirected-edge' or 'directed-edge', or "
            "gv.Recommender, which protects the whole list of a user.",
            *NODE_LEVEL,
        ),
        **rejected(
            "LinkPredictor protects edges, but unit {unit!r} does not. Use unit='undirected-edge' or "
            "'directed-edge'.",
            EdgeSubset.name,
            LocalAttributes.name,
            NoUnit.name,
        ),
    }

    unit: str
    epsilon: float
    delta: float | str = "auto"
    held_out: float = 0.1
    dim: int | None = None
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    max_units: int | None = None

    def _check_config(self) -> None:
        super()._check_config()
        checks.within(0, MAX_SHARE, held_out=self.held_out)
        if self.dim is not None:
            checks.integer_at_least(1, dim=self.dim)
            checks.within(1, MAX_PRODUCT_DIM, dim=self.dim)

    def _build_method(self) -> LinkMethod:
        return self._method(LinkMethod)

    @one_thread()
    def plan(self) -> ReleasePlan:
        """Return the query plan of a fit with ``max_units`` edges; no size of the graph affects its noise."""
        sizes = PublicSizes(nodes=self.max_units or 1, classes=0, features=self.dim or DIM)
        return self._build_method().plan(sizes)

    @one_thread()
    def prepare(self, graph: Any) -> PreparedFit:
        """Check the graph as ``fit`` does, and plan the fit.

        Args:
            graph: ``Graph``, ``Data`` of torch_geometric, or ``Tables`` with one table between persons.

        Returns:
            The planned fit. Pass it to ``fit`` in place of the graph to execute exactly this plan.

        Raises:
            GraphError: If the graph does not fit.
            UnitError: If its edges are not what the unit protects.

        Privacy:
            Reads: features and labels, which are public. Charges: nothing.
        """
        return self.config.prepare(_as_graph(graph, self.unit), FeatureScaling())

    @checks.checked
    def fit(
        self,
        graph: Any,
        *,
        workspace: Path | str | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
    ) -> Self:
        """Fit the scores of a graph's node pairs.

        Args:
            graph: ``Graph``, or ``Data`` of torch_geometric, such as the training split of
                ``RandomLinkSplit``, or ``PreparedFit``. Labels are not needed, unless there are no features.
            workspace: Internal folder from which an interrupted fit with the same ``seed`` is resumed without
                another charge.
            on_progress: Called with stage, done and total.
            progress: Show progress bars on a terminal or in a notebook.

        Returns:
            This predictor.

        Raises:
            GraphError: If the graph does not fit.
            UnitError: If its edges are not what the unit protects.
            BudgetError: If the ledger of the edges rejects the release.

        Privacy:
            Charges: one release, before the edges are read. A second fit is a second release.
        """
        return self._fit_with(graph, workspace, on_progress, progress=progress)

    # -- results -------------------------------------------------------------------------------------------

    @property
    def _scores(self) -> PairScores:
        trained = self.fitted.trained
        assert isinstance(trained, PairScores)
        return trained

    @property
    def _held_out(self) -> HeldOutPairs:
        assert self.fitted.plan is not None
        query = self.fitted.plan.queries[1]
        assert isinstance(query, EdgeProductQuery)
        return query.held_out

    @property
    def private_metrics_(self) -> Mapping[str, Interval] | None:
        """Noisy ROC-AUC and average precision of held-out edges against random pairs; None without any.

        They were charged with the fit and are public. Random pairs include edges, of which sparse graphs have
        few among all pairs.
        """
        return self._metrics

    @property
    def curves_(self) -> ScoreCurves | None:
        """ROC and precision-recall curves of the same noisy counts as ``private_metrics_``."""
        curves: ScoreCurves | None = self.fitted.learned["curves"]
        return curves

    @property
    def products_(self) -> tuple[Floats, Floats]:
        """Public vectors of nodes (N, d), and the released noisy sum of their products over edges (d, d)."""
        return self._scores.terms.left[0].numpy() / VECTOR_STEPS, self._scores.products

    @property
    def node_ids(self) -> npt.NDArray[Any]:
        """The id of each node: that of the fitted graph, or its index."""
        ids = self.fitted.ids
        return np.arange(self.num_nodes) if ids is None else ids

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the fitted graph."""
        return self._scores.nodes

    @checks.checked
    def is_held_out(self, pairs: NodePairs) -> npt.NDArray[np.bool_]:
        """Return which pairs were held out by the public hash, bool (P).

        Args:
            pairs: Node pairs, shape (2, P) or (P, 2).
        """
        return self._held_out.contains(*self._pairs(pairs))

    @checks.checked
    @one_thread()
    def decision_function(self, pairs: NodePairs) -> Floats:
        """Return the score of each pair, float64 (P): log odds, increasing with ``predict_proba``.

        Args:
            pairs: Node pairs, shape (2, P) or (P, 2), as ``edge_label_index``. A square (2, 2) is read as
                (2, P).

        Returns:
            Scores, for undirected edges the same in both directions.

        Raises:
            ConfigError: If these are no pairs of nodes of the fitted graph.

        Privacy:
            Charges: nothing. Post-processing of the fit.
        """
        return self._scores.of(*self._pairs(pairs))

    @checks.checked
    @one_thread()
    def predict_proba(self, pairs: NodePairs) -> npt.NDArray[np.float32]:
        """Return the probability that each pair is an edge and not a random pair, float32 (P).

        Edges and random pairs have equal prior probabilities, as in a test with one negative per edge.

        Args:
            pairs: Node pairs, shape (2, P) or (P, 2), as ``edge_label_index``.

        Returns:
            Probabilities.

        Raises:
            ConfigError: If these are no pairs of nodes of the fitted graph.

        Privacy:
            Charges: nothing. Post-processing of the fit.
        """
        half = np.tanh(self.decision_function(pairs) / 2) / 2
        return (0.5 + half).astype(np.float32)

    @checks.checked
    @one_thread()
    def score(self, pairs: NodePairs, labels: Tensor | npt.ArrayLike, metric: str = "roc_auc") -> float:
        """Return an exact metric of pairs with the caller's labels.

        Args:
            pairs: Node pairs, shape (2, P) or (P, 2), as ``edge_label_index``.
            labels: 1 for edges and 0 for other pairs, shape (P), as ``edge_label``.
            metric: ``"roc_auc"`` or ``"average_precision"``.

        Returns:
            The metric; NaN if all labels are equal.

        Raises:
            ConfigError: If an argument does not fit.

        Privacy:
            No guarantee for ``labels``: if they are private edges, the result is internal. Publish
            ``private_metrics_`` instead.
        """
        checks.one_of(("roc_auc", "average_precision"), metric=metric)
        scores = self.decision_function(pairs)
        truth = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
        numbers = truth.dtype.kind in "biuf"
        if not numbers or truth.shape != scores.shape or not np.isin(truth, (0, 1)).all():
            raise ConfigError(
                f"labels must be {len(scores)} numbers: 1 for an edge, and 0 for a pair without one."
            )
        columns = torch.from_numpy(np.stack([-scores, scores], axis=1))
        return metric_value(metric, torch.from_numpy(truth.astype(np.int64)), columns, positive=1)

    @checks.checked
    @one_thread()
    def top_k(
        self, nodes: Tensor | npt.ArrayLike | None = None, k: int = 10, *, exclude: Graph | None = None
    ) -> tuple[Ids, Floats]:
        """Return the k nodes with the highest scores for each node.

        Existing edges are not left out, since their absence would reveal them.

        Args:
            nodes: Node ids, shape (M); all by default.
            k: Number of nodes to return, below the number of all nodes.
            exclude: Graph whose edges are left out, for the data owner. The result is then internal: do not
                publish it.

        Returns:
            Ids (M, k) and scores (M, k) in descending order. A place without a node has id -1 and score -inf.

        Raises:
            ConfigError: If an argument is outside its range.

        Privacy:
            Charges: nothing. Post-processing of the fit without ``exclude``. With it there is no guarantee.
        """
        count, k = self.num_nodes, checks.plain(k)
        checks.integer_at_least(1, k=k)
        checks.within(1, count - 1, k=k)
        chosen = np.arange(count) if nodes is None else _whole(nodes, "nodes").reshape(-1)
        checks.places(count, nodes=chosen)
        known = None if exclude is None else _edges_by_source(exclude, count)
        return self._scores.best(chosen, k, known)

    def _pairs(self, pairs: Any) -> tuple[Ids, Ids]:
        """Return both ends of pairs; for undirected edges the smaller id first, as fitted."""
        found = _whole(pairs, "pairs")
        if found.ndim != 2 or 2 not in found.shape:
            raise ConfigError(f"pairs must have shape (2, P) or (P, 2), not {found.shape}.")
        sources, targets = found if found.shape[0] == 2 else found.T
        checks.places(self.num_nodes, pairs=found.reshape(-1))
        if self._scores.symmetric:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return np.ascontiguousarray(sources), np.ascontiguousarray(targets)

    # -- files ---------------------------------------------------------------------------------------------

    def _card(self, dataset: str | None) -> PairCard:
        return PairCard(
            method=LINKS,
            task="link-prediction",
            subject=f"A link predictor for pairs of {self.num_nodes:,} nodes.",
            dataset=dataset,
            metrics=self._card_metrics,
            limits=_LIMITS,
            loader="LinkPredictor",
            call="model.predict_proba([[0], [1]])",
        )

    def _plain(self) -> dict[str, Any]:
        fit = self.fitted
        metrics, curves = self.private_metrics_, self.curves_
        return {
            "version": _VERSION,
            "parameters": self.get_params(),
            "offset": self._scores.offset,
            "symmetric": self._scores.symmetric,
            "held_out": asdict(self._held_out),
            "width": fit.sizes.width,
            "ids": None if fit.ids is None else fit.ids.tolist(),
            "metrics": metrics and {name: asdict(one) for name, one in metrics.items()},
            "curves": None if curves is None else curves._asdict(),
        }

    def _restored(self, plain: Mapping[str, Any], state: State, guarantee: Guarantee) -> FittedModel:
        if plain.get("version") != _VERSION:
            raise ArtifactError(
                f"The folder has version {plain.get('version', 1)} of the link predictor format, but this "
                f"graphveil reads version {_VERSION}. Load it with the graphveil that saved it, or fit "
                "again."
            )
        method, nodes, ids = self._build_method(), len(state["left0"]), plain["ids"]
        sizes = PublicSizes(nodes=nodes, classes=0, features=int(plain["width"]))
        ids = None if ids is None else np.array(ids)
        if ids is not None and (ids.shape != (nodes,) or ids.dtype.kind not in "iU"):
            raise ValueError
        return self._fit_of(
            sizes,
            guarantee,
            method.plan_for(sizes, HeldOutPairs(**plain["held_out"])),
            method.restore(state | {"offset": torch.tensor(plain["offset"], dtype=torch.float64)}, sizes, {}),
            ids=ids,
            metrics=plain["metrics"],
            curves=None if plain["curves"] is None else ScoreCurves(**plain["curves"]),
        )


def _as_graph(given: Any, unit: str) -> Graph:
    """Return a graph. One of torch_geometric without labels has unlabeled nodes."""
    if isinstance(given, Tables):
        check_tables(given.graph, unit)
        return given.person_graph()
    labeled = isinstance(given, Graph) or getattr(given, "y", None) is not None
    if labeled or not hasattr(given, "edge_index"):
        return as_graph(given, unit)
    given = copy.copy(given)
    given.y = torch.arange(int(given.num_nodes)) % 2  # a Graph has classes
    graph = as_graph(given, unit)
    return graph.replace(y=torch.full((graph.num_nodes,), UNLABELED))


def _whole(values: Any, name: str) -> Ids:
    try:
        found = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError):  # lists of different lengths
        found = np.empty(1, dtype=object)
    if found.size and found.dtype.kind not in "iu":
        raise ConfigError(f"{name} must be integers: node indices, counted from 0.")
    return found.astype(np.int64)


def _edges_by_source(graph: Graph, nodes: int) -> tuple[Ids, Ids]:
    if not isinstance(graph, Graph) or graph.num_nodes != nodes:
        raise ConfigError(f"exclude must be a Graph with the {nodes} nodes of the fitted graph.")
    sources, targets = graph.edge_index().numpy().astype(np.int64)
    order = np.argsort(sources, kind="stable")
    return np.searchsorted(sources[order], np.arange(nodes + 1)), targets[order]
