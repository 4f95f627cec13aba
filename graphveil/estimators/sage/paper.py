"""SAGE-NDP: steps over the subgraphs of a bounded sample of edges, and one noisy sum to predict from."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import NotImplementedGuaranteeError
from graphveil.estimators.full_graph import restored
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.membership import members, record_groups
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.sage.bounded import sample_total_degree
from graphveil.estimators.sage.subgraphs import RootClippedSum, RowClippedSum, neighbor_table
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.dpsgd import (
    DPSGDTraining,
    count_parameters,
    fit_dpsgd_from_sums,
    tensors_of,
)
from graphveil.nn.layers import batch_of
from graphveil.nn.sage import SageArchitecture, SageNetwork
from graphveil.privacy import renyi
from graphveil.privacy.calibration import require_delta
from graphveil.release import OutEdgeSumData, OutEdgeSumQuery, Release, ReleasePlan
from graphveil.training import PrivateSchedule

ClipPer = Literal["row", "root"]
CLIP_PER: tuple[ClipPer, ...] = ("row", "root")
PAPER_DEVIATIONS = (
    "noise calibrated by the paper's accounting of sampled subgraphs, which is unproved: its batches have a "
    "fixed size and those that are run do not; the epsilon that is told holds for steps on everybody",
    "which of a node's edges are kept depends on the edges of others, so a record changes theirs, too",
)
CLIPPED_BY_ROW = (
    "what each node's row adds to a batch's gradient is clipped, as in the reference, and the noise is that "
    "for clipped losses of roots: a record changes up to D^2 + 1 rows, where the paper counts D + 1 roots"
)


@dataclass(frozen=True, kw_only=True)
class NodeLevelSAGE(Method):
    """SAGE-NDP under unit ``node-record`` in paper mode, see :class:`~graphveil.estimators.sage.SAGE`.

    Args:
        shape: the network, of one round and rows of norm one.
        schedule: steps, rates, clipping.
        max_sampled_degree: D, the edges that a node keeps.
        clip_per: what is clipped.
    """

    shape: SageArchitecture
    schedule: PrivateSchedule
    max_sampled_degree: int
    clip_per: ClipPer

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps and the one aggregation, by the paper's accounting."""
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
        steps = replace(training.query(2 * (self.max_sampled_degree + 1) * z), reach=self.reach)
        push = OutEdgeSumQuery(dim=self.shape.hidden, sigma=z, out_degree_bound=self.max_sampled_degree)
        return ReleasePlan(self.privacy_config.unit, (steps, push), delta)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        """Return the steps, before the size of their noise is chosen."""
        dense = sum(count_parameters(*part) for part in self.shape.widths(sizes.width, sizes.classes))
        parameters = dense + 2 * count_parameters(self.shape.hidden, self.shape.hidden)
        return DPSGDTraining(schedule=self.schedule, parameters=parameters, records=sizes.records)

    @property
    def reach(self) -> int:
        """How many clipped gradients a record changes, besides its own or with it.

        Nulling a record changes the losses of the up to D roots that it sends to, and its own. A row's part
        changes with its own record and with the losses of the roots that it sends to: so do those of the
        roots in question, of all that send to these, D a root, and of the record itself.
        """
        return self.max_sampled_degree**2 + 1 if self.clip_per == "row" else self.max_sampled_degree

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return why there is no valid guarantee."""
        more = (CLIPPED_BY_ROW,) if self.clip_per == "row" else ()
        return (*super().deviations(graph), *more)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train over bounded subgraphs, and predict from one noisy sum."""
        sample = self.sample_edges(graph, session)
        release = session.open(sample, record_groups(graph))
        generator = session.streams.torch(self.name)
        network = self.shape.build(graph.num_features, graph.num_classes, generator=generator)
        with session.stage("classifier"):
            self.train(network, sample, release, session)
        with session.stage("aggregate"):
            rows, noisy = self.release_neighbor_sum(network, sample, release)
            with torch.no_grad():
                proba = network.read(rows, noisy).softmax(dim=1)
        release.close()
        return FitResult(
            trained=TrainedNodeLevelSAGE(self.name, network), proba=proba, released={"hop1": noisy}
        )

    def sample_edges(self, graph: Graph, session: Session) -> Graph:
        """Return the graph with a sample of its edges, at most D a node."""
        rng = session.streams.numpy("edges")
        return graph.replace(adjacency=sample_total_degree(graph.adjacency, self.max_sampled_degree, rng))

    def train(self, network: SageNetwork, sample: Graph, release: Release, session: Session) -> None:
        """Train as the release's first question, and keep the last weights."""
        roots = members(sample, "train")
        table, labels = neighbor_table(sample.adjacency, roots, self.max_sampled_degree), sample.y[roots]
        kind = RowClippedSum if self.clip_per == "row" else RootClippedSum
        activation = self.shape.style["activation"]
        fit_dpsgd_from_sums(
            "classifier",
            network,
            lambda: kind(network.maps(), activation, sample.x, table, labels),
            (*tensors_of(sample.x), table, labels),
            self.training(self.sizes_of(sample)),
            release,
            session,
        )

    @torch.no_grad()
    def release_neighbor_sum(
        self, network: SageNetwork, sample: Graph, release: Release
    ) -> tuple[Tensor, Tensor]:
        """Return the rows that nodes send, and the noisy sum of them, the release's next question."""
        rows = network.rows(batch_of(sample.x))
        return rows, release.answer(OutEdgeSumData(rows)) * math.sqrt(
            self.max_sampled_degree
        )  # the push divides by it

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedNodeLevelSAGE":
        """Return the network with these weights."""
        return TrainedNodeLevelSAGE(self.name, restored(self.shape, state, sizes))


@dataclass(frozen=True, eq=False)
class TrainedNodeLevelSAGE(TrainedModel):
    """A trained network of SAGE-NDP, which reproduces a table and no more."""

    name: str
    network: torch.nn.Module

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Refuse: other graphs are not predicted."""
        raise self._refusal()

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Refuse, as :meth:`plan_for` does."""
        raise self._refusal()

    def state(self) -> State:
        """Return the weights."""
        return dict(self.network.state_dict())

    def _refusal(self) -> NotImplementedGuaranteeError:
        return NotImplementedGuaranteeError(
            f"{self.name} under unit 'node-record' predicts the fitted graph only; use 'gap', which predicts "
            "others"
        )
