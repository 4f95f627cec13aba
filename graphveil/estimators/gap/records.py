"""GAP on protected records: encoder steps, noisy hops and classifier steps are one release (GAP-NDP)."""

from dataclasses import dataclass

from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.gap.edges import named_aggregates
from graphveil.estimators.gap.method import (
    Aggregation,
    GapMethod,
    TrainedGap,
    hop_noise_stds,
    plan_record_groups,
)
from graphveil.estimators.gap.shape import Classifier
from graphveil.estimators.membership import check_members
from graphveil.estimators.method import FitResult
from graphveil.estimators.sage.bounded import sample_out_edges
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.dpsgd import DPSGDTraining
from graphveil.estimators.training.node_level import fit_node_level, plan_node_level
from graphveil.estimators.training.record_plan import RecordPlan, release_accuracies
from graphveil.nn.hops import Encoder
from graphveil.nn.layers import batch_of
from graphveil.privacy import NodeRecord, NodeUnit
from graphveil.release import Release, ReleasePlan

NODE_LEVEL_PAPER_DEVIATIONS = (
    "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    "the paper claims to hide all edges at a node; a sample of each node's own edges hides those that "
    "the node declares, at most",
)


@dataclass(frozen=True, kw_only=True)
class NodeLevelGap(GapMethod):
    """Both networks are trained by noisy steps, and a node pays for its steps and its messages together.

    Args:
        shares: the encoder's and the classifier's part of the squared mu.
        multiplier: the noise multiplier of both trainings instead.
        out_degree_bound: D of unit ``node-record``.
    """

    shares: tuple[float, float]
    multiplier: float | None
    out_degree_bound: int | None

    def check(self, graph: Graph) -> None:
        """Refuse a graph without members to learn from, or to select on."""
        super().check(graph)
        if self.training_config.selection.kind == "private":
            check_members(graph, "val")

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the hops between two trainings, calibrated together."""
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        *_, classifier = trainings = self.trainings(sizes)
        record_plan = RecordPlan(
            unit=unit,
            trainings=trainings,
            shares=self.shares[-len(trainings) :],
            multiplier=self.multiplier,
            hops=self.shape.hops,
            dim=self.shape.width(sizes),
            out_degree_bound=self.out_degree_bound,
            candidates=self.training_config.selection.num_counts(classifier),
            metrics=self.privacy_config.private_metrics,
        )
        return plan_node_level(self.privacy_config, record_plan, sizes.nodes)

    def trainings(self, sizes: PublicSizes) -> tuple[DPSGDTraining, ...]:
        """Return the classifier's training, after the encoder's if there is one."""
        classifier = DPSGDTraining(
            schedule=self.training_config.private(),
            parameters=self.shape.classifier_parameters(sizes),
            records=sizes.records,
        )
        if not self.shape.encoder_layers:
            return (classifier,)
        encoder = DPSGDTraining(
            schedule=self.training_config.private(self.encoder_epochs),
            parameters=self.shape.encoder_parameters(sizes),
            records=sizes.records,
        )
        return encoder, classifier

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return the paper's, with those of its node-level variant."""
        return (
            *super().deviations(graph),
            *(NODE_LEVEL_PAPER_DEVIATIONS if self.privacy_config.paper else ()),
        )

    def sample_edges(self, graph: Graph, session: Session) -> Graph:
        """Return the graph with a sample of each node's own edges, which is what the paper asks."""
        if not (self.privacy_config.paper and isinstance(self.privacy_config.unit, NodeRecord)):
            return graph
        sample = sample_out_edges(graph.adjacency, self.out_degree_bound or 1, session.streams.numpy("edges"))
        return graph.replace(adjacency=sample)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Ask both trainings and the hops in the order of the plan, and release accuracies if planned."""
        assert session.plan is not None
        groups = plan_record_groups(session.plan, graph)
        release = session.open(self.sample_edges(graph, session), groups)  # booked before any work
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(graph, release, session))
            rows = session.load_or_compute("encoder", lambda: {"rows": aggregation.encode(graph)})["rows"]
        with session.stage("aggregate"):
            aggregates = aggregation.aggregates(graph, rows, release, session)
        views = self.hop_transform.views(rows, aggregates, hop_noise_stds(session.plan))
        with session.stage("classifier"):
            classifier = self._classifier(graph, views, release, session)
        trained = TrainedGap(aggregation, classifier, self.sizes_of(graph))
        proba, accuracy = trained.proba(views), dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return FitResult(
            trained=trained, proba=proba, released=named_aggregates(aggregates), private_accuracy=accuracy
        )

    def _encoder(self, graph: Graph, release: Release, session: Session) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        sizes = self.sizes_of(graph)
        encoder = self.shape.encoder(sizes, session.streams.torch("encoder"))
        fit_node_level(
            encoder,
            graph.x,
            lambda index: encoder(batch_of(graph.x, index)),
            graph,
            self.trainings(sizes)[0],
            release,
            session,
            stage="encoder",
            selection=self.training_config.selection,
        )
        return encoder

    def _classifier(
        self, graph: Graph, views: list[Tensor], release: Release, session: Session
    ) -> Classifier:
        sizes = self.sizes_of(graph)
        network = self.shape.classifier(sizes, session.streams.torch("classifier"))
        fit_node_level(
            network,
            views,
            self.classifier_of(views, network),
            graph,
            self.trainings(sizes)[-1],
            release,
            session,
            stage="classifier",
            selection=self.training_config.selection,
            final=True,
        )
        return network
