"""The method of the link predictor: its query plan, its fit, and the scores that follow from the answers."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import Query, ReleasePlan, calibrate_plan
from graphveil.core.queries.edge_counts import (
    MAX_EPSILON,
    MIN_EPSILON,
    NeighborCountData,
    NeighborCountQuery,
)
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.pair_sums import (
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
from graphveil.core.unit import UndirectedEdge
from graphveil.data import Graph
from graphveil.errors import GraphError, NotImplementedGuaranteeError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.method import FitResult, FittedGraphModel, Method, State
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import check_unit
from graphveil.estimators.session import Session
from graphveil.links.pair_model import (
    CLIP,
    QUANTILES,
    TERMS,
    clusters,
    discriminant,
    expected_degrees,
    interaction,
    noisy_metrics,
    pair_terms,
    positions,
    score_curves,
)

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


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
LARGE, LARGE_DIM = 500_000, 64  # nodes, and columns above
DIM = 128
_CHUNK = 1 << 23  # scores at once
_MARGIN = 16  # places beyond the best that are compared by exact scores
_PROJECTED = 8  # nodes per column, above which fewer columns take less time
_NEGLIGIBLE, _ROWS = 1e-6, 1 << 14  # share of the largest eigenvalue, and rows at once


@dataclass(frozen=True, eq=False)
class PairScores(FittedGraphModel):
    """The scores of all pairs, which follow from released sums."""

    terms: PairTerms
    weights: Floats
    offset: float
    products: Floats
    symmetric: bool

    @property
    def nodes(self) -> int:
        return len(self.terms.left[0])

    def other_graph_error(self) -> NotImplementedGuaranteeError:
        return NotImplementedGuaranteeError(
            "Scores are for pairs of nodes of the fitted graph. Fit the other graph, which is a new release."
        )

    def state(self) -> State:
        terms = self.terms
        tables = {f"left{k}": table for k, table in enumerate(terms.left)}
        tables |= {f"right{k}": table.clone() for k, table in enumerate(terms.right)}
        return tables | {
            "products": torch.from_numpy(self.products),
            "center": terms.center,
            "scale": terms.scale,
            "weights": torch.from_numpy(self.weights),
        }

    def of(self, sources: Ids, targets: Ids) -> Floats:
        return weighted(self.terms(sources, targets), self.weights) + self.offset

    def best(self, nodes: Ids, k: int, known: tuple[Ids, Ids] | None) -> tuple[Ids, Floats]:
        """Return the k nodes with the highest scores for each node, and the scores, (M, k) each."""
        ids, scores = np.full((len(nodes), k), -1), np.full((len(nodes), k), -np.inf)
        left, right, error = _score_tables(self, nodes)
        step = max(1, _CHUNK // self.nodes)
        for first in range(0, len(nodes), step):
            some, part = nodes[first : first + step], slice(first, first + step)
            # Rounded scores select candidates, and exact ones rank them: no rounding affects the result.
            rounded = left[part] @ right.T
            rounded[torch.arange(len(some)), torch.from_numpy(some)] = -torch.inf
            if known is not None:
                starts, ends = known
                for row, node in enumerate(some):
                    rounded[row, torch.from_numpy(ends[starts[node] : starts[node + 1]])] = -torch.inf
            rows, places = _candidates(rounded, k, error[part])
            exact = self.of(some[rows], places)
            order = np.lexsort((places, -exact, rows))
            rows, places, exact = rows[order], places[order], exact[order]
            rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
            best = rank < k
            ids[first + rows[best], rank[best]] = places[best]
            scores[first + rows[best], rank[best]] = exact[best]
        return ids, scores


@dataclass(frozen=True, kw_only=True)
class LinkMethod(Method):
    """A link predictor with all constructor keywords resolved."""

    held_out: float = 0.1
    dim: int | None = None

    @property
    def symmetric(self) -> bool:
        return isinstance(self.privacy_config.unit, UndirectedEdge)

    def width(self, nodes: int) -> int:
        return self.dim or (DIM if nodes <= LARGE else LARGE_DIM)

    def check_task(self, graph: Graph) -> None:
        """Do nothing: labels of any type are features at most."""

    def check(self, view: Graph) -> None:
        if view.num_nodes < 2:
            raise GraphError(
                "The graph has only one node, but a link needs two. Pass a graph with at least two nodes."
            )
        check_unit(self.privacy_config, view, reads_edges=True)

    def sizes_of(self, view: Graph) -> PublicSizes:
        width = vector_width(view, self.width(view.num_nodes))
        return PublicSizes(nodes=view.num_nodes, classes=0, features=width)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the calibrated query plan; the seed chooses the pairs that are held out."""
        key = PublicStreams(self.privacy_config.seed).derive("held-out pairs")
        return self.plan_for(sizes, HeldOutPairs(float(self.held_out), key))

    def plan_for(self, sizes: PublicSizes, held_out: HeldOutPairs) -> ReleasePlan:
        epsilon, symmetric = self.privacy_config.budget, self.symmetric
        shares = count_shares(epsilon)

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
                EdgeProductQuery(
                    sizes.width, sigma=products, symmetric=symmetric, held_out=held_out, grid_bits=bits
                ),
                *clusters,
                PairSumQuery(terms, sigma=sigma(SUM_SHARE), symmetric=symmetric, held_out=held_out),
            ]
            if held_out.share:  # a held-out edge is in no other sum
                cells = len(QUANTILES) + 1
                found.append(
                    PairHistogramQuery(terms, cells, sigma=sigma(1.0), symmetric=symmetric, held_out=held_out)
                )
            return tuple(found)

        config = self.privacy_config
        delta = config.delta_for(sizes.nodes)
        return calibrate_plan(config.unit, epsilon, delta, queries, num_nodes=sizes.nodes)

    def fit(self, view: Graph, session: Session) -> FitResult:
        plan, nodes, symmetric = session.planned, view.num_nodes, self.symmetric
        with session.stage("features"):
            vectors = node_vectors(view, self.width(nodes), session.streams.numpy("features"))
        release = session.open(view)
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
            stages = count_shares(self.privacy_config.budget).clusters
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
            query = session.query(2 + len(directions), PairSumQuery)
            factor = query.unit_steps / query.each
            sums = release.answer(PairSumData(terms)).numpy() * factor
            weights, offset = discriminant(sums, clipped(features), query.sigma[0] * factor)
        metrics, curves = None, None
        if self.held_out:
            scores = weighted(features, weights)
            bounds = np.quantile(scores, QUANTILES)
            data = PairHistogramData(terms, torch.from_numpy(weights), torch.from_numpy(bounds))
            with session.stage("metrics"):
                histogram = release.answer(data).numpy()
            cells = np.searchsorted(bounds, scores, side="right")
            shares = np.bincount(cells, minlength=len(histogram)) / len(scores)
            rng = session.streams.numpy("metrics")
            metrics = noisy_metrics(histogram, shares, plan.queries[-1].noise[0], rng)
            curves = score_curves(histogram, shares)
        release.close()
        trained = PairScores(terms, weights, offset, products, symmetric)
        return FitResult(trained=trained, proba=None, learned={"metrics": metrics, "curves": curves})

    def restore(self, state: State, sizes: PublicSizes, released: State) -> PairScores:
        count = TERMS + len(count_shares(self.privacy_config.budget).clusters)
        left, right = ([state[f"{side}{k}"] for k in range(count)] for side in ("left", "right"))
        terms = PairTerms(tuple(left), tuple(right), state["center"], state["scale"])
        terms.check(sizes.nodes, count)
        return PairScores(
            terms,
            state["weights"].numpy().astype(np.float64).reshape(count),
            float(state["offset"]),
            state["products"].numpy().reshape((sizes.width,) * 2),
            self.symmetric,
        )


