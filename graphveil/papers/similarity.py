"""Structural similarity: for each node of a public graph, the nodes that are similar to it.

Nodes are similar if many short walks connect them (multi-hop transitions, as in GraRep), or if they appear
near each other on walks (DeepWalk, node2vec, and the matrix that they factorize).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import svds

from graphveil._util import checks
from graphveil._util.checks import parse_arguments, parse_name, suggestion
from graphveil._util.clustering import Matrix
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import LocalAttributes
from graphveil.errors import ConfigError, MissingDependencyError, UnitError
from graphveil.privacy import Guarantee

Vectors = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int32]
Draws = np.random.Generator
_ROWS = 256
ENDED = -1
_SEEDS = 2**32  # gensim's seeds are 32-bit numbers
_NO_GENSIM = (
    "Walks are embedded by gensim, which is not installed. Run pip install 'graphveil[simgat]', or use "
    "similarity='multihop' or 'factorized'."
)


# -- public edges ----


@dataclass(frozen=True)
class PublicEdges:
    """Edges together with the reason why they are public.

    Similarities read all edges without noise and without spending privacy budget. Therefore the functions of
    this package do not accept an ``Adjacency``, which may be private. Edges are public if the privacy unit
    does not protect them, or if a private mechanism released them (``released``).

    Args:
        basis: Why they are public, for guarantees and reports.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicEdges(path, basis="unit 'local-attributes' leaves edges public")
    PublicEdges(nodes=3, basis="unit 'local-attributes' leaves edges public")
    """

    adjacency: Adjacency
    basis: str

    def __post_init__(self) -> None:
        if not isinstance(self.adjacency, Adjacency):
            raise UnitError("Public edges must be made from an Adjacency, for example graph.adjacency.")
        if not self.basis.strip():
            raise UnitError(
                'basis= is missing. State why the edges are public, for example basis="unit '
                "'local-attributes' leaves them public\"."
            )

    @classmethod
    def released(cls, adjacency: Adjacency, guarantee: Guarantee) -> Self:
        """Return the edges of a released graph, as post-processing of a release with a valid guarantee."""
        if not guarantee.valid:
            raise UnitError(
                "The graph was released without a valid guarantee, so results computed from it have "
                "none. Release it in strict mode and without a fixed noise seed."
            )
        if guarantee.unit == LocalAttributes.name:
            raise UnitError(
                f"A guarantee of unit {guarantee.unit!r} does not cover edges. Pass the guarantee of the "
                "released graph, or PublicEdges(adjacency, basis=...) if its edges are public."
            )
        return cls(adjacency, basis=f"released under unit {guarantee.unit!r}")

    @property
    def num_nodes(self) -> int:
        return self.adjacency.num_nodes

    def matrix(self) -> Matrix:
        """Return A as a float64 ``csr_array``: A[v, u] = 1 for every edge u -> v."""
        indptr, indices = self.adjacency.indptr.numpy(), self.adjacency.indices.numpy()
        shape = (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)

    def __repr__(self) -> str:
        return f"PublicEdges(nodes={self.num_nodes}, basis={self.basis!r})"


def require_public_edges(edges: object) -> PublicEdges:
    if isinstance(edges, PublicEdges):
        return edges
    raise UnitError(
        "similarity reads every edge without noise, so it needs PublicEdges, not "
        f"{type(edges).__name__}. Release private edges first and pass PublicEdges.released, or "
        "wrap edges that no unit protects as PublicEdges(adjacency, basis=...)."
    )


# -- random walks ----


@dataclass(frozen=True, kw_only=True)
class RandomWalk:
    """Transition law of node2vec walks (Grover, Leskovec, KDD 2016); p = q = 1 is that of DeepWalk.

    A walker at w that came from r moves along an edge x -> w, against its direction, with a probability
    proportional to

        1/p   if x = r,        1   if there is an edge x -> r,        1/q   otherwise.

    The first step is uniform. Candidates are drawn uniformly for all walkers at once, and accepted with
    probability weight / max(1/p, 1, 1/q). This is exact and needs no table per edge.

    >>> from graphveil.data import Adjacency
    >>> pair = PublicEdges(Adjacency.from_edges([0], [1], num_nodes=2, directed=False), basis="drawn current")
    >>> RandomWalk(length=4).paths(pair, np.array([0, 1], dtype=np.int32),
    ...     rng=np.random.default_rng(0)).tolist()
    [[0, 1, 0, 1], [1, 0, 1, 0]]
    """

    length: int
    p: float = 1.0
    q: float = 1.0

    def paths(self, edges: PublicEdges, starts: Nodes, *, rng: Draws) -> Nodes:
        """Return a walk from each start, int32 (starts, length), padded with -1 after a dead end."""
        steps = _Steps(edges)
        paths = np.full((len(starts), self.length), ENDED, dtype=np.int32)
        paths[:, 0] = starts
        for place in range(1, self.length):
            current = paths[:, place - 1]
            going = np.flatnonzero((current != ENDED) & (steps.degrees[current] > 0))
            previous = paths[going, place - 2] if place > 1 else None
            paths[going, place] = self._next(steps, current[going], previous, rng)
        return paths

    def _next(self, steps: "_Steps", current: Nodes, previous: Nodes | None, rng: Draws) -> Nodes:
        if previous is None or self.p == self.q == 1:
            return steps.uniform(current, rng)
        most = max(1 / self.p, 1.0, 1 / self.q)
        chosen, waiting = np.empty_like(current), np.arange(len(current))
        while len(waiting):  # walkers whose candidate was rejected draw another one
            candidate = steps.uniform(current[waiting], rng)
            weight = np.where(steps.joined(previous[waiting], candidate), 1.0, 1 / self.q)
            weight[candidate == previous[waiting]] = 1 / self.p
            kept = rng.random(len(waiting)) * most < weight
            chosen[waiting[kept]] = candidate[kept]
            waiting = waiting[~kept]
        return chosen


class _Steps:
    """Lookup of in-edges for random walks."""

    def __init__(self, edges: PublicEdges) -> None:
        self._starts = edges.adjacency.indptr.numpy()
        self._sources = edges.adjacency.indices.numpy()
        self._nodes = edges.num_nodes
        self.degrees = np.diff(self._starts)
        targets = np.repeat(np.arange(self._nodes, dtype=np.int64), self.degrees)
        self._pairs = targets * self._nodes + self._sources  # ascending

    def uniform(self, current: Nodes, rng: Draws) -> Nodes:
        return self._sources[self._starts[current] + rng.integers(self.degrees[current])]

    def joined(self, target: Nodes, source: Nodes) -> npt.NDArray[np.bool_]:
        pairs = target.astype(np.int64) * self._nodes + source
        place = np.searchsorted(self._pairs, pairs)
        found: npt.NDArray[np.bool_] = self._pairs[np.minimum(place, len(self._pairs) - 1)] == pairs
        return found


# -- vectors from walks, or from their matrix ----


def skip_gram(
    paths: Nodes, *, num_nodes: int, dim: int, window: int, epochs: int, negative: int, seed: int
) -> Vectors:
    """Return a vector per node that predicts nearby nodes on walks (Perozzi et al., KDD 2014).

    Uses one worker, so that results are bit-identical for a given seed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise MissingDependencyError(_NO_GENSIM) from None
    model = Word2Vec(
        Sentences(paths),
        sg=1,
        hs=int(negative == 0),
        negative=negative,
        vector_size=dim,
        window=window,
        min_count=1,
        sample=0,
        epochs=epochs,
        workers=1,
        seed=seed % _SEEDS,
        hashfxn=int,  # not hash(), which may differ between processes
    )
    vectors = np.zeros((num_nodes, dim), dtype=np.float32)
    vectors[np.array(model.wv.index_to_key)] = model.wv.vectors
    return vectors


