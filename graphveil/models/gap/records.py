"""GAP on protected records: encoder steps, noisy hops and classifier steps are one release (GAP-NDP)."""

from dataclasses import dataclass

from torch import Tensor

from graphveil.graph import Graph
from graphveil.models.gap.edges import named
from graphveil.models.gap.method import Aggregation, GapMethod, TrainedGap, groups_for, noise_of
from graphveil.models.gap.shape import Classifier
from graphveil.models.membership import check_members
from graphveil.models.method import Outcome
from graphveil.models.sage.bounded import at_most
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.training.on_records import fit_on_records, plan_on_records
from graphveil.models.training.private import Training
from graphveil.models.training.record_plan import RecordPlan, released_accuracies
from graphveil.networks.hops import Encoder
from graphveil.networks.layers import batch_of
from graphveil.privacy import NodeOwner, NodeUnit
from graphveil.release import Release, ReleasePlan

PAPER_ON_RECORDS = (
    "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    "the paper claims to hide all edges at a node; a sample of each node's own edges hides those that "
    "the node declares, at most",
)


@dataclass(frozen=True, kw_only=True)
class GapOnRecords(GapMethod):
    """Both networks are trained by noisy steps, and a node pays for its steps and its messages together.

    Args:
        shares: the encoder's and the classifier's part of the squared mu.
        multiplier: the noise multiplier of both trainings instead.
        degree_budget: D of unit ``node-owner``.
    """

    shares: tuple[float, float]
    multiplier: float | None
    degree_budget: int | None

    def check(self, graph: Graph) -> None:
        """Refuse a graph without members to learn from, or to select on."""
        super().check(graph)
        if self.recipe.selection.kind == "private":
            check_members(graph, "val")

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the hops between two trainings, calibrated together."""
        unit = self.terms.unit
        assert isinstance(unit, NodeUnit)
        *_, classifier = trainings = self.trainings(sizes)
        asked = RecordPlan(
            unit=unit,
            trainings=trainings,
            shares=self.shares[-len(trainings) :],
            multiplier=self.multiplier,
            hops=self.shape.hops,
            dim=self.shape.width(sizes),
            degree_budget=self.degree_budget,
            candidates=self.recipe.selection.counted(classifier),
            metrics=self.terms.private_metrics,
        )
        return plan_on_records(self.terms, asked, sizes.nodes)

    def trainings(self, sizes: PublicSizes) -> tuple[Training, ...]:
        """Return the classifier's training, after the encoder's if there is one."""
        classifier = Training(
            schedule=self.recipe.private(),
            parameters=self.shape.classifier_parameters(sizes),
            records=sizes.records,
        )
        if not self.shape.encoder_layers:
            return (classifier,)
        encoder = Training(
            schedule=self.recipe.private(self.encoder_epochs),
            parameters=self.shape.encoder_parameters(sizes),
            records=sizes.records,
        )
        return encoder, classifier

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return the paper's, with those of its node-level variant."""
        return (*super().deviations(graph), *(PAPER_ON_RECORDS if self.terms.paper else ()))

    def sampled(self, graph: Graph, session: Session) -> Graph:
        """Return the graph with a sample of each node's own edges, which is what the paper asks."""
        if not (self.terms.paper and isinstance(self.terms.unit, NodeOwner)):
            return graph
        sample = at_most(graph.adjacency, self.degree_budget or 1, session.streams.numpy("edges"))
        return graph.replace(adjacency=sample)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Ask both trainings and the hops in the order of the plan, and release accuracies if planned."""
        assert session.plan is not None
        groups = groups_for(session.plan, graph)
        release = session.open(self.sampled(graph, session), groups)  # booked before any work
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(graph, release, session))
            rows = session.once("encoder", lambda: {"rows": aggregation.encode(graph)})["rows"]
        with session.stage("aggregate"):
            answers = aggregation.answers(graph, rows, release, session)
        views = self.passing.views(rows, answers, noise_of(session.plan))
        with session.stage("classifier"):
            classifier = self._classifier(graph, views, release, session)
        trained = TrainedGap(aggregation, classifier, self.sizes_of(graph))
        proba, accuracy = trained.proba(views), dict[str, float]()
        if self.terms.private_metrics:
            accuracy = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return Outcome(trained=trained, proba=proba, released=named(answers), private_accuracy=accuracy)

    def _encoder(self, graph: Graph, release: Release, session: Session) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        sizes = self.sizes_of(graph)
        encoder = self.shape.encoder(sizes, session.streams.torch("encoder"))
        fit_on_records(
            encoder,
            graph.x,
            lambda index: encoder(batch_of(graph.x, index)),
            graph,
            self.trainings(sizes)[0],
            release,
            session,
            stage="encoder",
            selection=self.recipe.selection,
        )
        return encoder

    def _classifier(
        self, graph: Graph, views: list[Tensor], release: Release, session: Session
    ) -> Classifier:
        sizes = self.sizes_of(graph)
        network = self.shape.classifier(sizes, session.streams.torch("classifier"))
        fit_on_records(
            network,
            views,
            self.classifier_of(views, network),
            graph,
            self.trainings(sizes)[-1],
            release,
            session,
            stage="classifier",
            selection=self.recipe.selection,
            final=True,
        )
        return network
