"""Claimed budgets by brute force: the exact law of what is released, on every graph of up to six nodes.

The laws are those of the numbers that shipped samplers draw by (counts over 2^64, discrete Laplace noise);
that the samplers meet them is tested beside each sampler, and for whole releases at the end.
"""

import math
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from dendrogram.laws import hockey_stick
from dendrogram.trees import all_trees, ends, transitions
from scipy import stats

from graphveil import perturb
from graphveil.core.edges.node_pairs import Domain, NodePairIndex
from graphveil.core.noise.node_pair_noise import TOTAL, EdgeRandomizedResponse, NoisyCells
from graphveil.core.queries.dendrogram import ChainSchedule, DendrogramBlocks, step_loss
from graphveil.core.queries.graph_queries import EdgeTotalQuery, TopNodePairsQuery
from graphveil.data import Graph
from graphveil.perturb import MECHANISMS, release_graph
from perturb.chosen_total import edges_given_total

Law = np.ndarray
EPSILONS = (0.1, 1.0, 4.0)


def slots_of(nodes: int) -> int:
    return nodes * (nodes - 1) // 2


def laplace_at(epsilon: float, places: np.ndarray) -> np.ndarray:
    """Return the probabilities of discrete Laplace noise."""
    return np.exp(-epsilon * np.abs(places)) * math.tanh(epsilon / 2)


def clamped(epsilon: float, edges: int, low: int, high: int) -> np.ndarray:
    """Return the law of a noisy number of edges that is cut to low .. high."""
    if low == high:
        return np.ones(1)
    inner = laplace_at(epsilon, np.arange(low, high + 1) - edges)
    share = 1 / (1 + math.exp(-epsilon))  # of what lies at the end or beyond, over what lies at it
    for end, beyond in ((0, edges - low), (-1, high - edges)):
        inner[end] = (
            math.exp(-epsilon * beyond) * share
            if beyond >= 0
            else 1 - math.exp(epsilon * beyond) * (1 - share)
        )
    return inner


# -- EdgeRand and ARR: a released graph's law depends on its numbers of true and of added edges -------------


def response_law(slots: int, edges: int, epsilon: float, share: float = 1.0) -> Law:
    """Return log P of one released graph with a true edges and b added ones, (a, b)."""
    response = EdgeRandomizedResponse(epsilon, share)
    with np.errstate(divide="ignore"):
        kept, lost, added, absent = (
            np.log(np.float64(part) / TOTAL)
            for part in (response.keep, TOTAL - response.keep, response.add, TOTAL - response.add)
        )
    a, b = np.arange(edges + 1)[:, None], np.arange(slots - edges + 1)[None, :]
    return a * kept + (edges - a) * lost + b * added + (slots - edges - b) * absent


def arr_law(slots: int, edges: int, mechanism: perturb.ARR) -> Law:
    """Return the same for ARR: a mixture over what the noisy density may be."""
    total, response = mechanism.queries(Domain.whole(2, directed=False))
    weights = clamped(total.epsilon, edges, 1, slots)  # type: ignore[attr-defined]
    parts = [
        np.log(weight) + response_law(slots, edges, response.epsilon, mechanism.share(number / slots))  # type: ignore[attr-defined]
        for number, weight in enumerate(weights, start=1)
    ]
    return np.logaddexp.reduce(parts)


def is_a_law(law: Law, slots: int, edges: int) -> bool:
    """Whether the probabilities of all graphs add up to one."""
    graphs = np.outer(
        [math.comb(edges, a) for a in range(edges + 1)],
        [math.comb(slots - edges, b) for b in range(slots - edges + 1)],
    )
    return float((graphs * np.exp(law)).sum()) == pytest.approx(1, abs=1e-9)


