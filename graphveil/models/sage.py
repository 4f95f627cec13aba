"""SAGE: message passing with sums, the non-private reference of the GAP and ProGAP papers, and SAGE-NDP."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil.errors import ConfigError, NotYetError
from graphveil.graph import Adjacency, Graph
from graphveil.models.bounded import at_most_in_all
from graphveil.models.full_graph import FullGraphEstimator
from graphveil.models.session import Session
from graphveil.models.subgraphs import Maps, RootSum, RowSum, table_of
from graphveil.models.training.private import (
    Training,
    count_parameters,
    fit_sums,
    members,
    public_count,
    record_groups,
    tensors_of,
)
from graphveil.networks.layers import Batch, FeedForward, Hidden, Linear, batch_of, unit_rows
from graphveil.privacy import NodeOwner, renyi
from graphveil.release import PushQuery, Release, ReleasePlan, sum_in_neighbors
from graphveil.train import PrivateSchedule

_EPOCHS, _BATCH = 10, 256
PAPER_DEVIATIONS = (
    "noise calibrated by the paper's accounting of sampled subgraphs, which is unproved: its batches have a "
    "fixed size and those that are run do not; the epsilon that is told holds for steps on everybody",
    "which of a node's edges are kept depends on the edges of others, so a record changes theirs, too",
)
CLIPPED_BY_ROW = (
    "what each node's row adds to a batch's gradient is clipped, as in the reference, and the noise is that "
    "for clipped losses of roots: a record changes up to D^2 + 1 rows, where the paper counts D + 1 roots"
)


@dataclass(kw_only=True, eq=False)
class SAGE(FullGraphEstimator):
    """GraphSAGE with sums (Hamilton, Ying, Leskovec: Inductive representation learning, 2017).

    Dense layers, then ``layers`` rounds of messages, then dense layers:

        h <- act(norm(W_self h_v + W_in sum_{u -> v} h_u + b)).

    Guarantee: none. It is the reference that private methods are measured against; a private unit is refused.

    Unit ``node-owner`` in paper mode is SAGE-NDP (Sajadmanesh et al.: GAP, 2023, after Daigavane et al.:
    Node-level differentially private graph neural networks, 2021): one round, rows of norm one before and
    after it, a sample of at most D edges a node, those sent and those received together; DP-Adam on clipped
    gradients of training nodes' losses, each over the subgraph of its in-neighbours, with noise 2 z (D + 1)
    C; and one noisy aggregation of multiplier z to predict with, drawn once and kept. The last weights count.
    The theory clips the gradient of each root's loss, and the public reference what each node's row adds to
    the batch's (:class:`~graphveil.models.subgraphs.RowSum`), with the same noise: see ``clip_per``. Either
    way the accounting is unproved, so strict mode refuses it, and the epsilon that a fit tells counts every
    step as if it were on everybody.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: rounds of messages; None for 2, under a node unit 1.
        pre_layers: dense layers before the messages.
        post_layers: dense layers after them, the output layer included.
        epochs: training epochs; None for 100, under a node unit 10.
        batch_size: expected nodes in a batch, under a node unit; None for 256.
        clip: the norm C that a gradient is clipped to, under a node unit.
        clip_per: under a node unit, what is clipped: a ``"row"``'s part of the batch's gradient, as in the
            reference, whose accuracies it has; or the gradient of a ``"root"``'s loss.

    Raises:
        NotYetError: the unit is not ``"none"``, and not ``"node-owner"`` in paper mode.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> SAGE(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "sage"
    node_units: ClassVar[tuple[str, ...]] = (NodeOwner.name,)
    needs_degree_budget: ClassVar[bool] = True
    paper_deviations: ClassVar[tuple[str, ...]] = PAPER_DEVIATIONS

    pre_layers: int = 2
    post_layers: int = 1
    batch_size: int | None = None
    clip: float = 1.0
    clip_per: Literal["row", "root"] = "row"

    def _check_available(self) -> None:
        if self.unit != NodeOwner.name:
            super()._check_available()
        elif self.mode != "paper":
            raise NotYetError(
                f"{self.method} under unit {self.unit!r} is available in paper mode only: a record changes "
                "its own gradient by C and up to D others by 2 C each, of which a batch holds a Binomial(D + "
                "1, q) number, and no accounting of that mixture is proved; use 'classcode' or 'gap', or "
                "mode='paper' (--mode paper) to reproduce the paper"
            )

    def _check_config(self) -> None:
        super()._check_config()
        _check.depth(pre_layers=self.pre_layers, post_layers=self.post_layers)
        _check.one_of(("row", "root"), clip_per=self.clip_per)
        if self._on_records:
            self._refuse_for_records()
            self._private_schedule()
        elif self.batch_size is not None:
            raise ConfigError(f"batch_size={self.batch_size} is for node units; full graphs have one batch")

    def _refuse_for_records(self) -> None:
        if self._depth != 1:
            raise ConfigError(
                f"layers={self.layers} lets a record reach more than its neighbours' gradients; node units "
                "need layers=1"
            )
        if self.batch_norm:
            raise ConfigError("batch_norm mixes the records of a batch; use LayerNorm or GroupNorm, or none")
        if self.dropout or self.patience is not None or self.private_metrics:
            raise ConfigError("dropout, patience and private_metrics are not available here; drop them")

    @property
    def _on_records(self) -> bool:
        return self.unit == NodeOwner.name

    @property
    def _depth(self) -> int:
        return 1 if self._on_records and self.layers is None else super()._depth

    @property
    def _normed(self) -> bool:
        return super()._normed and not self._on_records

    def _build(self, generator: torch.Generator) -> "SageNetwork":
        width, style = self.hidden, {"generator": generator, **self._layers()}
        before = FeedForward([self._shape["features"], *[width] * self.pre_layers], plain_last=False, **style)
        rounds = [
            SageLayer(width, Hidden(width, **style), generator=generator, unit=self._on_records)
            for _ in range(self._depth)
        ]
        after = FeedForward([*[width] * self.post_layers, self._shape["classes"]], **style)
        return SageNetwork(before, rounds, after, unit=self._on_records)

    # -- SAGE-NDP ------------------------------------------------------------------------------------------

    def _private_schedule(self) -> PrivateSchedule:
        return PrivateSchedule(
            epochs=_EPOCHS if self.epochs is None else self.epochs,
            batch_size=_BATCH if self.batch_size is None else self.batch_size,
            clip=self.clip,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )

    def _training(self, num_nodes: int, num_classes: int) -> Training:
        features, width = self._sizes.get("features", self.hidden), self.hidden
        widths = [features, *[width] * self.pre_layers], [*[width] * self.post_layers, num_classes]
        dense = sum(count_parameters(*part) for part in widths)
        parameters = dense + 2 * count_parameters(width, width)
        records = public_count(self._sizes, num_nodes)
        return Training(schedule=self._private_schedule(), parameters=parameters, records=records)

    @property
    def _most(self) -> int:
        return self.degree_budget or 1

    @property
    def _reach(self) -> int:
        """How many clipped gradients a record changes, besides its own or with it.

        Nulling a record changes the losses of the up to D roots that it sends to, and its own. A row's part
        changes with its own record and with the losses of the roots that it sends to: so do those of the
        roots in question, of all that send to these, D a root, and of the record itself.
        """
        return self._most**2 + 1 if self.clip_per == "row" else self._most

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        """Return the steps and the one aggregation, by the paper's accounting."""
        training = self._training(num_nodes, num_classes)
        z = renyi.subgraph_multiplier_of(
            self._budgeted(),
            delta,
            records=training.records,
            batch=math.ceil(training.rate * training.records),
            reach=self._most,
            steps=training.steps,
        )
        steps = replace(training.query(2 * (self._most + 1) * z), reach=self._reach)
        push = PushQuery(dim=self.hidden, sigma=z, degree_budget=self._most)
        return ReleasePlan(self.protected_unit, (steps, push), delta)

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        """Refuse under a node unit, where this reproduces a table and no more."""
        if self._on_records:
            raise NotYetError(
                f"{self.method} under unit {self.unit!r} predicts the fitted graph only; use 'gap', which "
                "predicts others"
            )
        return super()._plan_of_other(graph)

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        """Train in the clear, or over bounded subgraphs."""
        if plan is None:
            return super()._fit(graph, plan, context)
        sample = self._sampled(graph, context)
        release = self._release(plan, sample, context, record_groups(graph))
        network = self._network = self._build(context.streams.torch(self.method))
        with context.stage("classifier"):
            self._train_subgraphs(network, sample, release, context)
        with context.stage("aggregate"):
            proba = self._asked(network, sample, release)
        release.close()
        return proba

    def _train_subgraphs(
        self, network: "SageNetwork", sample: Graph, release: Release, context: Session
    ) -> None:
        """Train, and keep the last weights."""
        training = self._training(sample.num_nodes, sample.num_classes)
        roots = members(sample, "train")
        table, labels = table_of(sample.adjacency, roots, self._most), sample.y[roots]
        kind = RowSum if self.clip_per == "row" else RootSum
        fit_sums(
            "classifier",
            network,
            lambda: kind(network.maps(), self.activation, sample.x, table, labels),
            (*tensors_of(sample.x), table, labels),
            training,
            release,
            context,
        )

    @torch.no_grad()
    def _asked(self, network: "SageNetwork", sample: Graph, release: Release) -> Tensor:
        """Return probabilities from one noisy aggregation, the release's next question."""
        rows = network.rows(batch_of(sample.x))
        noisy = release.push(rows) * math.sqrt(self._most)  # the push divides by it
        self.aggregates_ = {"hop1": noisy}
        return network.read(rows, noisy).softmax(dim=1)

    def _sampled(self, graph: Graph, context: Session) -> Graph:
        """Return the graph with a sample of its edges, at most D a node."""
        rng = context.streams.numpy("edges")
        return graph.replace(adjacency=at_most_in_all(graph.adjacency, self._most, rng))

    def _deviations(self, plan: ReleasePlan, graph: Graph) -> tuple[str, ...]:
        more = (CLIPPED_BY_ROW,) if self.clip_per == "row" else ()
        return (*super()._deviations(plan, graph), *more)

    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities for another graph, from its exact edges."""
        self._plan_of_other(graph)
        return super()._predict_other(graph)


class SageLayer(nn.Module):
    """One round of messages, with ``unit`` to rows of norm one before the activation.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator, unit: bool = False) -> None:
        """Draw the weights."""
        super().__init__()
        self._own = Linear(width, width, generator=generator)
        self._incoming = Linear(width, width, generator=generator)
        self._hidden = hidden
        self._unit = unit

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(norm(W_self x + W_in A^T x + b))."""
        return self.read(x, sum_in_neighbors(adjacency, x))

    def read(self, x: Tensor, sums: Tensor) -> Tensor:
        """Return the same for sums that are known already."""
        mixed = self._own(x) + self._incoming(sums)
        if self._unit:
            mixed = unit_rows(mixed).clone()  # the activation overwrites its input
        return cast(Tensor, self._hidden(mixed))


class SageNetwork(nn.Module):
    """Dense layers, rounds of messages, dense layers; with ``unit`` rows of norm one before the messages.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(
        self, before: FeedForward, rounds: list[SageLayer], after: FeedForward, *, unit: bool = False
    ) -> None:
        """Put the parts together."""
        super().__init__()
        self._before, self._rounds, self._after = before, nn.ModuleList(rounds), after
        self._unit = unit

    def rows(self, x: Batch) -> Tensor:
        """Return what nodes send in the first round."""
        return unit_rows(self._before(x)) if self._unit else cast(Tensor, self._before(x))

    def read(self, rows: Tensor, sums: Tensor) -> Tensor:
        """Return logits from the rows and what was summed of them, in a network of one round."""
        return cast(Tensor, self._after(cast(SageLayer, self._rounds[0]).read(rows, sums)))

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h = self.rows(x)
        for layer in self._rounds:
            h = layer(h, adjacency)
        return cast(Tensor, self._after(h))

    def maps(self) -> Maps:
        """Return the affine maps of a network of one round."""
        layer = cast(SageLayer, self._rounds[0])
        return Maps(self._before.affines(), layer._own, layer._incoming, self._after.affines())
