"""What all variants of GAP have in common: hops of encoded rows, and a classifier of what they said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.graph import Graph, to_dense
from graphveil.models.attention import NETWORK, attention_keys
from graphveil.models.gap.shape import Classifier, GapShape, Passing
from graphveil.models.inference.cache import Answer
from graphveil.models.inference.requests import check_no_groups
from graphveil.models.keywords import Recipe
from graphveil.models.membership import record_groups
from graphveil.models.method import Method, State, Trained
from graphveil.models.own.code import check_known
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.weighting import Weighting
from graphveil.networks.hops import Encoder, FixedRows
from graphveil.networks.layers import batch_of
from graphveil.release import (
    NeighborSumData,
    NeighborSumQuery,
    PushData,
    PushQuery,
    Release,
    ReleasePlan,
    sum_in_neighbors,
    weighted_sum_in_neighbors,
)
from graphveil.release.rows.neighbor_sums import Keys
from graphveil.train.nulls import finite_rows

Ask = Callable[[Tensor], Tensor]  # rows of norm at most one in, their sums over in-neighbours out


@dataclass(frozen=True, kw_only=True)
class GapMethod(Method):
    """GAP for one unit and mode.

    Args:
        recipe: how the classifier learns.
        shape: of both networks.
        encoder_epochs: epochs of the encoder.
        weighting: what a message counts; None for one.
    """

    grows: ClassVar[bool] = True

    recipe: Recipe
    shape: GapShape
    encoder_epochs: int
    weighting: Weighting | None = None

    @property
    def passing(self) -> Passing:
        """How rows pass between hops."""
        return Passing(self.terms.paper, self.terms.on_records)

    def sampled(self, graph: Graph, session: Session) -> Graph:
        """Return the graph whose edges are asked: all of them, unless a paper asks a sample."""
        return graph

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedGap":
        """Return the networks with these weights."""
        check_known(self.shape.own_encoder, self.shape.own_head)
        generator = PublicStreams(0).torch("restore")
        encoder = self.shape.encoder(sizes, generator) if self.shape.encoder_layers else None
        classifier = self.shape.classifier(sizes, generator)
        width = self.shape.width(sizes)
        weigher = None if self.weighting is None else self.weighting.weight_network(width, generator)
        parts = {"encoder.": encoder, "classifier.": classifier, "tower.": weigher}
        for prefix, network in parts.items():
            if network is not None:
                network.load_state_dict(_part_of(state, prefix))
                network.eval()
        names = NETWORK if _attends(self.weighting) else ()
        attention = {name: state[f"attention.{name}"] for name in names}
        aggregation = Aggregation(self, encoder, weigher, attention)
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
        weigher: the network of weights that are learned from public labels.
        attention: the network of weights that are learned from edges, by part.
    """

    method: GapMethod
    encoder: Encoder | None = None
    weigher: nn.Module | None = None
    attention: State = field(default_factory=dict)

    @torch.no_grad()
    def encode(self, graph: Graph) -> Tensor:
        """Return hop 0: rows of norm one, float64."""
        if self.encoder is None:
            rows = to_dense(graph.x)
        else:
            rows = self.encoder.rows(batch_of(graph.x, device=_device(self.encoder))).cpu()
        return self.method.passing.unit(rows)

    def answers(self, graph: Graph, rows: Tensor, release: Release | None, session: Session) -> list[Tensor]:
        """Return the K answers of the edges: noisy rows, or exact ones where nothing is protected."""
        keys = self.keys(graph, rows, session)
        if release is None:
            exact = partial(self._exact, graph, keys)
            return self.walk(rows, exact, [0.0] * self.method.shape.hops)
        return self.walk(rows, asking(release, keys, session.plan), noise_of(session.plan))

    def walk(self, rows: Tensor, ask: Ask, stds: Sequence[float]) -> list[Tensor]:
        """Return the answers of hops, each sent what the one before said."""
        answers: list[Tensor] = []
        sent = rows
        for std in stds:
            answers.append(ask(sent))
            sent = self.method.passing.onward(self.encoder, rows, answers, std)
        return answers

    def keys(self, graph: Graph, rows: Tensor, session: Session) -> Keys | None:
        """Return what every hop's weights read, or None for each hop's own vectors."""
        weighting = self.method.weighting
        if weighting is None:
            return None
        if _attends(weighting):
            return attention_keys(self.attention, rows)
        return weighting.keys(graph, rows, self.encoder, self.weigher, session)

    def _exact(self, graph: Graph, keys: Keys | None, x: Tensor) -> Tensor:
        weighting, sent = self.method.weighting, x.float()
        if weighting is None:
            return sum_in_neighbors(graph.adjacency, sent)
        return weighted_sum_in_neighbors(graph.adjacency, sent, weighting.similarity, keys)