def count_shares(epsilon: float) -> CountShares:
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
        vectors, matrix: Public vectors and the released interaction.
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
        mean_positions, directions = positions(noisy, ends * degrees, noise, (vectors, *found[-1:]))
        found.append(directions)
        points = torch.nn.functional.normalize(mean_positions)
    return degrees, found


def _score_tables(scores: PairScores, nodes: Ids) -> tuple[Tensor, Tensor, Tensor]:
    """Return two float32 tables, of some nodes and of all, whose dot products rank the pairs of a node.

    Also return a bound on the error of the difference of two products in the row of each of the nodes.
    """
    terms, rows = scores.terms, torch.from_numpy(nodes)
    factors = scores.weights * terms.scale.numpy()
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


# -- public vectors of nodes from their features -------------------------------------------------------------

_BAG = 0.5  # share of nonzero features up to which features are counts or sets, which are weighted by rarity
_ROUNDS = 4  # of the subspace iteration
_EXTRA = 16  # columns of the iteration beyond those that are kept
_VECTORS = 1 << 16  # rows of features per chunk


def node_vectors(view: Graph, dim: int, rng: np.random.Generator) -> Tensor:
    """Return L2-normalized vectors of at most ``dim`` columns, float32 (N, d).

    Features that are sets, counts or TF-IDF weights (at most half of them nonzero, none negative) are
    multiplied by inverse document frequencies. Other columns are standardized. A truncated singular value
    decomposition reduces the columns. A graph without features uses one-hot labels.

    Privacy:
        Reads features and labels only, which are public under edge-level units.

    >>> from graphveil.data import synthetic
    >>> vectors = node_vectors(synthetic("tiny"), 4, np.random.default_rng(0))
    >>> vectors.shape[1], bool((vectors.norm(dim=1) <= 1).all())
    (4, True)
    """
    x = _columns(view)
    factors = _right_vectors(x, min(dim, x.shape[0]), rng) if x.shape[1] > dim else ()
    out = torch.empty((x.shape[0], factors[-1].shape[1] if factors else x.shape[1]), dtype=torch.float32)
    for first in range(0, x.shape[0], _VECTORS):
        some = x[first : first + _VECTORS]
        for factor in factors:
            some = np.asarray(some @ factor)
        some = _dense(some)
        length = np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12)
        out[first : first + _VECTORS] = torch.from_numpy(some / (length * (1 + 1e-6)))
    return out


