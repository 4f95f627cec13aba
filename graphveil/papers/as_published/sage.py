"""SAGE as published with GAP: on a released graph (SAGE-EDP), and over bounded subgraphs (SAGE-NDP)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, get_args

import torch

from graphveil._util import checks
from graphveil.core.accounting.gaussian import require_delta
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.unit import NodeRecord
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators import sage
from graphveil.estimators.full_graph import restored
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.private_training import DPSGDTraining, fit_dpsgd
from graphveil.estimators.public_sizes import PublicSizes, members, record_groups
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.nn.layers import batch_of
from graphveil.nn.message_passing import SageNetwork
from graphveil.papers.as_published import renyi
from graphveil.papers.as_published.edge_samples import sample_total_degree
from graphveil.papers.as_published.graph_mechanisms import PUBLISHED
from graphveil.papers.as_published.methods import PublishedFullGraph
from graphveil.papers.as_published.published import AsPublished, ReadsRecords, rebuilt
from graphveil.papers.as_published.subgraph_sums import (
    AffineMaps,
    ClipPer,
    SubgraphClippedSum,
    neighbor_table,
)
from graphveil.perturb import GraphMechanism

_UNPROVED = (
    "noise calibrated by the paper's accounting of sampled subgraphs, which is unproved: its batches have a "
    "fixed size and those that are run do not; the stated epsilon is that of steps on all records",
    "which of a node's edges are kept depends on the edges of others, so a record changes theirs, too",
)
CLIPPED_BY_ROW = (
    "what each node's row adds to a batch's gradient is clipped, as in the reference, and the noise is that "
    "for clipped losses of roots: a record changes up to D^2 + 1 rows, where the paper counts D + 1 roots"
)


_EPOCHS, _BATCH = 10, 256  # of SAGE-NDP

_PERTURBED_RECORDS = rejected(
    "perturb={perturb!r} releases edges with noise, but unit {unit!r} protects node records. Use unit "
    "'undirected-edge' or 'directed-edge'.",
    NodeRecord.name,
)


@dataclass(kw_only=True, eq=False, repr=False)
class SAGE(AsPublished, sage.SAGE):
    """SAGE as published with GAP (Sajadmanesh et al.: GAP, 2023).

    **SAGE-EDP** (``perturb="arr"`` or another mechanism, as in published code) has one aggregation step, with
    L2-normalized output.

    **SAGE-NDP** (unit ``node-record``; after Daigavane et al.: Node-level differentially private graph neural
    networks, 2021) has one aggregation step, with L2-normalized vectors before and after it. A sample keeps
    at most D edges per node, in- and out-edges together. DP-Adam clips gradients of training nodes' losses,
    each over the subgraph of its in-neighbors, with noise 2 z (D + 1) C. Predictions use one noisy
    aggregation with multiplier z, whose noise is never redrawn. The last parameters are kept.

    The theory clips the gradient of each root's loss. The public reference clips the contribution of each
    node's vector to the batch gradient (``SubgraphClippedSum``), with the same noise; see ``clip_per``. The
    accounting of both is unproved. The reported epsilon composes all steps without amplification by sampling.

    Args:
        layers: Aggregation steps. None for 2; 1 under a node-level unit or on a released graph.
        epochs: Training epochs; None for 100, under a node-level unit 10.
        batch_size: Node-level unit: expected nodes in a batch; None for 256.
        clip: Node-level unit: clipping norm C of a gradient.
        clip_per: Node-level unit: ``"row"`` clips the contribution of each node's vector to the batch
            gradient, as the reference does and with its accuracies. ``"root"`` clips the gradient of each
            root's loss.

    Privacy:
        Unit: ``none``, an edge-level unit with ``perturb``, or ``node-record``. No valid guarantee.
    """

    method: ClassVar[str] = "sage-paper"
    needs_out_degree_bound: ClassVar[bool] = True
    deviations: ClassVar[tuple[str, ...]] = _UNPROVED
    mechanisms: ClassVar[Mapping[str, type[GraphMechanism]]] = PUBLISHED

    batch_size: int | None = None
    clip: float = 1.0
    clip_per: ClipPer = "row"

    @property
    def _rejections(self) -> Rejections:
        found = {name: why for name, why in super()._rejections.items() if name != NodeRecord.name}
        return found if self.perturb is None else found | _PERTURBED_RECORDS

    def _build_method(self) -> Method:
        checks.one_of(get_args(ClipPer), clip_per=self.clip_per)
        return self._over_subgraphs() if self.unit == NodeRecord.name else self._over_graph()

    def _over_graph(self) -> Method:
        if self.batch_size is not None:
            raise ConfigError(
                f"batch_size={self.batch_size} applies to node-level units only. Otherwise the full "
                "graph is one batch. Omit it."
            )
        found = rebuilt(super()._build_method(), PublishedFullGraph)
        if self.perturb is None:
            return found
        config = replace(found.privacy_config, deviations=())  # the mechanism has its own
        shape = found.shape
        if not self.residual:
            shape = partial(shape, depth=self._depth(1), unit_rounds=True)
        return replace(found, privacy_config=config, shape=shape)

    def _over_subgraphs(self) -> Method:
        checks.depth(pre_layers=self.pre_layers, post_layers=self.post_layers)
        style, depth = self._layer_options(normed=False), self._depth(1)
        if self.residual:
            raise ConfigError(
                "residual=True is supported with unit 'none' and with perturbed graphs only. Omit it."
            )
        if depth != 1:
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
        return self._method(
            NodeLevelSAGE,
            style=style,
            schedule=PrivateSchedule(
                epochs=_EPOCHS if self.epochs is None else self.epochs,
                batch_size=_BATCH if self.batch_size is None else self.batch_size,
                clip=self.clip,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
            ),
            max_sampled_degree=self.out_degree_bound or 1,
        )


@dataclass(frozen=True, kw_only=True)
class NodeLevelSAGE(ReadsRecords):
    """SAGE-NDP; see ``SAGE``.

    Args:
        max_sampled_degree: D, the number of edges that a node keeps.
    """

    hidden: int
    pre_layers: int
    post_layers: int
    style: dict[str, Any]
    schedule: PrivateSchedule
    max_sampled_degree: int
    clip_per: ClipPer

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps and the one aggregation, with the paper's accounting.

        Nulling a record changes the losses of its own root and of the up to D roots that it sends to. The
        contribution of a vector changes with its own record and with the losses of the roots that it sends
        to. So all vectors change that send to an affected root (D per root), the roots', and the record's
        own: up to D^2 + 1.
        """
        training, delta = self.training(sizes), self.privacy_config.delta_for(sizes.nodes)
        require_delta(delta, "DPSGDQuery")
        z = renyi.subgraph_multiplier_of(
            self.privacy_config.budget,
            delta,
            records=training.records,
            batch=math.ceil(training.rate * training.records),
            reach=self.max_sampled_degree,
            steps=training.steps,
        )
        by_row = self.clip_per == "row"
        reach = self.max_sampled_degree**2 + 1 if by_row else self.max_sampled_degree
        steps = replace(training.query(2 * (self.max_sampled_degree + 1) * z), reach=reach)
        push = OutEdgeSumQuery(dim=self.hidden, sigma=z, out_degree_bound=self.max_sampled_degree)
        return ReleasePlan(self.privacy_config.unit, (steps, push), delta)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        """Return the steps, before their noise multiplier is chosen."""
        return DPSGDTraining.for_module(self.network(sizes), self.schedule, sizes.records)

    def network(self, sizes: PublicSizes, generator: torch.Generator | None = None) -> SageNetwork:
        """Return an untrained network; parameters to be replaced need no generator."""
        return SageNetwork(
            sizes.width,
            sizes.classes,
            hidden=self.hidden,
            depth=1,
            style=self.style,
            pre_layers=self.pre_layers,
            post_layers=self.post_layers,
            unit=True,
            generator=torch.Generator() if generator is None else generator,
        )

    def deviations(self, view: Graph) -> tuple[str, ...]:
        more = (CLIPPED_BY_ROW,) if self.clip_per == "row" else ()
        return (*super().deviations(view), *more)

    def fit(self, view: Graph, session: Session) -> FitResult:
        most, rng = self.max_sampled_degree, session.streams.numpy("edges")
        sample = view.replace(adjacency=sample_total_degree(view.adjacency, most, rng))
        release = session.open(sample, record_groups(view))
        generator = session.streams.torch(self.stream_name)
        network = self.network(self.sizes_of(sample), generator)
        roots = members(sample, "train")
        table, labels = neighbor_table(sample.adjacency, roots, most), sample.y[roots]
        with session.stage("classifier"):  # the last parameters are kept
            fit_dpsgd(
                "classifier",
                network,
                lambda: SubgraphClippedSum(
                    AffineMaps.from_network(network),
                    self.style["activation"],
                    sample.x,
                    table,
                    labels,
                    self.clip_per,
                ),
                self.training(self.sizes_of(sample)),
                release,
                session,
            )
        with session.stage("aggregate"), torch.no_grad():
            rows = network.rows(batch_of(sample.x))
            # The out-edge aggregation divides by the square root of D.
            noisy = release.answer(OutEdgeSumData(rows)) * math.sqrt(most)
            proba = network.read(rows, noisy).softmax(dim=1)
        release.close()
        return FitResult(
            trained=TrainedNodeLevelSAGE(self.name, network), proba=proba, released={"hop1": noisy}
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedNodeLevelSAGE":
        return TrainedNodeLevelSAGE(self.name, restored(self.network(sizes), state))


@dataclass(frozen=True, eq=False)
class TrainedNodeLevelSAGE(TrainedModel):
    """A trained network of SAGE-NDP, only for reproducing the paper's table."""

    name: str
    network: torch.nn.Module

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        raise NotImplementedGuaranteeError(
            f"{self.name} under unit 'node-record' predicts the training graph only. Use method 'gap' "
            "to predict other graphs."
        )

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        raise AssertionError("plan_for rejects every other graph")

    def state(self) -> State:
        return dict(self.network.state_dict())