@dataclass(frozen=True)
class Sentences:
    """Walks as a re-iterable of lists of node numbers, for gensim."""

    paths: Nodes

    def __iter__(self) -> Iterator[list[int]]:
        for path in self.paths:
            yield path[path != ENDED].tolist()


def check_gensim() -> None:
    """Require gensim, without importing it, which takes seconds."""
    if find_spec("gensim") is None:
        raise MissingDependencyError(_NO_GENSIM)


def factorized(
    matrix: Matrix, *, dim: int, window: int, negative: int, first: npt.NDArray[np.float64]
) -> Vectors:
    """Return U sqrt(Sigma) of ``logarithms``, float32 (N, dim); ``first`` is the start vector of the SVD."""
    left, sizes, _ = svds(logarithms(matrix, window=window, negative=negative), k=dim, v0=first)
    vectors: Vectors = (left * np.sqrt(np.maximum(sizes, 0))).astype(np.float32)
    return vectors


def logarithms(matrix: Matrix, *, window: int, negative: int) -> Matrix:
    """Return max(0, log(vol/(b T) sum_{r<=T} (D^-1 A)^r D^-1)) as a sparse matrix, in blocks of rows.

    >>> pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> logarithms(pair, window=1, negative=1).toarray().round(4).tolist()
    [[0.0, 0.6931], [0.6931, 0.0]]
    """
    degrees = np.diff(matrix.indptr)
    inverse = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
    step = sparse.diags_array(inverse) @ matrix
    backwards = step.T.tocsr()
    scale = degrees.sum() / (negative * window)
    blocks = []
    for start in range(0, len(degrees), _ROWS):
        power = total = step[start : start + _ROWS].toarray()
        for _ in range(window - 1):
            power = (backwards @ power.T).T
            total = total + power
        blocks.append(sparse.csr_array(np.log(np.maximum(1.0, scale * total * inverse))))
    return sparse.vstack(blocks, format="csr")


