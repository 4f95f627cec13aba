"""What a release must do, as checks: the shipped one passes all of them, and every seeded bug fails one.

A check raises, or returns nothing. Those that draw noise use reproducible keys, so they pass always or never.
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts import laws, replay
from contracts.replay import CODES, FEW_LABELS, ONE, OWNER, REPLACED, STEERED, code_pushes, pushes
from graphveil.audit import neighbor_test_mutual_edges, neighbor_test_plan
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.accountant import GaussianCurve, privacy_curve, total_mu
from graphveil.core.accounting.gaussian import delta_of
from graphveil.core.backends import AggregationBackend, InMemoryBackend
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.features import safe_unit, shrink_unit
from graphveil.core.journal import FolderJournal, MemoryJournal
from graphveil.core.keys import KeyStore, ReleaseKey, canonical
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, calibrate_plan, hops
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    FeatureHistogramData,
    FeatureHistogramQuery,
    OutcomeCountData,
    OutcomeCountQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.query import GRID_BITS
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.data import Graph
from graphveil.data.fingerprint import GraphFingerprint
from graphveil.errors import BudgetError, ConfigError, ReleaseError, UnitError
from graphveil.release.weights import parse_weight
from graphveil.runs.run_folder import RunFolder, check_data, read_checked, write_checked

KEY = ReleaseKey.from_seed(2024, "checks")
NODES, DIM = 30_000, 6
_FINE = 4096.0  # steps in a standard deviation, for laws of noise on any grid


def path(nodes: int = 5) -> Adjacency:
    """A path graph."""
    return Adjacency.from_edges(range(nodes - 1), range(1, nodes), num_nodes=nodes, directed=False)


def edgeless(nodes: int) -> Adjacency:
    """A graph whose sums are zero, so that its answers are the noise."""
    return Adjacency.from_edges([], [], num_nodes=nodes, directed=False)


def plan_of(count: int = 1, dim: int = 2, mu: float = 1.0) -> ReleasePlan:
    """Equal hops of weight one."""
    return ReleasePlan(UndirectedEdge(), hops(mu, count, dim), delta=1e-5)


def random_graph(nodes: int, edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw two ends for every edge; repeats and loops may occur."""
    rng = np.random.default_rng(seed)
    return rng.integers(nodes, size=edges), rng.integers(nodes, size=edges)


# -- sensitivity -------------------------------------------------------------------------------------------


def hops_cost_what_they_are_charged() -> None:
    """Neighbor replay of three hops of weight one."""
    replay.of_method(ONE, UndirectedEdge(), pairs=60)


def steered_rows_and_counts_cost_what_they_are_charged() -> None:
    """Neighbor replay of the steered release with counts."""
    replay.of_method(STEERED, UndirectedEdge(), pairs=150, seed=5)


def few_labels_cost_what_they_are_charged() -> None:
    """Neighbor replay of the release for few labels, directed too."""
    for unit in (UndirectedEdge(), DirectedEdge()):
        replay.of_method(FEW_LABELS, unit, pairs=60, seed=6)


def the_path_is_the_same_for_neighbors() -> None:
    """Shapes, laws and rows of noise do not depend on an edge."""
    queries = STEERED.queries(UndirectedEdge(), replay.MU, GRID_BITS)
    found = neighbor_test_plan(UndirectedEdge(), queries, pairs=40, seed=2)
    assert found is not None
    assert not {"shape", "noise scale"} & set(found.kinds), str(found)


def a_long_row_counts_for_nothing() -> None:
    """A contribution over its bound is replaced by zero, silently; one at the bound counts."""
    vectors = [
        [1.0, 0.0],
        [1.01, 0.0],
        [0.6, 0.8],
        *([long, 0.0] for long in (math.nan, math.inf, 1e39, 1e308)),
    ]
    rows = torch.tensor([*vectors, [0.0, 0.0]], dtype=torch.float64)
    star = Adjacency.from_edges(range(7), [7] * 7, num_nodes=8, directed=True)
    plan = zero_noise_plan(DirectedEdge(), hops(1.0, 1, 2, DirectedEdge()))
    answer = Release.open(plan, star, budget=MemoryLedger()).answer(NeighborSumData(rows))
    assert answer[7].tolist() == pytest.approx([1.0 + 614 / 1024, 819 / 1024], abs=1e-9)


def a_row_one_step_over_its_bound_counts_for_nothing() -> None:
    """A bound is a bound to the grid step: by the row's group, and however little is too much."""
    steps = 2.0**10
    for received_group, weights in ((0, GroupWeights.unit_weights()), (2, GroupWeights.target_weighted())):
        query = NeighborSumQuery(weights, (1.0,) * weights.groups, 2, grid_bits=10)
        assert query.unit_steps == steps
        rows = torch.tensor([[steps, 0.0], [steps, 1.0], [-steps, 1.0], [0.0, 0.0]], dtype=torch.float64)
        star = Adjacency.from_edges(range(3), [3] * 3, num_nodes=4, directed=True)
        groups = torch.tensor([0, 0, 0, received_group])
        release = Release.open(zero_noise_plan(DirectedEdge(), (query,)), star, groups, budget=MemoryLedger())
        answer = release.answer(NeighborSumData(rows / steps))
        assert answer[3].tolist() == [1.0, 0.0], "a row that is longer than its bound was received"


