"""Random graphs of the papers' sizes: a degree-corrected block model with class-correlated features.

Karrer and Newman, "Stochastic blockmodels and community structure in networks" (2011). Every node has a
class and an expected degree from a log-normal law. One end of an edge is drawn in proportion to the expected
degrees; the other one likewise, from the same class with a probability equal to the homophily. Loops and
repeats are redrawn until the number of edges is exact. No real person is in these graphs, so edges may be
counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.features import Features
from graphveil.core.noise.random import PublicStreams
from graphveil.data.dataset_readers import one_hot
from graphveil.data.graph import Graph

Ints: TypeAlias = npt.NDArray[np.integer]
Floats: TypeAlias = npt.NDArray[np.floating]
Keys: TypeAlias = npt.NDArray[np.int64]
MakeFeatures: TypeAlias = Callable[[Ints, "Preset", np.random.Generator], Features]

_CHUNK = 1 << 21  # edges drawn at a time; bounds the memory of a draw
_SPREAD = np.log(60.0)  # no expected degree differs from the median by more than a factor of 60


def gaussian(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return dense features: the mean of the node's class, which has norm ``signal``, plus standard noise."""
    means = rng.standard_normal((preset.classes, preset.features), dtype=np.float32)
    means *= preset.signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = rng.standard_normal((len(y), preset.features), dtype=np.float32)
    for number, mean in enumerate(means):
        x[y == number] += mean
    return torch.from_numpy(x)


def binary(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return dense 0/1 features, a fifth of them 1, whose log-odds vary by class with scale ``signal``."""
    log_odds = np.log(0.2 / 0.8) + preset.signal * rng.standard_normal((preset.classes, preset.features))
    rates = 1 / (1 + np.exp(-log_odds))
    return torch.from_numpy((rng.random((len(y), preset.features)) < rates[y]).astype(np.float32))


def categorical(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return sparse one-hot features of five attributes, a third of whose entries are missing.

    Within an attribute the log-frequencies of the codes differ by class with scale ``signal``.
    """
    sizes = np.array([2, 6, 120, 120], dtype=np.int64)
    codes = np.empty((len(y), 5), dtype=np.int64)
    for column, size in enumerate([*sizes, preset.features - sizes.sum()]):
        weights = np.exp(preset.signal * rng.standard_normal((preset.classes, size))) / np.arange(1, size + 1)
        cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        for number in range(preset.classes):
            members = np.flatnonzero(y == number)
            codes[members, column] = 1 + np.searchsorted(cumulative[number, :-1], rng.random(len(members)))
        codes[:size, column] = np.arange(1, size + 1)  # every code occurs, so that the width is exact
    codes[(rng.random(codes.shape) < 1 / 3) & (np.arange(len(y)) >= preset.features)[:, None]] = 0
    return one_hot(codes)


@dataclass(frozen=True)
class Preset:
    """Statistics of a synthetic graph.

    Args:
        nodes, edges: Exact numbers; ``edges`` counts every undirected edge once.
        features, classes: Numbers of feature columns and of classes.
        median_degree: Median of the expected degrees; the mean is 2 edges / nodes.
        homophily: Share of edges inside a class, as drawn. In a dense graph the redrawing of repeats
            moves both a little: reddit ends at a median of 209 and a homophily of 0.75.
        signal: Scale of the dependence of features on the class.
        make_features: Function that draws the features.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    median_degree: float
    homophily: float
    signal: float
    make_features: MakeFeatures


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {  # nodes, edges, features, classes, median degree, homophily, signal, function that draws the features
        "facebook": Preset(26_406, 1_058_962, 501, 6, 62, 0.5, 0.8, categorical),
        "reddit": Preset(116_713, 23_116_690, 602, 8, 194, 0.77, 2.5, gaussian),
        "amazon": Preset(1_790_731, 40_483_416, 100, 10, 22, 0.8, 2.1, gaussian),
        "large": Preset(2_000_000, 20_000_000, 100, 10, 12, 0.8, 2.1, gaussian),
        "demo": Preset(3_000, 37_500, 64, 5, 18, 0.61, 0.5, binary),
        "tiny": Preset(300, 1_500, 16, 3, 8, 0.72, 0.7, binary),
    }
)


def synthetic(preset: str, *, seed: int = 0) -> Graph:
    """Return the undirected random graph of a preset; the same seed gives the same graph.

    Args:
        preset: One of facebook, reddit and amazon (the sizes of the papers' graphs), large (2 million nodes,
            20 million edges), demo and tiny.
        seed: Seed of all random draws. The graph is public, and so is the seed.

    Returns:
        The graph, without a split.

    Raises:
        ConfigError: Unknown preset.

    >>> synthetic("tiny")
    Graph('synthetic/tiny', nodes=300, features=16, classes=3, directed=False, split=False)
    """
    checks.one_of(PRESETS, preset=preset)
    chosen, streams = PRESETS[preset], PublicStreams(seed)
    # Classes in random order, the largest about three times the smallest.
    shares = np.linspace(1.5, 0.5, chosen.classes)
    bounds = np.round(np.cumsum(shares / shares.sum()) * chosen.nodes).astype(int)
    y = streams.numpy("classes").permutation(np.searchsorted(bounds, np.arange(chosen.nodes), side="right"))
    # Log-normal expected degrees: mean / median = exp(sigma^2 / 2).
    sigma = np.sqrt(2 * np.log(2 * chosen.edges / chosen.nodes / chosen.median_degree))
    logs = sigma * streams.numpy("degrees").standard_normal(chosen.nodes)
    degrees = chosen.median_degree * np.exp(np.clip(logs, -_SPREAD, _SPREAD))
    low, high = _edges(y, degrees, chosen, streams.numpy("edges"))
    x = chosen.make_features(y, chosen, streams.numpy("features"))
    name = f"synthetic/{preset}"
    edge_set = EdgeSet(f"dataset:{name}" if seed == 0 else f"dataset:{name}@{seed}")
    return Graph.from_edges(
        x, y, low, high, directed=False, num_classes=chosen.classes, edge_set=edge_set, name=name
    )


def _edges(y: Ints, degrees: Floats, preset: Preset, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the two ends of exactly the preset's number of distinct edges."""
    draw = _EndSampler(y, degrees, preset.homophily, rng)
    keys = np.empty(0, dtype=np.int64)
    # Repeats are common among nodes of high degree. A few more edges than are missing are drawn, so that two
    # or three rounds suffice. The surplus is removed at random: the first keys have low node numbers.
    while (missing := preset.edges - len(keys)) > 0:
        wanted = missing + missing // 50 + 100
        fresh = [draw(min(_CHUNK, wanted - start)) for start in range(0, wanted, _CHUNK)]
        keys = np.concatenate([keys, *fresh])
        keys.sort()
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]  # distinct ones
    surplus = rng.choice(len(keys), len(keys) - preset.edges, replace=False)
    low, high = np.divmod(np.delete(keys, surplus), preset.nodes)
    return low.astype(np.int32), high.astype(np.int32)


