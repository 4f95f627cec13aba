"""Nodes that walks pass together are alike: DeepWalk, node2vec, and the matrix that they factorize."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.local.structure.base import StructuralSimilarity
from graphveil.local.structure.edges import Matrix, PublicEdges
from graphveil.local.structure.factorize import factorized
from graphveil.local.structure.nearest import Vectors, nearest
from graphveil.local.structure.skipgram import check_gensim, skip_gram
from graphveil.local.structure.walks import Nodes, RandomWalk


@dataclass(frozen=True, kw_only=True)
class Embedding(StructuralSimilarity):
    """Base of similarities by vectors: S_v is the ``top`` nodes of the largest cosine above ``above``.

    A node without edges is similar to none.

    Args:
        dim: the length of a node's vector.
        window: how many steps apart two nodes of a walk are near, at most.
        top: how many similar nodes a node has at most; None for all above ``above``, which must then be
            positive.
        above: the cosine that similar nodes have to pass, at least 0.
    """

    dim: int = 128
    window: int = 10
    top: int | None = 10
    above: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(1, dim=self.dim, window=self.window)
        checks.within(0, 1, above=self.above)
        if self.top is not None:
            checks.integer_at_least(1, top=self.top)
        elif self.above == 0:
            raise ConfigError("top=None makes half of all nodes similar unless above is positive: above=0.9")

    def _similar(self, edges: PublicEdges, streams: PublicStreams) -> Matrix:
        return nearest(self.vectors(edges, streams=streams), top=self.top, above=self.above)

    def vectors(self, edges: PublicEdges, *, streams: PublicStreams) -> Vectors:
        """Return every node's vector, float32 (N, dim); zeros for nodes without edges."""
        vectors = self._vectors(edges, streams)
        vectors[(edges.adjacency.indptr.diff() == 0).numpy()] = 0
        return vectors

    @abstractmethod
    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        """Return vectors; those of nodes without edges do not matter."""


@dataclass(frozen=True, kw_only=True)
class DeepWalk(Embedding):
    """Skip-gram on uniform random walks (Perozzi, Al-Rfou, Skiena: DeepWalk, KDD 2014).

    Args:
        dim, window, top, above: see :class:`Embedding`.
        walks: walks from each node.
        length: nodes of a walk.
        epochs: passes of skip-gram over all walks.
        negative: negative samples a pair, or 0 for hierarchical softmax, as in the paper.

    Raises:
        ConfigError: a parameter is outside its range.
        MissingDependencyError: gensim is not installed.
    """

    walks: int = 10
    length: int = 80
    epochs: int = 1
    negative: int = 5

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        checks.integer_at_least(1, walks=self.walks, epochs=self.epochs)
        checks.integer_at_least(2, length=self.length)
        checks.integer_at_least(0, negative=self.negative)

    def check_installed(self) -> None:
        """Refuse to walk before it is certain that walks can be embedded."""
        check_gensim()

    @property
    def walk(self) -> RandomWalk:
        """The law of a walk."""
        return RandomWalk(length=self.length)

    def paths(self, edges: PublicEdges, *, streams: PublicStreams) -> Nodes:
        """Return the walks, from all nodes in a new random order each time, int32 (walks * N, length)."""
        rng = streams.numpy("walks")
        rounds = (rng.permutation(edges.num_nodes).astype(np.int32) for _ in range(self.walks))
        return np.concatenate([self.walk.paths(edges, starts, rng=rng) for starts in rounds])

    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        return skip_gram(
            self.paths(edges, streams=streams),
            num_nodes=edges.num_nodes,
            dim=self.dim,
            window=self.window,
            epochs=self.epochs,
            negative=self.negative,
            seed=streams.derive("skip-gram"),
        )


@dataclass(frozen=True, kw_only=True)
class Node2Vec(DeepWalk):
    """Skip-gram on walks that remember one step (Grover, Leskovec: node2vec, KDD 2016).

    Args:
        dim, window, top, above, walks, length, epochs, negative: see :class:`DeepWalk`.
        p: the larger, the less likely a walk returns at once.
        q: above 1 walks stay near where they came from; below 1 they move away.

    Raises:
        ConfigError: a parameter is outside its range.
        MissingDependencyError: gensim is not installed.
    """

    p: float = 1.0
    q: float = 0.5

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        checks.positive(p=self.p, q=self.q)

    @property
    def walk(self) -> RandomWalk:
        """The law of a walk."""
        return RandomWalk(length=self.length, p=self.p, q=self.q)


@dataclass(frozen=True, kw_only=True)
class Factorized(Embedding):
    """What DeepWalk tends to with many walks, by a sparse SVD (Qiu et al.: NetMF, WSDM 2018); no gensim.

        U sqrt(Sigma) of   max(0, log(vol/(b T) sum_{r<=T} (D^-1 A)^r D^-1)),

    T is ``window``, b is ``negative``, vol the number of in-edges, D their number at each node.

    Args:
        dim, window, top, above: see :class:`Embedding`; ``dim`` is below the number of nodes.
        negative: b, at least 1. More make a sparser matrix.

    Raises:
        ConfigError: a parameter is outside its range.
    """

    window: int = 5
    negative: int = 5

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        checks.integer_at_least(1, negative=self.negative)

    def _vectors(self, edges: PublicEdges, streams: PublicStreams) -> Vectors:
        if self.dim >= edges.num_nodes:
            raise ConfigError(f"dim={self.dim} must lie below the number of nodes, {edges.num_nodes}")
        first = streams.numpy("factorise").normal(size=edges.num_nodes)
        return factorized(
            edges.matrix(), dim=self.dim, window=self.window, negative=self.negative, first=first
        )
