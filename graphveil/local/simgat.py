"""SimGAT: LPGNN with fewer hops, and an average over nodes that are alike by their place in the graph."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from graphveil._util import checks
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import RecordEstimator
from graphveil.local.lpgnn import (
    LPGNN,
    KPropConfig,
    LearningConfig,
    LpgnnKeywords,
    LpgnnMethod,
    PropagationConfig,
    baseline_of,
)
from graphveil.local.structure import PublicEdges, averaging, parse_similarity, union
from graphveil.propagation import ComposedPropagation, Propagation, SparseMap

Combine = Literal["post", "union"]
Weight = Literal["one", "similarity"]
COMBINE: tuple[Combine, ...] = ("post", "union")
WEIGHT: tuple[Weight, ...] = ("one", "similarity")


@dataclass(kw_only=True, eq=False, repr=False)
class SimGAT(LpgnnKeywords, RecordEstimator):
    """Similarity aggregator on randomized features (Ameen, Emireddy, Stevens: SimGAT, a slide deck).

    KProp averages noise out over K hops, and far nodes have little to do with a node. SimGAT takes fewer,
    k' < K, and then the mean over a node and the nodes S_v similar to it:

        post (default):  H = D_S^-1 (I + S) A^^k' X',   D_S = diag(1 + |S_v|);
        union:           H = A_S^^k' X',   A_S = 1[A + S A > 0] without the diagonal.

    S comes from the edges alone (:mod:`graphveil.local.structure`), in rows of bounded length. With S = 0
    both are KProp(k'), to the last bit. The source leaves open how S enters, its threshold and its
    normalization; these are the project's choices (docs/methods/simgat.md, with what they measure).

    Guarantee: LPGNN's, unit ``local-attributes``. Edges are public under that unit, so S costs nothing; it
        never
    reads features or labels.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        x_steps: k', hops before similar nodes are averaged.
        similarity: ``"multihop"``, ``"deepwalk"``, ``"node2vec"`` or ``"factorized"``, with parameters in
            brackets if need be: ``"multihop(n=3, delta=0.1)"``. DeepWalk and node2vec need gensim (the extra
            ``simgat``).
        combine: ``"post"`` or ``"union"``.
        weight: of ``"post"``: ``"one"``, or ``"similarity"`` for a mean weighted by similarity, in which the
            node itself weighs one.
        max_union_degree: of ``"union"``: the degree above which a node takes no further neighbors; None for
            no limit.

    Further arguments are those of :class:`~graphveil.local.lpgnn.LPGNN`.

    Raises:
        UnitError: the unit is neither ``"local-attributes"`` nor ``"none"``.
        MissingDependencyError: the similarity needs gensim, which is not installed.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = SimGAT(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon
    3.0
    """

    method: ClassVar[str] = "simgat"

    x_steps: int = 1
    similarity: str = "multihop"
    combine: Combine = "post"
    weight: Weight = "one"
    max_union_degree: int | None = None

    def no_graph_baseline(self) -> LPGNN:
        """Return the unfitted baseline that reads no edge, see :meth:`LPGNN.no_graph_baseline`."""
        return baseline_of(self)

    def _build_method(self) -> LpgnnMethod:
        return LpgnnMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            device=self.device,
            report_config=self._report_config(),
            propagation_config=self._propagation_config(),
            smoothing=KPropConfig.from_keywords(self, self.y_steps) if self.y_steps else None,
            learning=LearningConfig.from_keywords(self),
        )

    def _propagation_config(self) -> "SimilarityPropagationConfig":
        return SimilarityPropagationConfig(
            hops=KPropConfig.from_keywords(self, self.x_steps),
            similarity=self.similarity,
            combine=self.combine,
            weight=self.weight,
            max_union_degree=self.max_union_degree,
            basis=f"unit {self.unit!r} leaves edges public",
        )


@dataclass(frozen=True, kw_only=True)
class SimilarityPropagationConfig(PropagationConfig):
    """Hops along the edges, and an average over similar nodes; see :class:`SimGAT`.

    Args:
        hops: k' of them.
        similarity: a name, with parameters in brackets if need be.
        combine: whether similar nodes are averaged after the hops, or hops go along them, too.
        weight: how much a similar node counts.
        max_union_degree: of a union.
        basis: why the edges may be read.
    """

    hops: KPropConfig
    similarity: str
    combine: Combine
    weight: Weight
    max_union_degree: int | None
    basis: str

    def __post_init__(self) -> None:
        """Check every field."""
        parse_similarity(self.similarity)
        checks.one_of(COMBINE, combine=self.combine)
        checks.one_of(WEIGHT, weight=self.weight)
        if self.weight != "one" and self.combine != "post":
            raise ConfigError(
                f"weight={self.weight!r} is for combine='post'; a union has no weights; drop it"
            )
        if self.max_union_degree is None:
            return
        checks.integer_at_least(1, max_union_degree=self.max_union_degree)
        if self.combine != "union":
            raise ConfigError(f"max_degree={self.max_union_degree} is for combine='union'; drop it")

    def check(self) -> None:
        """Refuse a similarity whose library is missing; to load a model it is not needed."""
        parse_similarity(self.similarity).check_installed()

    def propagation(self, graph: Graph, session: Session) -> Propagation:
        """Return hops and similar nodes as one map."""
        with session.stage("similarity"):
            edges = PublicEdges(graph.adjacency, basis=self.basis)
            similar = self.similar(edges, session)
            if self.combine == "union":
                return self.hops.along(union(edges, similar, max_union_degree=self.max_union_degree))
            mean = averaging(similar, weighted=self.weight == "similarity")
            return ComposedPropagation((self.hops.along(graph.adjacency), SparseMap.from_scipy(mean)))

    def similar(self, edges: PublicEdges, session: Session) -> Any:
        """Return S, a sparse matrix (N, N)."""
        return parse_similarity(self.similarity)(edges, streams=session.streams)