@dataclass(frozen=True, eq=False)
class TrainedGap(Trained):
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
        hops = ReleasePlan(plan.unit, tuple(hops_of(plan)), plan.delta)
        whole = len(hops.queries) == len(plan.queries)
        check_no_groups(method.name, hops)
        return plan if whole else hops

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Ask hops of another graph, or of a grown one those of its new nodes, and predict."""
        release = None if session.plan is None else self._open(graph, session, kept)
        rows, passing = self.aggregation.encode(graph), self.aggregation.method.passing
        stds = None if session.plan is None else noise_of(session.plan)
        if kept is None or release is None:
            answers = self.aggregation.answers(graph, rows, release, session)
            proba = self.proba(passing.views(rows, answers, stds))
        else:
            answers = self._continued(graph, rows, release, session, kept)
            new = slice(len(kept.proba), None)
            views = passing.views(rows[new], [answer[new] for answer in answers], stds)
            proba = torch.cat([kept.proba, self.proba(views)])
        if release is not None:
            release.close()
        return Answer(session.plan, tuple(answers), proba)

    def _open(self, graph: Graph, session: Session, kept: Answer | None) -> Release:
        assert session.plan is not None
        sample = self.aggregation.method.sampled(graph, session)
        groups = groups_for(session.plan, graph)
        return session.open(sample, groups, first=0 if kept is None else len(kept.proba))

    def _continued(
        self, graph: Graph, rows: Tensor, release: Release, session: Session, kept: Answer
    ) -> list[Tensor]:
        """Return the K answers of a graph that has grown: old rows as they are, and the new ones below."""
        keys = self.aggregation.keys(graph, rows, session)
        known, ask = iter(kept.rows), asking(release, keys, session.plan)
        noise = noise_of(session.plan)
        return self.aggregation.walk(rows, lambda x: torch.cat([next(known), ask(x)]), noise)

    def state(self) -> State:
        """Return all weights."""
        part = self.aggregation
        networks = {"encoder": part.encoder, "classifier": self.classifier, "tower": part.weigher}
        attention = {f"attention.{name}": value for name, value in part.attention.items()}
        return attention | {
            f"{name}.{key}": value
            for name, network in networks.items()
            if network is not None
            for key, value in network.state_dict().items()
        }


def hops_of(plan: ReleasePlan) -> list[NeighborSumQuery | PushQuery]:
    """Return what a plan asks of the edges."""
    return [query for query in plan.queries if isinstance(query, NeighborSumQuery | PushQuery)]


def noise_of(plan: ReleasePlan | None) -> list[float]:
    """Return the noise of each hop."""
    if plan is None:
        raise ConfigError("exact sums have no noise")
    return [query.noise[-1] for query in hops_of(plan)]


def asking(release: Release, keys: Keys | None, plan: ReleasePlan | None) -> Ask:
    """Return a hop: of sums, with what their weights read if that is not the vectors, or of pushes."""
    if plan is not None and isinstance(hops_of(plan)[0], PushQuery):
        return lambda vectors: release.ask(PushData(vectors))
    return lambda vectors: release.ask(NeighborSumData(vectors, keys))


def groups_for(plan: ReleasePlan, graph: Graph) -> Tensor | None:
    """Return the public groups of records, where the plan tells them apart."""
    return record_groups(graph) if any(query.groups > 1 for query in plan.queries) else None


def with_weigher(aggregation: Aggregation, graph: Graph, rows: Tensor, session: Session) -> Aggregation:
    """Return the aggregation with what its weights learn from public labels."""
    weighting = aggregation.method.weighting
    if weighting is None:
        return aggregation
    return replace(aggregation, weigher=weighting.learned(graph, rows, session))


def _attends(weighting: Weighting | None) -> bool:
    """Whether weights are learned from the edges."""
    return weighting is not None and weighting.similarity.reads == "attention"


def _part_of(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
