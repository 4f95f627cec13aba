"""SimGAT: LPGNN with fewer hops, and an average over structurally similar nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil._util.clustering import Matrix
from graphveil.core.edges.adjacency import Adjacency
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.lpgnn import LPGNN, LpgnnKeywords, NetworkMethod, baseline_of
from graphveil.local.posterior_mixture import Steps
from graphveil.local.reports import FeatureKeywords
from graphveil.nn.layers import SparseRows
from graphveil.nn.message_passing import Propagation
from graphveil.papers.similarity import PublicEdges, parse_similarity

Combine = Literal["post", "union"]
Weight = Literal["one", "similarity"]
COMBINE: tuple[Combine, ...] = ("post", "union")
WEIGHT: tuple[Weight, ...] = ("one", "similarity")
_Array = npt.NDArray[Any]
_ENTRIES = 1 << 22  # of a block of rows of S A, at most, or one row


@dataclass(kw_only=True, eq=False, repr=False)
class SimGAT(LpgnnKeywords, FeatureKeywords, LocalEstimator):
    """Similarity aggregator on randomized features (Ameen, Emireddy, Stevens: SimGAT, a slide deck).

    KProp averages noise over K hops, but distant nodes have little in common with a node. SimGAT uses fewer
    hops, k' < K, and then averages over a node and its structurally similar nodes S_v:

        post (default):  H = D_S^-1 (I + S) A^^k' X',   D_S = diag(1 + |S_v|);
        union:           H = A_S^^k' X',   A_S = 1[A + S A > 0] without the diagonal.

    S is computed from the public edges alone (``graphveil.papers.similarity``), in rows of bounded length.
    With S = 0 both are bit-identical to KProp(k'). The source does not define how S is used, its threshold
    and its normalization; docs/methods/simgat.md documents the choices of this project.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        x_steps: k', the number of hops before similar nodes are averaged; ``"auto"`` as for ``LPGNN``.
        similarity: ``"multihop"``, ``"deepwalk"``, ``"node2vec"`` or ``"factorized"``, with optional
            parameters in brackets: ``"multihop(n=3, delta=0.1)"``. DeepWalk and node2vec need gensim (the
            extra ``simgat``).
        combine: ``"post"`` or ``"union"``.
        weight: For ``"post"``: ``"one"``, or ``"similarity"`` for a mean weighted by similarity, in which the
            node itself has weight one.
        max_union_degree: For ``"union"``: degree above which a node gets no further neighbors; None for no
            limit.

    Further arguments are those of ``LPGNN``.

    Raises:
        UnitError: The unit is neither ``"local-attributes"`` nor ``"none"``.
        MissingDependencyError: The similarity needs gensim, which is not installed.

    Privacy:
        As for LPGNN, unit ``local-attributes``. Edges are public under that unit, so S does not spend privacy
        budget. S never reads features or labels.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = SimGAT(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon
    3.0
    """

    method: ClassVar[str] = "simgat"

    similarity: str = "multihop"
    combine: Combine = "post"
    weight: Weight = "one"
    max_union_degree: int | None = None

    def no_graph_baseline(self) -> LPGNN:
        """Return the unfitted no-graph baseline; see ``LPGNN.no_graph_baseline``.

        Privacy:
            Reads: no data. Charges: nothing.
        """
        return baseline_of(self)

    def _build_method(self) -> NetworkMethod:
        return SimGATMethod.from_estimator(self)


@dataclass(frozen=True, kw_only=True)
class SimGATMethod(NetworkMethod):
    """A network on hops along the edges and an average over similar nodes; see ``SimGAT``."""

    similarity: str
    combine: Combine
    weight: Weight
    max_union_degree: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_similarity(self.similarity)
        checks.one_of(COMBINE, combine=self.combine)
        checks.one_of(WEIGHT, weight=self.weight)
        if self.weight != "one" and self.combine != "post":
            raise ConfigError(
                f"weight={self.weight!r} is only for combine='post', because a union has no weights. "
                "Remove it."
            )
        if self.max_union_degree is None:
            return
        checks.integer_at_least(1, max_union_degree=self.max_union_degree)
        if self.combine != "union":
            raise ConfigError(f"max_degree={self.max_union_degree} is only for combine='union'. Remove it.")

    def check(self, view: Graph) -> None:
        """Reject a similarity whose library is missing; loading a model does not need the library."""
        super().check(view)
        parse_similarity(self.similarity).check_installed()

    def maps(self, view: Graph, session: Session, steps: Sequence[Steps]) -> Sequence[Propagation]:
        """Return the map of a graph for each number of hops; similar nodes are computed once."""
        with session.stage("similarity"):
            basis = f"unit {self.privacy_config.unit.name!r} leaves edges public"
            edges = PublicEdges(view.adjacency, basis=basis)
            similar = self.similar(edges, session)
            if self.combine == "union":
                both = union(edges, similar, max_union_degree=self.max_union_degree)
                return [self.hops(both, each) for each in steps]
            mean = SparseRows.from_scipy(averaging(similar, weighted=self.weight == "similarity"))
            hops = [self.hops(view.adjacency, each) for each in steps]
            return [replace(each, parts=(*each.parts, mean)) for each in hops]

    def similar(self, edges: PublicEdges, session: Session) -> Any:
        """Return S, a sparse matrix (N, N)."""
        return parse_similarity(self.similarity)(edges, streams=session.streams)


# -- similar nodes in a propagation ----


def averaging(similar: Matrix, *, weighted: bool = False) -> Matrix:
    """Return D_S^-1 (I + S): each node gets the mean of itself and its similar nodes.

        D_S = diag(1 + |S_v|),   or 1 + sum_u s_vu if weighted by similarity; a node has similarity 1 to
        itself.

    Shapes: S (N, N), of any values, to float32 ``csr_array`` (N, N).

    >>> similar = sparse.csr_array(np.array([[0, 0.5], [0, 0]], dtype=np.float32))
    >>> averaging(similar).toarray().tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    if not weighted:
        similar = _with_ones(similar)
    total = (sparse.eye_array(similar.shape[0], format="csr") + similar).tocsr()
    total.sort_indices()
    sums = np.asarray(total.sum(axis=1))
    total.data /= np.repeat(sums, np.diff(total.indptr))
    return total.astype(np.float32)


def union(edges: PublicEdges, similar: Matrix, *, max_union_degree: int | None = None) -> Adjacency:
    """Return the graph with additional edges from the in-neighbors of each node's similar nodes.

        A_S = 1[A + S A > 0] without the diagonal.

    With ``max_union_degree`` a node keeps its own in-neighbors and gets further ones up to that number. Those
    of more similar nodes are first, then lower node numbers. With S = 0 the graph is unchanged.

    >>> path = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=4, directed=False)
    >>> similar = sparse.csr_array(([1.0], ([0], [2])), shape=(4, 4))
    >>> union(PublicEdges(path, basis="drawn here"), similar).indices[:2]
    tensor([1, 3], dtype=torch.int32)
    """
    own, similar = edges.matrix(), _with_ones(similar)
    # Slices of rows, so that no slice of S A has too many entries.
    upto = np.cumsum(similar @ np.diff(own.indptr))
    cuts = np.searchsorted(upto, np.arange(_ENTRIES, upto[-1] if len(upto) else 0, _ENTRIES))
    bounds = pairwise(np.unique(np.concatenate([[0], cuts, [len(upto)]])))
    slices = [slice(int(start), int(stop)) for start, stop in bounds]
    parts = [_joined(own, similar, part, max_union_degree) for part in slices]
    rows = sparse.vstack(parts, format="csr") if parts else own
    return Adjacency(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32)),
        directed=True,  # S is not symmetric
        edge_set=edges.adjacency.edge_set,
    )


def _joined(own: Matrix, similar: Matrix, part: slice, max_union_degree: int | None) -> Matrix:
    more = (similar[part] @ own).tocoo()
    first = own[part].tocoo()
    size = own.shape[0]
    known = first.coords[0] * size + first.coords[1]
    pairs = more.coords[0].astype(np.int64) * size + more.coords[1]
    new = ~np.isin(pairs, known) & (more.coords[0] + part.start != more.coords[1])
    added, support = pairs[new], more.data[new]
    if max_union_degree is not None:
        room = np.maximum(0, max_union_degree - np.diff(own.indptr)[part])
        added = _first(added, support, room, size)
    rows, columns = np.divmod(np.sort(np.concatenate([known, added])), size)
    shape = (part.stop - part.start, size)
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _first(pairs: _Array, support: _Array, room: _Array, size: int) -> _Array:
    """Return the pairs with the most support in each row, up to its number of free places."""
    order = np.lexsort((pairs, -support, pairs // size))
    rows = pairs[order] // size
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    first: _Array = pairs[order[place < room[rows]]]
    return first


def _with_ones(similar: Matrix) -> Matrix:
    ones = np.ones(len(similar.data))
    return sparse.csr_array((ones, similar.indices, similar.indptr), shape=similar.shape)
