"""GAP and MLP as published (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez: GAP, 2023).

GAP's weighted aggregations are by Shpilevskiy, Mello and Liu (2023).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from graphveil._util import checks
from graphveil.core.accounting.gaussian import require_delta
from graphveil.core.clipping.ghost_modules import (
    Activation,
    GhostBranches,
    GhostModule,
    GhostSequential,
    UnitRows,
)
from graphveil.core.events import Composed, Gaussian, PoissonGaussian, compose
from graphveil.core.features import plain_unit
from graphveil.core.plan import ReleasePlan
from graphveil.core.plan import hops as equal_hops
from graphveil.core.unit import NodeRecord
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators import mlp
from graphveil.estimators.gap import estimator as gap
from graphveil.estimators.gap.method import EdgeLevelGap, NodeLevelGap
from graphveil.estimators.gap.networks import GapArchitecture, HopTransform
from graphveil.estimators.keywords import TrainingConfig
from graphveil.estimators.method import Method
from graphveil.estimators.mlp import MLPArchitecture, NonPrivateMLP, PrivateMLP
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier
from graphveil.nn.layers import ACTIVATIONS, Batch, FeedForward, unit_rows
from graphveil.papers.as_published import renyi
from graphveil.papers.as_published.edge_samples import sample_out_edges
from graphveil.papers.as_published.published import (
    EXACT_SELECTION,
    RENYI,
    AsPublished,
    PublishedMethod,
    ReadsRecords,
    fit_and_select,
    rebuilt,
    record_training,
    renyi_plan,
)
from graphveil.papers.as_published.renyi import epsilon_of_event
from graphveil.papers.attention import SIMILARITY, AttentionTraining, check_training_cost

_NODE_LEVEL = (
    EXACT_SELECTION,
    "the paper claims to hide all edges at a node; a sample of each node's own edges hides those that "
    "the node declares, at most",
)
_WEIGHTED = (
    "an edge is charged for one row of norm one, as the paper does, for any weights and at any number of ends"
)
_ATTENTION = (
    "the paper's Renyi accounting lets an edge add a clipped gradient or take one away; it replaces one by "
    "another, twice the change",
    "an undirected edge counts at both of its ends, in training and in the sums, and is charged at one",
)
_STEPS, _MULTIPLIER = 1000, 1.3  # of attention
# Not in the paper. Batch sizes from 279 to 409 are infeasible for the same budgets as in the paper
# (benchmarks/notes/012-learned-attention.md).
_BATCH = 320


class MLP(AsPublished, mlp.MLP):
    """MLP as the baseline of GAP: three layers, and under node-level units MLP-DP.

    The noise follows the paper's Renyi accounting, and the epoch with the best exact validation accuracy is
    kept. There is no tuning. Arguments are those of ``graphveil.MLP``.

    Privacy:
        Unit: any of ``graphveil.MLP``. No valid guarantee under node-level units.
    """

    method: ClassVar[str] = "mlp-paper"
    deviations: ClassVar[tuple[str, ...]] = (RENYI, EXACT_SELECTION)

    def _build_method(self) -> Method:
        if self.tuned:
            raise ConfigError("tuned=True is not part of the published method. Omit it, or use method 'mlp'.")
        records = self.privacy_config.on_records
        training_config = (
            record_training(self, self.privacy_config, self.method)
            if records
            else TrainingConfig.from_keywords(self, self.privacy_config)
        )
        depth = 3 if self.layers is None else self.layers
        checks.depth(layers=depth)
        shape = MLPArchitecture(training_config=training_config, depth=depth)
        if records:
            return self._method(PublishedPrivateMLP, shape=shape)
        return self._method(PublishedMLP, shapes=(shape,))


class PublishedMLP(PublishedMethod, NonPrivateMLP):
    """The baseline on public features and labels."""


class PublishedPrivateMLP(ReadsRecords, PrivateMLP):
    """MLP-DP."""

    trainer: ClassVar[Callable[..., object]] = staticmethod(fit_and_select)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return renyi_plan(self.privacy_config, self.record_plan(sizes), sizes)


class GAP(AsPublished, gap.GAP):
    """GAP with the networks, the normalization and the accounting of the paper.

    **Edge-level units.** Vectors and aggregates are L2-normalized, and the encoder has batch norm before its
    head. Weighted sums have the noise of sensitivity one.

    **Node-level units.** D out-edges per node are sampled. Training steps and hops have one noise multiplier.
    Heads read activations of L2-normalized embeddings. The epoch with the best exact validation accuracy is
    kept.

    Arguments are those of ``graphveil.GAP``, without custom modules.

    Privacy:
        Unit: any of ``graphveil.GAP``. No valid guarantee: the noise follows the paper's Renyi accounting.
    """

    method: ClassVar[str] = "gap-paper"
    deviations: ClassVar[tuple[str, ...]] = (RENYI,)

    def _check_config(self) -> None:
        super()._check_config()
        for name in ("encoder", "head"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name}= is not part of the published method. Omit it, or use method 'gap'."
                )

    def _build_method(self) -> EdgeLevelGap | NodeLevelGap:
        found = super()._build_method()
        if isinstance(found, EdgeLevelGap):
            shape: GapArchitecture = rebuilt(found.shape, EdgeNetworks)
            return rebuilt(found, PublishedEdgeGap, hop_transform=UnitTransform(), shape=shape)
        training_config = record_training(self, self.privacy_config, self.method)
        depth = 2 if self.use_encoder and self.encoder_layers is None else found.shape.encoder_layers
        return rebuilt(
            found,
            PublishedNodeGap,
            hop_transform=UnitTransform(),
            training_config=training_config,
            shape=rebuilt(found.shape, RecordNetworks, encoder_layers=depth),
            encoder_epochs=training_config.epochs if self.encoder_epochs is None else self.encoder_epochs,
        )


class PublishedEdgeGap(PublishedMethod, EdgeLevelGap):
    """GAP-EDP."""

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the hops by the paper's accounting; with weights as for sensitivity one (its Lemma 1)."""
        if not self.privacy_config.protects or self.attends:
            return super().plan(sizes)
        delta = self.privacy_config.delta_for(sizes.nodes)
        require_delta(delta, "NeighborSumQuery")
        mu = renyi.mu_of(self.privacy_config.budget, delta)
        hops = self.hops(sizes, mu)
        if self.similarity is not None:
            hops = tuple(replace(query, sigma=(math.sqrt(len(hops)) / mu,)) for query in hops)
        return ReleasePlan(self.privacy_config.unit, hops, delta)

    def attention_training(self, sizes: PublicSizes) -> AttentionTraining:
        return rebuilt(super().attention_training(sizes), PublishedAttention)

    def deviations(self, view: Graph) -> tuple[str, ...]:
        weighted = _ATTENTION if self.attends else (_WEIGHTED,)
        return (*super().deviations(view), *(weighted if self.similarity is not None else ()))