class _EndSampler:
    """Draws edges {u, v} as keys min(u, v) * N + max(u, v), without loops but with repeats.

    A node occurs in the list of stubs as often as its expected degree, rounded, and the stubs of a class are
    consecutive. So a uniform draw from a range of stubs is a draw in proportion to the degrees of a class.
    The other end is in the same class with a probability equal to the homophily.
    """

    def __init__(self, y: Ints, degrees: Floats, homophily: float, rng: np.random.Generator) -> None:
        order = np.argsort(y, kind="stable").astype(np.int32)
        counts = np.maximum(np.rint(degrees), 1).astype(np.int64)
        self._stubs = np.repeat(order, counts[order])
        self._size = np.bincount(y, weights=counts).astype(np.int64)  # stubs of each class
        self._first = np.cumsum(self._size) - self._size
        self._classes, self._homophily, self._rng = y, homophily, rng

    def __call__(self, count: int) -> Keys:
        one = self._stubs[self._rng.integers(len(self._stubs), size=count)]
        classes = self._classes[one]
        first, size = self._first[classes], self._size[classes]
        inside = self._rng.random(count) < self._homophily
        room = np.where(inside, size, len(self._stubs) - size)
        place = (self._rng.random(count) * room).astype(np.int64)
        # Outside the class, places before its stubs stay as they are, and all others skip its stubs.
        place += np.where(inside, first, np.where(place >= first, size, 0))
        other = self._stubs[place]
        keys = np.minimum(one, other).astype(np.int64)
        keys *= len(self._classes)
        keys += np.maximum(one, other)
        proper: Keys = keys[one != other]
        return proper
