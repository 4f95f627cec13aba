"""Predictions of other graphs: cost, cache, and ledger entries."""

import gc
import itertools
import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphveil.backends import Memory
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.data import Graph
from graphveil.data.fingerprint import GraphFingerprint
from graphveil.errors import BudgetError, ConfigError, UnitError
from graphveil.estimators import session
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.gap import GAP
from graphveil.estimators.inference import ASSERTED_EDGES
from graphveil.estimators.prediction_cache import PredictionCache
from tests.estimators.conftest import grouped
from tests.estimators.interrupted import InterruptedFit

PUBLIC: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-7, "seed": 0}
QUICK: dict[str, Any] = {**PUBLIC, "epochs": 1, "hidden": 2}


def grow(graph: Graph, seed: int = 0, nodes: int = 3, **options: Any) -> Graph:
    """Return the graph with further nodes, each with edges to old and new ones."""
    rng = np.random.default_rng(seed)
    new = graph.num_nodes + rng.integers(nodes, size=4 * nodes)
    other = rng.integers(graph.num_nodes + nodes, size=4 * nodes)
    return graph.grow(rng.random((nodes, graph.num_features)), None, new, other, **options)


def num_entries(*graphs: Graph) -> list[int]:
    return [len(ledger_of(graph.edge_set).entries) for graph in graphs]


@dataclass(frozen=True)
class Watched(Memory):
    """Backend that records the edges that queries read and the first node of each block."""

    read: list[tuple[Adjacency, list[int]]] = field(default_factory=list)
    state: dict[str, bool] = field(default_factory=dict)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        if self.state.get("fails"):
            raise InterruptedFit
        self.read.append((adjacency, []))
        for block in super().blocks(adjacency, first):
            self.read[-1][1].append(block.start)
            yield block


def cache_of(model: GAP) -> PredictionCache:
    """Return what a fitted model keeps of its predictions."""
    assert model._predictions is not None
    return model._predictions._state.cache


class TestSameGraphAgain:
    def test_a_repeated_prediction_is_bit_identical_and_not_charged(self, graph, make_graph):
        model, other = GAP(**QUICK).fit(graph), make_graph(seed=1)
        first = model.predict_proba(other)
        assert model.privacy_cost(other) is None
        split = other.with_split(other.test_mask, other.val_mask, other.train_mask)
        assert torch.equal(model.predict_proba(split), first)
        assert torch.equal(model.predict_proba(other.replace(y=torch.full_like(other.y, -1))), first)
        assert num_entries(other, graph) == [1, 2]

    def test_other_features_on_the_same_edges_are_another_query(self, graph, make_graph):
        model, other = GAP(**QUICK).fit(graph), make_graph(seed=1)
        for queried in (graph, other):
            first = model.predict_proba(queried)
            changed = queried.replace(x=queried.x.flip(1))
            assert model.privacy_cost(changed) is not None
            assert not torch.equal(model.predict_proba(changed), first)
            assert torch.equal(model.predict_proba(queried), first)
        assert num_entries(other, graph) == [2, 4]

    def test_every_model_is_charged_separately(self, graph, make_graph):
        other = make_graph(seed=1)
        one, two = (GAP(**QUICK).fit(graph) for _ in range(2))
        assert not torch.equal(one.predict_proba(other), two.predict_proba(other))
        assert num_entries(other) == [2]
        one.fit(make_graph())
        one.predict(other)
        assert num_entries(other) == [3]

    def test_cached_predictions_do_not_keep_a_graph_alive(self, graph, make_graph):
        model, other = GAP(**QUICK).fit(graph), make_graph(seed=1)
        model.predict(other)
        edges = weakref.ref(other.adjacency)
        assert len(cache_of(model)._kept) == 2
        del other
        gc.collect()
        assert edges() is None
        assert len(cache_of(model)._kept) == 1

    def test_a_grown_graph_does_not_keep_the_old_edges_alive(self, make_graph):
        graph = make_graph()
        model = GAP(**QUICK).fit(graph)
        edges, grown = weakref.ref(graph.adjacency), grow(graph)
        del graph
        gc.collect()
        assert edges() is None
        assert torch.equal(model.predict_proba(grown)[:150], model.predict_proba())


