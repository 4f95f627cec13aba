"""SAGE-NDP over bounded subgraphs, with the paper's accounting, which is unproved."""

import math
from dataclasses import dataclass, replace

import torch

from graphveil.core.accounting.gaussian import require_delta
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.data import Graph
from graphveil.errors import NotImplementedGuaranteeError
from graphveil.estimators.edge_samples import sample_total_degree
from graphveil.estimators.full_graph import restored
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes, members, record_groups
from graphveil.estimators.sage import ClipPer
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, count_parameters, fit_dpsgd_from_sums
from graphveil.nn.layers import batch_of
from graphveil.nn.message_passing import SageArchitecture
from graphveil.papers.as_published.subgraph_sums import SubgraphClippedSum, neighbor_table
from graphveil.privacy import renyi

CLIPPED_BY_ROW = (
    "what each node's row adds to a batch's gradient is clipped, as in the reference, and the noise is that "
    "for clipped losses of roots: a record changes up to D^2 + 1 rows, where the paper counts D + 1 roots"
)


@dataclass(frozen=True, kw_only=True)
class NodeLevelSAGE(Method):
    """SAGE-NDP under unit ``node-record`` in paper mode; see ``SAGE``.

    Args:
        shape: Network with one aggregation step and L2-normalized hidden vectors.
        schedule: Steps, learning rate, clipping.
        max_sampled_degree: D, the number of edges that a node keeps.
        clip_per: What is clipped.
    """

    shape: SageArchitecture
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
        push = OutEdgeSumQuery(dim=self.shape.hidden, sigma=z, out_degree_bound=self.max_sampled_degree)
        return ReleasePlan(self.privacy_config.unit, (steps, push), delta)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        """Return the steps, before their noise multiplier is chosen."""
        dense = sum(count_parameters(*part) for part in self.shape.widths(sizes.width, sizes.classes))
        parameters = dense + 2 * count_parameters(self.shape.hidden, self.shape.hidden)
        return DPSGDTraining(schedule=self.schedule, parameters=parameters, records=sizes.records)

    def deviations(self, view: Graph) -> tuple[str, ...]:
        """Return why there is no valid guarantee."""
        more = (CLIPPED_BY_ROW,) if self.clip_per == "row" else ()
        return (*super().deviations(view), *more)

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Train over bounded subgraphs, and predict from one noisy aggregation."""
        most, rng = self.max_sampled_degree, session.streams.numpy("edges")
        sample = view.replace(adjacency=sample_total_degree(view.adjacency, most, rng))
        release = session.open(sample, record_groups(view))
        generator = session.streams.torch(self.name)
        network = self.shape.build(view.num_features, view.num_classes, generator=generator)
        roots = members(sample, "train")
        table, labels = neighbor_table(sample.adjacency, roots, most), sample.y[roots]
        activation = self.shape.style["activation"]
        with session.stage("classifier"):  # the last parameters are kept
            fit_dpsgd_from_sums(
                "classifier",
                network,
                lambda: SubgraphClippedSum(
                    network.maps(), activation, sample.x, table, labels, self.clip_per
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
        """Return the network with these parameters."""
        return TrainedNodeLevelSAGE(self.name, restored(self.shape, state, sizes))


@dataclass(frozen=True, eq=False)
class TrainedNodeLevelSAGE(TrainedModel):
    """A trained network of SAGE-NDP, only for reproducing the paper's table."""

    name: str
    network: torch.nn.Module

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Raise an error: other graphs are not predicted."""
        raise NotImplementedGuaranteeError(
            f"{self.name} under unit 'node-record' predicts the training graph only. Use method 'gap' "
            "to predict other graphs."
        )

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Raise an error, as ``plan_for`` does before."""
        raise AssertionError("plan_for rejects every other graph")

    def state(self) -> State:
        """Return the parameters."""
        return dict(self.network.state_dict())
