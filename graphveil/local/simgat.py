"""SimGAT: LPGNN with fewer hops, and an average over structurally similar nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from graphveil._util import checks
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod
from graphveil.local.lpgnn import LPGNN, baseline_of
from graphveil.local.network_learner import (
    KPropConfig,
    LpgnnKeywords,
    NetworkLearner,
    PropagationConfig,
)
from graphveil.local.posterior_mixture import Steps
from graphveil.local.report_config import FeatureKeywords, LabelKeywords
from graphveil.local.structure import PublicEdges, averaging, parse_similarity, union
from graphveil.propagation import ComposedPropagation, Propagation, SparseMap

Combine = Literal["post", "union"]
Weight = Literal["one", "similarity"]
COMBINE: tuple[Combine, ...] = ("post", "union")
WEIGHT: tuple[Weight, ...] = ("one", "similarity")


@dataclass(kw_only=True, eq=False, repr=False)
class SimGAT(LpgnnKeywords, FeatureKeywords, LabelKeywords, LocalEstimator, Estimator):
    """Similarity aggregator on randomized features (Ameen, Emireddy, Stevens: SimGAT, a slide deck).

    KProp averages noise over K hops, but distant nodes have little in common with a node. SimGAT uses fewer
    hops, k' < K, and then averages over a node and its structurally similar nodes S_v:

        post (default):  H = D_S^-1 (I + S) A^^k' X',   D_S = diag(1 + |S_v|);
        union:           H = A_S^^k' X',   A_S = 1[A + S A > 0] without the diagonal.

    S is computed from the public edges alone (``graphveil.local.structure``), in rows of bounded length. With
    S = 0 both are bit-identical to KProp(k'). The source does not define how S is used, its threshold and its
    normalization; docs/methods/simgat.md documents the choices of this project.

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

    def _build_method(self) -> LocalMethod:
        propagation = SimilarityPropagationConfig(
            hops=KPropConfig.from_keywords(self, self.x_steps),
            similarity=self.similarity,
            combine=self.combine,
            weight=self.weight,
            max_union_degree=self.max_union_degree,
            basis=f"unit {self.unit!r} leaves edges public",
        )
        return self._local_method(NetworkLearner.from_keywords(self, propagation), self.missing_labels)


@dataclass(frozen=True, kw_only=True)
class SimilarityPropagationConfig(PropagationConfig):
    """Hops on the edges, and an average over similar nodes; see ``SimGAT``.

    Args:
        hops: The k' hops.
        similarity: A name, with optional parameters in brackets.
        combine: Whether similar nodes are averaged after the hops, or are added to the edges.
        weight: Weight of a similar node.
        max_union_degree: Maximum degree of a union.
        basis: Why the edges are public.
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
                f"weight={self.weight!r} is only for combine='post', because a union has no weights. "
                "Remove it."
            )
        if self.max_union_degree is None:
            return
        checks.integer_at_least(1, max_union_degree=self.max_union_degree)
        if self.combine != "union":
            raise ConfigError(f"max_degree={self.max_union_degree} is only for combine='union'. Remove it.")

    def check(self) -> None:
        """Reject a similarity whose library is missing; loading a model does not need the library."""
        parse_similarity(self.similarity).check_installed()

    @property
    def steps(self) -> Steps:
        """The number of hops."""
        return self.hops.steps

    def with_steps(self, steps: int) -> "SimilarityPropagationConfig":
        """Return the configuration with this number of hops."""
        return replace(self, hops=self.hops.with_steps(steps))

    def along(self, view: Graph, session: Session) -> Propagation:
        """Return hops and similar nodes as one linear map."""
        assert isinstance(self.steps, int)
        return self.candidates(view, session, [self.steps])[0]

    def candidates(self, view: Graph, session: Session, steps: Sequence[int]) -> list[Propagation]:
        """Return the map of a graph for each number of hops; similar nodes are computed once."""
        hops = [self.hops.with_steps(each) for each in steps]
        with session.stage("similarity"):
            edges = PublicEdges(view.adjacency, basis=self.basis)
            similar = self.similar(edges, session)
            if self.combine == "union":
                both = union(edges, similar, max_union_degree=self.max_union_degree)
                return [each.hops(both) for each in hops]
            mean = SparseMap.from_scipy(averaging(similar, weighted=self.weight == "similarity"))
            return [ComposedPropagation((each.along(view, session), mean)) for each in hops]

    def similar(self, edges: PublicEdges, session: Session) -> Any:
        """Return S, a sparse matrix (N, N)."""
        return parse_similarity(self.similarity)(edges, streams=session.streams)