def inputs_are_never_longer_than_one() -> None:
    """safe_unit and shrink_unit keep every norm at most one, whatever the scale of the rows."""
    rng = np.random.default_rng(3)
    for scale in (1e-300, 1e-20, 1.0, 1e20, 1e300):
        x = torch.from_numpy(rng.normal(size=(500, 5)) * scale)
        for rows in (safe_unit(x), shrink_unit(x, 0.5 * scale), safe_unit(x.float().nan_to_num(0, 0, 0))):
            assert bool((rows.norm(dim=1) <= 1).all()), f"a row of scale {scale} is longer than one"


# -- records -----------------------------------------------------------------------------------------------


def records_cost_what_they_are_charged() -> None:
    """Record replay of two pushes, with groups, levels and budgets: null every record."""
    replay.no_change_exceeds_its_price(pushes(), OWNER)


def replaced_records_cost_what_they_are_charged() -> None:
    """The same where another record takes the place of one."""
    replay.no_change_exceeds_its_price(pushes(), REPLACED)


def replaced_codes_cost_what_they_are_charged() -> None:
    """The same for pushes of class codes, which are charged for less; some vectors are outside the hull."""
    replay.no_change_exceeds_its_price(code_pushes(), REPLACED)


def a_mutual_edge_moves_out_edge_sums_by_what_is_stated() -> None:
    """Both ends list each other, or neither does."""
    for query in (*pushes(), *code_pushes()):
        replay.nothing_breaks(neighbor_test_mutual_edges(query, pairs=100))


def nodes_of_bounded_degree_cost_what_they_are_charged() -> None:
    """Hops under a promised degree: delete nodes with all their edges; a node's own row is its own."""
    unit = NodeBoundedDegree(max_degree=3)
    replay.no_change_exceeds_its_price(hops(0.5, 1, 3, unit), unit, pairs=100)


def a_violated_assumption_is_rejected() -> None:
    """A degree above the promised one, in either direction, books and computes nothing."""
    for ends in (([0, 0, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 1])):
        graph, budget = Adjacency.from_edges(*ends, num_nodes=4, directed=True), MemoryLedger()
        plan = ReleasePlan(NodeBoundedDegree(max_degree=1), hops(1.0, 1, 2), delta=1e-3)
        with pytest.raises(UnitError):
            Release.open(plan, graph, budget=budget)
        assert not budget.entries


def tallies_cost_what_they_are_charged() -> None:
    """Null or replace a record's row of a tally: the counts move by at most its price, which is attained."""
    query = AccuracyCountQuery(candidates=5, sigma=4.0)
    correct = torch.from_numpy(np.random.default_rng(0).random((6, 5)) < 0.5)
    for unit in (NodeRecord(), NodeRecord(replace_one=True)):
        plan, largest = zero_noise_plan(unit, (query,)), 0.0
        for before, after in (
            (torch.ones(1, 5).bool(), torch.zeros(1, 5).bool()),
            (correct[:1], ~correct[:1]),
        ):
            tables = [torch.cat([correct[1:], row]) for row in (before, after)]
            x, y = (
                Release.open(plan, edgeless(6), budget=MemoryLedger()).answer(AccuracyCountData(table))
                for table in tables
            )
            largest = max(largest, float((x - y).norm()) / query.sigma)
        assert largest == pytest.approx(plan.mu)