class TestLedgers:
    def test_disjoint_graphs_compose_in_parallel(self, graph, make_graph):
        model = GAP(**QUICK).fit(graph)
        for seed in (1, 2):
            other = make_graph(seed=seed)
            assert model.privacy_cost(other, assume_disjoint_edges=True) == model.privacy_cost(other)
            assert model.guarantee_after(other).epsilon > 2.5
            model.predict(other, assume_disjoint_edges=True)
            assert num_entries(other, graph) == [1, 1]
        whole = model.guarantee_with_predictions
        assert whole.epsilon == pytest.approx(model.guarantee.epsilon)
        assert ASSERTED_EDGES in whole.formal_statement()
        assert whole.releases == 3

    def test_rejects_disjoint_parts_of_the_fitted_graph(self, graph):
        model = GAP(**QUICK).fit(graph)
        part = graph.subgraph(torch.arange(graph.num_nodes) < 50)
        for call in (model.predict, model.privacy_cost, model.guarantee_after):
            with pytest.raises(ConfigError, match="edge set that the model was"):
                call(part, assume_disjoint_edges=True)
        model.predict(part)
        assert num_entries(graph) == [2]

    def test_rejects_disjoint_edges_for_node_units(self, graph, make_graph):
        model = GAP(**{**QUICK, "unit": "node-record", "delta": 1e-5}, out_degree_bound=3).fit(graph)
        other = make_graph(seed=1)
        for call in (model.predict, model.privacy_cost):
            with pytest.raises(UnitError, match="a person may be in both graphs"):
                call(other, assume_disjoint_edges=True)
        after = model.guarantee_after(other)
        model.predict(other)
        assert num_entries(other, graph) == [1, 2]
        assert model.guarantee_with_predictions == after
        assert after.epsilon > model.guarantee.epsilon
        assert after.releases == model.guarantee.releases + 1

    def test_a_limit_of_either_ledger_is_checked_before_a_query(self, make_graph):
        limited, free = make_graph(), make_graph(seed=1)
        attach_ledger(limited.edge_set, MemoryLedger(epsilon=2.5, delta=1e-7))
        model = GAP(**QUICK).fit(limited)
        with pytest.raises(BudgetError, match=r"the limit of 2\.5"):
            model.predict(free)
        assert num_entries(free, limited) == [0, 1]
        assert model.guarantee_with_predictions == model.guarantee
        model.predict(free, assume_disjoint_edges=True)
        assert num_entries(free, limited) == [1, 1]

    def test_a_charge_counts_even_if_the_prediction_failed(self, graph, make_graph):
        backend = Watched()
        model, other = GAP(**QUICK, backend=backend).fit(graph), make_graph(seed=1)
        backend.state["fails"] = True
        with pytest.raises(InterruptedFit):
            model.predict(other)
        backend.state.clear()
        assert num_entries(other, graph) == [1, 2]
        assert model.guarantee_with_predictions.epsilon > model.guarantee.epsilon
        model.predict(other)
        assert num_entries(other, graph) == [2, 3]


