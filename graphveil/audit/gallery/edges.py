"""Published mechanisms that protect edges, or people by their edges, and do not."""

import math

import numpy as np

from graphveil.audit.gallery.exhibit import Exhibit, Figure
from graphveil.audit.noise import Noise
from graphveil.audit.small_graphs import SmallGraph
from graphveil.privacy.gaussian import epsilon_of, mu_of

EPSILON, DELTA = 1.0, 1e-5


def renyi_sigma(epsilon: float, delta: float) -> float:
    """Return the noise s of one hop by the source: 1 / (2 s^2) + sqrt(2 ln(1 / delta)) / s = epsilon."""
    root = math.sqrt(2 * math.log(1 / delta))
    return (root + math.sqrt(root**2 + 2 * epsilon)) / (2 * epsilon)


def sampled_sums(graph: SmallGraph, noise: Noise) -> None:
    """GAP at node level with D = 1: every node keeps one random edge, and sums get noise for one."""
    degree = graph.a.sum(axis=1).astype(np.int64)
    last = np.cumsum(degree)
    first = last - degree
    picked = (first + noise.hidden.random(graph.nodes) * (last - first)).astype(np.int64)
    targets = np.nonzero(graph.a)[1]
    kept = np.bincount(targets[picked[last > first]], minlength=graph.nodes)
    noise.gaussian(kept, renyi_sigma(EPSILON, DELTA))


def noise_for_one_direction(graph: SmallGraph, noise: Noise) -> None:
    """Sums over neighbours with noise for one stored edge, where a friendship stores two."""
    rows = np.eye(3)[graph.y]
    noise.gaussian(graph.a.T @ rows, 1 / mu_of(EPSILON, DELTA))


def aggregated_after_noise(graph: SmallGraph, noise: Noise) -> np.ndarray:
    """A noisy hop, and then an exact one."""
    noisy = noise.gaussian(graph.a.T @ np.eye(3)[graph.y], math.sqrt(2) / mu_of(EPSILON, DELTA))
    return np.asarray(graph.a.T @ noisy)


def response(graph: SmallGraph, noise: Noise, epsilon: float, stream: str | None = None) -> np.ndarray:
    """Randomised response on every slot u < v."""
    upper = np.triu_indices(graph.nodes, 1)
    return noise.flip(graph.a[upper] > 0, epsilon, stream=stream)


def one_seed_for_two_graphs(graph: SmallGraph, noise: Noise) -> None:
    """EdgeRand on the graph among training nodes, and on the whole graph, from one seed."""
    training = np.arange(graph.nodes) % 2 == 0
    among = graph.a * np.outer(training, training)
    upper = np.triu_indices(graph.nodes, 1)
    noise.flip(among[upper] > 0, EPSILON, stream="seed")
    noise.flip(graph.a[upper] > 0, EPSILON, stream="seed")


def density_noise(nodes: int, chunk: int, epsilon: float) -> float:
    """Return how much epsilon a chunk's density really costs: an edge moves it by 1 / (chunk n)."""
    scale = 1 / (nodes**2 * 0.1 * epsilon)  # Laplace, for a sensitivity of 1 / n^2
    return 1 / (chunk * nodes) / scale


def density_of_chunks(graph: SmallGraph, noise: Noise, chunk: int = 1) -> None:
    """ARR whose density is asked chunk by chunk of rows, with noise for the density of the whole matrix."""
    n = graph.nodes
    for start in range(0, n, chunk):
        rows = np.triu(graph.a)[start : start + chunk]
        noise.laplace(rows.sum() / (chunk * n), 1 / (n**2 * 0.1 * EPSILON))
    response(graph, noise, 0.9 * EPSILON)


def both_directions_apart(graph: SmallGraph, noise: Noise) -> None:
    """ARR that randomises (u, v) and (v, u) independently: a friendship is asked twice."""
    edges = np.triu(graph.a).sum()
    noise.laplace(edges, 1 / (0.1 * EPSILON))
    noise.flip(graph.a[~np.eye(graph.nodes, dtype=bool)] > 0, 0.9 * EPSILON)


def sampling_times_epsilon(graph: SmallGraph, noise: Noise, rate: float = 0.1) -> None:
    """A count of a sample of edges at epsilon 4, sold as rate * 4."""
    edges = int(np.triu(graph.a).sum())
    noise.laplace((noise.hidden.random(edges) < rate).sum(), 1 / 4.0)


