"""Scores of node pairs under edge-level privacy: which pairs are likely to be edges."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.display import shown_progress
from graphveil._util.files import as_path
from graphveil._util.threads import one_thread
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import Query, ReleasePlan, calibrate_plan
from graphveil.core.queries.edge_counts import (
    MAX_EPSILON,
    MIN_EPSILON,
    NeighborCountData,
    NeighborCountQuery,
)
from graphveil.core.queries.held_out import MAX_SHARE, HeldOutPairs
from graphveil.core.queries.pair_sums import (
    MAX_PRODUCT_DIM,
    PRODUCT_GRID_BITS,
    EdgeProductData,
    EdgeProductQuery,
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
    clipped,
    weighted,
)
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeUnit, UndirectedEdge, parse_unit
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.errors import ArtifactError, ConfigError, GraphError, UnitError
from graphveil.estimators.method import FitPreview
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig, data_notes, plan_guarantee
from graphveil.estimators.requirements import as_graph, check_encoding, check_magnitudes, check_unit
from graphveil.estimators.session import OnProgress, Session, no_progress
from graphveil.links.folder import LinkRecord, card_metrics, read_link_folder, write_link_folder
from graphveil.links.node_vectors import node_vectors
from graphveil.links.pair_model import (
    CLIP,
    QUANTILES,
    TERMS,
    VECTOR_STEPS,
    ScoreCurves,
    discriminant,
    expected_degrees,
    interaction,
    noisy_metrics,
    pair_terms,
    score_curves,
)
from graphveil.links.structure import clusters, positions
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard
from graphveil.publish.queries import release_rows
from graphveil.publish.results import LINKS
from graphveil.training.metrics import Interval, metric_value

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
NodePairs = Tensor | npt.ArrayLike


class ClusterCounts(NamedTuple):
    """Options of neighbor counts by cluster: number of clusters, share of epsilon, and direction."""

    clusters: int
    share: float
    both_ends: bool


class CountShares(NamedTuple):
    """Shares of epsilon for counts, from a budget on."""

    least_epsilon: float
    degrees: float
    clusters: tuple[ClusterCounts, ...]


COUNT_SHARES = (
    CountShares(2.5, 0.05, (ClusterCounts(16, 0.2, False), ClusterCounts(32, 0.5, True))),
    CountShares(0.75, 0.4, (ClusterCounts(8, 0.1, False),)),
    CountShares(0.0, 0.5, ()),  # clusters would have more noise than edges
)
_LEAST_COUNT, _CLEAR_COUNT = 0.05, 1.0  # mean counts, over their noise, to use clusters and to refine them
SUM_SHARE = 0.1  # of the remaining mu^2, and products have the rest
_COARSE_EPSILON = 0.25  # below, the noise of products needs a coarser grid
_SAMPLE = 100_000  # public random pairs
_LARGE, _LARGE_DIM = 500_000, 64  # nodes, and columns above
_DIM = 128
_CHUNK = 1 << 23  # scores at once
_LIMITS = (
    "Scores are for pairs of nodes of the fitted graph. New nodes need a new release.",
    "Lists of candidates contain existing edges, since leaving them out would reveal them.",
    "Metrics compare held-out edges with random pairs. Accuracy on other data is unknown.",
)
_VERSION = 3  # of the folder: version 2 has other noise, and version 1 three features
_MARGIN = 16  # places beyond the best that are compared by exact scores
_PROJECTED = 8  # nodes per column, above which fewer columns take less time
_NEGLIGIBLE, _ROWS = 1e-6, 1 << 14  # share of the largest eigenvalue, and rows at once


@dataclass(frozen=True, eq=False)
class _Fit:
    """The released values of a fit."""

    products: Floats
    terms: PairTerms
    weights: Floats
    offset: float
    symmetric: bool
    held_out: HeldOutPairs
    guarantee: Guarantee
    metrics: Mapping[str, Interval] | None
    curves: ScoreCurves | None
    plan: ReleasePlan
    width: int
    ids: npt.NDArray[Any] | None


@dataclass(kw_only=True, eq=False)
class LinkPredictor:
    """Link prediction with edge-level differential privacy.

    The score of a pair is a linear discriminant of three to five features: the cosine of public feature
    vectors, an interaction x_u^T M x_v, and the log degrees of both nodes. From epsilon 0.75 on, a cosine of
    latent positions is added, and two from epsilon 2.5 on. M comes from a noisy sum of products over edges,
    degrees and positions from noisy counts of neighbors by cluster, and the weights from noisy sums of the
    features over edges. All scores are post-processing of these releases.

    Shapes: pairs (2, P) or (P, 2) to scores (P).

    Args:
        unit: ``"undirected-edge"`` or ``"directed-edge"``.
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

    unit: str
    epsilon: float
    delta: float | str = "auto"
    held_out: float = 0.1
    dim: int | None = None
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    max_units: int | None = None

    _fit: _Fit | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the configuration."""
        hints = checks.hints_of(LinkPredictor)
        for name in (one.name for one in fields(self) if one.init):
            setattr(self, name, checks.fitting(name, checks.plain(getattr(self, name)), hints[name]))
        checks.positive(epsilon=self.epsilon)
        checks.within(0, MAX_SHARE, held_out=self.held_out)
        if self.dim is not None:
            checks.integer_at_least(1, dim=self.dim)
            checks.within(1, MAX_PRODUCT_DIM, dim=self.dim)
        for name, least in (("seed", 0), ("unsafe_noise_seed", 0), ("max_units", 1)):
            if getattr(self, name) is not None:
                checks.integer_at_least(least, **{name: getattr(self, name)})
        unit = parse_unit(self.unit, max_degree=1)
        if isinstance(unit, NodeUnit):
            raise UnitError(
                f"LinkPredictor protects single edges, but unit {unit.name!r} protects a node with all "
                "its edges, and their number has no bound here. Use unit='undirected-edge' or "
                "'directed-edge', or gv.Recommender, which protects the whole list of a user."
            )
        if not isinstance(unit, UndirectedEdge | DirectedEdge):
            raise UnitError(
                f"LinkPredictor protects edges, but unit {unit.name!r} does not. Use "
                "unit='undirected-edge' or 'directed-edge'."
            )
        self._config = PrivacyConfig(
            unit=unit,
            epsilon=float(self.epsilon),
            delta=self.delta,
            max_units=self.max_units,
            seed=self.seed,
            unsafe_noise_seed=self.unsafe_noise_seed,
        )
        self._config.delta_for(self.max_units or 2)

    @one_thread()
    def plan(self) -> ReleasePlan:
        """Return the query plan of a fit with ``max_units`` edges; no size of the graph affects its noise."""
        return self._plan(self.max_units or 1, self.dim or _DIM, HeldOutPairs(float(self.held_out), 0))

    @one_thread()
    def preview(self, graph: Any) -> FitPreview:
        """Return plan, guarantee and outputs of a fit. No edge is read and nothing is charged.

        Args:
            graph: ``Graph``, or ``Data`` of torch_geometric.

        Returns:
            Query plan, guarantee, and a description of each output.

        Raises:
            GraphError: If the graph does not fit.
            UnitError: If its edges are not what the unit protects.
        """
        known, labeled = self._graph(graph)
        width = node_vectors(known, self._width(known), np.random.default_rng(0), labeled=labeled).shape[1]
        held_out = HeldOutPairs(float(self.held_out), 0)
        plan = self._plan(known.num_nodes, width, held_out)
        return FitPreview(plan, self._guarantee(known, plan), release_rows(plan))

    @checks.checked
    @one_thread()
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
                ``RandomLinkSplit``. Labels are not needed, unless there are no features.
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
        with shown_progress(on_progress or no_progress, progress=progress) as shown:
            session = Session(
                streams=PublicStreams(self.seed),
                label="links",
                noise_seed=self.unsafe_noise_seed,
                workspace=None if workspace is None else as_path(workspace, "workspace"),
                on_progress=shown,
            )
            return self._fit_in(session, graph)

    def _fit_in(self, session: Session, graph: Any) -> Self:
        """Fit the graph in a session."""
        known, labeled = self._graph(graph)
        streams = session.streams
        with session.stage("features"):
            vectors = node_vectors(known, self._width(known), streams.numpy("features"), labeled=labeled)
        held_out = HeldOutPairs(float(self.held_out), streams.derive("held-out pairs"))
        plan = self._plan(known.num_nodes, vectors.shape[1], held_out)
        session.plan, session.guarantee = plan, self._guarantee(known, plan)
        self._fit = self._answers(known, vectors, held_out, session)
        return self

    def _answers(self, graph: Graph, vectors: Tensor, held_out: HeldOutPairs, session: Session) -> _Fit:
        """Query the plan, and return the model."""
        plan, nodes, symmetric = session.plan, graph.num_nodes, not graph.directed
        assert plan is not None and session.guarantee is not None
        release = session.open(graph)
        with session.stage("degrees"):
            counts = release.answer(NeighborCountData(torch.zeros(nodes, dtype=torch.int64)))
            noisy = counts[:, 0].numpy().astype(np.float64)
            targets = expected_degrees(noisy, plan.queries[0].noise[0] ** 2)
            sources = targets if symmetric else np.ones(nodes)
        with session.stage("products"):
            products = release.answer(EdgeProductData(vectors)).numpy()
            matrix = interaction(
                products, vectors, sources, targets, max(float(noisy.sum()), 1.0), plan.queries[1].noise[0]
            )
        with session.stage("clusters"):
            rng = session.streams.numpy("clusters")
            stages = _count_shares(self._config.budget).clusters
            targets, directions = _cluster_counts(release, plan, stages, vectors, matrix, noisy, rng)
            sources = targets if symmetric else sources
        pairs = random_pairs(nodes, session.streams.numpy("pairs"), symmetric=symmetric)
        terms = pair_terms(vectors, matrix, sources, targets, directions, symmetric=symmetric)
        features = terms(*pairs)
        center, spread = features.mean(axis=0), features.std(axis=0)
        scale = np.where(spread > 0, 1 / (CLIP * np.where(spread > 0, spread, 1.0)), 0.0)
        terms = PairTerms(terms.left, terms.right, torch.from_numpy(center), torch.from_numpy(scale))
        features = terms(*pairs)
        with session.stage("weights"):
            query = plan.queries[2 + len(directions)]
            assert isinstance(query, PairSumQuery)
            factor = query.unit_steps / query.each
            sums = release.answer(PairSumData(terms)).numpy() * factor
            fitted = discriminant(sums, clipped(features), query.sigma[0] * factor)
        metrics, curves = None, None
        if held_out.share:
            scores = weighted(features, fitted.weights)
            bounds = np.quantile(scores, QUANTILES)
            data = PairHistogramData(terms, torch.from_numpy(fitted.weights), torch.from_numpy(bounds))
            with session.stage("metrics"):
                histogram = release.answer(data).numpy()
            cells = np.searchsorted(bounds, scores, side="right")
            shares = np.bincount(cells, minlength=len(histogram)) / len(scores)
            rng = session.streams.numpy("metrics")
            metrics = noisy_metrics(histogram, shares, plan.queries[-1].noise[0], rng)
            curves = score_curves(histogram, shares)
        release.close()
        return _Fit(
            products=products,
            terms=terms,
            weights=fitted.weights,
            offset=fitted.offset,
            symmetric=symmetric,
            held_out=held_out,
            guarantee=session.with_seed(session.guarantee),
            metrics=metrics,
            curves=curves,
            plan=plan,
            width=vectors.shape[1],
            ids=graph.ids,
        )

    # -- the plan ------------------------------------------------------------------------------------------

    def _plan(self, nodes: int, width: int, held_out: HeldOutPairs) -> ReleasePlan:
        """Return the query plan, from public sizes."""
        unit, epsilon = self._config.unit, self._config.budget
        symmetric = isinstance(unit, UndirectedEdge)
        shares = _count_shares(epsilon)

        def counted(share: float, classes: int, *, both_ends: bool = False) -> NeighborCountQuery:
            both = both_ends and symmetric  # a directed edge has one target
            each = min(max(share * epsilon / (1 + both), MIN_EPSILON), MAX_EPSILON)
            return NeighborCountQuery("all", None if both else (0,), each, classes, held_out)

        degrees = counted(shares.degrees, 1)
        clusters = [counted(one.share, one.clusters, both_ends=one.both_ends) for one in shares.clusters]
        bits = PRODUCT_GRID_BITS if epsilon >= _COARSE_EPSILON else PRODUCT_GRID_BITS - 2
        terms = TERMS + len(clusters)

        def queries(mu: float) -> tuple[Query, ...]:
            def sigma(share: float) -> tuple[float, ...]:
                return (1 / (mu * share**0.5),)

            products = sigma(1 - SUM_SHARE)
            found: list[Query] = [
                degrees,
                EdgeProductQuery(width, products, symmetric, held_out, bits),
                *clusters,
                PairSumQuery(terms, sigma(SUM_SHARE), symmetric, held_out),
            ]
            if held_out.share:  # a held-out edge is in no other sum
                cells = len(QUANTILES) + 1
                found.append(PairHistogramQuery(terms, cells, sigma(1.0), symmetric, held_out))
            return tuple(found)

        delta = self._config.delta_for(nodes)
        return calibrate_plan(unit, epsilon, delta, queries, num_nodes=nodes)

    def _guarantee(self, graph: Graph, plan: ReleasePlan) -> Guarantee:
        seeded = self.unsafe_noise_seed is not None
        return plan_guarantee(
            self._config,
            plan,
            graph,
            deviations=(SEEDED,) if seeded else (),
            notes=data_notes(self._config, graph),
        )

    def _graph(self, given: Any) -> tuple[Graph, bool]:
        """Return the checked graph with a handle of its edges, and whether it has labels."""
        labeled = isinstance(given, Graph) or getattr(given, "y", None) is not None
        if not labeled and hasattr(given, "edge_index"):
            given = copy.copy(given)  # a Graph has labels; these are not read
            given.y = torch.arange(int(given.num_nodes)) % 2
        graph = as_graph(given, self.unit)
        if graph.num_nodes < 2:
            raise GraphError(
                "The graph has only one node, but a link needs two. Pass a graph with at least two nodes."
            )
        check_encoding(graph, self._config.unit, protects_features=False)
        check_unit(self._config, graph, reads_edges=True)
        check_magnitudes(graph)
        return protected_view(graph, self._config.unit), labeled

    def _width(self, graph: Graph) -> int:
        return self.dim or (_DIM if graph.num_nodes <= _LARGE else _LARGE_DIM)

    # -- results -------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> _Fit:
        if self._fit is None:
            raise ConfigError("This LinkPredictor is not fitted. Call fit(graph) first.")
        return self._fit

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fit."""
        return self._fitted.guarantee

    @property
    def plan_(self) -> ReleasePlan:
        """The query plan of the fit."""
        return self._fitted.plan

    @property
    def private_metrics_(self) -> Mapping[str, Interval] | None:
        """Noisy ROC-AUC and average precision of held-out edges against random pairs; None without any.

        They were charged with the fit and are public. Random pairs include edges, of which sparse graphs have
        few among all pairs.
        """
        return self._fitted.metrics

    @property
    def curves_(self) -> ScoreCurves | None:
        """ROC and precision-recall curves of the same noisy counts as ``private_metrics_``."""
        return self._fitted.curves

    @property
    def products_(self) -> tuple[Floats, Floats]:
        """Public vectors of nodes (N, d), and the released noisy sum of their products over edges (d, d)."""
        fit = self._fitted
        return fit.terms.left[0].numpy() / VECTOR_STEPS, fit.products

    @property
    def node_ids(self) -> npt.NDArray[Any]:
        """The id of each node: that of the fitted graph, or its index."""
        ids = self._fitted.ids
        return np.arange(self.num_nodes) if ids is None else ids

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the fitted graph."""
        return len(self._fitted.terms.left[0])

    @checks.checked
    def is_held_out(self, pairs: NodePairs) -> npt.NDArray[np.bool_]:
        """Return which pairs were held out by the public hash, bool (P).

        Args:
            pairs: Node pairs, shape (2, P) or (P, 2).
        """
        return self._fitted.held_out.contains(*self._pairs(pairs))

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
        fit = self._fitted
        sources, targets = self._pairs(pairs)
        return weighted(fit.terms(sources, targets), fit.weights) + fit.offset

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
        fit, count, k = self._fitted, self.num_nodes, checks.plain(k)
        checks.integer_at_least(1, k=k)
        checks.within(1, count - 1, k=k)
        chosen = np.arange(count) if nodes is None else _whole(nodes, "nodes").reshape(-1)
        checks.places(count, nodes=chosen)
        known = None if exclude is None else _edges_by_source(exclude, count)
        ids, scores = np.full((len(chosen), k), -1), np.full((len(chosen), k), -np.inf)
        left, right, error = _score_tables(fit, chosen)
        step = max(1, _CHUNK // count)
        for first in range(0, len(chosen), step):
            some, part = chosen[first : first + step], slice(first, first + step)
            # Rounded scores select candidates, and exact ones rank them: no rounding affects the result.
            rounded = left[part] @ right.T
            rounded[torch.arange(len(some)), torch.from_numpy(some)] = -torch.inf
            if known is not None:
                starts, ends = known
                for row, node in enumerate(some):
                    rounded[row, torch.from_numpy(ends[starts[node] : starts[node + 1]])] = -torch.inf
            rows, places = _candidates(rounded, k, error[part])
            exact = weighted(fit.terms(some[rows], places), fit.weights) + fit.offset
            order = np.lexsort((places, -exact, rows))
            rows, places, exact = rows[order], places[order], exact[order]
            rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
            best = rank < k
            ids[first + rows[best], rank[best]] = places[best]
            scores[first + rows[best], rank[best]] = exact[best]
        return ids, scores

    def _pairs(self, pairs: Any) -> tuple[Ids, Ids]:
        """Return both ends of pairs; for undirected edges the smaller id first, as fitted."""
        found = _whole(pairs, "pairs")
        if found.ndim != 2 or 2 not in found.shape:
            raise ConfigError(f"pairs must have shape (2, P) or (P, 2), not {found.shape}.")
        sources, targets = found if found.shape[0] == 2 else found.T
        checks.places(self.num_nodes, pairs=found.reshape(-1))
        if self._fitted.symmetric:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return np.ascontiguousarray(sources), np.ascontiguousarray(targets)

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, folder: Path | str, *, dataset: str | None = None) -> Path:
        """Write the fitted model, its guarantee and a model card to a new folder, atomically.

        Args:
            folder: Path that does not exist.
            dataset: Name of the data on the model card.

        Returns:
            The folder.

        Raises:
            ConfigError: If the folder exists, or cannot be written.

        Privacy:
            Charges: nothing. The folder is safe to publish.
        """
        fit = self._fitted
        tensors = {f"left{k}": table for k, table in enumerate(fit.terms.left)}
        tensors |= {f"right{k}": table.clone() for k, table in enumerate(fit.terms.right)}
        tensors |= {
            "products": torch.from_numpy(fit.products),
            "center": fit.terms.center,
            "scale": fit.terms.scale,
            "weights": torch.from_numpy(fit.weights),
        }
        plain = {
            "version": _VERSION,
            "parameters": {one.name: getattr(self, one.name) for one in fields(self) if one.init},
            "offset": fit.offset,
            "symmetric": fit.symmetric,
            "held_out": asdict(fit.held_out),
            "width": fit.width,
            "ids": None if fit.ids is None else fit.ids.tolist(),
            "metrics": None
            if fit.metrics is None
            else {name: asdict(one) for name, one in fit.metrics.items()},
            "curves": None if fit.curves is None else fit.curves._asdict(),
        }
        card = PairCard(
            method=LINKS,
            task="link-prediction",
            subject=f"A link predictor for pairs of {self.num_nodes:,} nodes.",
            dataset=dataset,
            metrics=card_metrics(fit.metrics),
            limits=_LIMITS,
            loader="LinkPredictor",
            call="model.predict_proba([[0], [1]])",
        )
        return write_link_folder(folder, LINKS, plain, tensors, fit.guarantee, fit.plan, card)

    @classmethod
    def load(cls, folder: Path | str) -> "LinkPredictor":
        """Read a folder that ``save`` wrote. Its guarantee is computed again from the stored mechanism.

        Args:
            folder: Folder that ``save`` wrote.

        Returns:
            The fitted model.

        Raises:
            ArtifactError: If the folder holds no link predictor, or is damaged.

        Privacy:
            Reads and charges: nothing.
        """
        return read_link_folder(folder, LINKS, cls._from_record)

    @classmethod
    def _from_record(cls, record: LinkRecord) -> "LinkPredictor":
        """Return the model of a folder's contents."""
        plain, tensors = record.plain, record.tensors
        model = cls(**plain["parameters"])
        if plain.get("version") != _VERSION:
            raise ArtifactError(
                f"The folder has version {plain.get('version', 1)} of the link predictor format, but this "
                f"graphveil reads version {_VERSION}. Load it with the graphveil that saved it, or fit "
                "again."
            )
        count = TERMS + len(_count_shares(model._config.budget).clusters)
        left, right = ([tensors[f"{side}{k}"] for k in range(count)] for side in ("left", "right"))
        terms = PairTerms(tuple(left), tuple(right), tensors["center"], tensors["scale"])
        nodes, metrics, curves = len(left[0]), plain["metrics"], plain["curves"]
        terms.check(nodes, count)
        ids = None if plain["ids"] is None else np.array(plain["ids"])
        if ids is not None and (ids.shape != (nodes,) or ids.dtype.kind not in "iU"):
            raise ValueError
        held_out = HeldOutPairs(**plain["held_out"])
        plan = model._plan(nodes, int(plain["width"]), held_out)
        model._fit = _Fit(
            products=tensors["products"].numpy().reshape((int(plain["width"]),) * 2),
            terms=terms,
            weights=tensors["weights"].numpy().astype(np.float64).reshape(count),
            offset=float(plain["offset"]),
            symmetric=bool(plain["symmetric"]),
            held_out=held_out,
            guarantee=record.guarantee,
            metrics=None if metrics is None else {name: Interval(**one) for name, one in metrics.items()},
            curves=None if curves is None else ScoreCurves(**curves),
            plan=plan,
            width=int(plain["width"]),
            ids=ids,
        )
        return model