class PublishedNodeGap(ReadsRecords, NodeLevelGap):
    """GAP-NDP."""

    trainer: ClassVar[Callable[..., object]] = staticmethod(fit_and_select)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return renyi_plan(self.privacy_config, self.record_plan(sizes), sizes)

    def deviations(self, view: Graph) -> tuple[str, ...]:
        return (*super().deviations(view), *_NODE_LEVEL)

    def queried_graph(self, view: Graph, session: Session) -> Graph:
        if not isinstance(self.privacy_config.unit, NodeRecord):
            return view
        sample = sample_out_edges(view.adjacency, self.out_degree_bound or 1, session.streams.numpy("edges"))
        return view.replace(adjacency=sample)


@dataclass(frozen=True, kw_only=True)
class PublishedAttention(AttentionTraining):
    """Attention with the accounting of its paper, in which each forward pass is a release of the sums."""

    oriented: ClassVar[bool] = False

    def plan(self, epsilon: float, delta: float, *, num_nodes: int) -> ReleasePlan:
        """Return the plan of the paper's Theorem 2: T sums of sensitivity one are released, unamplified."""
        require_delta(delta, "EdgeAttentionQuery")
        steps, multiplier = self._steps, self.multiplier or _MULTIPLIER
        training = PoissonGaussian(multiplier, self._rate, steps)
        check_training_cost(epsilon_of_event(training, delta, "plain"), epsilon)

        def event(sigma: float) -> Composed:
            return compose(training, Gaussian(math.sqrt(steps) / sigma))

        sigma = renyi.multiplier_of(epsilon, delta, event, "plain")
        hop = replace(equal_hops(1.0, 1, self.dim, self.unit, SIMILARITY)[0], sigma=(sigma,))
        return ReleasePlan(self.unit, (self._attention_query(multiplier, sigma), *[hop] * self.hops), delta)

    @property
    def _steps(self) -> int:
        return self.steps or _STEPS

    @property
    def _batch(self) -> int:
        return self.batch_size or _BATCH