def outcomes_cost_what_they_are_charged() -> None:
    """Null a counted record, or turn a right one into a wrong one: the price is what they move, attained."""
    query, none = OutcomeCountQuery(sigma=4.0), torch.zeros(1).bool()
    rest = (torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    for replaced in (False, True):
        plan, answers = zero_noise_plan(NodeRecord(replace_one=replaced), (query,)), []
        for own in ((~none, none), (none, ~none) if replaced else (none, none)):
            data = OutcomeCountData(*(torch.cat(both) for both in zip(rest, own, strict=True)))
            answers.append(Release.open(plan, edgeless(4), budget=MemoryLedger()).answer(data))
        assert float((answers[0] - answers[1]).norm()) / query.sigma == pytest.approx(plan.mu)


def histograms_cost_what_they_are_charged() -> None:
    """Null a counted record, or move it to another cell: the price is what the counts move, attained."""
    query, rest = RecordHistogramQuery(cells=6, sigma=4.0), [0, 3, 3, -1]
    for replaced in (False, True):
        plan = zero_noise_plan(NodeRecord(replace_one=replaced), (query,))
        answers = [
            Release.open(plan, edgeless(5), budget=MemoryLedger()).answer(
                RecordHistogramData(torch.tensor([*rest, own]))
            )
            for own in (2, 5 if replaced else -1)
        ]
        assert float((answers[0] - answers[1]).norm()) / query.sigma == pytest.approx(plan.mu)


def feature_histograms_cost_what_they_are_charged() -> None:
    """Null a counted record, or move it in every column: the price is what all counts move, attained."""
    query, rest = FeatureHistogramQuery(columns=3, cells=6, sigma=4.0), torch.tensor([[0, 3, 5], [3, 3, -1]])
    for replaced in (False, True):
        plan = zero_noise_plan(NodeRecord(replace_one=replaced), (query,))
        answers = [
            Release.open(plan, edgeless(5), budget=MemoryLedger()).answer(
                FeatureHistogramData(torch.cat([rest, torch.full((1, 3), own)]).to(torch.int16))
            )
            for own in (2, 5 if replaced else -1)
        ]
        assert float((answers[0] - answers[1]).norm()) / query.sigma == pytest.approx(plan.mu)


# -- noise -------------------------------------------------------------------------------------------------


def every_out_edge_sum_has_its_noise() -> None:
    """Released rows have noise sigma whatever their level, and the others are zeros."""
    levels, sigma = (0, 4, 16, 100), 2.0
    query = OutEdgeSumQuery(dim=DIM, sigma=sigma, levels=levels)
    release = Release.open(
        ReleasePlan(NodeRecord(), (query,), delta=1e-5), edgeless(NODES), budget=MemoryLedger(), key=KEY
    )
    chosen = torch.arange(NODES) % 4
    noise = release.answer(OutEdgeSumData(torch.zeros(NODES, DIM), chosen)).double().numpy()
    for level in (1, 2, 3):
        scale = query.unit_steps / math.sqrt(levels[level] / 16)
        own = noise[chosen.numpy() == level] * scale
        laws.has_the_law(own, sigma * scale)
        laws.covers_everything(own, sigma * scale)
        laws.rows_are_unrelated(own)


def rows_that_are_not_released_are_zeros() -> None:
    """Rows of level weight zero have no bit set, whatever was written there."""
    query = OutEdgeSumQuery(dim=2, sigma=2.0, levels=(0, 16))
    plan = ReleasePlan(NodeRecord(), (query,), delta=1e-5)
    answer = Release.open(plan, path(), budget=MemoryLedger()).answer(
        OutEdgeSumData(-torch.ones(5, 2) / 2, torch.tensor([0, 1, 0, 0, 1]))
    )
    assert not answer[[0, 2, 3]].view(torch.int32).any()
    assert bool((answer[[1, 4]] != 0).any(dim=1).all())


def every_count_of_a_tally_has_noise() -> None:
    """The noise of a tally has its law, count by count."""
    query = AccuracyCountQuery(candidates=NODES, sigma=6.0)
    release = Release.open(
        ReleasePlan(NodeRecord(), (query,), delta=1e-5), edgeless(3), budget=MemoryLedger(), key=KEY
    )
    noise = (
        release.answer(AccuracyCountData(torch.zeros(3, NODES, dtype=torch.bool))).numpy() * query.unit_steps
    )
    laws.has_the_law(noise, 6.0 * query.unit_steps)
    laws.are_unrelated(noise[:-1], noise[1:])


def every_row_has_its_groups_noise() -> None:
    """The noise of each group of rows has that group's law, in every row and column."""
    sigma = (3.0, 2.0, 1.0)
    query = NeighborSumQuery(GroupWeights.target_weighted(), sigma, DIM)
    groups = torch.arange(NODES) % 3
    plan = ReleasePlan(UndirectedEdge(), (query,), delta=1e-3)
    release = Release.open(plan, edgeless(NODES), groups, budget=MemoryLedger(), key=KEY)
    noise = release.answer(NeighborSumData(torch.zeros(NODES, DIM))).double().numpy() * query.unit_steps
    for group in range(3):
        own = noise[groups.numpy() == group]
        law = sigma[group] * query.unit_steps
        laws.has_the_law(own, law)
        laws.covers_everything(own, law)
        laws.rows_are_unrelated(own)
    laws.rows_are_unrelated(noise)


def every_row_of_a_plain_hop_has_its_noise() -> None:
    """The noise of a hop with one law, which a compiled pass may draw where it sums, has it everywhere."""
    (query,) = hops(1.0, 1, DIM)
    plan = ReleasePlan(UndirectedEdge(), (query,), delta=1e-3)
    release = Release.open(plan, edgeless(NODES), budget=MemoryLedger(), key=KEY)
    noise = release.answer(NeighborSumData(torch.zeros(NODES, DIM))).double().numpy() * query.unit_steps
    laws.has_the_law(noise, query.sigma[0] * query.unit_steps)
    laws.covers_everything(noise, query.sigma[0] * query.unit_steps)
    laws.rows_are_unrelated(noise)


def every_weighted_row_has_its_noise() -> None:
    """The noise of a hop with weights of pairs is what the plan says, whatever the largest weight is."""
    sigma, groups = (3.0, 2.0, 1.0), torch.arange(NODES) % 3
    keys = torch.from_numpy(np.random.default_rng(0).normal(size=(NODES, 4)))
    for name in ("sigmoid_cos", "half_cos@8", "exp_cos(0.5)"):
        query = NeighborSumQuery(GroupWeights.target_weighted(), sigma, DIM, similarity=parse_weight(name))
        plan = ReleasePlan(UndirectedEdge(), (query,), delta=1e-3)
        release = Release.open(plan, edgeless(NODES), groups, budget=MemoryLedger(), key=KEY)
        noise = release.answer(NeighborSumData(torch.zeros(NODES, DIM), keys)).double().numpy()
        for group in range(3):  # in steps of our own: a wrong step of the query's shows in its law
            own = noise[groups.numpy() == group] * _FINE / sigma[group]
            laws.has_the_law(own, _FINE)
            laws.covers_everything(own, _FINE)
            laws.rows_are_unrelated(own)


def every_cell_has_noise() -> None:
    """Many counts of many cells: each cell of the triangle has the law, and no two share it."""
    classes, sigma = 16, 5.0
    query = EdgeCountQuery("train", (True,), classes, (sigma,))
    plan = ReleasePlan(UndirectedEdge(), (query,) * 200, delta=1e-3)
    labels, groups = torch.arange(classes), torch.zeros(classes, dtype=torch.int64)
    release = Release.open(plan, edgeless(classes), groups, budget=MemoryLedger(), key=KEY)
    rows, columns = np.triu_indices(classes)
    cells = np.stack([release.answer(EdgeCountData(labels)).numpy()[rows, columns] for _ in plan.queries])
    laws.has_the_law(cells * _FINE / sigma, _FINE)  # of all cells: few draws of one cannot show 3 %
    laws.covers_everything(cells, sigma)
    laws.are_unrelated(cells[:, :-1], cells[:, 1:])
    laws.are_unrelated(cells[:-1], cells[1:])


def hops_share_no_noise() -> None:
    """Two hops of one release with the same rows have independent noise."""
    release = Release.open(plan_of(2, DIM), edgeless(NODES), budget=MemoryLedger(), key=KEY)
    first, second = (release.answer(NeighborSumData(torch.zeros(NODES, DIM))).numpy() for _ in range(2))
    laws.are_unrelated(first, second)


def releases_share_no_noise() -> None:
    """Two releases of the same plan, graph and rows have different noise."""
    answers = [
        Release.open(plan_of(), edgeless(50), budget=MemoryLedger()).answer(
            NeighborSumData(torch.zeros(50, 2))
        )
        for _ in range(2)
    ]
    assert (answers[0] == answers[1]).sum() < 4  # on a grid two draws may meet by chance


def neighbors_share_no_noise_under_one_key() -> None:
    """A key that meets two graphs, or two inputs, draws two noises: their difference tells nothing."""
    rows = CODES[[0, 0, 1, 1, 2]]
    other = rows.clone()
    other[4] = 0.0
    answers = [
        Release.open(plan_of(), graph, budget=MemoryLedger(), key=KEY).answer(NeighborSumData(x))
        for graph, x in ((path(), rows), (edgeless(5), rows), (path(), other))
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (answers[first] != answers[second]).all()


def out_edge_sums_share_no_noise_under_one_key() -> None:
    """A key that meets two matrices of levels, or two inputs, draws two noises."""
    plan = ReleasePlan(NodeRecord(), (OutEdgeSumQuery(dim=2, sigma=2.0, levels=(16, 25)),), delta=1e-5)
    rows, levels = CODES[[0, 0, 1, 1, 2]], torch.tensor([0, 1, 0, 0, 1])
    answers = [
        Release.open(plan, edgeless(5), budget=MemoryLedger(), key=KEY).answer(OutEdgeSumData(x, index))[:4]
        for x, index in ((rows, levels), (rows, torch.tensor([0, 1, 0, 0, 0])), (-rows, levels))
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (answers[first] != answers[second]).all()


def training_noise_is_bound_to_its_data() -> None:
    """One key draws the same noise for the same data, and other noise for other data."""
    query = DPSGDQuery(parameters=200, steps=2, noise_multiplier=1.0, sampling_rate=0.5)
    plan = ReleasePlan(NodeRecord(), (query, query), delta=1e-5)
    data, schedule, drawn = torch.arange(6.0)[:, None], PrivateSchedule(epochs=1, batch_size=3), []
    no_labels = torch.full((6,), -1)  # of whom a step is noise alone
    for records_read in (data, data, data + 1):
        release = Release.open(plan, edgeless(3), budget=MemoryLedger(), key=KEY)
        for _ in plan.queries:
            gradients = clipped_sum(torch.nn.Linear(1, 100), records_read, no_labels)
            gradients.weights.zero_()
            drawn.append(release.answer(DPSGDData(gradients=gradients, schedule=schedule)))
    assert (drawn[0] == drawn[2]).all()
    for first, second in ((0, 1), (0, 4), (1, 5)):
        assert (drawn[first] != drawn[second]).double().mean() > 0.9


# -- exact sums --------------------------------------------------------------------------------------------


def out_edge_sums_depend_on_nothing_but_the_edges() -> None:
    """Bit for bit the same for every order of the edges, size of blocks and number of threads."""
    nodes = 300
    source, target = random_graph(nodes, 4000)
    distinct = np.unique(source * nodes + target)  # the order is ours to choose, repeats are not
    source, target = distinct // nodes, distinct % nodes
    rng = np.random.default_rng(1)
    rows = safe_unit(torch.from_numpy(rng.normal(size=(nodes, 5))))
    levels = torch.from_numpy(rng.integers(3, size=nodes))
    query = OutEdgeSumQuery(dim=5, sigma=1.0, levels=(0, 16, 50))
    plan, threads, answers = ReleasePlan(NodeRecord(), (query,), delta=1e-5), torch.get_num_threads(), []
    for block_rows, count, seed in ((1 << 16, 1, 0), (1, 1, 3), (64, 2, 1), (97, 2, 2)):
        order = np.random.default_rng(seed).permutation(len(source))
        torch.set_num_threads(count)
        release = Release.open(
            plan,
            _unsorted(source[order], target[order], nodes),
            budget=MemoryLedger(),
            key=ReleaseKey("a" * 32, bytes(32), bytes(range(32))),
            backend=InMemoryBackend(block_rows=block_rows),
        )
        release._edges_digest = ""  # two orders must meet one key here
        answers.append(release.answer(OutEdgeSumData(rows, levels)))
    torch.set_num_threads(threads)
    for answer in answers[1:]:
        assert torch.equal(answer, answers[0])


def sums_depend_on_nothing_but_the_edges() -> None:
    """Bit for bit the same for every order of the edges, size of blocks and number of threads."""
    nodes = 300
    source, target = random_graph(nodes, 4000)
    rows = safe_unit(torch.from_numpy(np.random.default_rng(1).normal(size=(nodes, 5))))
    plan = ReleasePlan(DirectedEdge(), hops(1.0, 1, 5, DirectedEdge()), delta=1e-5)
    threads = torch.get_num_threads()
    answers = []
    for block_rows, count, seed in ((1 << 16, 1, None), (1, 1, 0), (64, 2, 1), (97, 2, 2)):
        order = slice(None) if seed is None else np.random.default_rng(seed).permutation(len(source))
        torch.set_num_threads(count)
        graph = _unsorted(source[order], target[order], nodes)
        backend = InMemoryBackend(block_rows=block_rows)
        key = ReleaseKey("a" * 32, bytes(32), bytes(range(32)))
        release = Release.open(plan, graph, budget=MemoryLedger(), key=key, backend=backend)
        release._digest = lambda *_: ""  # type: ignore[method-assign]  # two orders must meet one key here
        release._edges_digest = ""
        answers.append(release.answer(NeighborSumData(rows)))
    torch.set_num_threads(threads)
    for answer in answers[1:]:
        assert torch.equal(answer, answers[0])


def _unsorted(source: np.ndarray, target: np.ndarray, nodes: int) -> Adjacency:
    """Store the edges by target, in the order given."""
    by_target = np.argsort(target, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=nodes))])
    return Adjacency._in_order(  # which no constructor would leave as it is
        torch.from_numpy(indptr.astype(np.int64)),
        torch.from_numpy(source[by_target].astype(np.int32)),
        True,
        EdgeSet(),
    )


