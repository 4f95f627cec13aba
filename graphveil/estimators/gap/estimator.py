"""GAP: aggregate encoded features over noisy hops once, then train on what came out."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.base import Estimator
from graphveil.estimators.edge_weighting import EdgeWeighting
from graphveil.estimators.gap.attention import SIMILARITY
from graphveil.estimators.gap.method import AttentionSettings, EdgeLevelGap, GapConfig, NodeLevelGap
from graphveil.estimators.gap.networks import GapArchitecture, HopTransform
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.own.code import Factory, check_factory
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.nn.layers import COMBINATIONS


@dataclass(kw_only=True, eq=False, repr=False)
class GAP(NetworkKeywords, Estimator):
    """GNN with aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez: GAP, 2023).

    An encoder learns low-dimensional rows from features and labels alone; ``hops`` rounds of summing over the
    in-neighbors, each with Gaussian noise, turn them into rows that know the graph; a classifier learns from
    all of these and never asks the edges again:

        x_0 = unit(encoder(features)),   r_k = A^T x_{k-1} + N(0, s^2),   x_k = unit(r_k),
        y = head(combine(base_0(x_0), ..., base_K(x_K))).

    Guarantee at edge level: the noisy rows of all hops are one release, recorded when ``fit`` starts; all
    else is computed from them and from public data. The K hops cost mu = sqrt(K) D / s, where D is 1 for a
    stored directed edge and sqrt 2 for an undirected one. In strict mode a row's norm is at most one whatever
    the rounding (``safe_unit``), a noisy row is shrunk by how much of it may be noise before it is summed
    again, and the classifier sees its length too. Paper mode keeps the paper's unit rows, encoder and
    accounting.

    Guarantee under node units: encoder steps, hops and classifier steps are one release, calibrated jointly.
    With ``node-record`` a source divides one budget over its own list,

        r_k = W^T x_{k-1} + N(0, s^2),   w_uv = 1 / sqrt(max(out-degree of u, D)),

    so its record moves the rows of a hop by at most one (GAP-NDP). With ``node-bounded-degree`` the sum is
    plain and a node moves it by sqrt(max_degree); the node's own row is not covered. Between hops a node
    sends what the encoder's head makes of its own row and its noisy rows (:meth:`Encoder.message`). Paper
    mode samples D out-edges a node, takes one noise multiplier for steps and hops, and has the networks of
    the paper's reference: the encoder's head and the classifier's read activations of rows of norm one.

    A prediction for another graph asks that graph's edges: it is a new release, recorded once
    (:meth:`predict_proba`). The total is then ``guarantee_with_predictions``. Of a graph that has grown, the
    new edges alone are asked, for the rows of the new nodes; old rows and predictions stay as they are.

    Shapes: features (N, d) to probabilities (N, C). ``aggregates_`` holds the noisy rows r_1 to r_K, each
    (N, hidden).

    Args:
        hops: K, the number of aggregations.
        encoder_layers: layers of the encoder, without the linear head that it is trained with; None for 2,
            under node units 1, since more weights are more noise.
        base_layers: layers that each hop's rows pass on their own.
        head_layers: layers after the hops are combined, the output layer included.
        combine: ``"concat"``, ``"sum"`` or ``"attention"``; under node units ``"concat"`` only.
        encoder_epochs: training epochs of the encoder; None means ``epochs``.
        use_encoder: False aggregates the raw features instead (the paper's ablation).
        encoder_share: under node units: the encoder's part of the squared mu.
        classifier_share: the classifier's; the hops have the rest.
        sgd_multiplier: the noise multiplier of both trainings instead of shares; what they leave of the
            budget goes to the hops.
        weights: at edge level, what a message counts, by both ends' public or released rows: ``"one"``,
            ``"sigmoid_cos"``, ``"exp_cos(0.5)"``, and others that ``graphveil.release.weights.parse_weight``
            knows. D is multiplied by the largest value that the weight can take.
        attention_steps: of ``weights="attention"``, learned from the edges: the noisy steps; None for
            100, in paper mode 1000.
        attention_multiplier: their noise multiplier; None for one at which they take about a tenth of the
            squared mu, in paper mode for 1.3.
        weight_rows: the rows that weights by cosine read: ``"input"``, or the ``"previous"`` hop's.
        encoder: at edge level: a module of your own, built as ``encoder(features, hidden)``, which maps dense
            rows (B, features) to (B, hidden), in place of ``encoder_layers``.
        head: at edge level: a module of your own, built as ``head((hops + 1) * hidden, classes)``, which
            reads all hops' rows side by side, in place of the classifier.

    Raises:
        ConfigError: a parameter is outside its range, or not for the unit.
        UnitError: the unit lacks a parameter, or on ``fit`` does not fit the graph's edges.
        CalibrationError: the trainings alone cost more than the budget.

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
    node_units: ClassVar[tuple[str, ...]] = ("node-record", "node-bounded-degree")
    needs_out_degree_bound: ClassVar[bool] = True
    paper_deviations: ClassVar[tuple[str, ...]] = ("noise calibrated by the paper's Renyi accounting",)

    hops: int = 2
    encoder_layers: int | None = None
    base_layers: int = 1
    head_layers: int = 1
    combine: str = "concat"
    encoder_epochs: int | None = None
    use_encoder: bool = True
    encoder_share: float = 0.2
    classifier_share: float = 0.1
    sgd_multiplier: float | None = None
    weights: str = "one"
    weight_rows: str = "input"
    attention_steps: int | None = None
    attention_multiplier: float | None = None
    encoder: Factory | str | None = None
    head: Factory | str | None = None

    def _build_method(self) -> EdgeLevelGap | NodeLevelGap:
        privacy_config = self.privacy_config
        training_config = TrainingConfig.from_keywords(self, privacy_config)
        shape = self._shape(privacy_config, training_config)
        edge_weighting = EdgeWeighting.from_config(
            self.weights,
            self.weight_rows,
            encoder=self.use_encoder,
            records=privacy_config.on_records,
            attention=SIMILARITY if privacy_config.protects else None,
        )
        epochs = training_config.epochs if self.encoder_epochs is None else self.encoder_epochs
        checks.integer_at_least(1, encoder_epochs=epochs)
        attention = self._attention(edge_weighting)
        self._check_shares(privacy_config)
        self._check_custom_modules(privacy_config)
        gap = GapConfig(
            training_config=training_config,
            shape=shape,
            encoder_epochs=epochs,
            hop_transform=HopTransform(privacy_config.paper, privacy_config.on_records),
            edge_weighting=edge_weighting,
        )
        if not privacy_config.on_records:
            return EdgeLevelGap(
                name=self.method,
                privacy_config=privacy_config,
                device=self.device,
                gap=gap,
                attention=attention,
            )
        return NodeLevelGap(
            name=self.method,
            privacy_config=privacy_config,
            device=self.device,
            gap=gap,
            shares=(self.encoder_share, self.classifier_share),
            multiplier=self.sgd_multiplier,
            out_degree_bound=self.out_degree_bound,
        )

    def _shape(self, privacy_config: PrivacyConfig, training_config: TrainingConfig) -> GapArchitecture:
        """Return the networks, refusing those without a closed form of a record's gradient."""
        private, paper = privacy_config.on_records, privacy_config.paper
        suits = 1 if private and not paper else 2
        depth = suits if self.encoder_layers is None else self.encoder_layers
        checks.depth(hops=self.hops, encoder_layers=depth)
        checks.depth(base_layers=self.base_layers, head_layers=self.head_layers)
        checks.one_of(COMBINATIONS, combine=self.combine)
        if private and self.combine != "concat":
            raise ConfigError(
                f"combine={self.combine!r} has no closed form of a record's gradient, which node units need; "
                "use 'concat'"
            )
        return GapArchitecture(
            hops=self.hops,
            hidden=self.hidden,
            encoder_layers=depth if self.use_encoder else 0,
            base_layers=self.base_layers,
            head_layers=self.head_layers,
            combine=self.combine,
            layers=training_config.layers,
            paper=paper,
            paper_on_records=private and paper,
            custom_encoder=self.encoder,
            custom_head=self.head,
        )

    def _check_custom_modules(self, privacy_config: PrivacyConfig) -> None:
        """Refuse modules of the user's where records are protected, and what they would replace."""
        given = {"encoder": self.encoder, "head": self.head}
        for name, module in given.items():
            if module is None:
                continue
            check_factory(module, name)
            if privacy_config.on_records:
                raise NotImplementedGuaranteeError(
                    f"{name}= is a module of your own, and unit {privacy_config.unit.name!r} protects the "
                    "records "
                    "that it would learn from in the clear: use an edge unit, or PrivateGNN, which trains "
                    "modules by noisy steps"
                )
            if privacy_config.paper:
                raise ConfigError(f"{name}= is not what the paper trains; drop it, or use mode='strict'")
        if self.encoder is not None and (self.encoder_layers is not None or not self.use_encoder):
            raise ConfigError("encoder= takes the place of encoder_layers and use_encoder; drop them")

    def _check_shares(self, privacy_config: PrivacyConfig) -> None:
        checks.positive(encoder_share=self.encoder_share, classifier_share=self.classifier_share)
        both = self.encoder_share + self.classifier_share
        checks.within(0, 0.99, **{"encoder_share + classifier_share": both})
        if self.sgd_multiplier is not None:
            checks.positive(sgd_multiplier=self.sgd_multiplier)
            if not privacy_config.on_records:
                raise ConfigError(
                    f"sgd_multiplier is for node units; under unit {self.unit!r} training costs nothing"
                )

    def _attention(self, edge_weighting: EdgeWeighting | None) -> AttentionSettings | None:
        """Return how attention is learned; None where weights are not learned from edges."""
        attends = edge_weighting is not None and edge_weighting.learned_from_edges
        given = {"attention_steps": self.attention_steps, "attention_multiplier": self.attention_multiplier}
        for name, value in given.items():
            if value is not None and not attends:
                raise ConfigError(
                    f"{name} is for weights='attention', and weights are {self.weights!r}; drop it"
                )
        if self.attention_steps is not None:
            checks.integer_at_least(1, attention_steps=self.attention_steps)
        if self.attention_multiplier is not None:
            checks.positive(attention_multiplier=self.attention_multiplier)
        return AttentionSettings(self.attention_steps, self.attention_multiplier) if attends else None