class TestGrownGraph:
    @pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
    def test_only_new_edges_are_charged(self, make_graph, unit):
        graph = make_graph(directed=unit == "directed-edge")
        model = GAP(**{**QUICK, "unit": unit}).fit(graph)
        grown = grow(graph)
        new = grown.edge_set.parts[1]
        assert model.privacy_cost(grown).event == model.guarantee.event
        assert model.guarantee_after(grown).epsilon == pytest.approx(model.guarantee.epsilon)
        proba = model.predict_proba(grown)
        assert torch.equal(proba[:150], model.predict_proba())
        assert proba.shape == (153, 3)
        assert (num_entries(graph), len(ledger_of(new).entries)) == ([1], 1)
        assert torch.equal(model.predict_proba(grown), proba)
        assert (num_entries(graph), len(ledger_of(new).entries)) == ([1], 1)
        assert model.guarantee_with_predictions.epsilon == pytest.approx(model.guarantee.epsilon)

    def test_reads_new_edges_only(self, graph):
        backend = Watched()
        model, grown = GAP(**QUICK, backend=backend).fit(graph), grow(graph)
        backend.read.clear()
        model.predict(grown)
        assert len(backend.read) == 2  # hops
        for adjacency, starts in backend.read:
            assert starts == [150]  # aggregates of old nodes are not queried
            assert all(max(edge) >= 150 for edge in adjacency.edge_index().T.tolist())

    def test_hops_of_new_nodes_read_cached_aggregates_of_old_nodes(self, make_graph):
        """At almost no noise the new rows are what the whole graph's exact sums would give them."""
        graph = make_graph()
        model = GAP(**{**QUICK, "epsilon": 300.0, "delta": 1e-3}).fit(graph)
        grown = grow(graph)
        model.predict(grown)
        kept = cache_of(model).find(grown.version, grown.features_digest())
        aggregation = model.fitted.trained.aggregation
        rows = aggregation.encode(grown)
        matrix = torch.zeros(153, 153, dtype=torch.float64)
        source, target = grown.adjacency.edge_index()
        matrix[target, source] = 1.0
        for hop, std in zip(kept.rows, model.plan_.noise_std, strict=True):
            expected = (matrix @ rows.to(torch.float64))[150:]
            assert float((hop[150:] - expected).abs().max()) < 6 * std + 0.05
            rows = aggregation.method.hop_transform.next_input(aggregation.encoder, rows, [hop], std)

    @pytest.mark.parametrize("between", [True, False])
    def test_a_grown_graph_can_grow(self, graph, between):
        model = GAP(**QUICK).fit(graph)
        once = grow(graph)
        twice = grow(once, seed=1)
        if between:
            first = model.predict_proba(once)
        assert model.privacy_cost(twice).epsilon == pytest.approx(model.guarantee.epsilon)
        proba = model.predict_proba(twice)
        if not between:
            first = model.predict_proba(once)  # kept on the way
        assert torch.equal(proba[:153], first)
        assert [len(ledger_of(part).entries) for part in twice.edge_set.parts] == [1, 1, 1]
        assert model.guarantee_with_predictions.epsilon == pytest.approx(model.guarantee.epsilon)
        assert model.guarantee_with_predictions.releases == 3

    def test_weighted_graphs_grow_by_weighted_edges(self, make_graph):
        rng, graph = np.random.default_rng(3), make_graph()
        source, target = graph.adjacency.edge_index().numpy()
        weight = {"weight": 0.5 * np.ones(len(source)), "max_weight": 2.0}
        weighted = Adjacency.from_edges(source, target, num_nodes=150, directed=False, **weight)
        graph = graph.replace(adjacency=weighted)
        model = GAP(**{**QUICK, "epsilon": 300.0, "delta": 1e-3}, weights="given", hops=1).fit(graph)
        friends = torch.arange(10)
        x, ends = rng.random((1, graph.num_features)), np.full(10, 150)
        grown = [graph.grow(x, None, ends, friends.numpy(), weight=[w] * 10) for w in (1.0, 2.0)]
        assert model.privacy_cost(grown[0]).event == model.guarantee.event
        received = []
        for one in grown:
            proba = model.predict_proba(one)
            assert torch.equal(proba[:150], model.predict_proba())
            assert [len(ledger_of(part).entries) for part in one.edge_set.parts] == [1, 1]
            received.append(cache_of(model).find(one.version, one.features_digest()).rows[0][150])
        rows = model.fitted.trained.aggregation.encode(graph)[friends].sum(dim=0)
        for share, row in zip((0.5, 1.0), received, strict=True):
            assert float((row - share * rows).abs().max()) < 6 * model.plan_.noise_std[0] + 0.1

    def test_growth_of_a_predicted_graph_has_the_noise_of_its_prediction(self, graph, make_graph):
        model = GAP(**{**QUICK, "delta": "auto"}).fit(graph)
        other = make_graph(seed=1, nodes=90)
        before = model.predict_proba(other)
        grown = grow(other, nodes=30)
        proba = model.predict_proba(grown)
        assert torch.equal(proba[:90], before)
        (entry,) = ledger_of(grown.edge_set.parts[1]).entries
        assert entry.event == ledger_of(other.edge_set).entries[0].event
        assert num_entries(graph, other) == [3, 1]  # of the fitted graph it is not known what it shares

    def test_growth_of_an_unknown_graph_is_another_graph(self, graph, make_graph):
        model, other = GAP(**QUICK).fit(graph), make_graph(seed=1)
        grown = grow(other)
        model.predict(grown)
        assert [len(ledger_of(part).entries) for part in grown.edge_set.parts] == [1, 1]
        assert num_entries(graph) == [2]

    def test_other_features_of_old_nodes_are_another_query(self, graph):
        model, grown = GAP(**QUICK).fit(graph), grow(graph)
        changed = grown.replace(x=grown.x.flip(1))
        assert not torch.equal(model.predict_proba(changed)[:150], model.predict_proba())
        assert num_entries(graph) == [2]

    def test_new_edges_with_a_known_edge_set_add_up(self, graph):
        model = GAP(**QUICK).fit(graph)
        named, same = grow(graph, edge_set=EdgeSet("dataset:x")), grow(graph, edge_set=graph.edge_set)
        model.predict(named)
        assert num_entries(graph) == [2]
        model.predict(same)
        assert num_entries(graph) == [3]

    def test_node_units_charge_the_whole_grown_graph(self, graph):
        model = GAP(**{**QUICK, "unit": "node-record", "delta": 1e-5}, out_degree_bound=3).fit(graph)
        grown = grow(graph)
        model.predict(grown)
        assert [len(ledger_of(part).entries) for part in grown.edge_set.parts] == [2, 1]
        assert model.guarantee_with_predictions.epsilon > model.guarantee.epsilon


