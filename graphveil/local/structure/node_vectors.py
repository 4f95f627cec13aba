"""Random walks, node vectors from walks or from their matrix, and nearest vectors."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import svds

from graphveil._util.louvain import Matrix
from graphveil.errors import MissingDependencyError
from graphveil.local.structure.public_edges import PublicEdges

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
        """Return a uniformly drawn in-neighbor of each node."""
        return self._sources[self._starts[current] + rng.integers(self.degrees[current])]

    def joined(self, target: Nodes, source: Nodes) -> npt.NDArray[np.bool_]:
        """Return whether there is an edge from each source to its target."""
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

    Args:
        paths: Walks, int32 (walks, length), padded with -1.
        num_nodes: N.
        dim: Length of the vectors.
        window: Maximum distance of two nearby nodes on a walk.
        epochs: Passes over the walks.
        negative: Negative samples per pair, or 0 for hierarchical softmax.
        seed: A public number.

    Raises:
        MissingDependencyError: gensim is not installed.
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
        """Yield each walk up to its dead end."""
        for path in self.paths:
            yield path[path != ENDED].tolist()


def check_gensim() -> None:
    """Require gensim, without importing it, which takes seconds.

    Raises:
        MissingDependencyError: It is not installed.
    """
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

    Args:
        vectors: float32 (N, d).
        top: Maximum number per row, or None for all.
        above: Threshold of the cosine.

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