# -- networks ----------------------------------------------------------------------------------------------


class UnitTransform(HopTransform):
    """L2-normalization before a hop and of its aggregates."""

    def unit(self, rows: Tensor) -> Tensor:
        return plain_unit(rows)

    def next_input(self, encoder: Encoder | None, rows: Any, aggregates: Sequence[Tensor], std: float) -> Any:
        return plain_unit(aggregates[-1])

    def views(self, rows: Any, aggregates: Sequence[Tensor], stds: Sequence[float] | None) -> list[Any]:
        return super().views(rows, aggregates, None)


class EdgeNetworks(GapArchitecture):
    """The networks of the paper at edge level."""

    def encoder(self, sizes: PublicSizes, generator: torch.Generator) -> Encoder:
        return NormedEncoder(self._encoder_widths(sizes), sizes.classes, generator=generator, **self.layers)


class RecordNetworks(GapArchitecture):
    """The networks of the paper's reference under node-level units."""

    def encoder(self, sizes: PublicSizes, generator: torch.Generator) -> Encoder:
        return ActivatedEncoder(
            self._encoder_widths(sizes), sizes.classes, generator=generator, **self.layers
        )

    def classifier(self, sizes: PublicSizes, generator: torch.Generator) -> HopClassifier:
        base, head = self._base_widths(sizes), [*self._head_widths, sizes.classes]
        activation = self.layers["activation"]
        return UnitHopClassifier(self.hops + 1, base, head, generator=generator, activation=activation)


class NormedEncoder(Encoder):
    """An encoder with batch norm between embeddings and head."""

    def __init__(self, widths: Sequence[int], classes: int, **layers: Any) -> None:
        super().__init__(widths, classes, **layers)
        head = self._head
        del self._head  # parameters are stored in this order
        self._norm = nn.BatchNorm1d(widths[-1]) if layers["batch_norm"] else nn.Identity()
        self._head = head

    def forward(self, x: Batch) -> Tensor:
        return cast(Tensor, self._head(self._norm(self.rows(x))))


class ActivatedEncoder(Encoder):
    """An encoder with an activation between embeddings and head, and without batch norm."""

    def __init__(self, widths: Sequence[int], classes: int, **layers: Any) -> None:
        super().__init__(widths, classes, **layers)
        self._activation: str = layers["activation"]

    def ghost(self) -> GhostModule:
        return GhostSequential(
            self._base.ghost(), UnitRows(), Activation(self._activation), self._head.ghost()
        )

    def forward(self, x: Batch) -> Tensor:
        return cast(Tensor, self._head(_activated(self._activation, self.rows(x))))


class UnitHopClassifier(HopClassifier):
    """The reference's classifier under node-level units: branches, L2-normalization, and a head.

        y = head(act(unit(concat(base_0(x_0), ..., base_K(x_K)))))

    Shapes: ``hops`` times (B, base[0]) -> (B, head[-1]).
    """

    def __init__(
        self,
        hops: int,
        base: Sequence[int],
        head: Sequence[int],
        *,
        generator: torch.Generator,
        activation: str,
    ) -> None:
        nn.Module.__init__(self)
        layers: dict[str, Any] = {"generator": generator, "activation": activation}
        self._branches = nn.ModuleList(FeedForward(base, **layers) for _ in range(hops))
        self._head = FeedForward([hops * base[-1], *head], **layers)
        self._activation = activation

    def ghost(self) -> GhostModule:
        """Return the network for private training, which reads the concatenated aggregates in blocks."""
        branches = [cast(FeedForward, branch).ghost() for branch in self._branches]
        return GhostSequential(
            GhostBranches(*branches), UnitRows(), Activation(self._activation), self._head.ghost()
        )

    def forward(self, views: Sequence[FixedRows]) -> Tensor:
        parts = [branch(view.values) for branch, view in zip(self._branches, views, strict=True)]
        combined = unit_rows(torch.cat(parts, dim=1))
        return cast(Tensor, self._head(_activated(self._activation, combined)))


def _activated(name: str, rows: Tensor) -> Tensor:
    """Return the activation without overwriting its input, which a gradient needs."""
    return ACTIVATIONS[name](rows.clone())
