"""ClassCode: noisy counts of neighbors by class, steered to where a prediction is needed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal

from graphveil._util import checks
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode.edge_method import EdgeLevelClassCode, TrainedEdgeLevelClassCode
from graphveil.estimators.classcode.edge_plan import EdgeReleaseConfig, Noise
from graphveil.estimators.classcode.edge_rows import Homophily
from graphveil.estimators.classcode.node_method import NodeLevelClassCode
from graphveil.estimators.edge_weighting import EdgeWeighting
from graphveil.estimators.fitted import FittedAttribute, none_before_fit
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.release.weights import GivenWeight


@dataclass(kw_only=True, eq=False, repr=False)
class ClassCode(Estimator):
    """Node classification from noisy rows of how many neighbors are of each class; the flagship.

    **Edge units.** Every node is counted as a class (its label if that is public, else the likeliest one by
    its features), and an edge is counted at one of its ends, the one that needs it: a target, if it has one.
    Row v says how many of v's neighbors are of each class, r_vk = n_vk + Z_vk, with two-sided geometric
    noise P(Z = z) = tanh(epsilon / 2) e^(-epsilon |z|). Of two classes, undirected edges count at both ends
    from epsilon 4, with half of it at each. Where labels are few or messages have weights, codes of classes
    are summed instead, r_v = mu sum_u A_uv w(g_u, g_v) c_u + N(0, I), beside class-pair counts.

    Guarantee: units ``undirected-edge`` and ``directed-edge``. An edge moves one whole number by one, or two
    with half of epsilon each: the counts are epsilon-DP, with delta 0. Sums and class-pair counts are one
    Gaussian release of sensitivity one for every pair of groups, with mu = mu*(epsilon, delta). Everything
    after it is post-processing with public labels. Proof: ``docs/privacy/proofs/classcode.md``.

    At edge level another graph is predicted from rows of its own, one release that is recorded once, and of a
    graph that has grown the new nodes alone have new rows (:meth:`predict_proba`). Labels of its training and
    validation nodes are used if it has a split; it needs none.

    **Unit** ``node-record``. A labeled node sends the code of its label, any other the mean code under the
    posterior of a privately trained encoder, each along its own edges with weights w whose squares add up to
    one per source; row v is Z_v = sum of w_uv c_u + N(0, sigma^2 I). A mixture fitted to the rows alone turns
    them into likelihoods, and the next pushes give more weight to rows that are unclear. The prediction for
    v weighs v's features and v's row, with ``read_own_edges`` also the rows of the nodes on v's own list.

    Guarantee: unit ``node-record``. Encoder, rows, combiner, and predictions for all nodes but q are mu-GDP
    for the record of q, mu = mu*(epsilon, delta); the prediction for q is only for those entitled to its
    record. Validation labels are used like training labels, unless ``private_metrics`` counts on them.

    Args:
        count_share: share of a labeled pair's budget that goes to class-pair counts (rho).
        few_labels: use the two-round variant for few labels; None: when under half of the nodes have one.
        noise: at edge level: ``"laplace"`` counts each node's neighbors by class, under discrete Laplace
            noise at the full epsilon; ``"gaussian"`` sums codes; ``"auto"`` counts wherever labels are not
            few and messages have no weights.
        target_to_labeled_weight: weight from targets back to labeled nodes in that variant (b).
        self_training: train the feature networks a second time, on what the rows said, before the last
            decision;
            None: with fewer than 5,000 labeled nodes, where features have the most left to learn.
        weights: at edge level, what a message counts, by what is publicly known of both ends: ``"one"``,
            ``"half_cos"``, ``"class_agree(0.2)"``, and others that ``graphveil.release.weights.parse_weight``
            knows. They read features or, all but ``"jaccard"``, posteriors from features: as probabilities,
            or as codes where they take cosines. The noise grows with the largest value of the weight.
        weight_rows: the posteriors that weights by cosine read: those of ``"input"``, from features, or of
            the ``"previous"`` round of rows, if there are two.
        read_own_edges: unit ``node-record``: predict a node from the rows of its own neighbors, too, which
            is worth most at small epsilon, and makes its prediction depend on its list.
        targets: unit ``node-record``: whose rows are released; fewer rows are less noisy. None for all, or
            ``"unlabeled"``, ``"test"``, or node ids. Other nodes are predicted from their features. With
            None, rows of nodes that teach have a quarter of the weight: their class is known.
        unlabeled_send: unit ``node-record``: whether nodes that do not teach send messages.
        encoder_share: unit ``node-record``: share of mu^2 that goes to the encoder; None for 0.2 with
            ``read_own_edges``, and otherwise for what budget, records and weights suggest.

    At edge level ``homophily_`` says how alike neighbors are, from the counts that were released anyway:
    where it is near zero, edges as ClassCode reads them add nothing to features, and
    :class:`~graphveil.estimators.spectral.Spectral` may.

    Rows of labeled nodes are noisier than those of targets by design: their predictions are not to be
    presented as if they were targets'.

    >>> from graphveil.data import RECIPES, synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=0).fit(graph)
    >>> model.guarantee.valid, round(model.guarantee.epsilon, 3)
    (True, 1.0)
    """

    method: ClassVar[str] = "classcode"
    node_units: ClassVar[tuple[str, ...]] = ("node-record",)

    count_share: float = 0.05
    few_labels: bool | None = None
    noise: Noise = "auto"
    target_to_labeled_weight: float = 0.3
    self_training: bool | None = None
    weights: str = "one"
    weight_rows: str = "input"
    read_own_edges: bool = False
    targets: Literal["unlabeled", "test"] | tuple[int | str, ...] | None = None
    unlabeled_send: bool = True
    encoder_share: float | None = None

    # The gate of a fit at edge level, from a file or not; records have none.
    gate_ = FittedAttribute[tuple[float, ...]](
        lambda fit: fit.trained.gate if isinstance(fit.trained, TrainedEdgeLevelClassCode) else (), tuple
    )
    homophily_ = FittedAttribute[Homophily | None](lambda fit: fit.learned.get("homophily"), none_before_fit)

    def _check_config(self) -> None:
        super()._check_config()
        if self.mode == "paper":
            raise ConfigError(
                "classcode has no paper to reproduce and so no paper mode: use mode='strict' (--mode strict)"
            )
        checks.within(0.001, 0.5, count_share=self.count_share)
        checks.within(0, 1, target_to_labeled_weight=self.target_to_labeled_weight)
        checks.one_of(("auto", "laplace", "gaussian"), noise=self.noise)
        privacy_config = self.privacy_config
        if not privacy_config.protects:
            raise UnitError(
                "classcode is calibrated to a budget and has no non-private form: pass an edge unit and an "
                "epsilon, or use sage, gcn, gat or gap with unit='none' as the non-private reference"
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        check_options(self.get_params(), defaults, privacy_config)

    def _build_method(self) -> EdgeLevelClassCode | NodeLevelClassCode:
        privacy_config = self.privacy_config
        edge_weighting = self._edge_weighting(privacy_config)
        if privacy_config.on_records:
            return NodeLevelClassCode(
                name=self.method,
                privacy_config=privacy_config,
                device=self.device,
                reads_own_edges=self.read_own_edges,
                targets=self.targets,
                unlabeled_send=self.unlabeled_send,
                encoder_share=self.encoder_share,
                out_degree_bound=self.out_degree_bound or 1,
            )
        edge_plan = EdgeReleaseConfig(
            count_share=self.count_share,
            few_labels=self.few_labels,
            reverse_weight=self.target_to_labeled_weight,
            edge_weighting=edge_weighting,
            noise=self.noise,
        )
        return EdgeLevelClassCode(
            name=self.method,
            privacy_config=privacy_config,
            device=self.device,
            edge_plan=edge_plan,
            self_training=self.self_training,
        )

    def _edge_weighting(self, privacy_config: PrivacyConfig) -> EdgeWeighting | None:
        """Return what weighs messages, refusing what the unit or ClassCode cannot read."""
        edge_weighting = EdgeWeighting.from_config(
            self.weights, self.weight_rows, encoder=True, records=privacy_config.on_records
        )
        if edge_weighting is not None and isinstance(edge_weighting.similarity, GivenWeight):
            raise ConfigError(
                "weights='given' reads the weights of the graph's edges, and classcode counts edges whatever "
                "their weights, so that it would not know how long a row is; use gap, which reads them, or "
                "drop them (adjacency.without_weights(), or no --weight)"
            )
        return edge_weighting


_NODE_LEVEL_OPTIONS = ("read_own_edges", "targets", "unlabeled_send", "encoder_share")
_EDGE_LEVEL_OPTIONS = ("few_labels", "self_training", "count_share", "target_to_labeled_weight", "noise")
_NAMED_TARGETS = ("unlabeled", "test")  # of targets


def check_options(
    given: Mapping[str, Any], defaults: Mapping[str, Any], privacy_config: PrivacyConfig
) -> None:
    """Refuse options of the other kind of unit, and those that contradict each other.

    Args:
        given: the constructor keywords.
        defaults: what they are where nothing is given.
        privacy_config: the unit that they are for.

    Raises:
        ConfigError: an option has no effect under the unit, or a value is outside its range.
    """
    for name in _EDGE_LEVEL_OPTIONS if privacy_config.on_records else _NODE_LEVEL_OPTIONS:
        if given[name] != defaults[name]:
            wanted = "edge units" if privacy_config.on_records else "unit 'node-record'"
            raise ConfigError(
                f"{name}={given[name]!r} is for {wanted} and has no effect under unit "
                f"{privacy_config.unit.name!r}; "
                "drop it"
            )
    if privacy_config.on_records:
        _check_node_level(given)
    of_sums = ("few_labels", "count_share", "target_to_labeled_weight", "weights", "weight_rows")
    for name in of_sums if given["noise"] == "laplace" else ():
        if given[name] != defaults[name]:
            raise ConfigError(
                f"{name}={given[name]!r} is for sums of codes and has no effect where neighbors are counted "
                "(noise='laplace'); drop it, or pass noise='gaussian'"
            )


def _check_node_level(given: Mapping[str, Any]) -> None:
    if given["encoder_share"] is not None:
        checks.within(0.001, 0.85, encoder_share=given["encoder_share"])
    targets = given["targets"]
    _check_targets(targets)
    if targets is not None and (not targets or given["read_own_edges"]):
        raise ConfigError(
            "read_own_edges reads the rows of all nodes, and an empty targets= releases none: drop targets, "
            "or name nodes and predict from their own rows (read_own_edges=False)"
        )


def _check_targets(targets: object) -> None:
    """Refuse what names no nodes, before anything asks how many there are."""
    if isinstance(targets, str):
        checks.one_of(_NAMED_TARGETS, targets=targets)
        return
    ids = targets if isinstance(targets, tuple | list) else [targets]
    known = all(isinstance(id, str | Integral) and not isinstance(id, bool) for id in ids)
    if targets is not None and not (known and isinstance(targets, tuple | list)):
        raise ConfigError(
            f"targets={targets!r} must be {' or '.join(map(repr, _NAMED_TARGETS))}, or a tuple of node ids"
        )
