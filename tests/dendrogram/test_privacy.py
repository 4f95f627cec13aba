"""Privacy loss of dendrogram searches, by exact laws; flaws of the sources are in perturb/test_flaws.py."""

import math

import numpy as np
import pytest
from scipy import stats

from dendrogram.laws import hockey_stick, loss
from dendrogram.trees import all_trees, likelihood, likelihoods, transitions
from graphveil.core.queries import dendrogram as walks
from graphveil.core.queries.dendrogram import (
    ChainSchedule,
    Dendrogram,
    DendrogramBlocks,
    DendrogramChain,
    no_pairs,
    score,
    sensitivity,
    step_loss,
    touched_steps,
)

SLOTS = {5: 10, 6: 15}
ONE_EDGE, PATH, DENSE = 0b1, 0b1000110001, 0b1111011111


def a_lazy_step_keeps_its_loss(kappa: float, graph: int = PATH, public: int = 0) -> float:
    """Toggle every node pair: no step gets more than e^kappa times as likely. Return the maximum."""
    schedule, worst = ChainSchedule(every=1, kappa=kappa), 0.0
    law = transitions(5, graph, schedule, public)
    assert law.sum(axis=1) == pytest.approx(1)
    for slot in range(SLOTS[5]):
        if not public >> slot & 1:
            worst = max(worst, loss(law, transitions(5, graph ^ 1 << slot, schedule, public)))
    assert worst <= kappa * (1 + 1e-9), f"a step loses {worst}, more than {kappa}"
    return worst


@pytest.mark.parametrize(
    ("kappa", "graph", "public"), [(0.4, PATH, 0), (1.0, 0, 0), (0.4, DENSE & ~0b110, 0b110)]
)
def test_no_lazy_step_loses_more_than_kappa(kappa: float, graph: int, public: int) -> None:
    assert a_lazy_step_keeps_its_loss(kappa, graph, public) > 0.3 * kappa