def _count_shares(epsilon: float) -> CountShares:
    """Return the shares of counts for a budget."""
    return next(one for one in COUNT_SHARES if epsilon >= one.least_epsilon)


def _cluster_counts(
    release: Release,
    plan: ReleasePlan,
    stages: tuple[ClusterCounts, ...],
    vectors: Tensor,
    matrix: Floats,
    counts: Floats,
    rng: np.random.Generator,
) -> tuple[Floats, list[Tensor]]:
    """Query counts of neighbors by cluster. Return expected degrees, and directions of nodes for each query.

    Clusters are those of public vectors, weighted by their released relation to links, and later those of
    released positions. Noisy counts decide, after the answer, whether they are refined. If counts by cluster
    would be almost only noise, all nodes are in one class, and its counts improve the degrees.

    Args:
        release, plan: The open release and its plan, which has these queries after the products.
        stages: The parameters of these queries.
        vectors, matrix: Public vectors and the released interaction.
        counts: Noisy number of edges of each node.
        rng: Public generator of clusters.
    """
    found, classes = list[Tensor](), np.zeros(len(vectors), dtype=np.int64)
    values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    used = values > 0
    used[-1] = True  # the largest: there is at least one direction
    root = torch.from_numpy((basis[:, used] * np.sqrt(np.maximum(values[used], 0.0))).astype(np.float32))
    points, variance = vectors @ root, plan.queries[0].noise[0] ** 2
    mean, degrees = max(float(counts.mean()), 0.0), expected_degrees(counts, variance)
    for one, query in zip(stages, plan.queries[2:], strict=False):
        ends = 2 if one.both_ends and isinstance(plan.unit, UndirectedEdge) else 1
        noise = query.noise[0]
        level = mean * ends / (one.clusters * noise)
        if level >= (_CLEAR_COUNT if classes.any() else _LEAST_COUNT):
            classes = clusters(points, one.clusters, rng)
        columns = int(classes.max()) + 1
        answer = release.answer(NeighborCountData(torch.from_numpy(classes)))
        noisy = answer[:, :columns].numpy().astype(np.float64)
        total, error = noisy.sum(axis=1) / ends, columns * (noise / ends) ** 2
        counts = (counts / variance + total / error) / (1 / variance + 1 / error)
        variance = 1 / (1 / variance + 1 / error)
        degrees = expected_degrees(counts, variance)
        if columns == 1:
            found.append(torch.zeros(len(vectors), 1))
            continue
        points = points.new_empty(0)  # frees a table as large as the vectors
        place = positions(noisy, ends * degrees, noise, (vectors, *found[-1:]))
        found.append(place.directions)
        points = torch.nn.functional.normalize(place.mean)
    return degrees, found


