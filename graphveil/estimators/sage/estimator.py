"""SAGE: message passing with sums, the non-private reference of the GAP and ProGAP papers, and SAGE-NDP."""

from dataclasses import dataclass, replace
from typing import ClassVar

from graphveil._util import checks
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.full_graph import FullGraphKeywords, layer_options, resolve_depth, resolve_schedule
from graphveil.estimators.method import Method
from graphveil.estimators.perturbed import build_full_graph_method, check_perturbed
from graphveil.estimators.requirements import check_on_cpu
from graphveil.estimators.sage.paper import CLIP_PER, PAPER_DEVIATIONS, ClipPer, NodeLevelSAGE
from graphveil.nn.sage import SageArchitecture
from graphveil.privacy import NodeRecord
from graphveil.training import PrivateSchedule

_EPOCHS, _BATCH = 10, 256  # of SAGE-NDP


@dataclass(kw_only=True, eq=False, repr=False)
class SAGE(FullGraphKeywords, Estimator):
    """GraphSAGE with sums (Hamilton, Ying, Leskovec: Inductive representation learning, 2017).

    Dense layers, then ``layers`` rounds of messages, then dense layers:

        h <- act(norm(W_self h_v + W_in sum_{u -> v} h_u + b)).

    Guarantee: none; it is the reference that private methods are measured against. On a released graph it is
    SAGE-EDP (``perturb="arr"``; Sajadmanesh et al.: GAP, 2023) or its like. Paper mode there has the source's
    own release (:mod:`graphveil.perturb.paper`) and network: one round, to rows of norm one.

    Unit ``node-record`` in paper mode is SAGE-NDP (Sajadmanesh et al.: GAP, 2023, after Daigavane et al.:
    Node-level differentially private graph neural networks, 2021): one round, rows of norm one before and
    after it, a sample of at most D edges a node, those sent and those received together; DP-Adam on clipped
    gradients of training nodes' losses, each over the subgraph of its in-neighbors, with noise 2 z (D + 1)
    C; and one noisy aggregation of multiplier z to predict with, drawn once and kept. The last weights count.
    The theory clips the gradient of each root's loss, and the public reference what each node's row adds to
    the batch's (:class:`~graphveil.estimators.sage.subgraphs.RowSum`), with the same noise: see ``clip_per``.
    Either way the accounting is unproved, so strict mode refuses it, and the epsilon that a fit tells counts
    every step as if it were on everybody.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: rounds of messages; None for 2, under a node unit or on a paper's released graph 1.
        pre_layers: dense layers before the messages.
        post_layers: dense layers after them, the output layer included.
        epochs: training epochs; None for 100, under a node unit 10.
        batch_size: expected nodes in a batch, under a node unit; None for 256.
        clip: the norm C that a gradient is clipped to, under a node unit.
        clip_per: under a node unit, what is clipped: a ``"row"``'s part of the batch's gradient, as in the
            reference, whose accuracies it has; or the gradient of a ``"root"``'s loss.

    Raises:
        NotImplementedGuaranteeError: the unit is not ``"none"``, and not ``"node-record"`` in paper mode.

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
                f"perturb={self.perturb!r} releases edges, and unit {self.unit!r} protects records; use "
                "'undirected-edge' or 'directed-edge'"
            )
        elif self.mode != "paper":
            raise NotImplementedGuaranteeError(
                f"{self.method} under unit {self.unit!r} is available in paper mode only: which edges are "
                "sampled of one list depends on others, so nothing bounds the gradients that a record "
                "changes; use 'classcode' or 'gap', 'gnn' with a SAGE layer of torch_geometric, or "
                "mode='paper' (--mode paper) to reproduce the paper"
            )
        super()._check_config()
        self._build_method()

    def _build_method(self) -> Method:
        check_on_cpu(self.method, self.device)
        checks.depth(pre_layers=self.pre_layers, post_layers=self.post_layers)
        checks.one_of(CLIP_PER, clip_per=self.clip_per)
        return self._over_subgraphs() if self.unit == NodeRecord.name else self._build_nonprivate()

    def _build_nonprivate(self) -> Method:
        if self.batch_size is not None:
            raise ConfigError(f"batch_size={self.batch_size} is for node units; full graphs have one batch")
        shape = self._shape(unit=False)
        if (
            self.perturb is not None and self.mode == "paper"
        ):  # SAGE-EDP, whose rounds end in rows of norm one
            shape = replace(shape, depth=resolve_depth(self, 1), unit_rounds=True)
        return build_full_graph_method(self, self, shape, resolve_schedule(self))

    def _over_subgraphs(self) -> NodeLevelSAGE:
        """Return SAGE-NDP."""
        shape = self._shape(unit=True)
        if shape.depth != 1:
            raise ConfigError(
                f"layers={self.layers} lets a record reach more than its neighbors' gradients; node units "
                "need layers=1"
            )
        if self.batch_norm:
            raise ConfigError("batch_norm mixes the records of a batch; use LayerNorm or GroupNorm, or none")
        if self.dropout or self.patience is not None or self.private_metrics:
            raise ConfigError("dropout, patience and private_metrics are not available here; drop them")
        return NodeLevelSAGE(
            name=self.method,
            privacy_config=self._build_privacy_config(),
            device=self.device,
            shape=shape,
            schedule=self._private_schedule(),
            max_sampled_degree=self.out_degree_bound or 1,
            clip_per=self.clip_per,
        )

    def _shape(self, *, unit: bool) -> SageArchitecture:
        """Return the shape of the network, with ``unit`` that of SAGE-NDP: one round, rows of norm one."""
        return SageArchitecture(
            hidden=self.hidden,
            depth=resolve_depth(self, 1 if unit else 2),
            style=layer_options(self, normed=not unit),
            pre_layers=self.pre_layers,
            post_layers=self.post_layers,
            unit=unit,
        )

    def _private_schedule(self) -> PrivateSchedule:
        return PrivateSchedule(
            epochs=_EPOCHS if self.epochs is None else self.epochs,
            batch_size=_BATCH if self.batch_size is None else self.batch_size,
            clip=self.clip,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )
