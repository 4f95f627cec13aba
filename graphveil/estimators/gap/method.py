"""GAP as frozen methods: at edge level, and on protected records (GAP-NDP).

Both aggregate encoded rows over noisy hops, and train a classifier on the noisy aggregates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphveil._util.random import PublicStreams
from graphveil.data import Graph, to_dense
from graphveil.errors import ConfigError
from graphveil.estimators.gap.edge_weights import (
    NETWORK,
    PAPER_DEVIATIONS,
    PAPER_WEIGHT_DEVIATION,
    AttentionTraining,
    EdgeWeighting,
    attention_keys,
    attention_start,
    train_attention,
    with_unit_sensitivity,
)
from graphveil.estimators.gap.networks import Classifier, GapArchitecture, HopTransform
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.inference.requests import check_no_groups
from graphveil.estimators.keywords import TrainingConfig
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.own.code import check_registered
from graphveil.estimators.public_sizes import PublicSizes, check_members, nodes_of, record_groups
from graphveil.estimators.sage.subgraphs import sample_out_edges
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining
from graphveil.estimators.training.node_level import fit_node_level, plan_node_level
from graphveil.estimators.training.nonprivate import fit_nonprivate
from graphveil.estimators.training.record_plan import RecordPlan, release_accuracies
from graphveil.nn.hops import Encoder, FixedRows
from graphveil.nn.layers import batch_of, batches_of
from graphveil.privacy import NodeRecord, NodeUnit, renyi
from graphveil.privacy.calibration import require_delta
from graphveil.release import (
    EdgeAttentionQuery,
    NeighborSumData,
    NeighborSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    Release,
    ReleasePlan,
    calibrate_plan,
    sum_in_neighbors,
    weighted_sum_in_neighbors,
)
from graphveil.release.neighbor_sums import Keys
from graphveil.release.plan import hops as equal_hops
from graphveil.training.null_records import finite_rows

AggregateFn = Callable[[Tensor], Tensor]  # rows of norm at most one in, their sums over in-neighbors out


@dataclass(frozen=True, kw_only=True)
class GapMethod(Method):
    """GAP for one unit and mode.

    Args:
        training_config: how the classifier learns.
        shape: of both networks.
        encoder_epochs: epochs of the encoder.
        edge_weighting: what a message counts; None for one.
    """

    supports_growing_graphs: ClassVar[bool] = True

    training_config: TrainingConfig
    shape: GapArchitecture
    encoder_epochs: int
    edge_weighting: EdgeWeighting | None = None

    @property
    def hop_transform(self) -> HopTransform:
        """How rows pass between hops."""
        return HopTransform(self.privacy_config.paper, self.privacy_config.on_records)

    def sample_edges(self, graph: Graph, session: Session) -> Graph:
        """Return the graph whose edges are asked: all of them, unless a paper asks a sample."""
        return graph

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedGap":
        """Return the networks with these weights."""
        check_registered(self.shape.custom_encoder, self.shape.custom_head)
        generator = PublicStreams(0).torch("restore")
        encoder = self.shape.encoder(sizes, generator) if self.shape.encoder_layers else None
        classifier = self.shape.classifier(sizes, generator)
        width = self.shape.width(sizes)
        weight_network = (
            None if self.edge_weighting is None else self.edge_weighting.weight_network(width, generator)
        )
        parts = {"encoder.": encoder, "classifier.": classifier, "tower.": weight_network}
        for prefix, network in parts.items():
            if network is not None:
                network.load_state_dict(_part_of(state, prefix))
                network.eval()
        names = NETWORK if _uses_attention(self.edge_weighting) else ()
        attention = {name: state[f"attention.{name}"] for name in names}
        aggregation = Aggregation(self, encoder, weight_network, attention)
        return TrainedGap(aggregation, classifier, sizes)

    def classifier_of(self, views: Sequence[Tensor], network: Classifier) -> Callable[[Tensor], Tensor]:
        """Return what maps node indices to the classifier's logits."""

        def rows(index: Tensor) -> list[FixedRows]:
            return [FixedRows(view[index].to(_device(network))) for view in views]

        inputs = lru_cache(maxsize=2)(rows)  # full batches ask for the same two indices in every epoch

        def logits(index: Tensor) -> Tensor:
            scores: Tensor = network(inputs(index))
            return scores

        return logits


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The hops of a fit: what is sent, what weighs it, and what is made of the answers.

    Args:
        method: which it is a part of.
        encoder: makes rows of features; None sends features.
        weight_network: the network of weights that are learned from public labels.
        attention: the network of weights that are learned from edges, by part.
    """

    method: GapMethod
    encoder: Encoder | None = None
    weight_network: nn.Module | None = None
    attention: State = field(default_factory=dict)

    @torch.no_grad()
    def encode(self, graph: Graph) -> Tensor:
        """Return hop 0: rows of norm one, float64."""
        if self.encoder is None:
            rows = to_dense(graph.x)
        else:
            rows = self.encoder.rows(batch_of(graph.x, device=_device(self.encoder))).cpu()
        return self.method.hop_transform.unit(rows)

    def aggregates(
        self, graph: Graph, rows: Tensor, release: Release | None, session: Session
    ) -> list[Tensor]:
        """Return the K answers of the edges: noisy rows, or exact ones where nothing is protected."""
        keys = self.keys(graph, rows, session)
        if release is None:
            exact = partial(self._exact, graph, keys)
            return self.run_hops(rows, exact, [0.0] * self.method.shape.hops)
        return self.run_hops(
            rows, make_aggregate_fn(release, keys, session.plan), hop_noise_stds(session.plan)
        )

    def run_hops(self, rows: Tensor, aggregate: AggregateFn, stds: Sequence[float]) -> list[Tensor]:
        """Return the answers of hops, each sent what the one before said."""
        aggregates: list[Tensor] = []
        sent = rows
        for std in stds:
            aggregates.append(aggregate(sent))
            sent = self.method.hop_transform.next_input(self.encoder, rows, aggregates, std)
        return aggregates

    def keys(self, graph: Graph, rows: Tensor, session: Session) -> Keys | None:
        """Return what every hop's weights read, or None for each hop's own vectors."""
        edge_weighting = self.method.edge_weighting
        if edge_weighting is None:
            return None
        if _uses_attention(edge_weighting):
            return attention_keys(self.attention, rows)
        return edge_weighting.keys(graph, rows, self.encoder, self.weight_network, session)

    def _exact(self, graph: Graph, keys: Keys | None, x: Tensor) -> Tensor:
        edge_weighting, sent = self.method.edge_weighting, x.float()
        if edge_weighting is None:
            return sum_in_neighbors(graph.adjacency, sent)
        return weighted_sum_in_neighbors(graph.adjacency, sent, edge_weighting.similarity, keys)


@dataclass(frozen=True, eq=False)
class TrainedGap(TrainedModel):
    """Both networks, and what weighs the hops; another graph is asked for hops of its own."""

    aggregation: Aggregation
    classifier: Classifier
    sizes: PublicSizes

    @torch.no_grad()
    def proba(self, views: Sequence[Tensor]) -> Tensor:
        """Return probabilities from what the classifier sees of each hop."""
        device = _device(self.classifier)
        logits: Tensor = self.classifier([FixedRows(view.to(device)) for view in views])
        return finite_rows(logits).softmax(dim=1).cpu()

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the hops alone, with the noise of the fit: nothing is trained on another graph."""
        method = self.aggregation.method
        plan = method.plan(sizes)
        if plan is None:
            return None
        hops = ReleasePlan(plan.unit, tuple(hop_queries(plan)), plan.delta)
        whole = len(hops.queries) == len(plan.queries)
        check_no_groups(method.name, hops)
        return plan if whole else hops

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Ask hops of another graph, or of a grown one those of its new nodes, and predict."""
        release = None if session.plan is None else self._open(graph, session, kept)
        rows, hop_transform = self.aggregation.encode(graph), self.aggregation.method.hop_transform
        stds = None if session.plan is None else hop_noise_stds(session.plan)
        if kept is None or release is None:
            aggregates = self.aggregation.aggregates(graph, rows, release, session)
            proba = self.proba(hop_transform.views(rows, aggregates, stds))
        else:
            aggregates = self._extend_aggregates(graph, rows, release, session, kept)
            new = slice(len(kept.proba), None)
            views = hop_transform.views(rows[new], [answer[new] for answer in aggregates], stds)
            proba = torch.cat([kept.proba, self.proba(views)])
        if release is not None:
            release.close()
        return CachedPrediction(session.plan, tuple(aggregates), proba)

    def _open(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> Release:
        assert session.plan is not None
        sample = self.aggregation.method.sample_edges(graph, session)
        groups = plan_record_groups(session.plan, graph)
        return session.open(sample, groups, first=0 if kept is None else len(kept.proba))

    def _extend_aggregates(
        self, graph: Graph, rows: Tensor, release: Release, session: Session, kept: CachedPrediction
    ) -> list[Tensor]:
        """Return the K answers of a graph that has grown: old rows as they are, and the new ones below."""
        keys = self.aggregation.keys(graph, rows, session)
        known, aggregate = iter(kept.rows), make_aggregate_fn(release, keys, session.plan)
        noise = hop_noise_stds(session.plan)
        return self.aggregation.run_hops(rows, lambda x: torch.cat([next(known), aggregate(x)]), noise)

    def state(self) -> State:
        """Return all weights."""
        part = self.aggregation
        networks = {"encoder": part.encoder, "classifier": self.classifier, "tower": part.weight_network}
        attention = {f"attention.{name}": value for name, value in part.attention.items()}
        return attention | {
            f"{name}.{key}": value
            for name, network in networks.items()
            if network is not None
            for key, value in network.state_dict().items()
        }


def hop_queries(plan: ReleasePlan) -> list[NeighborSumQuery | OutEdgeSumQuery]:
    """Return what a plan asks of the edges."""
    return [query for query in plan.queries if isinstance(query, NeighborSumQuery | OutEdgeSumQuery)]


def hop_noise_stds(plan: ReleasePlan | None) -> list[float]:
    """Return the noise of each hop."""
    if plan is None:
        raise ConfigError("exact sums have no noise")
    return [query.noise[-1] for query in hop_queries(plan)]


def make_aggregate_fn(release: Release, keys: Keys | None, plan: ReleasePlan | None) -> AggregateFn:
    """Return a hop: of sums, with what their weights read if that is not the vectors, or of pushes."""
    if plan is not None and isinstance(hop_queries(plan)[0], OutEdgeSumQuery):
        return lambda vectors: release.answer(OutEdgeSumData(vectors))
    return lambda vectors: release.answer(NeighborSumData(vectors, keys))


def plan_record_groups(plan: ReleasePlan, graph: Graph) -> Tensor | None:
    """Return the public groups of records, where the plan tells them apart."""
    return record_groups(graph) if any(query.groups > 1 for query in plan.queries) else None


def with_weight_network(
    aggregation: Aggregation, graph: Graph, rows: Tensor, session: Session
) -> Aggregation:
    """Return the aggregation with what its weights learn from public labels."""
    edge_weighting = aggregation.method.edge_weighting
    if edge_weighting is None:
        return aggregation
    return replace(aggregation, weight_network=edge_weighting.learned(graph, rows, session))


def _uses_attention(edge_weighting: EdgeWeighting | None) -> bool:
    """Whether weights are learned from the edges."""
    return edge_weighting is not None and edge_weighting.similarity.reads == "attention"


def _part_of(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


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
