"""Published mechanisms that protect edges, or records by their edges: violated claims and sound ones."""

import math

import numpy as np

from graphveil.audit.neighbor_test import neighbor_test
from graphveil.audit.noise import FlipLaw, Floats, NoiseRecorder
from graphveil.audit.small_graphs import NO_LABEL, SmallGraph
from graphveil.core.accounting.gaussian import epsilon_of, mu_of
from graphveil.papers.as_published.gallery.published_mechanism import RestatedValue, published_mechanism

EPSILON, DELTA, MU = 1.0, 1e-5, 0.5


def renyi_sigma(epsilon: float, delta: float) -> float:
    """Return the noise s of one hop by the source: 1 / (2 s^2) + sqrt(2 ln(1 / delta)) / s = epsilon."""
    root = math.sqrt(2 * math.log(1 / delta))
    return (root + math.sqrt(root**2 + 2 * epsilon)) / (2 * epsilon)


@published_mechanism(
    "sampled neighbors",
    "GAP at node level (Sajadmanesh et al., USENIX Security 2023)",
    unit="node",
    kind="mixture",
    claim={"epsilon": EPSILON, "delta": DELTA},
    figure=RestatedValue(
        "noise of one hop at epsilon 1, delta 1e-5",
        "formula of Proposition 2",
        4.9006,
        lambda: renyi_sigma(1.0, 1e-5),
        1e-5,
    ),
    search={"nodes": 150},
)
def sampled_sums(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """GAP at node level with D = 1: every node keeps one random edge, and sums get noise for one edge.

    Every node keeps D random neighbors, and the claim is that it changes D messages. A hub that is connected
    to all nodes is in half of the samples of nodes with one other neighbor, and replaces their other
    messages. Correction: weight messages by the sender's out-degree, and protect out-edges (unit
    node-record).
    """
    degree = graph.a.sum(axis=1).astype(np.int64)
    last = np.cumsum(degree)
    first = last - degree
    picked = (first + noise.hidden.random(graph.nodes) * (last - first)).astype(np.int64)
    targets = np.nonzero(graph.a)[1]
    kept = np.bincount(targets[picked[last > first]], minlength=graph.nodes)
    noise.gaussian(kept, renyi_sigma(EPSILON, DELTA))


def sums(graph: SmallGraph) -> Floats:
    """Return sums over neighbors of rows of norm one; a null record's row is zero."""
    return np.asarray(graph.a.T @ np.eye(4)[graph.y + 1][:, 1:])


@published_mechanism(
    "one direction",
    "GAP at edge level, on undirected edges (ibid., Lemma 1 and Proposition 2)",
    unit="undirected-edge",
    kind="change",
    claim={"epsilon": EPSILON, "delta": DELTA},
    figure=RestatedValue(
        "sensitivity of the sums to one stored edge", "Lemma 1", 1.0, lambda: moved_by_a_stored_edge(), 1e-9
    ),
    cost=RestatedValue(
        "epsilon of an undirected edge if one direction is charged 1, delta 1e-5",
        "the least noise that one direction needs",
        1.465,
        lambda: epsilon_of(math.sqrt(2) * mu_of(1.0, 1e-5), 1e-5),
    ),
)
def noise_for_one_direction(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """GAP at edge level, one hop: noise for one stored edge, where an undirected edge stores two.

    Noise for one stored edge. An undirected edge is stored twice and changes two rows, which even the loose
    noise of the proposition does not cover. Correction: sqrt(2) times the noise.
    """
    noise.gaussian(sums(graph), renyi_sigma(EPSILON, DELTA))


def moved_by_a_stored_edge() -> float:
    """Return the most that one stored edge moves the sums."""
    return neighbor_test(sums, unit="directed-edge", sensitivity=1.0, pairs=60).largest_mu


@published_mechanism(
    "a node's own row",
    "GAP at node level (ibid., Lemmas 2 and 3)",
    unit="node",
    kind="change",
    claim={"epsilon": EPSILON, "delta": DELTA},
    figure=RestatedValue(
        "squared change of the others' rows by a node with D = 100 neighbors",
        "Lemma 3, D alpha / (2 sigma^2), at the D = 100 of section 7.3",
        100.0,
        lambda: moved_by_a_hub(100, own=False),
        1e-9,
    ),
    cost=RestatedValue(
        "squared change of its own row, which is not charged",
        "D^2, a sum of D equal rows",
        10_000.0,
        lambda: moved_by_a_hub(100, own=True),
        1e-9,
    ),
)
def all_rows_at_node_level(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """GAP at node level, one hop, maximum degree D: noise for D neighbors' rows in every aggregate.

    A node with D neighbors is charged for the D rows that it is part of. Its own row, the sum over all its
    neighbors, is also published and may change by D, for any bound on degrees. Correction: withhold a node's
    own row (unit node-bounded-degree), or protect out-edges.
    """
    most = max(1, graph.nodes - 1)  # a degree that no node can exceed
    noise.gaussian(sums(graph), math.sqrt(most) * renyi_sigma(EPSILON, DELTA))


def moved_by_a_hub(degree: int, *, own: bool) -> float:
    """Return the squared change by a node of this degree: of its own aggregate, or of all others."""
    hub = SmallGraph.from_edges(degree + 1, [(0, v) for v in range(1, degree + 1)], directed=False)
    changed = sums(hub) - sums(hub.with_edges(set()).with_record(0, 0.0, NO_LABEL))
    return float(np.square(changed[:1] if own else changed[1:]).sum())


@published_mechanism(
    "after the last noise",
    "an edge-level system of 2026",
    unit="undirected-edge",
    kind="exact output",
    claim={"epsilon": EPSILON, "delta": DELTA},
)
def aggregated_after_noise(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """A noisy hop, and then an exact one.

    Noisy rows are aggregated again over the exact edges, and the result is published. Two leaves of one node
    have proportional rows, and one more edge ends that with certainty. Correction: noise on every
    aggregation.
    """
    noisy = noise.gaussian(graph.a.T @ np.eye(3)[graph.y], math.sqrt(2) / mu_of(EPSILON, DELTA))
    return np.asarray(graph.a.T @ noisy)


def response(
    graph: SmallGraph, noise: NoiseRecorder, epsilon: float, stream: str | None = None
) -> np.ndarray:
    """Randomized response on every node pair u < v."""
    upper = np.triu_indices(graph.nodes, 1)
    return noise.flip(graph.a[upper] > 0, epsilon, stream=stream)


@published_mechanism(
    "one seed for two graphs",
    "EdgeRand and LapGraph as released (Wu et al., S&P 2022)",
    unit="undirected-edge",
    kind="reused noise",
    claim={"epsilon": 2 * EPSILON},
    figure=RestatedValue(
        "probability that a node pair is certain at epsilon 1, 1 - 2 q",
        "formula: 1 minus the share 2 / (1 + e) of randomized node pairs",
        0.462,
        lambda: 1 - 2 / (1 + math.exp(1.0)),
    ),
)
def one_seed_for_two_graphs(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """EdgeRand on the graph among training nodes, and on the whole graph, from one seed.

    The training graph and the whole graph are randomized from one seed. A node pair whose two values differ
    is certainly an edge of one graph only. Correction: independent noise.
    """
    training = np.arange(graph.nodes) % 2 == 0
    among = graph.a * np.outer(training, training)
    upper = np.triu_indices(graph.nodes, 1)
    noise.flip(among[upper] > 0, EPSILON, stream="seed")
    noise.flip(graph.a[upper] > 0, EPSILON, stream="seed")


def density_scale(nodes: int, epsilon: float) -> float:
    """Return the program's noise for a density: Laplace, for a sensitivity of 1 / n^2, at 0.1 epsilon."""
    return 1 / (nodes**2 * 0.1 * epsilon)


def density_cost(nodes: int, chunk: int, epsilon: float) -> float:
    """Return the true epsilon of a chunk's density: an edge changes it by 1 / (chunk n)."""
    return 1 / (chunk * nodes) / density_scale(nodes, epsilon)


@published_mechanism(
    "density by chunks",
    "ARR in the repository of GAP",
    unit="undirected-edge",
    kind="change",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "scale of the noise on a density at epsilon 1, n = 19,717 (PubMed)",
        "program: AsymmetricRandResponse.perturb",
        2.57228e-8,
        lambda: density_scale(19_717, 1.0),
        1e-5,
    ),
    cost=RestatedValue(
        "epsilon of the density of PubMed (n = 19,717) where 0.1 is charged",
        "the program's scale, and chunks of 1,000 rows",
        1.97,
        lambda: density_cost(19_717, 1000, 1.0),
        2e-3,
    ),
)
def density_of_chunks(graph: SmallGraph, noise: NoiseRecorder, chunk: int = 1) -> None:
    """ARR with one noisy density query per chunk of rows, but noise for the complete matrix.

    The density is queried per 1,000 rows, with noise for the density of all n^2 cells. Correction: one query.
    """
    n = graph.nodes
    for start in range(0, n, chunk):
        rows = np.triu(graph.a)[start : start + chunk]
        noise.laplace(rows.sum() / (chunk * n), density_scale(n, EPSILON))
    response(graph, noise, 0.9 * EPSILON)


@published_mechanism(
    "both directions apart",
    "ARR in the repository of GAP",
    unit="undirected-edge",
    kind="change",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "probability that a node pair keeps its value at epsilon 1",
        "program: AsymmetricRandResponse.perturb, 1 / (1 + exp(-0.9 epsilon))",
        0.7109495026,
        lambda: kept_by_a_slot(),
        1e-9,
    ),
    cost=RestatedValue(
        "epsilon of both values of an undirected edge, and of the density, where 1 is charged",
        "the shares 0.9 and 0.1 in the program",
        1.8 + 0.1,
        lambda: 2 * 0.9 + 0.1,
    ),
)
def both_directions_apart(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """ARR that randomizes (u, v) and (v, u) independently: an undirected edge is queried twice.

    (u, v) and (v, u) are randomized independently. An undirected edge is therefore queried twice, and the
    released matrix is not symmetric. Correction: one value per node pair.
    """
    edges = np.triu(graph.a).sum()
    noise.laplace(edges, 1 / (0.1 * EPSILON))
    noise.flip(graph.a[~np.eye(graph.nodes, dtype=bool)] > 0, 0.9 * EPSILON)


def kept_by_a_slot() -> float:
    """Return the probability that a node pair keeps its value, by the law that is drawn from."""
    noise = NoiseRecorder(np.random.default_rng(0))
    both_directions_apart(SmallGraph.from_edges(3, [(0, 1)], directed=False), noise)
    law = noise.steps[-1].law
    assert isinstance(law, FlipLaw)
    return 1 - float(law.scale)


@published_mechanism(
    "rate times epsilon",
    "accounting that multiplies by the sampling rate",
    unit="undirected-edge",
    kind="mixture",
    claim={"epsilon": 0.1 * 4.0},
)
def sampling_times_epsilon(graph: SmallGraph, noise: NoiseRecorder, rate: float = 0.1) -> None:
    """A count of a sample of edges at epsilon 4, charged as rate * 4.

    A query of epsilon 4 on a sample at rate q is charged 4 q. Its privacy cost is ln(1 + q (e^4 - 1)).
    Correction: this formula.
    """
    edges = int(np.triu(graph.a).sum())
    noise.laplace((noise.hidden.random(edges) < rate).sum(), 1 / 4.0)


@published_mechanism(
    "three hops", "GAP at edge level, undirected edges", unit="undirected-edge", claim={"mu": MU}
)
def three_hops(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """Sums over neighbors of rows of norm at most one, each hop from the noisy rows of the hop before.

    Each hop costs mu^2 / 3, for any earlier answers.
    """
    sigma = math.sqrt(3) * math.sqrt(2) / MU
    rows = np.eye(3)[graph.y]
    for _ in range(3):
        noisy = noise.gaussian(graph.a.T @ rows, sigma)
        rows = noisy / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True), 1.0)
    return rows


@published_mechanism(
    "EdgeRand", "randomized response on node pairs", unit="undirected-edge", claim={"epsilon": 1.0}
)
def edge_rand(graph: SmallGraph, noise: NoiseRecorder) -> int:
    """Randomized response on every node pair; the number of released edges follows from it.

    One value per node pair.
    """
    return int(response(graph, noise, 1.0).sum())


@published_mechanism(
    "LapGraph", "noise on cells, a noisy count of edges", unit="undirected-edge", claim={"epsilon": 1.0}
)
def lap_graph(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """A noisy count T, noise on every cell, and the T largest cells.

    0.01 for the count and 0.99 for the cell.
    """
    cells = graph.a[np.triu_indices(graph.nodes, 1)]
    count = int(np.clip(np.rint(noise.laplace(cells.sum(), 1 / 0.01)), 0, len(cells)))
    return np.argsort(-noise.laplace(cells, 1 / 0.99))[:count]


@published_mechanism(
    "ARR",
    "asymmetric randomized response, its density queried once",
    unit="undirected-edge",
    claim={"epsilon": 1.0},
)
def arr(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """A noisy density, randomized response, and a share of its ones that follows from the density.

    0.1 for the density and 0.9 for the node pair.
    """
    slots = max(1, graph.nodes * (graph.nodes - 1) // 2)
    edges = np.triu(graph.a).sum()
    density = float(np.clip(noise.laplace(edges / slots, 1 / (slots * 0.1)), 1 / slots, 1))
    ones = response(graph, noise, 0.9)
    return noise.flip(ones, 2.0) if density < 0.5 else ones


@published_mechanism(
    "pushes", "messages divided by the root of the sender's out-degree", unit="node-record", claim={"mu": MU}
)
def pushes(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """Sums over senders, each message divided by the root of its sender's own list.

    The out-edges and the vector of a node change the rows by one.
    """
    degree = np.maximum(graph.a.sum(axis=1), 1)
    sent = np.eye(4)[graph.y + 1][:, 1:] / np.sqrt(degree)[:, None]
    noise.gaussian(graph.a.T @ sent, 1 / MU)
