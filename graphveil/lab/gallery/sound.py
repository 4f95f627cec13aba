"""Mechanisms whose guarantee is valid, which the neighbor test must not refute."""

import math

import numpy as np

from graphveil.audit.noise import NoiseRecorder
from graphveil.audit.small_graphs import SmallGraph
from graphveil.lab.gallery.edges import response
from graphveil.lab.gallery.published_mechanism import PublishedMechanism
from graphveil.lab.gallery.records import label_response, public_threshold, weights_that_sum_to_one
from graphveil.lab.gallery.trees import noise_drawn_once, sound_tree

MU = 0.5


def three_hops(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """Sums over neighbors of rows of norm at most one, each hop from the noisy rows of the hop before."""
    sigma = math.sqrt(3) * math.sqrt(2) / MU
    rows = np.eye(3)[graph.y]
    for _ in range(3):
        noisy = noise.gaussian(graph.a.T @ rows, sigma)
        rows = noisy / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True), 1.0)
    return rows


def edge_rand(graph: SmallGraph, noise: NoiseRecorder) -> int:
    """Randomized response on every slot; how many edges come out is a function of it."""
    return int(response(graph, noise, 1.0).sum())


def lap_graph(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """A noisy count T, noise on every cell, and the T largest cells."""
    cells = graph.a[np.triu_indices(graph.nodes, 1)]
    count = int(np.clip(np.rint(noise.laplace(cells.sum(), 1 / 0.01)), 0, len(cells)))
    return np.argsort(-noise.laplace(cells, 1 / 0.99))[:count]


def arr(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """A noisy density, randomized response, and a share of its ones that follows from the density."""
    slots = max(1, graph.nodes * (graph.nodes - 1) // 2)
    edges = np.triu(graph.a).sum()
    density = float(np.clip(noise.laplace(edges / slots, 1 / (slots * 0.1)), 1 / slots, 1))
    ones = response(graph, noise, 0.9)
    return noise.flip(ones, 2.0) if density < 0.5 else ones


def pushes(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """Sums over senders, each message divided by the root of its sender's own list."""
    degree = np.maximum(graph.a.sum(axis=1), 1)
    sent = np.eye(4)[graph.y + 1][:, 1:] / np.sqrt(degree)[:, None]
    noise.gaussian(graph.a.T @ sent, 1 / MU)


SOUND = (
    PublishedMechanism(
        name="three hops",
        source="GAP at edge level, friendships",
        explanation="Each hop costs mu^2 / 3, whatever the answers before it.",
        unit="undirected-edge",
        claim={"mu": MU},
        mechanism=three_hops,
    ),
    PublishedMechanism(
        name="EdgeRand",
        source="randomized response on slots",
        explanation="One slot, one answer.",
        unit="undirected-edge",
        claim={"epsilon": 1.0},
        mechanism=edge_rand,
    ),
    PublishedMechanism(
        name="LapGraph",
        source="noise on cells, a noisy count of edges",
        explanation="0.01 for the count and 0.99 for the cell.",
        unit="undirected-edge",
        claim={"epsilon": 1.0},
        mechanism=lap_graph,
    ),
    PublishedMechanism(
        name="ARR",
        source="asymmetric randomized response, its density asked once",
        explanation="0.1 for the density and 0.9 for the slot.",
        unit="undirected-edge",
        claim={"epsilon": 1.0},
        mechanism=arr,
    ),
    PublishedMechanism(
        name="a tree by the exponential mechanism",
        source="exponent epsilon / (2 Delta)",
        explanation="As proved by McSherry and Talwar.",
        unit="undirected-edge",
        claim={"epsilon": 2.0},
        mechanism=sound_tree,
    ),
    PublishedMechanism(
        name="a block counted once",
        source="CalculateNoisyProb as the authors' program has it",
        explanation="One draw for the block.",
        unit="undirected-edge",
        claim={"epsilon": 2.0},
        mechanism=noise_drawn_once,
    ),
    PublishedMechanism(
        name="pushes",
        source="messages divided by the root of the sender's list",
        explanation="A person's own list and vector move the rows by one.",
        unit="node-record",
        claim={"mu": MU},
        mechanism=pushes,
    ),
    PublishedMechanism(
        name="label response",
        source="randomized response on three classes",
        explanation="Keep with probability e^eps / (e^eps + 2).",
        unit="local-attributes",
        claim={"epsilon": 1.0},
        mechanism=label_response,
    ),
    PublishedMechanism(
        name="FeatureRR",
        source="public weights that sum to one",
        explanation="Each feature costs its share of epsilon.",
        unit="local-attributes",
        claim={"epsilon": 1.0},
        mechanism=weights_that_sum_to_one,
    ),
    PublishedMechanism(
        name="a public clipping norm",
        source="one training step, records replaced",
        explanation="A replaced record moves the sum by twice the norm.",
        unit="local-attributes",
        claim={"mu": 1.0},
        mechanism=public_threshold,
    ),
)
