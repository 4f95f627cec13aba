"""GAP where features and labels are public, and edges are protected, or nothing is."""

from dataclasses import dataclass, replace

from torch import Tensor

from graphveil.graph import Graph
from graphveil.models.attention import (
    PAPER_DEVIATIONS,
    AttentionTraining,
    attention_start,
    learn_attention,
)
from graphveil.models.gap.method import Aggregation, GapMethod, TrainedGap, noise_of, with_weigher
from graphveil.models.gap.shape import Classifier
from graphveil.models.membership import nodes_of
from graphveil.models.method import Outcome
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.training.clear import fit_in_clear
from graphveil.models.weighting import PAPER_WEIGHTED, charged_as_one
from graphveil.networks.hops import Encoder
from graphveil.networks.layers import batches_of
from graphveil.privacy import renyi
from graphveil.privacy.calibration import require_delta
from graphveil.release import EdgeAttentionQuery, NeighborSumQuery, Release, ReleasePlan, calibrate_plan
from graphveil.release.plan import hops as equal_hops


@dataclass(frozen=True)
class AttentionSettings:
    """How attention is learned from edges: its noisy steps and their multiplier; None for what suits."""

    steps: int | None
    multiplier: float | None


@dataclass(frozen=True, kw_only=True)
class GapOnEdges(GapMethod):
    """K equal hops in one release; both networks are trained in the clear.

    Args:
        attention: how weights are learned from edges, if they are.
    """

    attention: AttentionSettings | None = None

    @property
    def samples(self) -> bool:
        """Whether networks learn from a sample of very many nodes: the paper's learn from all."""
        return not self.terms.paper

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be trained on, and modules that cannot be run."""
        super().check(graph)
        self.shape.check_own(self.sizes_of(graph))

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return K equal hops, after the steps of attention if weights are learned from edges."""
        terms = self.terms
        if not terms.protects:
            return None
        unit, delta = terms.unit, terms.delta_for(sizes.nodes)
        if self.attention is not None:
            training = self._attention_training(sizes, self.attention)
            return training.plan(terms.budget, delta, num_nodes=sizes.nodes)
        similarity = None if self.weighting is None else self.weighting.similarity

        def queries(mu: float) -> tuple[NeighborSumQuery, ...]:
            return equal_hops(mu, self.shape.hops, self.shape.width(sizes), unit, similarity)

        if terms.paper:
            require_delta(delta, "NeighborSumQuery")
            mu = renyi.mu_of(terms.budget, delta)
            asked = queries(mu) if similarity is None else charged_as_one(queries(mu), mu)
            return ReleasePlan(unit, asked, delta)
        return calibrate_plan(unit, terms.budget, delta, queries, num_nodes=sizes.nodes)

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return the paper's, with those of its weights."""
        weighted = PAPER_DEVIATIONS if self.attention is not None else (PAPER_WEIGHTED,)
        more = weighted if self.terms.paper and self.weighting is not None else ()
        return (*super().deviations(graph), *more)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Train the encoder, ask the hops, and train the classifier on what they said."""
        release = None if session.plan is None else session.open(graph)  # booked before any work
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(graph, session))
            # Kept with the workspace: a resumed release takes the very rows that it was asked with.
            rows = session.once("encoder", lambda: {"rows": aggregation.encode(graph)})["rows"]
            aggregation = with_weigher(aggregation, graph, rows, session)
        if self.attention is not None and release is not None:
            with session.stage("attention"):
                aggregation = self._with_attention(aggregation, graph, rows, release, session)
        with session.stage("aggregate"):
            answers = aggregation.answers(graph, rows, release, session)
            if release is not None:
                release.close()
        stds = None if session.plan is None else noise_of(session.plan)
        views = self.passing.views(rows, answers, stds)
        with session.stage("classifier"):
            classifier = self._classifier(graph, views, session)
        trained = TrainedGap(aggregation, classifier, self.sizes_of(graph))
        released = {} if session.plan is None else named(answers)
        return Outcome(trained=trained, proba=trained.proba(views), released=released)

    def _encoder(self, graph: Graph, session: Session) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        generator = session.streams.torch("encoder")
        encoder = self.shape.encoder(self.sizes_of(graph), generator).to(session.device)
        inputs, schedule = batches_of(graph.x, session.device), self.recipe.in_clear(self.encoder_epochs)
        fit_in_clear(
            encoder,
            lambda index: encoder(inputs(index)),
            graph,
            schedule,
            session,
            stage="encoder",
            generator=generator,
            every=not self.samples,
        )
        return encoder

    def _classifier(self, graph: Graph, views: list[Tensor], session: Session) -> Classifier:
        generator = session.streams.torch("classifier")
        network = self.shape.classifier(self.sizes_of(graph), generator).to(session.device)
        logits, schedule = self.classifier_of(views, network), self.recipe.in_clear()
        fit_in_clear(
            network,
            logits,
            graph,
            schedule,
            session,
            stage="classifier",
            generator=generator,
            every=not self.samples,
        )
        return network

    def _attention_training(self, sizes: PublicSizes, settings: AttentionSettings) -> AttentionTraining:
        return AttentionTraining(
            unit=self.terms.unit,
            dim=self.shape.width(sizes),
            classes=sizes.classes,
            targets=sizes.records,
            hops=self.shape.hops,
            steps=settings.steps,
            multiplier=settings.multiplier,
            paper=self.terms.paper,
        )

    def _with_attention(
        self, aggregation: Aggregation, graph: Graph, rows: Tensor, release: Release, session: Session
    ) -> Aggregation:
        """Return the aggregation with the network that weighs in-edges: the answer to the first question."""
        assert session.plan is not None
        query, targets = session.plan.queries[0], nodes_of(graph.mask("train"))
        assert isinstance(query, EdgeAttentionQuery)
        generator = session.streams.torch("attention")
        start = session.once(
            "attention", lambda: {"start": attention_start(query, rows, graph.y, targets, generator)}
        )["start"]
        told = session.epochs("attention", query.steps)
        learned = learn_attention(release, query, start, rows, graph.y, targets, on_step=told)
        return replace(aggregation, attention=learned)


def named(answers: list[Tensor]) -> dict[str, Tensor]:
    """Return answers by the names that files and ``aggregates_`` have for them."""
    return {f"hop{number}": answer for number, answer in enumerate(answers, start=1)}
