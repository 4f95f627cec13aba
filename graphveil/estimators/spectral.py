"""Spectral: node classification by similar lists of neighbors instead of by edges.

Features, one released graph, and votes of labeled nodes with similar lists (``spectral_embedding``).
"""

from dataclasses import astuple, dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency, Graph
from graphveil.errors import ArtifactError, ConfigError, GraphError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.crossfit import fits, mean_posterior, public_posteriors, restore_networks
from graphveil.estimators.full_graph import GRAPH_INPUT_NOTE, plan_of, released, with_protected_pairs
from graphveil.estimators.method import FitResult, Method, State, TrainedModel, networks_state
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes, check_classes, nodes_of
from graphveil.estimators.requirements import check_local, check_on_cpu
from graphveil.estimators.session import Session
from graphveil.estimators.spectral_embedding import VotingRule, best_rule, spectral_rows
from graphveil.mechanisms.node_pair_noise import EdgeRandomizedResponse
from graphveil.nn.layers import FeedForward
from graphveil.perturb import EdgeRand
from graphveil.perturb.mechanism import MAX_EDGES, domain_of
from graphveil.privacy import Guarantee, NoUnit, UndirectedEdge, Unit
from graphveil.release import ReleasePlan

_FEATURES, _UNIT_ROWS, _RULE = "features", "unit_rows", "rule"


@dataclass(frozen=True, kw_only=True)
class NeighborListSource:
    """Where lists of neighbors are read: the edges as they are, or one graph that is released of them.

    Args:
        unit: what is protected.
        response: releases the graph; None where nothing is protected.
        rank: the most directions that tell lists apart.
    """

    unit: Unit
    response: EdgeRand | None
    rank: int

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the graph."""
        return None if self.response is None else plan_of(self.response, self.unit, sizes)

    def sizes(self, sizes: PublicSizes, graph: Graph) -> PublicSizes:
        """Return the sizes with the slots that are protected, where any are."""
        return sizes if self.response is None else with_protected_pairs(sizes, graph, self.unit)

    def rows(self, graph: Graph, session: Session) -> tuple[State, Tensor]:
        """Return what was released, and the rows of nodes that are read from it."""
        released_state: State = {}
        flip, edges = 0.0, graph.adjacency
        if self.response is not None:
            released_state["graph"], noisy = released(graph, self.response, self.unit, session)
            flip, edges = EdgeRandomizedResponse(self.response.epsilon).flip, noisy.adjacency
        with session.stage("embedding"):
            return released_state, self._rows(edges, flip, session)

    def _rows(self, edges: Adjacency, flip: float, session: Session) -> Tensor:
        return spectral_rows(edges, flip, self.rank, session.streams.torch("spectral"))


@dataclass(frozen=True, kw_only=True)
class SpectralMethod(Method):
    """Votes of labeled nodes with alike lists, beside features.

    Args:
        list_source: where lists are read.
    """

    list_source: NeighborListSource

    def check(self, graph: Graph) -> None:
        """Refuse directed edges, and a graph that noise would fill, before anything is spent."""
        super().check(graph)
        if graph.directed:
            raise GraphError(
                "spectral reads whom a node is listed with, and this graph's edges are directed; use "
                "'classcode', or read them as undirected (directed=False, no --directed)"
            )
        if self.list_source.response is not None:
            self.list_source.response.check(
                graph, self.privacy_config.unit, domain_of(graph, self.privacy_config.unit)
            )

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return what a plan for this graph depends on, its slots included."""
        return self.list_source.sizes(super().sizes_of(graph), graph)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the graph."""
        return self.list_source.plan(sizes)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of the released graph, with all that follows from it."""
        return replace(super().guarantee(plan, graph), graph=plan is not None)

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what is said besides: what the model sees."""
        response = self.list_source.response
        released_state = () if response is None else (GRAPH_INPUT_NOTE.format(mechanism=response.name),)
        return (*super().notes(graph), *released_state)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Learn from features, release the graph, and choose how votes and features go together."""
        with session.stage("encoder"):
            public = public_posteriors(graph, session)
        released_state, rows = self.list_source.rows(graph, session)
        known = nodes_of(graph.mask("train") | graph.mask("val"))
        with session.stage("classifier"):
            rule, log = best_rule(public.log, rows, known, graph.y[known])
        trained = TrainedSpectral(
            self.list_source, rule, graph.num_classes, public.networks, public.candidate.unit_rows
        )
        return FitResult(trained=trained, proba=log.exp().to(torch.float32), released=released_state)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedSpectral":
        """Return the fit with these weights.

        Raises:
            ArtifactError: they are not those of so many features and classes, or the rule is none of ours.
        """
        networks, numbers = restore_networks(state, _FEATURES), state[_RULE].tolist()
        rule = VotingRule(int(numbers[0]), int(numbers[1]), *numbers[2:])
        if not fits(networks, sizes.width, sizes.classes) or not rule.known:
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {sizes.classes} classes; "
                "take them from the original run"
            )
        return TrainedSpectral(self.list_source, rule, sizes.classes, networks, bool(state[_UNIT_ROWS]))