# -- any sequence of calls ---------------------------------------------------------------------------------


@dataclass
class Log:
    """What was really queried, in order: the atomic edge sets that a release read, and its mu^2."""

    queried: list[tuple[frozenset[EdgeSet], float]] = field(default_factory=list)
    apart: set[frozenset[EdgeSet]] = field(default_factory=set)

    def sets(self) -> list[EdgeSet]:
        return list(dict.fromkeys(part for parts, _ in self.queried for part in parts))

    def set_apart(self, parts: tuple[EdgeSet, ...], others: list[EdgeSet]) -> None:
        self.apart |= {frozenset((a, b)) for a in parts for b in others if a is not b}

    def may_share(self, one: EdgeSet, other: EdgeSet) -> bool:
        return frozenset((one, other)) not in self.apart

    def charges(self, part: EdgeSet) -> list[float]:
        """Return what the charges of a set must hold: what read it, and what came later and may have."""
        since = min(k for k, (parts, _) in enumerate(self.queried) if part in parts)
        return [
            squared
            for parts, squared in self.queried[since:]
            if any(self.may_share(part, other) for other in parts)
        ]

    def worst_edge(self) -> float:
        """Return the most that is revealed about a possible edge: it is in sets of which no two are apart."""
        worst, sets = 0.0, self.sets()
        for size in range(1, len(sets) + 1):
            for family in itertools.combinations(sets, size):
                if all(self.may_share(*pair) for pair in itertools.combinations(family, 2)):
                    revealed = sum(squared for parts, squared in self.queried if parts & set(family))
                    worst = max(worst, revealed)
        return worst


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    found = Log()

    class Logged(session.Release):
        @classmethod
        def open(cls, plan: Any, adjacency: Any, *args: Any, **kwargs: Any) -> Any:
            opened = super().open(plan, adjacency, *args, **kwargs)
            found.queried.append((frozenset(adjacency.edge_set.parts), plan.mu**2))
            return opened

    monkeypatch.setattr(session, "Release", Logged)
    return found


