"""SAGE: message passing with sums, without privacy or on a released graph, and SAGE-NDP in paper mode."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import ClassVar, Literal, get_args

from graphveil._util import checks
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.unit import NodeRecord
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.full_graph import (
    FullGraphKeywords,
    build_full_graph_method,
    check_perturbed,
    layer_options,
    residual_shape,
    resolve_depth,
    resolve_schedule,
)
from graphveil.estimators.method import Method
from graphveil.nn.message_passing import SageArchitecture

ClipPer = Literal["row", "root"]
_SUBGRAPHS = "graphveil.papers.as_published.subgraph_sage"  # loaded for unit ``node-record`` only
PAPER_DEVIATIONS = (
    "noise calibrated by the paper's accounting of sampled subgraphs, which is unproved: its batches have a "
    "fixed size and those that are run do not; the stated epsilon is that of steps on all records",
    "which of a node's edges are kept depends on the edges of others, so a record changes theirs, too",
)
_EPOCHS, _BATCH = 10, 256  # of SAGE-NDP


@dataclass(kw_only=True, eq=False, repr=False)
class SAGE(FullGraphKeywords, Estimator):
    """Train GraphSAGE with sums (Hamilton, Ying, Leskovec: Inductive representation learning, 2017).

    Dense layers, then ``layers`` aggregation steps, then dense layers:

        h <- act(norm(W_self h_v + W_in sum_{u -> v} h_u + b)).

    This is a non-private reference. On a released graph it is SAGE-EDP (``perturb="arr"``; Sajadmanesh et
    al.: GAP, 2023) or similar. Paper mode then uses the paper's own release (``graphveil.papers``) and
    network: one aggregation step, with L2-normalized output.

    Unit ``node-record`` in paper mode is SAGE-NDP (Sajadmanesh et al.: GAP, 2023, after Daigavane et al.:
    Node-level differentially private graph neural networks, 2021). It has one aggregation step, with
    L2-normalized vectors before and after it. A sample keeps at most D edges per node, in- and out-edges
    together. DP-Adam clips gradients of training nodes' losses, each over the subgraph of its in-neighbors,
    with noise 2 z (D + 1) C. Predictions use one noisy aggregation with multiplier z, whose noise is never
    redrawn. The last parameters are kept.

    The theory clips the gradient of each root's loss. The public reference clips the contribution of each
    node's vector to the batch gradient (``SubgraphClippedSum``), with the same noise; see ``clip_per``. The
    accounting of both is unproved, so strict mode rejects it. The reported epsilon composes all steps without
    amplification by sampling.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: Aggregation steps. None for 2; 1 under a node-level unit or on a paper's released graph.
        pre_layers: Dense layers before the aggregation steps.
        post_layers: Dense layers after them, including the output layer.
        epochs: Training epochs; None for 100, under a node-level unit 10.
        batch_size: Node-level unit: expected nodes in a batch; None for 256.
        clip: Node-level unit: clipping norm C of a gradient.
        clip_per: Node-level unit: ``"row"`` clips the contribution of each node's vector to the batch
            gradient, as the reference does and with its accuracies. ``"root"`` clips the gradient of each
            root's loss.

    Raises:
        NotImplementedGuaranteeError: If the unit is not ``"none"``, and not ``"node-record"`` in paper mode.

    Privacy:
        Unit: ``none``, or an edge-level unit with ``perturb``. Reads: exact edges, or the released graph.
        Charges: the release of the noisy graph. Without ``perturb`` there is no guarantee.

        Unit: ``node-record`` in paper mode only. No valid guarantee: the accounting is unproved.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> SAGE(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "sage"
    node_units: ClassVar[tuple[str, ...]] = (NodeRecord.name,)
    needs_out_degree_bound: ClassVar[bool] = True
    paper_deviations: ClassVar[tuple[str, ...]] = PAPER_DEVIATIONS

    pre_layers: int = 2
    post_layers: int = 1
    batch_size: int | None = None
    clip: float = 1.0
    clip_per: ClipPer = "row"

    def _check_config(self) -> None:
        if self.unit != NodeRecord.name:
            check_perturbed(self, self)
        elif self.perturb is not None:
            raise UnitError(
                f"perturb={self.perturb!r} releases edges with noise, but unit {self.unit!r} protects "
                "node records. Use unit 'undirected-edge' or 'directed-edge'."
            )
        elif self.mode != "paper":
            raise NotImplementedGuaranteeError(
                f"{self.method} under unit {self.unit!r} has no valid guarantee: the edges sampled at one "
                "node depend on other nodes, so the sensitivity is unbounded. Use 'classcode', 'gap', or "
                "'gnn' with a SAGE layer of torch_geometric. mode='paper' (--mode paper) reproduces the "
                "paper."
            )
        super()._check_config()

    def _build_method(self) -> Method:
        checks.depth(pre_layers=self.pre_layers, post_layers=self.post_layers)
        checks.one_of(get_args(ClipPer), clip_per=self.clip_per)
        over_subgraphs = self.unit == NodeRecord.name  # SAGE-NDP
        shape = SageArchitecture(
            hidden=self.hidden,
            depth=resolve_depth(self, 1 if over_subgraphs else 2),
            style=layer_options(self, normed=not over_subgraphs),
            pre_layers=self.pre_layers,
            post_layers=self.post_layers,
            unit=over_subgraphs,
        )
        if not over_subgraphs:
            if self.batch_size is not None:
                raise ConfigError(
                    f"batch_size={self.batch_size} applies to node-level units only. Otherwise the full "
                    "graph is one batch. Omit it."
                )
            if self.perturb is not None and self.mode == "paper":
                # SAGE-EDP L2-normalizes after each aggregation step.
                shape = replace(shape, depth=resolve_depth(self, 1), unit_rounds=True)
            network = residual_shape(self, "sage") if self.residual else shape
            return build_full_graph_method(self, self, network, resolve_schedule(self))
        if self.residual:
            raise ConfigError(
                "residual=True is supported with unit 'none' and with perturbed graphs only. Omit it."
            )
        if shape.depth != 1:
            raise ConfigError(
                f"layers={self.layers} is not supported under node-level units, because a record would "
                "affect the gradients of nodes beyond its neighbors. Use layers=1."
            )
        if self.batch_norm:
            raise ConfigError(
                "batch_norm=True mixes the records of a batch, which this unit protects individually. "
                "Omit it."
            )
        if self.dropout or self.patience is not None or self.private_metrics:
            raise ConfigError(
                "dropout, patience and private_metrics are not supported under this unit. Omit them."
            )
        method: Method = import_module(_SUBGRAPHS).NodeLevelSAGE(
            name=self.method,
            privacy_config=self.privacy_config,
            shape=shape,
            schedule=PrivateSchedule(
                epochs=_EPOCHS if self.epochs is None else self.epochs,
                batch_size=_BATCH if self.batch_size is None else self.batch_size,
                clip=self.clip,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
            ),
            max_sampled_degree=self.out_degree_bound or 1,
            clip_per=self.clip_per,
        )
        return method
