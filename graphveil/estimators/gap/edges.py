"""GAP where features and labels are public, and edges are protected, or nothing is."""

from dataclasses import dataclass, replace

from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.attention import (
    PAPER_DEVIATIONS,
    AttentionTraining,
    attention_start,
    train_attention,
)
from graphveil.estimators.edge_weighting import PAPER_WEIGHT_DEVIATION, with_unit_sensitivity
from graphveil.estimators.gap.method import (
    Aggregation,
    GapMethod,
    TrainedGap,
    hop_noise_stds,
    with_weight_network,
)
from graphveil.estimators.gap.shape import Classifier
from graphveil.estimators.membership import nodes_of
from graphveil.estimators.method import FitResult
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.nonprivate import fit_nonprivate
from graphveil.nn.hops import Encoder
from graphveil.nn.layers import batches_of
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
class EdgeLevelGap(GapMethod):
    """K equal hops in one release; both networks are trained in the clear.

    Args:
        attention: how weights are learned from edges, if they are.
    """

    attention: AttentionSettings | None = None

    @property
    def samples(self) -> bool:
        """Whether networks learn from a sample of very many nodes: the paper's learn from all."""
        return not self.privacy_config.paper

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be trained on, and modules that cannot be run."""
        super().check(graph)
        self.shape.check_custom_modules(self.sizes_of(graph))

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return K equal hops, after the steps of attention if weights are learned from edges."""
        privacy_config = self.privacy_config
        if not privacy_config.protects:
            return None
        unit, delta = privacy_config.unit, privacy_config.delta_for(sizes.nodes)
        if self.attention is not None:
            training = self._attention_training(sizes, self.attention)
            return training.plan(privacy_config.budget, delta, num_nodes=sizes.nodes)
        similarity = None if self.edge_weighting is None else self.edge_weighting.similarity

        def queries(mu: float) -> tuple[NeighborSumQuery, ...]:
            return equal_hops(mu, self.shape.hops, self.shape.width(sizes), unit, similarity)

        if privacy_config.paper:
            require_delta(delta, "NeighborSumQuery")
            mu = renyi.mu_of(privacy_config.budget, delta)
            calibrated_hops = queries(mu) if similarity is None else with_unit_sensitivity(queries(mu), mu)
            return ReleasePlan(unit, calibrated_hops, delta)
        return calibrate_plan(unit, privacy_config.budget, delta, queries, num_nodes=sizes.nodes)

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return the paper's, with those of its weights."""
        weighted = PAPER_DEVIATIONS if self.attention is not None else (PAPER_WEIGHT_DEVIATION,)
        more = weighted if self.privacy_config.paper and self.edge_weighting is not None else ()
        return (*super().deviations(graph), *more)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train the encoder, ask the hops, and train the classifier on what they said."""
        release = None if session.plan is None else session.open(graph)  # booked before any work
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(graph, session))
            # Kept with the workspace: a resumed release takes the very rows that it was asked with.
            rows = session.load_or_compute("encoder", lambda: {"rows": aggregation.encode(graph)})["rows"]
            aggregation = with_weight_network(aggregation, graph, rows, session)
        if self.attention is not None and release is not None:
            with session.stage("attention"):
                aggregation = self._with_attention(aggregation, graph, rows, release, session)
        with session.stage("aggregate"):
            aggregates = aggregation.aggregates(graph, rows, release, session)
            if release is not None:
                release.close()
        stds = None if session.plan is None else hop_noise_stds(session.plan)
        views = self.hop_transform.views(rows, aggregates, stds)
        with session.stage("classifier"):
            classifier = self._classifier(graph, views, session)
        trained = TrainedGap(aggregation, classifier, self.sizes_of(graph))
        released = {} if session.plan is None else named_aggregates(aggregates)
        return FitResult(trained=trained, proba=trained.proba(views), released=released)

    def _encoder(self, graph: Graph, session: Session) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        generator = session.streams.torch("encoder")
        encoder = self.shape.encoder(self.sizes_of(graph), generator).to(session.device)
        inputs, schedule = (
            batches_of(graph.x, session.device),
            self.training_config.nonprivate_schedule(self.encoder_epochs),
        )
        fit_nonprivate(
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
        logits, schedule = self.classifier_of(views, network), self.training_config.nonprivate_schedule()
        fit_nonprivate(
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
            unit=self.privacy_config.unit,
            dim=self.shape.width(sizes),
            classes=sizes.classes,
            targets=sizes.records,
            hops=self.shape.hops,
            steps=settings.steps,
            multiplier=settings.multiplier,
            paper=self.privacy_config.paper,
        )

    def _with_attention(
        self, aggregation: Aggregation, graph: Graph, rows: Tensor, release: Release, session: Session
    ) -> Aggregation:
        """Return the aggregation with the network that weighs in-edges: the answer to the first question."""
        assert session.plan is not None
        query, targets = session.plan.queries[0], nodes_of(graph.mask("train"))
        assert isinstance(query, EdgeAttentionQuery)
        generator = session.streams.torch("attention")
        start = session.load_or_compute(
            "attention", lambda: {"start": attention_start(query, rows, graph.y, targets, generator)}
        )["start"]
        on_step = session.epochs("attention", query.steps)
        learned = train_attention(release, query, start, rows, graph.y, targets, on_step=on_step)
        return replace(aggregation, attention=learned)


def named_aggregates(aggregates: list[Tensor]) -> dict[str, Tensor]:
    """Return answers by the names that files and ``aggregates_`` have for them."""
    return {f"hop{number}": answer for number, answer in enumerate(aggregates, start=1)}
