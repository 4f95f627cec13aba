"""Splits that are generated: at random over the labeled nodes, or from the node ids alone."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.data.graph import Graph, check_kind
from graphveil.data.tables.split_parts import part_bounds
from graphveil.errors import ConfigError

_EDGE_UNITS = ("undirected-edge", "directed-edge", "edge-subset", "none")
_RECORD_UNITS = ("node-record", "node-bounded-degree", "local-attributes")


def split(
    graph: Graph,
    train: float = 0.75,
    val: float = 0.10,
    *,
    unit: str | None = None,
    seed: int | None = 0,
) -> Graph:
    """Return the graph with a generated split, of the shares and in the manner of the command.

    Where ``unit`` protects edges or nothing, the labeled nodes are split at random in exact shares. Where it
    protects records, and where no unit is named, all nodes are split by a hash of their ids: who has a label
    may then be secret, and no membership depends on it.

    Args:
        graph: a graph, whose own split is replaced.
        train, val: the shares of nodes to learn from and to select on; the rest is test.
        unit: what a model will protect.
        seed: of the split, public; None for a random one.

    Raises:
        ConfigError: shares that do not add up, or an unknown unit.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> split(graph, 0.4, 0.4, unit="undirected-edge").has_split
    True
    """
    check_kind(graph)
    if unit is not None:
        checks.one_of((*_EDGE_UNITS, *_RECORD_UNITS), unit=unit)
    make = random_split if unit in _EDGE_UNITS else hash_split
    return make(graph, train=train, val=val, seed=seed)


def random_split(graph: Graph, *, train: float, val: float, seed: int | None) -> Graph:
    """Split the labeled nodes at random; the shares not given to train and val go to test.

    The sizes are rounded down for train and val. Which nodes have a label is read, the labels are not.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> masks = random_split(graph, train=0.4, val=0.4, seed=0)
    >>> [int(masks.mask(part).sum()) for part in ("train", "val", "test")]
    [1, 1, 1]
    """
    _check_shares(train, val)
    order = PublicStreams(seed).numpy("split").permutation(np.flatnonzero(graph.labeled.numpy()))
    bounds = part_bounds(len(order), train, val)
    part = np.full(graph.num_nodes, -1)
    for number, members in enumerate(np.split(order, bounds)):
        part[members] = number
    return _with_parts(graph, part)


def hash_split(graph: Graph, *, train: float, val: float, seed: int | None) -> Graph:
    """Split all nodes by a hash of the seed and the node's id, so that no label and no other node counts.

    This is the split for units that protect records: a node stays in its part whatever its record says, and
    whether it has a label is not read. The shares hold on average. Graphs without ids use row numbers.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> masks = hash_split(graph, train=0.75, val=0.1, seed=0)
    >>> bool((masks.train_mask | masks.val_mask | masks.test_mask).all())
    True
    """
    _check_shares(train, val)
    ids = np.arange(graph.num_nodes) if graph.ids is None else graph.ids
    key = PublicStreams(seed).derive("split").to_bytes(8, "little")
    uniform = np.array([_unit_hash(str(value), key) for value in ids.tolist()])
    return _with_parts(graph, np.searchsorted([train, train + val], uniform, side="right"))


def _check_shares(train: float, val: float) -> None:
    checks.positive(train=train)
    checks.non_negative(val=val)
    if train + val > 1:
        raise ConfigError(f"train={train} and val={val} must add up to at most 1")


def _unit_hash(text: str, key: bytes) -> float:
    """Return a number in [0, 1) that only the text and the key decide."""
    digest = hashlib.blake2b(text.encode(), key=key, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _with_parts(graph: Graph, part: npt.NDArray[np.integer]) -> Graph:
    """Return the graph with train, val and test where the part is 0, 1 and 2."""
    train, val, test = (torch.from_numpy(part == number) for number in range(3))
    return graph.with_split(train, val, test)
