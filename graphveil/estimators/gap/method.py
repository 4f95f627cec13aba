"""What all variants of GAP have in common: hops of encoded rows, and a classifier of what they said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphveil._util.random import PublicStreams
from graphveil.data import Graph, to_dense
from graphveil.errors import ConfigError
from graphveil.estimators.attention import NETWORK, attention_keys
from graphveil.estimators.edge_weighting import EdgeWeighting
from graphveil.estimators.gap.shape import Classifier, GapArchitecture, HopTransform
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.inference.requests import check_no_groups
from graphveil.estimators.keywords import TrainingConfig
from graphveil.estimators.membership import record_groups
from graphveil.estimators.method import Method, State, TrainedModel
from graphveil.estimators.own.code import check_registered
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.nn.hops import Encoder, FixedRows
from graphveil.nn.layers import batch_of
from graphveil.release import (
    NeighborSumData,
    NeighborSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    Release,
    ReleasePlan,
    sum_in_neighbors,
    weighted_sum_in_neighbors,
)
from graphveil.release.neighbor_sums import Keys
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