def a_hub_is_summed_exactly() -> None:
    """In-degrees around and far above 2^14, where float32 would round, against an oracle in int64."""
    for degree in (2**14 - 1, 2**14, 2**14 + 1, 2**15, 2**16 + 12_345):
        nodes = degree + 2
        rng = np.random.default_rng(degree)
        rows = safe_unit(torch.from_numpy(np.abs(rng.normal(size=(nodes, 3)))))
        graph = Adjacency.from_edges(np.arange(2, nodes), np.full(degree, 1), num_nodes=nodes, directed=True)
        plan = zero_noise_plan(DirectedEdge(), hops(1.0, 1, 3, DirectedEdge()))
        answer = Release.open(plan, graph, budget=MemoryLedger()).answer(NeighborSumData(rows))
        oracle = np.trunc(rows.numpy()[2:] * 1024).astype(np.int64).sum(axis=0) / 1024
        assert answer[1].tolist() == oracle.astype(np.float32).tolist(), degree
        assert not answer[0].any()


# -- digests -----------------------------------------------------------------------------------------------


def _one_character_off(digest: str) -> Iterator[str]:
    """Yield hexadecimal digests that differ from one in a single character, at every place."""
    for place, digit in enumerate(digest):
        yield digest[:place] + ("1" if digit == "0" else "0") + digest[place + 1 :]