def worst_loss(laws: list[Law]) -> float:
    """Return the largest log ratio over all graphs, all slots that one more edge may have, and all answers.

    A slot without an edge that is one in the answer counts as added; with the edge it counts as true.
    """
    found = 0.0
    for without, more in pairwise(laws):
        inside, outside = without[:, 1:] - more[1:, :], without[:, :-1] - more[:-1, :]
        found = max(found, float(np.abs(inside).max()), float(np.abs(outside).max()))
    return found


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_privacy_loss_of_edge_rand_is_epsilon(nodes: int, epsilon: float) -> None:
    slots = slots_of(nodes)
    laws = [response_law(slots, edges, epsilon) for edges in range(slots + 1)]
    assert all(is_a_law(law, slots, edges) for edges, law in enumerate(laws))
    assert worst_loss(laws) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_privacy_loss_of_arr_is_at_most_epsilon(nodes: int, epsilon: float) -> None:
    slots, mechanism = slots_of(nodes), perturb.ARR(epsilon=epsilon)
    laws = [arr_law(slots, edges, mechanism) for edges in range(slots + 1)]
    assert all(is_a_law(law, slots, edges) for edges, law in enumerate(laws))
    assert 0.5 * epsilon < worst_loss(laws) <= epsilon + 1e-9


def test_a_share_from_the_exact_density_exceeds_epsilon() -> None:
    slots, mechanism = 15, perturb.ARR(epsilon=1.0)
    laws = [
        response_law(slots, edges, 0.9, mechanism.share(max(1, edges) / slots)) for edges in range(slots + 1)
    ]
    assert worst_loss(laws) > 1.5


# -- LapGraph: it depends on how many edges come out, and how many of them are true ------------------------


def top_law(slots: int, edges: int, wanted: int, epsilon: float) -> dict[int, float]:
    """Return P of one set of so many slots, by how many of them are edges: levels, and ties at random."""
    cells = NoisyCells(epsilon, slots, wanted)
    assert cells.bound == -math.inf  # so few cells all pass, and no level stands for none
    at = [np.array([count / TOTAL for count in row]) for row in cells.channel.counts]  # of zeros, of ones
    over = [np.append(row[::-1].cumsum()[::-1][1:], 0) for row in at]
    under = [row.cumsum() - row for row in at]

    def tied(zeros: int, ones: int, rest: list[np.ndarray]) -> list[np.ndarray]:
        """Return, by how many of some cells lie at each level, the chance of it, the others being beyond."""
        each = [
            [math.comb(many, k) * at[kind] ** k * rest[kind] ** (many - k) for k in range(many + 1)]
            for kind, many in enumerate((zeros, ones))
        ]
        found = [np.zeros(len(at[0])) for _ in range(zeros + ones + 1)]
        for i, j in product(range(zeros + 1), range(ones + 1)):
            found[i + j] += each[0][i] * each[1][j]
        return found

    law = {}
    for true in range(max(0, wanted + edges - slots), min(wanted, edges) + 1):
        inside = tied(wanted - true, true, over)
        outside = tied(slots - edges - wanted + true, edges - true, under)
        law[true] = float(
            sum(
                (inside[i] * outside[j]).sum() / math.comb(i + j, i)
                for i, j in product(range(1, wanted + 1), range(slots - wanted + 1))
            )
        )
    return law


@cache
def lap_graph_law(slots: int, edges: int, epsilon: float) -> dict[tuple[int, int], float]:
    """Return log P of one released graph, by its number of edges and of true ones."""
    total, cells = perturb.LapGraph(epsilon=epsilon).queries(Domain.whole(2, directed=False))
    assert isinstance(total, EdgeTotalQuery) and isinstance(cells, TopNodePairsQuery)
    found = {}
    for wanted, weight in enumerate(clamped(total.epsilon, edges, 0, slots)):
        law = {0: 1.0} if wanted == 0 else top_law(slots, edges, wanted, cells.epsilon)
        found |= {(wanted, true): math.log(weight * chance) for true, chance in law.items()}
    return found


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_privacy_loss_of_lap_graph_is_at_most_epsilon(nodes: int, epsilon: float) -> None:
    slots, worst = slots_of(nodes), 0.0
    for edges in range(slots):
        without, more = (lap_graph_law(slots, count, epsilon) for count in (edges, edges + 1))
        ways = {key: math.comb(edges, key[1]) * math.comb(slots - edges, key[0] - key[1]) for key in without}
        assert sum(ways[key] * math.exp(without[key]) for key in without) == pytest.approx(1, abs=1e-9)
        for (wanted, true), before in without.items():
            for now in (true, true + 1):  # the slot is not in the answer, or it is
                if (wanted, now) in more and (now == true or wanted > true):
                    if now == true and slots - edges - (wanted - true) == 0:
                        continue  # all slots without an edge are in the answer, so this one is, too
                    worst = max(worst, abs(before - more[wanted, now]))
    assert worst <= epsilon + 1e-9
    assert nodes == 2 or worst > 0.5 * epsilon  # of one slot the number of edges says everything