@dataclass(frozen=True, eq=False)
class TrainedSpectral(TrainedModel):
    """What a fit leaves: feature networks, and how much they and the voters of a graph are worth.

    Voters are of the graph that is predicted, so another graph needs public labels of its own.

    Args:
        list_source: where lists are read.
        rule: how votes and features are put together.
        classes: C.
        networks: the feature networks.
        unit_rows: whether they take features scaled to rows of norm one.
    """

    list_source: NeighborListSource
    rule: VotingRule
    classes: int
    networks: tuple[FeedForward, ...]
    unit_rows: bool

    def check(self, graph: Graph, class_names: tuple[str, ...]) -> None:
        """Refuse a graph in which nobody can vote.

        Raises:
            GraphError: it has no labeled nodes, or its classes are others.
        """
        if not graph.has_split or not bool((graph.mask("train") | graph.mask("val")).any()):
            raise GraphError(
                "spectral predicts a node from labeled nodes of the same graph, and this one has none; give "
                "it a split with public labels, or use 'classcode', which needs none"
            )
        check_classes(graph, class_names, self.classes)

    def sizes_for(self, graph: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return what the plan for another graph depends on: its own slots."""
        return self.list_source.sizes(super().sizes_for(graph, fitted), graph)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the other graph."""
        return self.list_source.plan(sizes)

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Release the other graph, and let its labeled nodes vote."""
        released_state, rows = self.list_source.rows(graph, session)
        known = nodes_of(graph.mask("train") | graph.mask("val"))
        votes = self.rule.votes(rows, known, graph.y[known], self.classes)
        log = self.rule.decided(mean_posterior(self.networks, graph.x, unit=self.unit_rows), votes)
        return CachedPrediction(session.plan, tuple(released_state.values()), log.exp().to(torch.float32))

    def state(self) -> State:
        """Return the weights and the rule."""
        return {
            **networks_state(_FEATURES, self.networks),
            _UNIT_ROWS: torch.tensor(self.unit_rows),
            _RULE: torch.tensor(astuple(self.rule), dtype=torch.float64),
        }


MAX_RANK = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class Spectral(Estimator):
    """Labeled nodes with a like list of neighbors vote on a node's class, beside its features.

    For graphs whose neighbors are *not* of one class, as pages of an encyclopedia that link to each other:
    there a count of neighbors by class (ClassCode), or any mean of neighbors, says next to nothing, and two
    pages with nearly the same list are nearly always of one class.

    Every pair of nodes says by randomized response whether it is an edge; the released graph's leading
    eigenvectors, each as long as it can be trusted, are the nodes' rows, and a labeled node u votes for its
    class at v with max(0, cos(row_u, row_v))^p. How many directions count, the power, the weight of the
    features among the voters, and the share of the votes maximize the likelihood of public labels, none of
    which votes on its own node. So where lists tell nothing, features are left as they are.

    Guarantee, unit ``undirected-edge``: the whole released graph, and with it everything that follows, is
    epsilon-DP for one edge, with delta 0. Features and labels are public. Unit ``none`` reads the exact
    edges and is the reference without noise.

    It wants much budget, and lists that are long: noise has eigenvalues up to 2 s sqrt(N), with
    s = 1 / (2 sinh(epsilon / 2)), and directions of the graph count from there on. On few edges a node, or
    below an epsilon of 3 or 4, use :class:`~graphveil.estimators.classcode.ClassCode`.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        rank: the most directions that tell lists apart, and so the width of a node's row.
        max_edges: the most edges that may be expected to come out of the release; None for 20 million.

    Raises:
        UnitError: the unit is neither ``"undirected-edge"`` nor ``"none"``.
        ConfigError: a parameter is outside its range; on ``fit``, noise alone would add too many edges.
        GraphError: on ``fit``, the edges are directed.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = Spectral(unit="undirected-edge", epsilon=8.0, seed=0).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon, model.guarantee.delta
    (True, 8.0, 0.0)
    """

    method: ClassVar[str] = "spectral"

    rank: int = 1024
    max_edges: int | None = None

    def _build_method(self) -> SpectralMethod:
        check_on_cpu(self.method, self.device)
        checks.integer_at_least(1, rank=self.rank)
        checks.within(1, MAX_RANK, rank=self.rank)
        privacy_config = self.privacy_config
        if not isinstance(privacy_config.unit, UndirectedEdge | NoUnit):
            check_local(self, privacy_config.unit)
            raise UnitError(
                f"spectral has no bound under unit {privacy_config.unit.name!r}: it reads whole lists of "
                "neighbors; "
                "use unit 'undirected-edge', or 'classcode' or 'gap' for others"
            )
        if self.mode == "paper":
            raise ConfigError(
                "spectral has no paper to reproduce and so no paper mode: use mode='strict' (--mode strict)"
            )
        most = MAX_EDGES if self.max_edges is None else self.max_edges
        response = None
        if isinstance(privacy_config.unit, UndirectedEdge):
            response = EdgeRand(epsilon=privacy_config.budget, max_edges=most)
        list_source = NeighborListSource(unit=privacy_config.unit, response=response, rank=self.rank)
        return SpectralMethod(
            name=self.method, privacy_config=privacy_config, device=self.device, list_source=list_source
        )