def _score_tables(fit: _Fit, nodes: Ids) -> tuple[Tensor, Tensor, Tensor]:
    """Return two float32 tables, of some nodes and of all, whose dot products rank the pairs of a node.

    Also return a bound on the error of the difference of two products in the row of each of the nodes.
    """
    terms, rows = fit.terms, torch.from_numpy(nodes)
    factors = fit.weights * terms.scale.numpy()
    parts = [table[rows] * float(factor) for table, factor in zip(terms.left, factors, strict=True)]
    left, right = torch.cat(parts, dim=1), torch.cat(terms.right, dim=1)
    # Columns of equal norm in both tables: the bound is a product of norms.
    balance = ((left.norm(dim=0) + 1e-30) / (right.norm(dim=0) + 1e-30)).sqrt()
    left, right = left.div_(balance), right.mul_(balance)
    unit = 2.0**-23 * (left.shape[1] + 4)  # of a sum of rounded products, for two of them
    error = unit * left.norm(dim=1) * right.norm(dim=1).max()
    if len(nodes) > _PROJECTED * left.shape[1]:
        left, right, rest = _projected(left, right)
        error += rest.float()
    return left, right, 2 * error


def _projected(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return tables with fewer columns, and a bound on the change of a dot product for each row of the left.

    The cosine and the interaction of a pair are products of the same vectors, so about half of the columns of
    their tables depend on the others.
    """
    gram = torch.zeros(right.shape[1], right.shape[1], dtype=torch.float64)
    for first in range(0, len(right), _ROWS):
        part = right[first : first + _ROWS].double()
        gram += part.T @ part
    values, basis = torch.linalg.eigh(gram)
    basis = basis[:, values > _NEGLIGIBLE * values[-1]]

    def onto_basis(table: Tensor) -> tuple[Tensor, Tensor]:
        parts, rest = [], []
        for first in range(0, len(table), _ROWS):
            part = table[first : first + _ROWS].double()
            inside = part @ basis
            parts.append(inside.float())
            rest.append((part.square().sum(dim=1) - inside.square().sum(dim=1)).clamp(min=0).sqrt())
        return torch.cat(parts), torch.cat(rest)

    (left, rest), (right, others) = onto_basis(left), onto_basis(right)
    return left, right, rest * others.max()


def _candidates(rounded: Tensor, k: int, error: Tensor) -> tuple[Ids, Ids]:
    """Return rows and places of all scores that can be among the k highest of their row.

    >>> _candidates(torch.tensor([[3.0, 1.0, 2.95, 0.0]]), 1, torch.tensor([0.1]))[1].tolist()
    [0, 2]
    """
    values, places = rounded.topk(min(k + _MARGIN, rounded.shape[1]), dim=1)
    least = (values[:, k - 1] - error)[:, None]
    inside = (values >= least) & values.isfinite()
    cut = inside[:, -1]  # further ones may be as high
    rows, columns = (inside & ~cut[:, None]).nonzero(as_tuple=True)
    others = cut.nonzero()[:, 0]
    near, more = ((rounded[cut] >= least[cut]) & rounded[cut].isfinite()).nonzero(as_tuple=True)
    found = torch.cat([rows, others[near]]), torch.cat([places[rows, columns], more])
    return found[0].numpy(), found[1].numpy()


def random_pairs(nodes: int, rng: np.random.Generator, *, symmetric: bool) -> tuple[Ids, Ids]:
    """Return public random pairs of two different nodes, for undirected edges the smaller id first.

    >>> first, second = random_pairs(3, np.random.default_rng(0), symmetric=True)
    >>> bool((first < second).all())
    True
    """
    first = rng.integers(nodes, size=_SAMPLE)
    second = (first + 1 + rng.integers(nodes - 1, size=_SAMPLE)) % nodes
    if not symmetric:
        return first, second
    return np.minimum(first, second), np.maximum(first, second)


def _whole(values: Any, name: str) -> Ids:
    """Return whole numbers as an array."""
    try:
        found = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError):  # lists of different lengths
        found = np.empty(1, dtype=object)
    if found.size and found.dtype.kind not in "iu":
        raise ConfigError(f"{name} must be integers: node indices, counted from 0.")
    return found.astype(np.int64)


def _edges_by_source(graph: Graph, nodes: int) -> tuple[Ids, Ids]:
    """Return each node's out-neighbors, and where they start."""
    if not isinstance(graph, Graph) or graph.num_nodes != nodes:
        raise ConfigError(f"exclude must be a Graph with the {nodes} nodes of the fitted graph.")
    sources, targets = graph.edge_index().numpy().astype(np.int64)
    order = np.argsort(sources, kind="stable")
    return np.searchsorted(sources[order], np.arange(nodes + 1)), targets[order]