# -- EdgeRR and privHRG: the tree, and its counts ----------------------------------------------------------

NONE, ONE_EDGE, PATH, DENSE = 0, 0b1, 0b1000110001, 0b1111011111
TOGGLED = [
    (NONE, 0),
    pytest.param(PATH, 1, marks=pytest.mark.slow),
    pytest.param(PATH, 9, marks=pytest.mark.slow),
    pytest.param(DENSE, 3, marks=pytest.mark.slow),
]


def delta_of_release(laws: tuple[Law, Law], graphs: tuple[int, int], epsilon: float, counts: float) -> float:
    """Return the delta of a tree with all its noisy counts: only the block of the toggled slot tells more."""
    noise = np.arange(-2000, 2001)
    worst = 0.0
    for one, other in ((0, 1), (1, 0)):
        total = 0.0
        for place, tree in enumerate(all_trees(5)):
            blocks = DendrogramBlocks.from_tree(tree, np.empty(0, dtype=np.int64), counts)
            exact = [blocks.counts(*ends(5, graph)) for graph in (graphs[one], graphs[other])]
            moved = exact[0] - exact[1]
            assert np.abs(moved).sum() == 1  # one count, by one
            chances = [laplace_at(counts, noise), laplace_at(counts, noise + moved[moved != 0])]
            pair = laws[one][place] * chances[0], laws[other][place] * chances[1]
            total += hockey_stick(pair[0], pair[1], epsilon)
        worst = max(worst, total)
    return worst


@pytest.mark.parametrize(("graph", "slot"), TOGGLED)
def test_a_tree_with_its_counts_has_at_most_delta(graph: int, slot: int) -> None:
    epsilon, delta, steps = 2.0, 1e-7, 100  # as priv-hrg asks for, on five nodes
    mechanism = perturb.PrivHRG(epsilon=epsilon)
    search, counted = mechanism.queries(Domain.whole(5, directed=False))
    assert (search.steps, search.every, search.delta) == (steps, 1, delta)  # type: ignore[attr-defined]
    kappa = step_loss(search.epsilon, delta, steps, 5)  # type: ignore[attr-defined]
    graphs = graph, graph ^ 1 << slot
    walks = [
        np.linalg.matrix_power(transitions(5, one, ChainSchedule(every=1, kappa=kappa)), steps)
        for one in graphs
    ]
    for start in (0, 52):  # whatever tree it begins with
        laws = walks[0][start], walks[1][start]
        assert (laws[0] > 0).all() and (laws[1] > 0).all()  # the same may come out: of no edge at all, too
        assert delta_of_release(laws, graphs, epsilon, counted.epsilon) <= delta  # type: ignore[attr-defined]


@pytest.mark.parametrize("nodes", [3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_one_edge_changes_one_count_of_a_public_tree(nodes: int) -> None:
    one, other = np.triu_indices(nodes, 1)
    for tree in all_trees(nodes):
        for epsilon in (0.05, 2.0, 60.0):  # one block, some, one for each node
            blocks = DendrogramBlocks.from_tree(tree, np.empty(0, dtype=np.int64), epsilon)
            moved = [blocks.counts(one[slot : slot + 1], other[slot : slot + 1]) for slot in range(len(one))]
            assert all(count.sum() == 1 for count in moved)  # so epsilon of one noisy count, and no more
            assert sum(moved).tolist() == blocks.slots.tolist()  # type: ignore[attr-defined]


# -- whole releases against brute force --------------------------------------------------------------------

TWELVE = 12
PAIRS = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 11), (9, 10)]