def a_digest_distinguishes_256_bits() -> None:
    """Digests of what a release reads are 32 bytes, and thousands of near inputs share none."""
    digests = {KEY.digest(torch.tensor([number])) for number in range(3000)}
    assert len(digests) == 3000, "two inputs have one digest"
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)
    edges = {PrivateEdges(path(nodes)).digest(KEY.master) for nodes in range(2, 1200)}
    assert len(edges) == 1198, "two graphs have one digest"


def a_journal_rejects_a_descriptor_that_is_one_character_off() -> None:
    """A committed query takes the same descriptor again, and no other, in memory and on disk."""
    digest = KEY.digest(torch.zeros(1))
    with tempfile.TemporaryDirectory() as folder:
        kept = FolderJournal(Path(folder) / "run", KeyStore(Path(folder) / "keys"))
        for journal in (MemoryJournal(), kept):
            journal.begin(KEY, {"version": 2})
            journal.commit(0, canonical({"edges": digest, "input": "a"}))
            journal.commit(0, canonical({"input": "a", "edges": digest}))
            for other in _one_character_off(digest):
                with pytest.raises(ReleaseError, match="same noise for different data"):
                    journal.commit(0, canonical({"edges": other, "input": "a"}))


def a_journal_recognizes_data_by_every_character_of_their_fingerprint() -> None:
    """Data that a folder has seen are taken again, and no others, before it is closed and after."""
    fingerprint = KEY.digest(torch.zeros(1))
    with tempfile.TemporaryDirectory() as folder:
        journal = FolderJournal(Path(folder) / "run", KeyStore(Path(folder) / "keys"))
        journal.begin(KEY, {"version": 2})
        for _ in range(2):
            journal.check_fingerprint("edges", lambda key: fingerprint)
            for other in _one_character_off(fingerprint):
                with pytest.raises(ReleaseError):
                    journal.check_fingerprint("edges", lambda key, other=other: other)
            journal.close()