BROKEN = (
    Exhibit(
        name="sampled neighbours",
        source="GAP at node level (Sajadmanesh et al., USENIX Security 2023)",
        story="Every node keeps D random neighbours, so that one node is said to change D messages. A hub "
        "that everybody knows is drawn in half of the samples of people with one other friend, and "
        "takes the place of their other messages. Mend: weigh messages by their sender's own list, "
        "and protect lists (unit node-owner).",
        unit="node",
        claim={"epsilon": EPSILON, "delta": DELTA},
        mechanism=sampled_sums,
        kind="mixture",
        figure=Figure(
            what="noise of one hop at epsilon 1, delta 1e-5",
            stands="formula of Proposition 2",
            published=4.9006,
            restated=lambda: renyi_sigma(1.0, 1e-5),
            tolerance=1e-5,
        ),
        search={"nodes": 150},
    ),
    Exhibit(
        name="one direction",
        source="edge-level GAP on friendships (ibid.)",
        story="Noise for one stored edge. A friendship is stored in both directions and moves two rows. "
        "Mend: sqrt(2) times the noise.",
        unit="undirected-edge",
        claim={"epsilon": EPSILON, "delta": DELTA},
        mechanism=noise_for_one_direction,
        kind="change",
        figure=Figure(
            what="epsilon of a friendship where one direction is sold at 1, delta 1e-5",
            stands="what the flaw costs at the least noise that one direction needs",
            published=1.465,
            restated=lambda: epsilon_of(math.sqrt(2) * mu_of(1.0, 1e-5), 1e-5),
        ),
    ),
    Exhibit(
        name="after the last noise",
        source="an edge-level system of 2026",
        story="Noisy rows are aggregated once more over the exact edges, and that is given out: two "
        "leaves of one node get proportional rows, and one more edge ends that with certainty. "
        "Mend: noise on every aggregation.",
        unit="undirected-edge",
        claim={"epsilon": EPSILON, "delta": DELTA},
        mechanism=aggregated_after_noise,
        kind="exact output",
    ),
    Exhibit(
        name="one seed for two graphs",
        source="EdgeRand and LapGraph as released (Wu et al., S&P 2022)",
        story="The training graph and the whole graph are randomised from one seed. A slot whose two "
        "answers differ tells that it is an edge of one graph only, with certainty. Mend: fresh "
        "noise.",
        unit="undirected-edge",
        claim={"epsilon": 2 * EPSILON},
        mechanism=one_seed_for_two_graphs,
        kind="reused noise",
        figure=Figure(
            what="probability that a slot is told so at epsilon 1, 1 - 2 q",
            stands="formula: 1 less the share 2 / (1 + e) of slots that are drawn anew",
            published=0.462,
            restated=lambda: 1 - 2 / (1 + math.exp(1.0)),
        ),
    ),
    Exhibit(
        name="density by chunks",
        source="ARR in the repository of GAP",
        story="The density is asked for every 1,000 rows, with noise for the density of all n^2 cells. "
        "Mend: ask once.",
        unit="undirected-edge",
        claim={"epsilon": EPSILON},
        mechanism=density_of_chunks,
        kind="change",
        figure=Figure(
            what="epsilon of the density of PubMed (n = 19,717) where 0.1 is sold",
            stands="what the flaw costs, by the scale of the noise in the program",
            published=1.97,
            restated=lambda: density_noise(19_717, 1000, 1.0),
            tolerance=2e-3,
        ),
    ),
    Exhibit(
        name="both directions apart",
        source="ARR in the repository of GAP",
        story="(u, v) and (v, u) are randomised independently, so a friendship is asked twice, and what "
        "comes out is not symmetric. Mend: one answer a pair.",
        unit="undirected-edge",
        claim={"epsilon": EPSILON},
        mechanism=both_directions_apart,
        kind="change",
        figure=Figure(
            what="epsilon of the links of a friendship, and of the density, where 1 is sold",
            stands="what the flaw costs, by the shares 0.9 and 0.1 in the program",
            published=1.8 + 0.1,
            restated=lambda: 2 * 0.9 + 0.1,
        ),
    ),
    Exhibit(
        name="rate times epsilon",
        source="accounting that multiplies by the sampling rate",
        story="A sample at rate q of what costs epsilon 4 is sold at 4 q. A sample costs ln(1 + q (e^4 - "
        "1)). Mend: that formula.",
        unit="undirected-edge",
        claim={"epsilon": 0.1 * 4.0},
        mechanism=sampling_times_epsilon,
        kind="mixture",
    ),
)