def twelve_nodes() -> Graph:
    source, target = zip(*PAIRS, strict=True)
    return Graph.from_edges(torch.eye(TWELVE), [0, 1] * 6, source, target, directed=False)


def released(name: str, epsilon: float, repeats: int) -> np.ndarray:
    """Return which slots are edges in so many releases of one graph of twelve nodes, under fixed seeds."""
    graph, mechanism, found = twelve_nodes(), MECHANISMS[name](epsilon=epsilon), []
    for seed in range(repeats):
        adjacency = release_graph(
            graph, mechanism, unit="undirected-edge", unsafe_noise_seed=seed
        ).graph.adjacency
        table = np.zeros((TWELVE, TWELVE), dtype=bool)
        table[tuple(adjacency.edge_index().numpy())] = True
        found.append(table[np.triu_indices(TWELVE, 1)])
    return np.array(found)


TRUE = np.array(
    [pair in PAIRS for pair in zip(*(part.tolist() for part in np.triu_indices(TWELVE, 1)), strict=True)]
)


def p_value(seen: np.ndarray, chances: np.ndarray) -> float:
    """Return that of a chi-square test; rare values are put together."""
    expected = chances * seen.sum()
    common = expected > 5
    both = [np.append(part[common], part[~common].sum() + 1e-9) for part in (seen, expected)]
    return float(stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue)


def test_edge_rand_draws_as_brute_force_does() -> None:
    epsilon, found = 1.0, released("edge-rand", 1.0, 200)
    q = EdgeRandomizedResponse(epsilon).flip
    for some, chance in ((TRUE, 1 - q), (~TRUE, q)):
        many = int(some.sum())
        seen = np.bincount(found[:, some].sum(axis=1), minlength=many + 1)
        assert p_value(seen, stats.binom(many, chance).pmf(np.arange(many + 1))) > 1e-4
        each = ((found[:, some].sum(axis=0) - 200 * chance) ** 2).sum() / (200 * chance * (1 - chance))
        assert stats.chi2(many).sf(each) > 1e-4


def test_arr_draws_as_brute_force_does() -> None:
    epsilon, found = 3.0, released("arr", 3.0, 120)
    law = np.exp(arr_law(66, len(PAIRS), perturb.ARR(epsilon=epsilon)))
    for axis, some in ((0, TRUE), (1, ~TRUE)):
        many = int(some.sum())
        ways = [np.array([math.comb(count, k) for k in range(count + 1)], dtype=float) for count in (11, 55)]
        chances = (law * np.outer(*ways)).sum(axis=1 - axis)
        seen = np.bincount(found[:, some].sum(axis=1), minlength=many + 1)
        assert p_value(seen, chances) > 1e-4


def test_lap_graph_draws_as_brute_force_does() -> None:
    wanted, epsilon = 11, 2.0
    pairs = zip(
        *(part.tolist() for part in NodePairIndex(TWELVE, directed=False).ends(np.arange(66))), strict=True
    )
    true = np.array([pair in PAIRS for pair in pairs])
    mechanism, found = perturb.LapGraph(epsilon=epsilon), np.zeros((120, len(true)), dtype=bool)
    for seed, row in enumerate(found):
        row[edges_given_total(mechanism, twelve_nodes(), wanted, seed=seed)] = True
    assert (found.sum(axis=1) == wanted).all()
    noisy = np.random.default_rng(0).laplace(0, 1 / (0.99 * epsilon), (20_000, 66)) + true
    best = np.argsort(-noisy, axis=1)[:, :wanted]
    plain = np.bincount(true[best].sum(axis=1), minlength=wanted + 1)
    fast = np.bincount(found[:, true].sum(axis=1), minlength=wanted + 1)
    common = plain > 900
    table = [np.append(part[common], part[~common].sum()) for part in (plain, fast)]
    assert stats.chi2_contingency(table).pvalue > 1e-4