def a_known_graph_is_identified_by_every_byte_of_its_tag() -> None:
    """A model's own graph is free; another one is not, however much of its tag agrees."""
    graph = Graph.from_edges(torch.eye(3), [0, 1, 0], [0, 1], [1, 2], directed=False)
    own = GraphFingerprint.from_graph(graph)
    assert own.matches(graph)
    assert len(own.tag) == 32
    for place in range(32):
        tag = bytes(byte ^ (place == at) for at, byte in enumerate(own.tag))
        assert not replace(own, tag=tag).matches(graph), "a part of the tag is enough"


def a_folder_knows_its_data_by_every_byte_of_their_digest() -> None:
    """A run is resumed on the data that it was begun with, and on no others."""
    graph = Graph.from_edges(torch.eye(3), [0, 1, 0], [0, 1], [1, 2], directed=False)
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", home)
        folder = RunFolder(Path(home) / "run")
        check_data(folder, graph)
        check_data(folder, graph)
        known = read_checked(folder.data)
        assert len(bytes.fromhex(known["digest"])) == 32
        for other in _one_character_off(known["digest"]):
            write_checked(folder.data, {**known, "digest": other})
            with pytest.raises(ConfigError, match="other data"):
                check_data(folder, graph)


# -- accounting and booking --------------------------------------------------------------------------------


def calibrated_plans_cost_at_most_their_target() -> None:
    """The certified epsilon is at most the requested one, and at most 1 % below."""
    for unit in (UndirectedEdge(), DirectedEdge()):
        for epsilon in (0.1, 0.5, 1.0, 4.0, 8.0):
            for delta in (1e-9, 1e-7, 1e-5):
                for count in (1, 2, 5):
                    plan = calibrate_plan(
                        unit, epsilon, delta, lambda mu, n=count, u=unit: hops(mu, n, 16, u), num_nodes=100
                    )
                    spent = _certified(plan)
                    assert 0.99 * epsilon <= spent <= epsilon, (epsilon, delta, spent)


def _certified(plan: ReleasePlan) -> float:
    """Account for a plan again: from sigmas and the pair's two rows, not from the plan's own event."""
    squares = 0.0
    for query in plan.queries:
        assert isinstance(query, NeighborSumQuery)
        ends = 2 if isinstance(plan.unit, UndirectedEdge) else 1
        squares += ends / query.sigma[0] ** 2
    noise = plan.sampler(max(query.sigma[0] * query.unit_steps for query in plan.queries))
    slack = noise.slack(epsilon=plan.epsilon, delta=plan.delta, changed=2 * 16 * len(plan.queries))
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        too_low = delta_of(middle, squares**0.5) > plan.delta - slack
        low, high = (middle, high) if too_low else (low, middle)
    return high