# -- nearest vectors ----


def nearest(vectors: Vectors, *, top: int | None, above: float) -> Matrix:
    """Return for each row the other rows with cosine above a threshold, at most the nearest ``top``.

    A row of zeros has no similar rows. Cosines are computed for one block of rows at a time.

    >>> vectors = np.array([[1, 0], [2, 0], [1, 1], [0, 0]], dtype=np.float32)
    >>> nearest(vectors, top=1, above=0.0).toarray().round(2)
    array([[0.  , 1.  , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 0.  ],
           [0.71, 0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    blocks = []
    for start in range(0, len(unit), _ROWS):
        cosines = unit[start : start + _ROWS] @ unit.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -1
        if top is not None and top < cosines.shape[1]:
            beyond = np.argpartition(cosines, -top, axis=1)[:, :-top]
            np.put_along_axis(cosines, beyond, np.float32(-1), axis=1)
        cosines[cosines <= max(above, 0.0)] = 0
        blocks.append(sparse.csr_array(cosines))
    return sparse.vstack(blocks, format="csr")


_ENTRIES = 1 << 21  # of a block of rows of T, at most, or one row


class StructuralSimilarity(Protocol):
    """A structural similarity: frozen public parameters, called with public edges.

    The result is the matrix S of SimGAT. It is sparse, and its row v contains the nodes similar to v. No
    dense N x N matrix is ever created.

    Privacy:
        Reads: only ``PublicEdges``, and neither features nor labels. Charges: nothing.
    """

    def __call__(self, edges: PublicEdges, *, streams: PublicStreams) -> Matrix:
        """Return S, float32 (N, N): similarities above 0, ascending columns, no diagonal."""

    def check_installed(self) -> None:
        """Reject a similarity whose optional package is missing, without importing it."""


@dataclass(frozen=True, kw_only=True)
class MultiHop:
    """Share of short walks that end at a node (SimGAT's slides after Cao, Lu, Xu: GraRep, CIKM 2015).

        T = sum_{m=1..n} A^m,   P_ij = T_ij / sum_c T_ic,   S_ij = P_ij if P_ij > delta and i != j, else 0.

    With ``transition`` each step is weighted by its probability, T = sum_m (D^-1 A)^m, as in GraRep. Then
    neither hubs nor the highest power dominate. Walks go from a node to its in-neighbors.

    Since rows of P sum to one, |S_v| < 1/delta for every node, which also bounds memory. S is not symmetric.
    T is computed in blocks of rows, as sparse powers.

    Args:
        n: Maximum number of steps of a walk.
        delta: Share of walks above which an end is similar.
        transition: Whether walks are weighted by their probability.
        drop_self: Whether walks that return (T_ii) are excluded before rows are normalized.

    >>> from graphveil.data import Adjacency
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> third = np.float32(1 / 3)
    >>> similar = MultiHop(n=2, delta=0.3)(PublicEdges(path, basis="drawn here"), streams=PublicStreams(0))
    >>> similar.toarray().tolist() == [[0, third, third], [0, 0, 0], [third, third, 0]]
    True
    """

    n: int = 2
    delta: float = 0.02
    transition: bool = False
    drop_self: bool = False

    def __post_init__(self) -> None:
        checks.integer_at_least(1, n=self.n)
        checks.positive(delta=self.delta)
        checks.within(0, 1, delta=self.delta)

    def __call__(self, edges: PublicEdges, *, streams: PublicStreams) -> Matrix:
        """Return S; ``streams`` is not used, because no walk is drawn."""
        matrix = require_public_edges(edges).matrix()
        step = matrix
        if self.transition:  # D^-1 A, with empty rows where A has them
            degrees = np.diff(matrix.indptr)
            weights = matrix.data / np.repeat(degrees, degrees)
            step = sparse.csr_array((weights, matrix.indices, matrix.indptr), shape=matrix.shape)
        blocks = [self._rows(step, part) for part in _row_blocks(matrix, self.n)]
        return _as_similarity(sparse.vstack(blocks, format="csr") if blocks else step)

    def check_installed(self) -> None:
        """Accept every machine: no optional package is needed."""

    def _rows(self, step: Matrix, part: slice) -> Matrix:
        power = total = step[part]
        for _ in range(self.n - 1):
            power = power @ step
            total = total + power
        rows = np.repeat(np.arange(part.start, part.stop), np.diff(total.indptr))
        own = total.indices == rows
        if self.drop_self:
            total.data[own] = 0
        sums = np.asarray(total.sum(axis=1))
        if not np.isfinite(sums).all():
            raise ConfigError(
                f"n={self.n} steps give walk counts that are too large for floating-point numbers. Pass "
                "transition=True."
            )
        share = total.data / sums[rows - part.start]
        share[own | ~(share > self.delta)] = 0
        found = sparse.csr_array((share, total.indices, total.indptr), shape=total.shape)
        found.eliminate_zeros()
        return found


def _row_blocks(matrix: Matrix, hops: int) -> Iterator[slice]:
    """Yield slices of rows whose T has a bounded number of entries, at most one per walk or per node."""
    walks = np.ones(matrix.shape[0])
    entries = np.zeros(matrix.shape[0])
    for _ in range(hops):
        walks = np.minimum(matrix @ walks, matrix.shape[0])
        entries += walks
    upto = np.cumsum(np.minimum(entries, matrix.shape[0]))
    start = 0
    while start < len(upto):
        before = upto[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(upto, before + _ENTRIES, side="right")))
        yield slice(start, stop)
        start = stop


def _as_similarity(found: Matrix) -> Matrix:
    found = found.astype(np.float32)
    found.sort_indices()
    return found


@dataclass(frozen=True, kw_only=True)
class Embedding(ABC):
    """Base of vector similarities: S_v is the ``top`` nodes of the largest cosine above ``above``.

    A node without in-edges has no similar nodes.

    Args:
        dim: Length of a node's vector.
        window: Maximum distance of two nearby nodes on a walk.
        top: Maximum number of similar nodes per node; None for all above ``above``, which must then be
            positive.
        above: Threshold of the cosine, at least 0.
    """

    dim: int = 128
    window: int = 10
    top: int | None = 10
    above: float = 0.0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, dim=self.dim, window=self.window)
        checks.within(0, 1, above=self.above)
        if self.top is not None:
            checks.integer_at_least(1, top=self.top)
        elif self.above == 0:
            raise ConfigError(
                "top=None would make half of all nodes similar. Set a positive above, for example above=0.9."
            )

    def __call__(self, edges: PublicEdges, *, streams: PublicStreams) -> Matrix:
        vectors = self.vectors(require_public_edges(edges), streams=streams)
        return _as_similarity(nearest(vectors, top=self.top, above=self.above))

    def check_installed(self) -> None:  # noqa: B027  # a factorization needs no optional package
        """Reject a similarity whose optional package is missing."""

    def vectors(self, edges: PublicEdges, *, streams: PublicStreams) -> Vectors:
        """Return every node's vector, float32 (N, dim); zeros for nodes without in-edges."""
        vectors = self._vectors(edges, streams)
        vectors[(edges.adjacency.indptr.diff() == 0).numpy()] = 0
        return vectors

    @abstractmethod
    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        """Return vectors; those of nodes without in-edges are not used."""


@dataclass(frozen=True, kw_only=True)
class WalkSettings:
    """Random walks from every node, and skip-gram on them; mixed into an ``Embedding``.

    Args:
        walks: Number of walks from each node.
        length: Number of nodes of a walk.
        epochs: Passes of skip-gram over all walks.
        negative: Negative samples per pair, or 0 for hierarchical softmax.
    """

    walks: int = 10
    length: int = 80
    epochs: int = 1
    negative: int = 5

    def _check_walks(self) -> None:
        checks.integer_at_least(1, walks=self.walks, epochs=self.epochs)
        checks.integer_at_least(2, length=self.length)
        checks.integer_at_least(0, negative=self.negative)

    def check_installed(self) -> None:
        """Require gensim before walks are drawn."""
        check_gensim()

    def paths(self, walk: RandomWalk, edges: PublicEdges, streams: PublicStreams) -> Nodes:
        """Return walks from all nodes, each round in a new random order, int32 (walks * N, length)."""
        rng = streams.numpy("walks")
        rounds = (rng.permutation(edges.num_nodes).astype(np.int32) for _ in range(self.walks))
        return np.concatenate([walk.paths(edges, starts, rng=rng) for starts in rounds])

    def walk_vectors(
        self, walk: RandomWalk, edges: PublicEdges, streams: PublicStreams, *, dim: int, window: int
    ) -> Vectors:
        return skip_gram(
            self.paths(walk, edges, streams),
            num_nodes=edges.num_nodes,
            dim=dim,
            window=window,
            epochs=self.epochs,
            negative=self.negative,
            seed=streams.derive("skip-gram"),
        )


@dataclass(frozen=True, kw_only=True)
class DeepWalk(WalkSettings, Embedding):
    """Skip-gram on uniform random walks (Perozzi, Al-Rfou, Skiena: DeepWalk, KDD 2014).

    The paper has ``negative=0``.

    Args:
        dim, window, top, above: See ``Embedding``.
        walks, length, epochs, negative: See ``WalkSettings``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_walks()

    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        walk = RandomWalk(length=self.length)
        return self.walk_vectors(walk, edges, streams, dim=self.dim, window=self.window)


@dataclass(frozen=True, kw_only=True)
class Node2Vec(WalkSettings, Embedding):
    """Skip-gram on second-order random walks (Grover, Leskovec: node2vec, KDD 2016).

    Args:
        dim, window, top, above: See ``Embedding``.
        walks, length, epochs, negative: See ``WalkSettings``.
        p: Return parameter: larger values make it less likely that a walk returns at once.
        q: In-out parameter: above 1 walks stay near their previous node; below 1 they move away.
    """

    p: float = 1.0
    q: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_walks()
        checks.positive(p=self.p, q=self.q)

    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        walk = RandomWalk(length=self.length, p=self.p, q=self.q)
        return self.walk_vectors(walk, edges, streams, dim=self.dim, window=self.window)


@dataclass(frozen=True, kw_only=True)
class Factorized(Embedding):
    """Limit of DeepWalk with many walks, by a sparse SVD (Qiu et al.: NetMF, WSDM 2018), without gensim.

        U sqrt(Sigma) of   max(0, log(vol/(b T) sum_{r<=T} (D^-1 A)^r D^-1)),

    T is ``window``, b is ``negative``, vol the number of in-edges, D the in-degrees.

    Args:
        dim, window, top, above: See ``Embedding``; ``dim`` is below the number of nodes.
        negative: b, at least 1. Larger values make the matrix sparser.
    """

    window: int = 5
    negative: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(1, negative=self.negative)

    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        if self.dim >= edges.num_nodes:
            raise ConfigError(f"dim={self.dim} must be smaller than the number of nodes, {edges.num_nodes}.")
        first = streams.numpy("factorise").normal(size=edges.num_nodes)
        return factorized(
            edges.matrix(), dim=self.dim, window=self.window, negative=self.negative, first=first
        )


SIMILARITIES: dict[str, type[MultiHop | Embedding]] = {
    "multihop": MultiHop,
    "deepwalk": DeepWalk,
    "node2vec": Node2Vec,
    "factorized": Factorized,
}


def parse_similarity(text: str) -> StructuralSimilarity:
    """Parse the name of a similarity, with optional parameters in brackets.

    >>> parse_similarity("multihop(n=3, transition=True)")
    MultiHop(n=3, delta=0.02, transition=True, drop_self=False)
    >>> parse_similarity("node2vec").q
    0.5
    """
    name = parse_name(text)
    if name not in SIMILARITIES:
        raise ConfigError(
            f"similarity={text!r} is not supported{suggestion(name, SIMILARITIES)}. Use one of "
            f"{', '.join(SIMILARITIES)}, "
            "with parameters if needed: multihop(n=3, delta=0.1)."
        )
    try:
        given: dict[str, Any] = parse_arguments(text)
        return SIMILARITIES[name](**given)
    except (TypeError, ValueError, SyntaxError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"similarity={text!r} has parameters that {name} does not support. Write name=value "
            "pairs, for example multihop(n=3, delta=0.1)."
        ) from None
