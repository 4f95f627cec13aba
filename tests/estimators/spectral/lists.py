"""A graph whose neighbors tell nothing and whose lists tell all: twelve topics, a list each."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from graphveil.data import Graph

NODES, TOPICS, CLASSES, LISTED = 360, 12, 3, 30


def listed(seed: int = 0, *, certain: bool = False) -> Graph:
    """Return it: a topic's pages link to most of its list, all of them if that is certain.

    A topic is of one class, and its list is drawn from the pages of all; features say little.
    """
    rng = np.random.default_rng(seed)
    topic = np.arange(NODES) % TOPICS
    lists = [rng.choice(NODES, LISTED, replace=False) for _ in range(TOPICS)]
    pairs = np.array([(page, one) for page in range(NODES) for one in lists[topic[page]] if page != one])
    pairs = pairs if certain else pairs[rng.random(len(pairs)) < 0.7]
    y = topic % CLASSES
    x = rng.normal(size=(NODES, 6)).astype(np.float32)
    x[np.arange(NODES), y] += 0.5
    graph = Graph.from_edges(x, y, pairs[:, 0], pairs[:, 1], directed=False, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(NODES)) / NODES
    return graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)


def alike(rows: Tensor) -> tuple[float, float]:
    """Return the mean cosine of pairs of one topic, and of others, among pages that are on no list."""
    graph = listed()
    degree = torch.bincount(graph.adjacency.edge_index()[1], minlength=NODES)
    quiet = degree.argsort()[: NODES // 4]  # hubs have lists of their own
    topic = quiet % TOPICS
    own = normalize(rows[quiet], dim=1)
    cosine = own @ own.T
    same = (topic[:, None] == topic[None, :]) & ~torch.eye(len(quiet), dtype=torch.bool)
    return float(cosine[same].mean()), float(cosine[topic[:, None] != topic[None, :]].mean())