def vector_width(view: Graph, dim: int) -> int:
    x = _features(view)
    columns = int((_one_hot(view) if x is None else x).shape[1])
    return columns if columns <= dim else min(dim, view.num_nodes)


def _features(view: Graph) -> Any:
    x = FeatureScaling.from_public_features(view.x).apply(view.x)
    return None if isinstance(x, Tensor) and bool((x == x[:1]).all()) else x


def _one_hot(view: Graph) -> Floats:
    known = view.y.numpy()
    if not (known >= 0).any():
        raise GraphError(
            "All nodes have the same features and no labels, so their pairs cannot be told apart. "
            "Pass features (--features) or public labels (--label): Graph.from_edges(x=..., y=...). "
            "No privacy budget was spent."
        )
    rows: Floats = np.eye(view.num_classes)[known] * (known >= 0)[:, None]
    return rows


def _columns(view: Graph) -> Any:
    x = _features(view)
    if x is None:
        return _one_hot(view)
    values: Any = x.numpy() if isinstance(x, Tensor) else x
    stored: npt.NDArray[np.float32] = values if isinstance(x, Tensor) else values.data
    if np.count_nonzero(stored) > _BAG * view.num_nodes * view.num_features or (stored < 0).any():
        dense: npt.NDArray[np.float32] = values.copy() if isinstance(x, Tensor) else values.toarray()
        mean, total = dense.mean(axis=0, dtype=np.float64), np.zeros(dense.shape[1])
        for first in range(0, len(dense), _VECTORS):
            total += np.square(dense[first : first + _VECTORS] - mean).sum(axis=0)
        spread = np.sqrt(total / len(dense))
        dense -= mean.astype(np.float32)
        dense /= np.where(spread > 0, spread, 1.0).astype(np.float32)
        return dense
    counted: Any = sparse.csr_array(values)
    counted.eliminate_zeros()
    known_in = np.bincount(counted.indices, minlength=counted.shape[1])
    rarity = np.log((1 + counted.shape[0]) / (1 + known_in)) + 1
    data = counted.data * rarity[counted.indices]
    rows = np.repeat(np.arange(counted.shape[0]), np.diff(counted.indptr))
    data /= np.maximum(np.sqrt(np.bincount(rows, data**2, counted.shape[0])), 1e-12)[rows]
    return sparse.csr_array((data, counted.indices, counted.indptr), shape=counted.shape)


def _right_vectors(x: Any, dim: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return two factors whose product has the leading right singular vectors, by subspace iteration."""
    width = min(dim + _EXTRA, *x.shape)
    chunks = [slice(first, first + _VECTORS) for first in range(0, x.shape[0], _VECTORS)]
    basis = np.linalg.qr(rng.normal(size=(x.shape[1], width)))[0]
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(sum(np.asarray(x[some].T @ (x[some] @ basis)) for some in chunks))[0]
    images = (np.asarray(x[some] @ basis) for some in chunks)
    square: Floats = sum((image.T @ image for image in images), np.zeros((width, width)))
    return basis, np.linalg.eigh(square)[1][:, ::-1][:, :dim]


def _dense(x: Any) -> Floats:
    return np.asarray(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float64)
