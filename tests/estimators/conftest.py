"""Shared by the tests of estimators: a small graph of three classes, and recorded queries."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.estimators.classcode import edge

NODES, CLASSES, FEATURES = 150, 3, 8
MakeGraph = Callable[..., Graph]
Queries = list[tuple[Tensor, Any]]
PAIR_WEIGHTS = (  # edge weights of public vectors
    "sigmoid_cos",
    "exp_cos(0.5)",
    "half_cos@8",
    "relu_cos",
    "jaccard",
    "class_agree(0.2)",
    "posterior_dot",
    "learned_public",
)


def grouped(*, directed: bool = False, as_sparse: bool = False, seed: int = 0, nodes: int = NODES) -> Graph:
    """Return a homophilous graph of three classes with informative features."""
    rng = np.random.default_rng(seed)
    y = np.arange(nodes) % CLASSES
    x = (rng.random((nodes, FEATURES)) < 0.2).astype(np.float32)
    x[np.arange(nodes), y] = rng.random(nodes) < 0.6
    source, other = rng.integers(nodes, size=(2, 12 * nodes))
    same_class = (source + CLASSES * rng.integers(nodes // CLASSES, size=source.size)) % nodes
    target = np.where(rng.random(source.size) < 0.85, same_class, other)
    features = sparse.csr_array(x) if as_sparse else x
    graph = Graph.from_edges(features, y, source, target, directed=directed, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(nodes)) / nodes
    return graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)


@pytest.fixture
def graph() -> Graph:
    """A new undirected graph with its own ledger."""
    return grouped()


@pytest.fixture(scope="session")
def make_graph() -> MakeGraph:
    """The function that returns small graphs."""
    return grouped


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    """The inputs of each neighbor sum: vectors, and what edge weights read."""
    seen: Queries = []
    ask = Release.answer

    def noting(self: Release, data: Any) -> Any:
        if isinstance(data, NeighborSumData):
            seen.append((data.vectors, data.keys))
        return ask(self, data)

    monkeypatch.setattr(Release, "answer", noting)
    return seen


def with_little_training(patch: pytest.MonkeyPatch) -> None:
    """Train little in ClassCode and for rows, so that fits of small graphs take a moment."""
    from graphveil.estimators.features import crossfit
    from graphveil.estimators.relational import rows

    patch.setattr(crossfit, "CANDIDATES", (crossfit.Candidate(2, hidden=4),))
    patch.setattr(edge, "_SMALL_STEPS", 2)
    patch.setattr(edge, "SEEDS", 1)
    patch.setattr(rows, "_PENALTIES", (0.03,))
    patch.setattr("graphveil.papers.weights._STEPS", 3)
