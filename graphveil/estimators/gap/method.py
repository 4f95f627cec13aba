"""GAP as frozen methods: at edge level, and on protected records (GAP-NDP).

Both aggregate embeddings over noisy hops, and train a classifier on the noisy aggregates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphveil.core.clipping.isolation import finite_rows
from graphveil.core.exact_sums import neighbor_sums, weighted_neighbor_sums
from graphveil.core.features import Features, to_dense
from graphveil.core.features import rows as chosen_rows
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan, calibrate_plan
from graphveil.core.plan import hops as equal_hops
from graphveil.core.queries.neighbor_sums import Keys, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.queries.projected_sums import (
    DegreeHIndexData,
    DegreeHIndexQuery,
    ProjectedSumData,
    ProjectedSumQuery,
)
from graphveil.core.queries.weights import Similarity
from graphveil.core.release import Release
from graphveil.core.unit import NodeUnit
from graphveil.core.view import kept_rows, map_records
from graphveil.data import Graph
from graphveil.estimators.edge_weighting import (
    EdgeTrainedWeight,
    EdgeTraining,
    trained_weight_network,
    weight_network,
)
from graphveil.estimators.gap.networks import GapArchitecture, HopTransform
from graphveil.estimators.keywords import TrainingConfig
from graphveil.estimators.method import FitResult, Method, State, TrainedModel, part_of
from graphveil.estimators.objective import fit_nonprivate
from graphveil.estimators.own.code import check_registered
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.private_training import DPSGDTraining, RecordPlan, fit_node_level
from graphveil.estimators.public_sizes import PublicSizes, record_groups
from graphveil.estimators.session import Session
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier
from graphveil.nn.layers import batch_of, batches_of
from graphveil.training.heads import TaskHead


@dataclass(frozen=True, kw_only=True)
class GapMethod(Method):
    """GAP under all units: both networks, and the hops between them.

    Args:
        similarity: Edge weights of the hops; None for weights of one.
    """

    supports_growing_graphs: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True

    training_config: TrainingConfig
    shape: GapArchitecture
    encoder_epochs: int
    hop_transform: HopTransform
    similarity: Similarity | None = None

    def queried_graph(self, view: Graph, session: Session) -> Graph:
        return view

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedGap":
        check_registered(self.shape.custom_encoder, self.shape.custom_head)
        generator, weight = PublicStreams(0).torch("restore"), self.similarity
        encoder = self.shape.encoder(sizes, generator) if self.shape.encoder_layers else None
        classifier = self.shape.classifier(sizes, generator)
        weight_net = weight_network(weight, self.shape.width(sizes), generator)
        parts = {"encoder.": encoder, "classifier.": classifier, "tower.": weight_net}
        for prefix, network in parts.items():
            if network is not None:
                network.load_state_dict(part_of(state, prefix))
                network.eval()
        names = weight.parameters if isinstance(weight, EdgeTrainedWeight) else ()
        attention = {name: state[f"attention.{name}"] for name in names}
        aggregation = Aggregation(self, encoder, weight_net, attention)
        return TrainedGap(self, aggregation, classifier, sizes, self.head.restored(state))


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The hops of a fit: their inputs, edge weights and outputs.

    Args:
        weight_network: Network of edge weights that are learned from public labels.
        attention: Network of edge weights that are learned from edges, by part.
    """

    method: GapMethod
    encoder: Encoder | None = None
    weight_network: nn.Module | None = None
    attention: State = field(default_factory=dict)

    @torch.no_grad()
    def encode(self, view: Graph) -> Any:
        """Return the input of the first hop: L2-normalized embeddings, float64."""

        def of(x: Features) -> Tensor:
            rows = to_dense(x) if self.encoder is None else self.encoder.rows(batch_of(x))
            return self.method.hop_transform.unit(rows)

        return map_records(of, view.x)

    def aggregates(
        self,
        view: Graph,
        rows: Any,
        release: Release | None,
        session: Session,
        known: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """Return the K aggregates; the input of each hop follows from the aggregates before it.

        Args:
            rows: Vectors of norm at most one, the input of the first hop.
            release: Open release of the session's plan; None for exact aggregates, if nothing is protected.
            known: Aggregates of the first nodes; only those of the other nodes are queried.
        """
        keys, similarity, aggregates = self.keys(view, rows, session), self.method.similarity, list[Tensor]()
        if release is not None and isinstance(release.next_query, DegreeHIndexQuery):
            release.answer(DegreeHIndexData())

        def aggregate(vectors: Tensor) -> Tensor:
            if release is not None:
                query = release.next_query
                if isinstance(query, ProjectedSumQuery):
                    return release.answer(ProjectedSumData(vectors))
                if isinstance(query, OutEdgeSumQuery):
                    return release.answer(OutEdgeSumData(vectors))
                return release.answer(NeighborSumData(vectors, keys))
            if similarity is None:
                return neighbor_sums(view.adjacency, vectors.float())
            return weighted_neighbor_sums(view.adjacency, vectors.float(), similarity, keys)

        sent = rows
        for hop, std in enumerate(hop_noise_stds(session.plan) or [0.0] * self.method.shape.hops):
            answer = aggregate(sent)
            aggregates.append(answer if known is None else torch.cat([known[hop], answer]))
            sent = self.method.hop_transform.next_input(self.encoder, rows, aggregates, std)
        return aggregates

    def keys(self, view: Graph, rows: Tensor, session: Session) -> Keys | None:
        similarity, encoder, network = self.method.similarity, self.encoder, self.weight_network
        if similarity is None:
            return None
        if isinstance(similarity, EdgeTrainedWeight):
            return similarity.keys(self.attention, rows)
        if similarity.reads == "features":
            return view.x
        if similarity.reads == "rows":
            return rows

        @torch.no_grad()
        def compute() -> State:
            if network is not None:
                return {"keys": network.eval()(rows.float())}
            assert encoder is not None  # edge_weight rejects such weights without an encoder
            return {"keys": encoder.eval()(batch_of(view.x)).softmax(dim=1)}

        # Stored in the workspace, as the aggregates are: a resumed release needs bit-identical inputs.
        return session.load_or_compute("weights", compute)["keys"]


@dataclass(frozen=True, eq=False)
class TrainedGap(TrainedModel):
    """Both networks, and the edge weights; another graph needs its own hops."""

    method: GapMethod
    aggregation: Aggregation
    classifier: HopClassifier
    sizes: PublicSizes
    head: TaskHead

    @torch.no_grad()
    def proba(self, views: Sequence[Any]) -> Any:
        def of(*rows: Tensor) -> Tensor:
            return self.head.proba(finite_rows(self.classifier(list(map(FixedRows, rows))))).cpu()

        return map_records(of, *views)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the hops alone, with the noise of the fit; nothing is trained on another graph."""
        plan = self.method.plan(sizes)
        if plan is None:
            return None
        bounds = [query for query in plan.queries if isinstance(query, DegreeHIndexQuery)]
        hops = ReleasePlan(plan.unit, (*bounds, *hop_queries(plan)), plan.delta)
        # The plan itself if it has only hops: it also holds the calibration.
        return plan if len(hops.queries) == len(plan.queries) else hops

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Query the hops of another graph (only for new nodes if it has grown), and predict."""
        release, plan, transform = None, session.plan, self.method.hop_transform
        if plan is not None:
            first = 0 if kept is None else len(kept.proba)
            queried = self.method.queried_graph(view, session)
            release = session.open(queried, first=first)
        rows, stds = self.aggregation.encode(view), hop_noise_stds(plan)
        known = None if kept is None else kept.rows
        aggregates = self.aggregation.aggregates(view, rows, release, session, known)
        new = torch.arange(0 if kept is None else len(kept.proba), view.num_nodes)
        views = transform.views(chosen_rows(rows, new), [hop[new] for hop in aggregates], stds)
        found = CachedPrediction(plan, tuple(aggregates), self.proba(views))
        if release is not None:
            release.close()
        return found if kept is None else kept.grown(found)  # old nodes keep their predictions

    def state(self) -> State:
        part = self.aggregation
        networks = {"encoder": part.encoder, "classifier": self.classifier, "tower": part.weight_network}
        attention = {f"attention.{name}": value for name, value in part.attention.items()}
        return (
            self.head.state()
            | attention
            | {
                f"{name}.{key}": value
                for name, network in networks.items()
                if network is not None
                for key, value in network.state_dict().items()
            }
        )


@dataclass(frozen=True, kw_only=True)
class EdgeLevelGap(GapMethod):
    """GAP with public features and labels: K equal hops in one release, networks trained without privacy."""

    selects_by_metric: ClassVar[bool] = True
    trains_on_sample: ClassVar[bool] = True

    attention_steps: int | None = None

    @property
    def attends(self) -> bool:
        """Whether edge weights are attention that is learned from the edges, for a part of the budget."""
        return isinstance(self.similarity, EdgeTrainedWeight)

    def check(self, view: Graph) -> None:
        super().check(view)
        self.shape.check_custom_modules(self.sizes_of(view))

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        privacy_config = self.privacy_config
        if not privacy_config.protects:
            return None
        unit, delta = privacy_config.unit, privacy_config.delta_for(sizes.nodes)
        if self.attends:
            training = self.attention_training(sizes)
            return training.plan(privacy_config.budget, delta, num_nodes=sizes.nodes)
        queries = partial(self.hops, sizes)
        return calibrate_plan(unit, privacy_config.budget, delta, queries, num_nodes=sizes.nodes)

    def hops(self, sizes: PublicSizes, mu: float) -> tuple[NeighborSumQuery, ...]:
        shape = self.shape
        return equal_hops(mu, shape.hops, shape.width(sizes), self.privacy_config.unit, self.similarity)

    @property
    def _trained_weight(self) -> EdgeTrainedWeight:
        assert isinstance(self.similarity, EdgeTrainedWeight)
        return self.similarity

    def attention_training(self, sizes: PublicSizes) -> EdgeTraining:
        return self._trained_weight.training(
            unit=self.privacy_config.unit,
            dim=self.shape.width(sizes),
            classes=sizes.classes,
            targets=sizes.records,
            hops=self.shape.hops,
            steps=self.attention_steps,
        )

    def fit(self, view: Graph, session: Session) -> FitResult:
        head = self.head.fitted(view)
        release = None if session.plan is None else session.open(view)  # recorded before any work
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(view, session, head))
            # Stored in the workspace: a resumed release needs bit-identical inputs.
            rows = session.load_or_compute("encoder", lambda: {"rows": aggregation.encode(view)})["rows"]
            network = trained_weight_network(self.similarity, view, rows, session)
            aggregation = replace(aggregation, weight_network=network)
        if self.attends and release is not None:
            with session.stage("attention"):
                learned = self._trained_weight.learn(view, rows, release, session)
                aggregation = replace(aggregation, attention=learned)
        with session.stage("aggregate"):
            aggregates = aggregation.aggregates(view, rows, release, session)
            if release is not None:
                release.close()
        views = self.hop_transform.views(rows, aggregates, hop_noise_stds(session.plan))
        with session.stage("classifier"):
            generator = session.streams.torch("classifier")
            classifier = self.shape.classifier(self.sizes_of(view), generator)

            @lru_cache(maxsize=2)  # full batches need the same two indices in every epoch
            def inputs(index: Tensor) -> list[FixedRows]:
                return [FixedRows(view[index]) for view in views]

            fit_nonprivate(
                classifier,
                lambda index: classifier(inputs(index)),
                view,
                self.training_config.nonprivate_schedule(),
                session,
                stage="classifier",
                generator=generator,
                objective=self.objective,
                every=not self.samples,
                head=head,
            )
        trained = TrainedGap(self, aggregation, classifier, self.sizes_of(view), head)
        released = {} if session.plan is None else named_aggregates(aggregates)
        return FitResult(trained=trained, proba=trained.proba(views), released=released)

    def _encoder(self, view: Graph, session: Session, head: TaskHead) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        generator = session.streams.torch("encoder")
        encoder = self.shape.encoder(self.sizes_of(view), generator)
        inputs = batches_of(view.x)
        fit_nonprivate(
            encoder,
            lambda index: encoder(inputs(index)),
            view,
            self.training_config.nonprivate_schedule(self.encoder_epochs),
            session,
            stage="encoder",
            generator=generator,
            objective=self.objective,
            every=not self.samples,
            head=head,
        )
        return encoder