class Broken(AggregationBackend):
    """A backend that fails, or that must not be reached."""

    def __init__(self) -> None:
        self.reached = False

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Fail."""
        self.reached = True
        raise MemoryError


def a_release_is_charged_before_it_is_computed() -> None:
    """A failing backend leaves the ledger entry in place, with the event of the whole plan."""
    budget, plan = MemoryLedger(), plan_of(3)
    release = Release.open(plan, path(), budget=budget, backend=Broken())
    assert [entry.release_id for entry in budget.entries] == [release.release_id]
    with pytest.raises(MemoryError):
        release.answer(NeighborSumData(torch.zeros(5, 2)))
    assert len(budget.entries) == 1
    assert total_mu(budget.entries[0].event) == pytest.approx(1.0)
    assert budget.curve().epsilon(1e-5) == pytest.approx(privacy_curve(plan.event).epsilon(1e-5))


def a_rejected_release_computes_nothing() -> None:
    """Over the limit, nothing is booked and no backend is reached."""
    budget, backend = MemoryLedger(epsilon=0.5, delta=1e-5), Broken()
    with pytest.raises(BudgetError):
        Release.open(plan_of(), path(), budget=budget, backend=backend)
    assert not budget.entries
    assert not backend.reached


def two_splits_add_up() -> None:
    """Releases under two splits are not composed pair by pair: their worst pairs may meet in one edge."""
    weights = GroupWeights("train/test", ((0.0, 0.0), (0.0, 1.0)))
    plan = ReleasePlan(UndirectedEdge(), (NeighborSumQuery(weights, (1.0, 1.0), 2),), delta=1e-3)
    budget = MemoryLedger()
    worst = plan.mu**2
    flipped = ReleasePlan(
        UndirectedEdge(),
        (NeighborSumQuery(GroupWeights("train/test", ((1.0, 0.0), (0.0, 0.0))), (1.0, 1.0), 2),),
        delta=1e-3,
    )
    # A pair inside group 1 of the first split and inside group 0 of the second pays for both.
    Release.open(plan, path(4), torch.tensor([0, 0, 1, 1]), budget=budget)
    Release.open(flipped, path(4), torch.tensor([1, 1, 0, 0]), budget=budget)
    together = GaussianCurve(math.sqrt(2 * worst)).epsilon(1e-5)
    assert budget.curve().epsilon(1e-5) == pytest.approx(together)


# -- resuming ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a signal does to a process, as an exception."""


class DiesOnStore(FolderJournal):
    """A run that is killed after it has committed and drawn, before it has stored."""

    def store(self, index: int, answer: Tensor) -> None:
        """Die."""
        raise Killed


def resume_cases() -> dict[str, tuple[ReleasePlan, Adjacency, Tensor, Tensor]]:
    """The first run, and what a resume may have changed: each must be rejected but the first."""
    rows, groups = CODES[[0, 0, 1, 1, 2]], torch.tensor([0, 1, 2, 2, 0])
    hop = NeighborSumQuery(GroupWeights.target_weighted(), (2.0, 2.0, 1.0), 2)
    plan = ReleasePlan(UndirectedEdge(), (hop, hop), delta=1e-3)
    quieter = NeighborSumQuery(GroupWeights.target_weighted(), (2.0, 2.0, 0.9), 2)
    other = rows.clone()
    other[0] = other[2]
    with_more = Adjacency.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 4, 4], num_nodes=5, directed=False)
    few = NeighborSumQuery(GroupWeights.few_labels(0.3), (2.0, 2.0, 1.0), 2)
    return {
        "nothing": (plan, path(), groups, rows),
        "an edge": (plan, with_more, groups, rows),
        "the weights": (ReleasePlan(UndirectedEdge(), (few, few), delta=1e-3), path(), groups, rows),
        "sigma": (ReleasePlan(UndirectedEdge(), (quieter, hop), delta=1e-3), path(), groups, rows),
        "sigma of a later hop": (
            ReleasePlan(UndirectedEdge(), (hop, quieter), delta=1e-3),
            path(),
            groups,
            rows,
        ),
        "the groups": (plan, path(), torch.tensor([0, 1, 2, 2, 1]), rows),
        "the input": (plan, path(), groups, other),
    }


def a_resume_finishes_the_same_release_only() -> None:
    """Killed between drawing and storing: a resume redraws the same noise, for the same data only."""
    with tempfile.TemporaryDirectory() as folder:
        run, keys = Path(folder) / "run", KeyStore(Path(folder) / "keys")
        plan, graph, groups, rows = resume_cases()["nothing"]
        drawn: list[Tensor] = []

        class RecordingZeroNoise(DiesOnStore):
            def store(self, index: int, answer: Tensor) -> None:
                drawn.append(answer)
                super().store(index, answer)

        budget = MemoryLedger()
        with pytest.raises(Killed):
            Release.open(plan, graph, groups, budget=budget, journal=RecordingZeroNoise(run, keys)).answer(
                NeighborSumData(rows)
            )
        for name, (other, edges, split, x) in resume_cases().items():
            if name != "nothing":
                with pytest.raises(ReleaseError, match="same noise for different data"):
                    journal = FolderJournal(run, keys)
                    Release.open(other, edges, split, budget=MemoryLedger(), journal=journal).answer(
                        NeighborSumData(x)
                    )
        release = Release.open(plan, graph, groups, budget=budget, journal=FolderJournal(run, keys))
        assert torch.equal(release.answer(NeighborSumData(rows)), drawn[0])
        assert len(budget.entries) == 1


