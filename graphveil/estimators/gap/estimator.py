"""GAP: aggregate encoded features over noisy hops once, then train a classifier on the noisy aggregates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from graphveil._util import checks
from graphveil.core.unit import Level
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.base import Estimator
from graphveil.estimators.edge_weighting import edge_weight
from graphveil.estimators.gap.method import EdgeLevelGap, GapMethod, NodeLevelGap
from graphveil.estimators.gap.networks import GapArchitecture, HopTransform, RecordTransform
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.own.code import Factory, check_factory
from graphveil.estimators.requirements import EXACT_RECORDS, MIXED_EDGES, Rejections

G = TypeVar("G", bound=GapMethod)


@dataclass(kw_only=True, eq=False, repr=False)
class GAP(NetworkKeywords, Estimator):
    """Train a GNN with aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez: GAP, 2023).

    An encoder learns low-dimensional embeddings from features and labels alone. Each of ``hops`` aggregation
    steps sums them over in-neighbors and adds Gaussian noise. A classifier is trained on all noisy aggregates
    and does not read the edges:

        x_0 = unit(encoder(features)),   r_k = A^T x_{k-1} + N(0, s^2),   x_k = unit(r_k),
        y = head(combine(base_0(x_0), ..., base_K(x_K))).

    **Edge-level units.** ``safe_unit`` bounds the norm of x_k by one in spite of rounding. A noisy aggregate
    is shrunk by its estimated share of noise before it is summed again, and the classifier also reads its
    norm.

    **Node-level units.** With ``node-record`` a source divides one budget over its out-edges,

        r_k = W^T x_{k-1} + N(0, s^2),   w_uv = 1 / sqrt(max(out-degree of u, D)).

    With ``node-bounded-degree`` the sum is not weighted. Between hops a node sends the output of the
    encoder's head on its own embedding and its noisy aggregates (``Encoder.message``).

    Shapes: features (N, d) to probabilities (N, C). ``aggregates_`` holds the noisy aggregates r_1 to r_K,
    each (N, hidden).

    Args:
        hops: K, the number of aggregations.
        encoder_layers: Layers of the encoder, without the linear head that it is trained with. None for 2,
            under node-level units 1, since more parameters need more noise.
        base_layers: Layers applied to the aggregates of each hop.
        head_layers: Layers after the hops are combined, including the output layer.
        encoder_epochs: Training epochs of the encoder; None means ``epochs``.
        use_encoder: False aggregates the raw features instead (the paper's ablation).
        encoder_share: Node-level units: share of mu^2 for the encoder.
        classifier_share: Node-level units: share of mu^2 for the classifier. The hops have the rest.
        weights: Edge-level units: edge weights, computed from public or released vectors of both ends:
            ``"one"``, ``"sigmoid_cos"``, ``"exp_cos(0.5)"``, and others that
            ``graphveil.release.weights.parse_weight`` accepts. The sensitivity is multiplied by the
            largest possible edge weight.
        attention_steps: Noisy training steps of ``weights="attention"``. None for 100.
        encoder: Edge-level units: custom module, built as ``encoder(features, hidden)``, which maps dense
            inputs (B, features) to (B, hidden). Replaces ``encoder_layers``.
        head: Edge-level units: custom module, built as ``head((hops + 1) * hidden, classes)``, which reads
            the concatenated aggregates of all hops. Replaces the classifier.

    Raises:
        ConfigError: If a parameter is outside its range, or not supported under the unit.
        UnitError: If the unit needs a parameter, or does not fit the edges of the graph on ``fit``.
        CalibrationError: If the trainings alone exceed the budget.

    Privacy:
        Unit: edge-level. Reads: private edges; features and labels are public. Charges: K hops as one
        release, recorded when ``fit`` starts. mu = sqrt(K) D / s, where D is 1 for a directed edge and
        sqrt(2) for an undirected edge. Everything computed from the noisy aggregates is post-processing and
        public.

        Unit: ``node-record`` or ``node-bounded-degree``. Reads: features, labels and edges. Charges: encoder
        steps, hops and classifier steps as one release, calibrated jointly. A node record changes the
        aggregates of a hop by at most 1 (``node-record``, GAP-NDP) or sqrt(max_degree)
        (``node-bounded-degree``). The latter does not cover the node's own aggregate. Predictions for a node
        also read its own record, and are only for people who are authorized to access it.

        Unit: ``node``. Reads and charges the same, and the h-index of the degrees, which bounds the effect of
        a node on each hop. Aggregates are covered for all nodes.

        Predicting another graph is a new release (``predict_proba``). If a graph has grown, only its new
        edges are queried. ``guarantee_with_predictions`` is the total.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=5).fit(graph)
    >>> model.predict_proba().shape == (graph.num_nodes, graph.num_classes)
    True
    >>> len(model.plan_.queries), model.guarantee.releases, model.guarantee.epsilon <= 1.0
    (2, 1, True)
    >>> len(GAP(unit="node-record", out_degree_bound=5, epsilon=8.0, seed=0,
    ...     epochs=5).fit(graph).plan_.queries)
    4
    """

    method: ClassVar[str] = "gap"
    predicts_numbers: ClassVar[bool] = True
    rejections: ClassVar[Rejections] = EXACT_RECORDS | MIXED_EDGES
    needs_out_degree_bound: ClassVar[bool] = True
    removed: ClassVar[Mapping[str, Any]] = {
        **{"attention_multiplier": None, "combine": "concat", "sgd_multiplier": None},
        **{"weight_rows": "input", "selection": "last"},
    }

    hops: int = 2
    encoder_layers: int | None = None
    base_layers: int = 1
    head_layers: int = 1
    encoder_epochs: int | None = None
    use_encoder: bool = True
    encoder_share: float = 0.2
    classifier_share: float = 0.1
    weights: str = "one"
    attention_steps: int | None = None
    encoder: Factory | str | None = None
    head: Factory | str | None = None

    def _build_method(self) -> EdgeLevelGap | NodeLevelGap:
        if self.task == REGRESSION and self.weights != "one":
            raise ConfigError(
                f"weights={self.weights!r} needs classes and cannot be used with task='regression'. Use "
                "weights='one'."
            )
        self._check_shares()
        self._check_custom_modules()
        methods: dict[Level, Callable[[], EdgeLevelGap | NodeLevelGap]] = {
            "edge": self._on_edges,
            "node": self._on_records,
            "none": self._on_edges,
        }
        return methods[self.protected_unit.level]()

    def _on_edges(self) -> EdgeLevelGap:
        similarity = edge_weight(
            self.weights,
            encoder=self.use_encoder,
            records=False,
            trained_on_edges=self.privacy_config.protects,
        )
        self._check_attention(similarity is not None and similarity.reads == "attention")
        return self._gap(EdgeLevelGap, 2, hop_transform=HopTransform(), similarity=similarity)

    def _on_records(self) -> NodeLevelGap:
        for name, module in (("encoder", self.encoder), ("head", self.head)):
            if module is not None:
                raise NotImplementedGuaranteeError(
                    f"{name}= is a custom module, which would be trained without noise on node records that "
                    f"unit {self.unit!r} protects. Use an edge-level unit, or PrivateGNN, "
                    "which trains custom modules with noise."
                )
        edge_weight(self.weights, encoder=self.use_encoder, records=True)
        self._check_attention(False)
        shares = self.encoder_share, self.classifier_share
        return self._gap(NodeLevelGap, 1, hop_transform=RecordTransform(), shares=shares)

    def _gap(self, kind: type[G], usual_depth: int, **own: Any) -> G:
        training_config = TrainingConfig.from_keywords(self, self.privacy_config)
        depth = usual_depth if self.encoder_layers is None else self.encoder_layers
        checks.depth(hops=self.hops, encoder_layers=depth)
        checks.depth(base_layers=self.base_layers, head_layers=self.head_layers)
        epochs = training_config.epochs if self.encoder_epochs is None else self.encoder_epochs
        checks.integer_at_least(1, encoder_epochs=epochs)
        shape = GapArchitecture(
            hops=self.hops,
            hidden=self.hidden,
            encoder_layers=depth if self.use_encoder else 0,
            base_layers=self.base_layers,
            head_layers=self.head_layers,
            layers=training_config.layers,
            custom_encoder=self.encoder,
            custom_head=self.head,
        )
        return self._method(kind, training_config=training_config, shape=shape, encoder_epochs=epochs, **own)

    def _check_custom_modules(self) -> None:
        for name, module in (("encoder", self.encoder), ("head", self.head)):
            if module is not None:
                check_factory(module, name)
        if self.encoder is not None and (self.encoder_layers is not None or not self.use_encoder):
            raise ConfigError(
                "encoder= replaces the built-in encoder, so encoder_layers and use_encoder have no "
                "effect. Omit them."
            )

    def _check_shares(self) -> None:
        checks.positive(encoder_share=self.encoder_share, classifier_share=self.classifier_share)
        both = self.encoder_share + self.classifier_share
        checks.within(0, 0.99, **{"encoder_share + classifier_share": both})

    def _check_attention(self, attends: bool) -> None:
        if self.attention_steps is None:
            return
        if not attends:
            raise ConfigError(
                f"attention_steps has an effect only with weights='attention', but weights={self.weights!r}. "
                "Omit attention_steps."
            )
        checks.integer_at_least(1, attention_steps=self.attention_steps)