CALL = st.tuples(
    st.sampled_from(["new", "apart", "again", "features", "grow", "grow and predict"]), st.integers(0, 20)
)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(calls=st.lists(CALL, min_size=1, max_size=6))
@example(calls=[("new", 0)])  # unknown overlap is charged to both graphs
@example(calls=[("apart", 0), ("new", 0)])  # and to every graph that was predicted before
@example(calls=[("grow", 0), ("grow and predict", 1), ("again", 1)])
@pytest.mark.parametrize("method", [GAP, ClassCode])
@pytest.mark.usefixtures("quick_classcode")
def test_ledgers_match_the_queries_of_any_sequence_of_calls(
    log: Log, method: type[Estimator], calls: list[tuple[str, int]]
) -> None:
    log.queried.clear()
    log.apart.clear()
    model = GAP(**QUICK) if method is GAP else ClassCode(**PUBLIC, self_training=False, noise="gaussian")
    graphs = [grouped(nodes=30)]
    model.fit(graphs[0])
    seen: list[tuple[Graph, Tensor]] = [(graphs[0], model.predict_proba())]
    for number, (call, pick) in enumerate(calls, start=1):
        graph = graphs[pick % len(graphs)]
        if call in ("new", "apart"):
            graph = grouped(nodes=30, seed=number)
        if call == "features":
            graph = graph.replace(x=graph.x.flip(1))
        if call.startswith("grow"):
            before = graph
            graph = grow(graph, seed=number)
            log.set_apart(graph.edge_set.parts[-1:], list(before.edge_set.parts))
        if call == "apart":
            log.set_apart(graph.edge_set.parts, log.sets())
        graphs.append(graph)
        if call != "grow":
            after = model.guarantee_after(graph, assume_disjoint_edges=call == "apart")
            seen.append((graph, model.predict_proba(graph, assume_disjoint_edges=call == "apart")))
            assert model.guarantee_with_predictions == after
        drawn = len(log.queried)
        for known, proba in seen:
            assert model.privacy_cost(known) is None
            assert torch.equal(model.predict_proba(known), proba)
        assert len(log.queried) == drawn
    charged = {part: log.charges(part) for part in log.sets()}
    for part, expected in charged.items():
        recorded = [total_mu(entry.event) or 0.0 for entry in ledger_of(part).entries]
        assert [mu**2 for mu in recorded] == pytest.approx(expected)
    whole = model.guarantee_with_predictions
    worst = max(sum(charges) for charges in charged.values())
    assert total_mu(whole.event) ** 2 == pytest.approx(worst)
    assert worst >= log.worst_edge() * (1 - 1e-9)
    assert whole.epsilon == pytest.approx(epsilon_of(math.sqrt(worst), 1e-7 - whole.slack))


class CountingOwnGraph(GraphFingerprint):
    """Count how often a whole graph is hashed."""

    hashed = 0

    def matches(self, graph: Graph) -> bool:
        """Count the call."""
        CountingOwnGraph.hashed += 1
        return super().matches(graph)


@pytest.mark.parametrize(
    ("unit", "own"), [("undirected-edge", True), ("undirected-edge", False), ("none", False)]
)
def test_a_prediction_hashes_the_whole_graph_once(make_graph, unit, own):
    options = {} if unit == "none" else {"epsilon": 2.0, "delta": 1e-7}
    model = GAP(unit=unit, seed=0, epochs=1, hidden=2, **options).fit(make_graph())
    assert model.graph_fingerprint is not None
    model._set_fit(
        model.fitted, own=CountingOwnGraph(model.graph_fingerprint.key, model.graph_fingerprint.tag)
    )
    CountingOwnGraph.hashed = 0
    model.predict(make_graph() if own else make_graph(seed=5))
    assert CountingOwnGraph.hashed == 1