def a_closed_release_forgets_its_key() -> None:
    """After publication no key is left anywhere, and the answers can still be read."""
    with tempfile.TemporaryDirectory() as folder:
        run, keys = Path(folder) / "run", Path(folder) / "keys"
        release = Release.open(
            plan_of(), path(), budget=MemoryLedger(), journal=FolderJournal(run, KeyStore(keys))
        )
        answer = release.answer(NeighborSumData(CODES[[0, 0, 1, 1, 2]]))
        assert len(list(keys.glob("*.key"))) == 1  # beside the bindings of its queries
        release.close()
        assert not list(keys.iterdir())
        again = Release.open(
            plan_of(), path(), budget=MemoryLedger(), journal=FolderJournal(run, KeyStore(keys))
        )
        assert torch.equal(again.answer(NeighborSumData(CODES[[0, 0, 1, 1, 2]])), answer)


def a_finished_release_answers_its_own_data_only() -> None:
    """Repeated after publication: the same answers for the same data, and other data are rejected."""
    with tempfile.TemporaryDirectory() as folder:
        run, keys = Path(folder) / "run", KeyStore(Path(folder) / "keys")

        def again(plan: ReleasePlan, graph: Adjacency, groups: Tensor, rows: Tensor) -> list[Tensor]:
            release = Release.open(plan, graph, groups, budget=budget, journal=FolderJournal(run, keys))
            answers = [release.answer(NeighborSumData(rows)) for _ in plan.queries]
            release.close()
            return answers

        budget = MemoryLedger()
        first = again(*resume_cases()["nothing"])
        assert all(map(torch.equal, again(*resume_cases()["nothing"]), first))
        for name, case in resume_cases().items():
            if name != "nothing":
                budget = MemoryLedger()
                with pytest.raises(ReleaseError, match=r"of other data|for different data"):
                    again(*case)
                assert name == "the input" or not budget.entries, name


def a_seeded_release_is_marked_after_a_resume() -> None:
    """Noise from a seed stays marked, also when the resumed run has no seed."""
    with tempfile.TemporaryDirectory() as folder:
        run, keys = Path(folder) / "run", KeyStore(Path(folder) / "keys")
        Release.open(plan_of(), path(), budget=MemoryLedger(), key=KEY, journal=FolderJournal(run, keys))
        resumed = Release.open(plan_of(), path(), budget=MemoryLedger(), journal=FolderJournal(run, keys))
        assert resumed.reproducible


CHECKS: tuple[Callable[[], None], ...] = (
    hops_cost_what_they_are_charged,
    steered_rows_and_counts_cost_what_they_are_charged,
    few_labels_cost_what_they_are_charged,
    the_path_is_the_same_for_neighbors,
    a_long_row_counts_for_nothing,
    a_row_one_step_over_its_bound_counts_for_nothing,
    inputs_are_never_longer_than_one,
    records_cost_what_they_are_charged,
    replaced_records_cost_what_they_are_charged,
    replaced_codes_cost_what_they_are_charged,
    a_mutual_edge_moves_out_edge_sums_by_what_is_stated,
    nodes_of_bounded_degree_cost_what_they_are_charged,
    a_violated_assumption_is_rejected,
    tallies_cost_what_they_are_charged,
    outcomes_cost_what_they_are_charged,
    histograms_cost_what_they_are_charged,
    feature_histograms_cost_what_they_are_charged,
    every_out_edge_sum_has_its_noise,
    rows_that_are_not_released_are_zeros,
    every_count_of_a_tally_has_noise,
    every_row_has_its_groups_noise,
    every_row_of_a_plain_hop_has_its_noise,
    every_weighted_row_has_its_noise,
    every_cell_has_noise,
    hops_share_no_noise,
    releases_share_no_noise,
    neighbors_share_no_noise_under_one_key,
    out_edge_sums_share_no_noise_under_one_key,
    training_noise_is_bound_to_its_data,
    out_edge_sums_depend_on_nothing_but_the_edges,
    sums_depend_on_nothing_but_the_edges,
    a_hub_is_summed_exactly,
    a_digest_distinguishes_256_bits,
    a_journal_rejects_a_descriptor_that_is_one_character_off,
    a_journal_recognizes_data_by_every_character_of_their_fingerprint,
    a_known_graph_is_identified_by_every_byte_of_its_tag,
    a_folder_knows_its_data_by_every_byte_of_their_digest,
    calibrated_plans_cost_at_most_their_target,
    a_release_is_charged_before_it_is_computed,
    a_rejected_release_computes_nothing,
    two_splits_add_up,
    a_resume_finishes_the_same_release_only,
    a_closed_release_forgets_its_key,
    a_finished_release_answers_its_own_data_only,
    a_seeded_release_is_marked_after_a_resume,
)
