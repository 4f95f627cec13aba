"""ClassCode: noisy counts of neighbors by class, with weights that depend on which predictions are needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from graphveil._util import checks
from graphveil.core.queries.weights import GivenWeight
from graphveil.core.unit import Level, Node, NodeBoundedDegree, NoUnit
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode.edge import EdgeLevelClassCode, Noise, TrainedEdgeLevelClassCode
from graphveil.estimators.classcode.likelihoods import Homophily
from graphveil.estimators.classcode.node import NodeLevelClassCode
from graphveil.estimators.classcode.projected import ProjectedClassCode
from graphveil.estimators.edge_weighting import edge_weight
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.method import Method
from graphveil.estimators.requirements import (
    EXACT_RECORDS,
    MIXED_EDGES,
    RECORDS_WITHOUT_NOISE,
    Rejection,
    Rejections,
)

_OTHER_OPTIONS = {  # of a level: which unit they need, and their names
    "edge": ("unit 'node-record'", ("read_own_edges", "targets", "unlabeled_send", "encoder_share")),
    "node": (
        "edge units",
        ("few_labels", "self_training", "count_share", "target_to_labeled_weight", "noise"),
    ),
}
_OPTIONS_OF_SUMS = ("few_labels", "count_share", "target_to_labeled_weight", "weights")


@dataclass(kw_only=True, eq=False, repr=False)
class ClassCode(Estimator):
    """Classify nodes from noisy counts of their neighbors by class. The default method of this library.

    **Edge-level units.** Each node counts as a class: its label if that is public, otherwise the most likely
    class by its features. Each edge counts at one of its ends, at a target node if it has one. The noisy
    aggregate of node v is r_vk = n_vk + Z_vk for each class k. Here n_vk is the number of counted neighbors
    of class k, and Z_vk is discrete Laplace noise, P(Z = z) = tanh(epsilon / 2) e^(-epsilon |z|). For two
    classes and epsilon of at least 4, undirected edges count at both ends, with half of epsilon each. For two
    classes that features do not predict (cross-fitted ROC-AUC below 0.55), neighbors are counted by cluster
    of their features instead of by class. If
    labels are few or GNN messages have weights, class codes are summed instead, in addition to class-pair
    counts: r_v = mu sum_u A_uv w(g_u, g_v) c_u + N(0, I).

    Another graph is predicted from its own noisy aggregates, which is one release with the noise of the fit,
    Laplace or Gaussian. If a graph has grown, only
    the new nodes need new aggregates (``predict_proba``). Public labels of its split are used if it has one.
    ``homophily_`` estimates the homophily from the released counts. Near zero, edges add nothing to features
    here, and ``Spectral`` may be more accurate. Aggregates of labeled nodes have more noise than those of
    targets, so do not report their accuracy as that of targets.

    **Unit** ``node-record``. A labeled node sends the code of its label. Any other node sends the mean code
    under the posterior of a privately trained encoder. Both are sent along out-edges, with aggregation
    weights w whose squares sum to one per source: Z_v = sum of w_uv c_u + N(0, sigma^2 I). A mixture model,
    fitted to the noisy aggregates alone, computes likelihoods from them. The next out-edge aggregations give
    more weight to uncertain aggregates. The prediction for v combines v's features and v's aggregate. With
    ``read_own_edges`` it also uses the aggregates of v's out-neighbors.

    Args:
        count_share: Share of a labeled pair's budget for class-pair counts (rho).
        few_labels: Use the two-round variant for few labels. None: if less than half of the nodes have one.
        noise: Edge-level units: ``"laplace"`` counts each node's neighbors by class, with discrete Laplace
            noise at the full epsilon. ``"gaussian"`` sums codes. ``"auto"`` counts unless labels are few or
            GNN messages have weights.
        target_to_labeled_weight: Weight from targets to labeled nodes in the variant for few labels (b).
        self_training: Train the feature networks a second time, on labels inferred from the noisy aggregates.
            None: with fewer than 5,000 labeled nodes.
        weights: Edge-level units: edge weights, computed from public values of both ends: ``"one"``,
            ``"half_cos"``, ``"class_agree(0.2)"``, and others that
            ``graphveil.release.weights.parse_weight`` accepts. They read features or (except
            ``"jaccard"``) posteriors from features. Weights by cosine read posteriors as codes, others as
            probabilities. The noise grows with the largest edge weight.
        read_own_edges: Units ``node-record`` and ``node``: also predict a node from the aggregates of its
            neighbors. This helps most at small epsilon. The prediction then depends on the node's own list
            of edges. None for True under ``node``, and for False under ``node-record``.
        targets: Unit ``node-record``: nodes whose aggregates are released; fewer nodes need less noise. None
            for all, ``"unlabeled"``, ``"test"``, or node ids. Other nodes are predicted from their features.
            With None, aggregates of training nodes have a quarter of the weight.
        unlabeled_send: Unit ``node-record``: whether nodes outside of training send GNN messages.
        encoder_share: Units ``node-record`` and ``node``: share of mu^2 for the encoder. None for 0.2 under
            ``node-record`` with ``read_own_edges``, otherwise chosen from the budget and public sizes.

    Privacy:
        Unit: ``undirected-edge`` or ``directed-edge``. Reads: private edges; features and labels are public.
        Charges: one release. Counts are epsilon-DP (delta = 0), since an edge changes one count by one, or
        two counts with half of epsilon each. Code sums and class-pair counts are a Gaussian release of
        sensitivity one for each pair of groups, with mu = mu*(epsilon, delta). Everything computed from them
        is post-processing and public.

        Unit: ``node-record``. Reads: features, labels and out-edges of all nodes; validation labels are used
        for training unless ``private_metrics`` is set. Charges: one release. Public: encoder, noisy
        aggregates and combiner. These, and the predictions for all nodes except q, are mu-GDP for the record
        of q. The prediction for q is only for people who are authorized to access q's record.

        Unit: ``node``. Reads: features, labels and all edges. Charges: one release, for the h-index of the
        degrees, the encoder, one aggregation, its sums by class, and two weights. Public: all of these. They
        are mu-GDP for any node with all its edges, except with a probability that is part of delta. The
        prediction for a node also reads its own list of edges, unless ``read_own_edges=False``. It is only
        for people who are authorized to access both. ``guarantee.coalition_epsilon`` bounds what such people
        learn about others.

        Proofs: ``docs/privacy/proofs/classcode.md``, ``docs/privacy/proofs/node.md``.

    >>> from graphveil.data import RECIPES, synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=0).fit(graph)
    >>> model.guarantee.valid, round(model.guarantee.epsilon, 3)
    (True, 1.0)
    """

    method: ClassVar[str] = "classcode"
    removed: ClassVar[Mapping[str, Any]] = {"weight_rows": "input"}
    rejections: ClassVar[Rejections] = {
        **EXACT_RECORDS,
        **MIXED_EDGES,
        NodeBoundedDegree.name: RECORDS_WITHOUT_NOISE[NodeBoundedDegree.name],
        NoUnit.name: Rejection(
            "classcode needs a privacy budget and cannot be trained with unit='none'. Pass an edge-level "
            "unit and epsilon=1.0. For a non-private reference use method sage, gcn, gat or gap with "
            "unit='none'."
        ),
    }

    count_share: float = 0.05
    few_labels: bool | None = None
    noise: Noise = "auto"
    target_to_labeled_weight: float = 0.3
    self_training: bool | None = None
    weights: str = "one"
    read_own_edges: bool | None = None
    targets: Literal["unlabeled", "test"] | tuple[int | str, ...] | None = None
    unlabeled_send: bool = True
    encoder_share: float | None = None

    # The gate of an edge-level fit; None under node-level units.
    gate_ = FittedAttribute[tuple[float, ...]](
        lambda fit: fit.trained.gate if isinstance(fit.trained, TrainedEdgeLevelClassCode) else (), tuple
    )
    homophily_ = FittedAttribute[Homophily | None](lambda fit: fit.learned.get("homophily"))

    def _check_config(self) -> None:
        super()._check_config()
        checks.within(0.001, 0.5, count_share=self.count_share)
        checks.within(0, 1, target_to_labeled_weight=self.target_to_labeled_weight)
        wanted, options = _OTHER_OPTIONS[self.protected_unit.level]
        for name in self._changed(options):
            raise ConfigError(
                f"{name}={getattr(self, name)!r} applies to {wanted} only and has no effect under unit "
                f"{self.privacy_config.unit.name!r}. Omit it."
            )
        if isinstance(self.protected_unit, Node):
            self._check_node()
        if self.encoder_share is not None:
            checks.within(0.001, 0.85, encoder_share=self.encoder_share)
        if self.targets is not None and (not self.targets or self.read_own_edges):
            raise ConfigError(
                "read_own_edges=True needs the noisy aggregates of all nodes, but targets= restricts "
                "which are released. Omit targets, or set read_own_edges=False and name at least one "
                "node in targets."
            )
        for name in self._changed(_OPTIONS_OF_SUMS) if self.noise == "laplace" else ():
            raise ConfigError(
                f"{name}={getattr(self, name)!r} has no effect with noise='laplace', which counts "
                "neighbors instead of summing codes. Omit it, or use noise='gaussian'."
            )

    def _check_node(self) -> None:
        for name in self._changed(("targets", "unlabeled_send")):
            raise ConfigError(
                f"{name}={getattr(self, name)!r} applies to unit 'node-record' only and has no effect under "
                "unit 'node', where all nodes send messages and receive aggregates. Omit it."
            )
        if self.private_metrics and self.read_own_edges is not False:
            raise ConfigError(
                "private_metrics counts correct predictions, but under unit 'node' predictions that read the "
                "own list of a node also depend on its neighbors, so counts of them have no bound. Set "
                "read_own_edges=False (--set read_own_edges=false), or omit private_metrics "
                "(--private-metrics)."
            )

    def _changed(self, options: tuple[str, ...]) -> list[str]:
        return [name for name in options if getattr(self, name) != getattr(type(self), name)]

    def _build_method(self) -> Method:
        methods: dict[Level, Callable[[], Method]] = {
            "edge": self._on_edges,
            "node": self._on_records,
        }
        return methods[self.protected_unit.level]()

    def _on_edges(self) -> EdgeLevelClassCode:
        similarity = edge_weight(self.weights, encoder=True, records=False)
        if isinstance(similarity, GivenWeight):
            raise ConfigError(
                "weights='given' uses edge weights, but classcode counts edges and ignores their "
                "weights. Use method gap, which uses them, or remove the weights with "
                "adjacency.without_weights() (or without --weight)."
            )
        return self._method(
            EdgeLevelClassCode, reverse_weight=self.target_to_labeled_weight, similarity=similarity
        )

    def _on_records(self) -> NodeLevelClassCode | ProjectedClassCode:
        edge_weight(self.weights, encoder=True, records=True)
        if isinstance(self.protected_unit, Node):
            return self._method(ProjectedClassCode, reads_own_edges=self.read_own_edges is not False)
        return self._method(
            NodeLevelClassCode,
            reads_own_edges=bool(self.read_own_edges),
            out_degree_bound=self.out_degree_bound or 1,
        )