@dataclass(frozen=True, kw_only=True)
class NodeLevelGap(GapMethod):
    """GAP on protected records (GAP-NDP): encoder steps, noisy hops and classifier steps are one release.

    Args:
        shares: Shares of mu^2 for encoder and classifier.
    """

    trainer: ClassVar[Callable[..., object]] = staticmethod(fit_node_level)

    shares: tuple[float, float]
    out_degree_bound: int | None

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.privacy_config.calibrated(sizes, self.record_plan(sizes).queries)

    def record_plan(self, sizes: PublicSizes) -> RecordPlan:
        unit, shape = self.privacy_config.unit, self.shape
        assert isinstance(unit, NodeUnit)
        trainings = self.trainings(sizes)
        return RecordPlan(
            unit=unit,
            nodes=sizes.nodes,
            delta=self.privacy_config.delta_for(sizes.nodes),
            trainings=trainings,
            shares=self.shares[-len(trainings) :],
            hops=shape.hops,
            dim=shape.width(sizes),
            out_degree_bound=self.out_degree_bound,
            classes=sizes.classes,
            metrics=self.privacy_config.private_metrics,
        )

    def trainings(self, sizes: PublicSizes) -> tuple[DPSGDTraining, ...]:
        shape, training_config = self.shape, self.training_config
        classifier = DPSGDTraining(
            schedule=training_config.private(),
            parameters=shape.classifier_parameters(sizes),
            records=sizes.records,
        )
        if not shape.encoder_layers:
            return (classifier,)
        encoder = DPSGDTraining(
            schedule=training_config.private(self.encoder_epochs),
            parameters=shape.encoder_parameters(sizes),
            records=sizes.records,
        )
        return encoder, classifier

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Query both trainings and the hops in the order of the plan, and release accuracies if planned."""
        sizes = self.sizes_of(view)
        # Recorded before any work.
        release = session.open(self.queried_graph(view, session), record_groups(view))
        with session.stage("encoder"):
            aggregation = Aggregation(self, self._encoder(view, release, session))
            encode = partial(aggregation.encode, view)
            rows = kept_rows(session.load_or_compute, "encoder", encode, view.x)
        with session.stage("aggregate"):
            aggregates = aggregation.aggregates(view, rows, release, session)
        views = self.hop_transform.views(rows, aggregates, hop_noise_stds(session.plan))
        with session.stage("classifier"):
            classifier = self.shape.classifier(sizes, session.streams.torch("classifier"))
            self.trainer(
                classifier,
                views,
                view,
                self.objective,
                self.trainings(sizes)[-1],
                release,
                session,
                stage="classifier",
                head=self.head,
            )
        trained = TrainedGap(self, aggregation, classifier, sizes, self.head)
        released = named_aggregates(aggregates)
        return self.closed(release, trained, trained.proba(views), view, session, released)

    def _encoder(self, view: Graph, release: Release, session: Session) -> Encoder | None:
        if not self.shape.encoder_layers:
            return None
        sizes = self.sizes_of(view)
        encoder = self.shape.encoder(sizes, session.streams.torch("encoder"))
        self.trainer(
            encoder,
            view.x,
            view,
            self.objective,
            self.trainings(sizes)[0],
            release,
            session,
            stage="encoder",
            head=self.head,
        )
        return encoder


def hop_queries(plan: ReleasePlan) -> list[NeighborSumQuery | OutEdgeSumQuery | ProjectedSumQuery]:
    """Return the queries of a plan that sum vectors along edges."""
    kinds = NeighborSumQuery | OutEdgeSumQuery | ProjectedSumQuery
    return [query for query in plan.queries if isinstance(query, kinds)]


def hop_noise_stds(plan: ReleasePlan | None) -> list[float] | None:
    return None if plan is None else [query.noise[-1] for query in hop_queries(plan)]


def named_aggregates(aggregates: list[Tensor]) -> dict[str, Tensor]:
    return {f"hop{number}": answer for number, answer in enumerate(aggregates, start=1)}