def test_no_move_changes_by_more_than_kappa_where_the_public_part_makes_all_moves_rare() -> None:
    # A chance of 1 hides half of a change of the private part; jointly with public edges it need not.
    graph, public = 0b1001001100, 0b110010000
    schedule = ChainSchedule(public=3.0, every=1, kappa=0.4, joint=True)
    law = transitions(5, graph, schedule, public)
    losses = [
        loss(law, transitions(5, graph ^ 1 << slot, schedule, public))
        for slot in range(SLOTS[5])
        if not public >> slot & 1
    ]
    assert 0.9 * 0.4 < max(losses) <= 0.4 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sizes", "kind"), [((4, 4, 1), 0), ((1, 4, 4), 2), ((4, 1, 4), 1), ((1, 1, 1), 2), ((2, 3, 5), 2)]
)
def test_the_weight_of_a_move_bounds_all_three_kinds_of_edges(
    sizes: tuple[int, int, int], kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edge i-j is in the old y and the new x, i-k in the old x and the new y, j-k in x both times."""
    seen: list[float] = []
    monkeypatch.setattr(walks, "exp", lambda ratio: seen.append(ratio) or 2.0)
    rng, (i, j, k), tree = np.random.default_rng(0), sizes, _of_three(*sizes)
    leaves, checked = sum(sizes), 0
    turn = int(tree.size[tree.left[-2]] != i)  # which of its children y keeps
    one, other = np.triu_indices(leaves, 1)
    blocks = [(i * j, (i + k) * j), ((i + j) * k, i * k), ((i + j) * k, (i + k) * j)]
    prices = [math.fsum(map(_most_of_one_edge, pair)) for pair in blocks]
    assert np.argmax(prices) == kind
    for _ in range(20):
        kept = rng.random(len(one)) < 0.5
        chain = DendrogramChain(tree, no_pairs(), (one[kept], other[kept]))
        before, arrays = likelihood(chain)[1], [array.tolist() for array in chain._arrays]
        seen.clear()
        walks.walk((1, 0, leaves, 1, 0, 1), [[0.0, 0.0, 0.4], [leaves - 3], [turn], [0.0], *arrays])
        gain = math.fsum(arrays[5][1::2]) - before
        assert seen == ([pytest.approx(0.4 * gain / max(prices), rel=1e-9)] if gain < 0 else [])
        checked += gain < 0
    assert checked >= 3


def _of_three(*sizes: int) -> Dendrogram:
    """Return ((i, j), k) for three subtrees of so many leaves."""
    leaves = sum(sizes)
    parents, made, tops, first = np.full(2 * leaves - 1, -1), leaves, [], 0
    for size in sizes:
        top = first
        for leaf in range(first + 1, first + size):
            parents[[top, leaf]] = made
            top, made = made, made + 1
        tops.append(top)
        first += size
    parents[[tops[0], tops[1]]], parents[[made, tops[2]]] = made, made + 1
    return Dendrogram.from_parents(parents)


def _most_of_one_edge(slots: int) -> float:
    """Return how far the first edge moves the log-likelihood of a block of so many node pairs."""
    return 0.0 if slots == 1 else -math.log(1 / slots) - (slots - 1) * math.log(1 - 1 / slots)


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_walks_of_any_length_meet_the_claim(steps: int) -> None:
    epsilon, delta = 1.0, 1e-7
    schedule = ChainSchedule(every=1, kappa=step_loss(epsilon, delta, steps, 5))
    laws = [np.linalg.matrix_power(transitions(5, g, schedule), steps) for g in (ONE_EDGE, 0, PATH, PATH ^ 2)]
    for one, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        assert hockey_stick(laws[one], laws[other], epsilon) <= delta
        assert ((laws[one] > 0) == (laws[other] > 0)).all()  # one private edge against none, too


def test_an_edge_affects_at_most_three_proposals() -> None:
    # touched_steps rests on this: an edge belongs to one node, which is y or x of at most three proposals
    for tree in all_trees(6)[::40]:
        parents = tree.parents
        for one, other in zip(*np.triu_indices(6, 1), strict=True):
            at = int(tree.lowest_common_ancestors(np.array([one]), np.array([other]))[0])
            met = [y for y in range(6, 10) if at in (y, int(parents[y]))]
            assert len(met) <= 3


def test_golden_sensitivities() -> None:
    golden = {3: 1.38629436, 4: 2.24934058, 5: 2.70336725, 6: 3.13948886, 7: 3.44203180, 8: 3.74066654}
    golden |= {10: 4.19860369, 100: 8.82384598, 1000: 13.42921420, 2708: 15.42163663, 9179: 17.86305269}
    for leaves, value in golden.items():
        assert sensitivity(leaves) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("leaves", [3, 4, 5])
def test_the_sensitivity_is_attained_and_never_exceeded(leaves: int) -> None:
    table, most = likelihoods(leaves), 0.0
    for slot in range(leaves * (leaves - 1) // 2):
        most = max(most, float(np.abs(table - table[np.arange(len(table)) ^ 1 << slot]).max()))
    assert most == pytest.approx(sensitivity(leaves), rel=1e-9)


@pytest.mark.slow
def test_the_sensitivity_of_six_leaves_over_all_graphs() -> None:
    graphs, (one, other) = np.arange(1 << SLOTS[6]), np.triu_indices(6, 1)
    bits = (graphs[:, None] >> np.arange(SLOTS[6]) & 1).astype(np.float32)
    scores = [np.array([score(n, e) for e in range(n + 1)]) for n in range(10)]
    most = 0.0
    for tree in all_trees(6):
        at = tree.lowest_common_ancestors(one, other)
        nodes, slots = np.unique(at, return_counts=True)
        edges = (bits @ (at[:, None] == nodes).astype(np.float32)).astype(int)
        likelihood = sum(scores[n][edges[:, place]] for place, n in enumerate(slots))
        for slot in range(SLOTS[6]):
            most = max(most, float(np.abs(likelihood - likelihood[graphs ^ 1 << slot]).max()))
    assert most == pytest.approx(sensitivity(6), rel=1e-9)


@pytest.mark.parametrize("leaves", [6, pytest.param(7, marks=pytest.mark.slow)])
def test_the_sensitivity_of_every_tree_and_every_number_of_edges(leaves: int) -> None:
    # A graph may have any number of edges at each node, and an edge is at one: so this is exhaustive.
    one, other = np.triu_indices(leaves, 1)
    sizes = {
        int(size)
        for tree in all_trees(leaves)
        for size in np.bincount(tree.lowest_common_ancestors(one, other))
        if size
    }
    changes = [abs(score(n, edges + 1) - score(n, edges)) for n in sizes for edges in range(n)]
    assert max(sizes) == (leaves // 2) * ((leaves + 1) // 2)
    assert max(changes) == pytest.approx(sensitivity(leaves), rel=1e-9)


def test_acceptances_of_the_golden_change() -> None:
    change = -2.772588722 - -2.249340578
    assert math.exp(change / (2 * sensitivity(4))) == pytest.approx(0.8901979249, rel=1e-8)
    assert math.exp(change / sensitivity(4)) == pytest.approx(0.7924523456, rel=1e-8)


def test_quantiles_of_touched_steps() -> None:
    assert touched_steps(5000, 1000, 1e-7) == 39
    assert touched_steps(50_000, 1000, 1e-7) == 218
    assert touched_steps(20 * 2708, 2708, 1e-7) == 104
    assert touched_steps(7, 3, 1e-7) == 7


@pytest.mark.parametrize(("steps", "leaves", "kappa"), [(5000, 1000, 0.0256), (50_000, 1000, 0.0046)])
def test_lazy_steps_use_at_least_the_pure_composition(steps: int, leaves: int, kappa: float) -> None:
    assert step_loss(1.0, 1e-7, steps, leaves) >= kappa * 0.99


@pytest.mark.parametrize("leaves", [100, 1000, 2708])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_either_composition_of_lazy_steps_meets_epsilon_and_delta(epsilon: float, leaves: int) -> None:
    steps, delta = 20 * leaves, 1e-7
    kappa = step_loss(epsilon, delta, steps, leaves)
    at_most = np.arange(steps)
    beyond = stats.binom.sf(at_most, steps, 3 / (leaves - 2))
    pure = kappa * at_most[beyond <= delta].min()
    rho = kappa**2 / 2 * at_most[beyond <= delta / 2].min()
    spread = rho + 2 * math.sqrt(rho * math.log(2 / delta))
    assert min(pure, spread) == pytest.approx(epsilon, rel=1e-4) and min(pure, spread) <= epsilon


@pytest.mark.parametrize(("epsilon", "slots", "inside"), [(0.25, 80, 400), (0.5, 40, 200), (1.0, 20, 100)])
def test_golden_thresholds_of_blocks(epsilon: float, slots: int, inside: int) -> None:
    for size in range(2, 60):
        tree = _caterpillar(size)
        blocks = DendrogramBlocks.from_tree(tree, np.empty(0, dtype=np.int64), epsilon)
        small = size - 1 <= slots and size * (size - 1) // 2 <= inside
        assert bool(blocks.collapsed[0]) == small


def _caterpillar(leaves: int) -> Dendrogram:
    left, right = np.full(2 * leaves - 1, -1), np.full(2 * leaves - 1, -1)
    for place, node in enumerate(range(2 * leaves - 2, leaves - 1, -1)):
        left[node], right[node] = place, node - 1 if node > leaves else leaves - 1
    return Dendrogram(left, right)


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 100.0])
def test_every_node_pair_is_in_one_block(epsilon: float) -> None:
    one, other = np.triu_indices(6, 1)
    for tree in all_trees(6)[::31]:
        public = np.array([3, 8])
        blocks = DendrogramBlocks.from_tree(tree, public, epsilon)
        kept = np.delete(np.arange(15), public)
        slot_ends = [(v, u) for v in range(6) for u in range(v)]  # in the order of node pairs
        pairs = np.array([slot_ends[slot] for slot in kept])
        assert blocks.counts(pairs[:, 0], pairs[:, 1]).tolist() == blocks.slots.tolist()
        assert len(blocks.slots) <= 5  # [8]: one count a block, and a subtree that is one block has one
        for pair in pairs:
            assert blocks.counts(pair[:1], pair[1:]).sum() == 1
    assert (one < other).all()


def test_a_walk_has_the_golden_quantile() -> None:
    """Every step may meet an edge of five leaves, so a walk of 16 steps loses 16 kappa."""
    assert step_loss(1.0, 1e-7, 16, 5) * 16 <= 1, "steps lose more than composes"
