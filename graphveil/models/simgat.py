"""SimGAT: LPGNN with fewer hops, and an average over nodes that are alike by their place in the graph."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.graph import Graph
from graphveil.models.lpgnn import LPGNN
from graphveil.models.lpgnn.elsewhere import Collection, Heard
from graphveil.models.session import Session
from graphveil.networks.inputs import Estimates
from graphveil.propagation import Chain, Propagation, SparseMap
from graphveil.release import ReleasePlan
from graphveil.structure import PublicEdges, averaging, parse_similarity, union

Combine = Literal["post", "union"]
Weight = Literal["one", "similarity"]
COMBINE: tuple[Combine, ...] = ("post", "union")
WEIGHT: tuple[Weight, ...] = ("one", "similarity")


@dataclass(kw_only=True, eq=False)
class SimGAT(LPGNN):
    """Similarity aggregator on randomised features (Ameen, Emireddy, Stevens: SimGAT, a slide deck).

    KProp averages noise out over K hops, and far nodes have little to do with a node. SimGAT takes fewer,
    k' < K, and then the mean over a node and the nodes S_v similar to it:

        post (default):  H = D_S^-1 (I + S) A^^k' X',   D_S = diag(1 + |S_v|);
        union:           H = A_S^^k' X',   A_S = 1[A + S A > 0] without the diagonal.

    S comes from the edges alone (:mod:`graphveil.structure`), in rows of bounded length. With S = 0 both are
    KProp(k'), to the last bit. The source leaves open how S enters, its threshold and its normalisation;
    these are the project's choices (docs/simgat.md, with what they measure).

    Guarantee: LPGNN's, unit ``node-features``. Edges are public under that unit, so S costs nothing; it never
    reads features or labels.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        x_steps: k', hops before similar nodes are averaged.
        similarity: ``"multihop"``, ``"deepwalk"``, ``"node2vec"`` or ``"factorised"``, with parameters in
            brackets if need be: ``"multihop(n=3, delta=0.1)"``. DeepWalk and node2vec need gensim (the extra
            ``simgat``).
        combine: ``"post"`` or ``"union"``.
        weight: of ``"post"``: ``"one"``, or ``"similarity"`` for a mean weighted by similarity, in which the
            node itself weighs one.
        max_degree: of ``"union"``: the degree above which a node takes no further neighbours; None for no
            limit.

    Further arguments are those of :class:`~graphveil.models.lpgnn.LPGNN`.

    Raises:
        UnitError: the unit is neither ``"node-features"`` nor ``"none"``.
        MissingDependencyError: the similarity needs gensim, which is not installed.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = SimGAT(unit="node-features", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon
    3.0
    """

    method: ClassVar[str] = "simgat"

    x_steps: int = 1
    similarity: str = "multihop"
    combine: Combine = "post"
    weight: Weight = "one"
    max_degree: int | None = None

    _prepared: Propagation | None = field(default=None, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        parse_similarity(self.similarity)
        _check.one_of(COMBINE, combine=self.combine)
        _check.one_of(WEIGHT, weight=self.weight)
        if self.weight != "one" and self.combine != "post":
            raise ConfigError(
                f"weight={self.weight!r} is for combine='post'; a union has no weights; drop it"
            )
        if self.max_degree is None:
            return
        _check.integer_at_least(1, max_degree=self.max_degree)
        if self.combine != "union":
            raise ConfigError(f"max_degree={self.max_degree} is for combine='union'; drop it")

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        parse_similarity(self.similarity).check_installed()  # to load a model it is not needed

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        with context.stage("similarity"):
            self._prepared = self._averaged(graph)  # before records pay: it may turn out to be impossible
        try:
            return super()._fit(graph, plan, context)
        finally:
            self._prepared = None

    def _hear(self, collection: Collection, context: Session) -> Heard:
        self._prepared = self._averaged(collection.graph)  # before its nodes pay
        try:
            return super()._hear(collection, context)
        finally:
            self._prepared = None

    def _propagation(self, graph: Graph, features: Estimates) -> Propagation:
        return self._averaged(graph) if self._prepared is None else self._prepared

    def _averaged(self, graph: Graph) -> Propagation:
        """Return hops and similar nodes as one map."""
        edges = PublicEdges(graph.adjacency, basis=f"unit {self.unit!r} leaves edges public")
        similar = self._similar(edges)
        if self.combine == "union":
            joined = union(edges, similar, max_degree=self.max_degree)
            return self._kprop(graph.replace(adjacency=joined), self.x_steps)
        mean = averaging(similar, weighted=self.weight == "similarity")
        return Chain((self._kprop(graph, self.x_steps), SparseMap.of(mean)))

    def _similar(self, edges: PublicEdges) -> Any:
        """Return S, a sparse matrix (N, N)."""
        return parse_similarity(self.similarity)(edges, streams=PublicStreams(self.seed))
