"""Splits of nodes, scaling of features and public edges: how published papers prepare graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import NodePairIndex
from graphveil.core.features import Features, to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.data.graph import SPLITS, Graph, check_kind
from graphveil.data.relational import Tables
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS, SHARES, UNLABELED, part_bounds
from graphveil.errors import ConfigError, GraphError

# -- generated splits ----
_EDGE_UNITS = ("undirected-edge", "directed-edge", "row", "edge-subset", "none")
_RECORD_UNITS = ("node", "node-record", "person", "node-bounded-degree", "local-attributes")


G = TypeVar("G", Graph, Tables)


def split(
    graph: G, train: float = 0.75, val: float = 0.10, *, unit: str | None = None, seed: int | None = 0
) -> G:
    """Return the graph, or tables, with a random or hash-based split into train, val and test.

    If ``unit`` protects edges or nothing, the labeled nodes are split at random in exact shares. If it
    protects node records, or is None, all nodes are split by a hash of their ids. The set of labeled nodes
    may then be secret, and the split does not depend on it.

    Args:
        graph: Graph or tables to split. An existing split is replaced.
        train, val: Shares of the training and validation nodes; the rest is test.
        unit: Privacy unit of the model.
        seed: Seed of the split, public; None for a random one.

    Returns:
        The graph with the split, and with the same edge set.

    Raises:
        ConfigError: Shares that exceed 1, or unknown unit.
        GraphError: Value that is not a graph.

    Privacy:
        Unit: ``unit``. Reads: with an edge-level unit, the set of labeled nodes; otherwise only ids. Charges:
        nothing. The split is public.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> split(graph, 0.4, 0.4, unit="undirected-edge").has_split
    True
    """
    if isinstance(graph, Tables):
        parts = split(graph.graph, train, val, unit=unit, seed=seed)
        return graph.with_split(*(parts.members(part) for part in SPLITS))
    check_kind(graph)
    if unit is not None:
        checks.one_of((*_EDGE_UNITS, *_RECORD_UNITS), unit=unit)
    make = random_split if unit in _EDGE_UNITS else hash_split
    return make(graph, train=train, val=val, seed=seed)


def random_split(graph: Graph, *, train: float, val: float, seed: int | None) -> Graph:
    """Split the labeled nodes at random, for units that protect edges or nothing.

    Args:
        graph: Graph to split. An existing split is replaced.
        train, val: Shares of the training and validation nodes, rounded down; the rest is test.
        seed: Seed of the split, public; None for a random one.

    Returns:
        The graph with the split, and with the same edge set.

    Privacy:
        Reads: the set of labeled nodes, not the labels. Charges: nothing. The split is public.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> masks = random_split(graph, train=0.4, val=0.4, seed=0)
    >>> [int(masks.labeled_in(part).sum()) for part in ("train", "val", "test")]
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
    """Split all nodes by a hash of the seed and the node id, independently of labels and other nodes.

    This is the split for units that protect node records: a node keeps its part for every value of its
    record, and missing labels are not read. The shares hold on average. Graphs without ids use row numbers.

    Args:
        graph: Graph to split. An existing split is replaced.
        train, val: Expected shares of the training and validation nodes; the rest is test.
        seed: Seed of the split, public; None for a random one.

    Returns:
        The graph with the split, and with the same edge set.

    Privacy:
        Reads: public node ids. Charges: nothing. The split is public.

    >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, -1], [0], [1], directed=False)
    >>> masks = hash_split(graph, train=0.75, val=0.1, seed=0)
    >>> bool((masks.train_mask | masks.val_mask | masks.test_mask).all())
    True
    """
    _check_shares(train, val)
    ids = np.arange(graph.num_nodes) if graph.ids is None else graph.ids
    key = PublicStreams(seed).derive("split").to_bytes(8, "little")
    hashed = (hashlib.blake2b(str(one).encode(), key=key, digest_size=8).digest() for one in ids.tolist())
    # The upper 53 bits of each hash, as a number in [0, 1) that only the id and the key decide.
    uniform = np.array([(int.from_bytes(digest, "little") >> 11) * 2.0**-53 for digest in hashed])
    return _with_parts(graph, np.searchsorted([train, train + val], uniform, side="right"))


def _check_shares(train: float, val: float) -> None:
    checks.positive(train=train)
    checks.non_negative(val=val)
    if train + val > 1:
        raise ConfigError(f"train={train} and val={val} must add up to at most 1")


def _with_parts(graph: Graph, part: npt.NDArray[np.integer]) -> Graph:
    train, val, test = (torch.from_numpy(part == number) for number in range(3))
    return graph.with_split(train, val, test)


# -- recipes of papers ----
CLASSES_PUBLIC = "classes, vocabulary and split are treated as public"
MEMBERS_PUBLIC = "the nodes of the kept classes were picked by their labels; who is among them is public"
RANGES_PUBLIC = "the range of every feature is treated as public"
NO_CROSSING = "edges between the training side and the test side are left out before anything is computed"
ISOLATED_DROPPED = "isolated nodes were dropped, so the number of nodes depends on the edges"
CONSTANT_DROPPED = "constant features were dropped, so the number of features depends on the data"
_ABOUT_RECORDS = (CLASSES_FROM_LABELS, CLASSES_PUBLIC, RANGES_PUBLIC)


def about_edges(note: str) -> bool:
    """Whether a note matters if edges are protected; it is omitted for data that are public anyway."""
    return note not in _ABOUT_RECORDS


@dataclass(frozen=True, kw_only=True)
class ClassFilter:
    """Filter that keeps classes of at least ``min_nodes`` nodes, and of these the ``largest`` most frequent.

    Nodes of other classes and unlabeled nodes are removed together with their edges.
    """

    min_nodes: int = 1
    largest: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph restricted to the classes that are kept, renumbered in their old order."""
        if graph.targets is not None:
            raise GraphError(
                "A class filter needs classes, but the graph has numeric targets. Choose a recipe "
                "without a class filter."
            )
        counts = torch.bincount(graph.y[graph.labeled], minlength=graph.num_classes)
        by_size = counts.argsort(descending=True, stable=True)[: self.largest]
        kept = by_size[counts[by_size] >= max(self.min_nodes, 1)].sort().values
        if len(kept) < 2:
            raise GraphError(
                f"Fewer than two classes of {graph.name!r} have at least {self.min_nodes} nodes. Lower "
                "min_nodes, or choose a recipe without a class filter."
            )
        number = torch.full((graph.num_classes + 1,), UNLABELED)
        number[kept] = torch.arange(len(kept))
        y = number[graph.y]  # -1 reads the spare last entry
        names = tuple(graph.class_names[old] for old in kept.tolist()) if graph.class_names else ()
        renumbered = graph.replace(y=y, num_classes=len(kept), class_names=names)
        return renumbered.subgraph(y != UNLABELED)


_GAP_CLASSES = {
    "facebook100": ClassFilter(min_nodes=1_000),
    "facebook100/Reed98": ClassFilter(),  # no class of this small school has 1,000 nodes
    "reddit": ClassFilter(min_nodes=10_000),
    "ogbn_products": ClassFilter(min_nodes=100_000),
}


@dataclass(frozen=True, kw_only=True)
class DatasetRecipe:
    """One paper's preparation and split.

    Args:
        shares: Shares of train and val among the nodes that are split, the rest being test; None for the
            split of the data.
        class_filters: Class filters by dataset (``facebook100/Reed98``) or family (``facebook100``).
        unit_features: Whether to scale every feature to [0, 1].
        drop_crossing: Whether to remove the edges between test nodes and all others.
        public_notes: Notes that a guarantee includes about this recipe; stored in ``Graph.notes``.
        paper_deviations: Additional steps of paper mode, each of which makes a guarantee invalid; stored in
            ``Graph.deviations``.
        by_id: Whether to split by a hash of the ids alone, and to note that a class filter selects nodes by
            label. For units that protect node records, randomized or not.

    >>> RECIPES["gap"].shares
    (0.75, 0.1)
    """

    name: str
    shares: tuple[float, float] | None
    class_filters: Mapping[str, ClassFilter] = field(default_factory=dict)
    unit_features: bool = False
    drop_crossing: bool = False
    public_notes: tuple[str, ...] = ()
    paper_deviations: tuple[str, ...] = ()
    by_id: bool = False

    def on_clients(self) -> DatasetRecipe:
        """Return the recipe for protected node records, without steps that read all records.

        Features are not scaled, since their range depends on single records. The split hashes ids, since
        missing labels are protected. The class filter still reads labels, which a guarantee then notes.

        >>> RECIPES["lpgnn"].on_clients().unit_features
        False
        """
        notes = tuple(note for note in self.public_notes if note != RANGES_PUBLIC)
        paper = tuple(words for words in self.paper_deviations if words != CONSTANT_DROPPED)
        return replace(self, unit_features=False, public_notes=notes, paper_deviations=paper, by_id=True)

    @property
    def fixed_split(self) -> bool:
        """Whether the dataset defines the split, so that it is the same for every seed."""
        return self.shares is None

    def prepare(self, graph: Graph, *, paper: bool = False) -> Graph:
        """Return the graph as the paper uses it, before it is split.

        Args:
            graph: Graph to prepare. Its name selects the class filter.
            paper: Whether to apply the steps that read protected data, too (``paper_deviations``).

        Privacy:
            Reads: labels for a class filter, the range of features if they are scaled, and edges in paper
            mode. Charges: nothing. ``Graph.notes`` and ``Graph.deviations`` record these steps.
        """
        chosen = self._class_filter(graph.name)
        if chosen is not None:
            graph = chosen(graph)
        if paper and ISOLATED_DROPPED in self.paper_deviations:
            connected = graph.adjacency.indptr.diff() > 0
            if graph.directed:
                connected[graph.adjacency.indices.long()] = True
            graph = graph.subgraph(connected)
        if self.unit_features:
            drop = paper and CONSTANT_DROPPED in self.paper_deviations
            graph = graph.replace(x=unit_interval(graph.x, drop_constant=drop))
        # Recorded also if nothing was dropped: a record that depends on the data would reveal something.
        return graph.replace(deviations=graph.deviations + self.paper_deviations) if paper else graph

    def split(self, graph: Graph, seed: int | None) -> Graph:
        """Return a prepared graph with the split that the seed defines.

        For several splits pass the same prepared graph with several seeds, not a graph that is already split.

        With ``by_id`` (``on_clients``) all nodes are split by a hash of their ids, without reading labels, as
        units that protect node records require. Otherwise the labeled nodes are split at random, in exact
        shares.

        Args:
            seed: Seed of the split, None for a random one.

        Privacy:
            Reads: the set of labeled nodes; with ``by_id`` only ids. Charges: nothing. The split is public.
        """
        if self.drop_crossing and NO_CROSSING in graph.notes:
            raise GraphError(
                f"{graph.name!r} was already split by recipe {self.name!r}, which removed edges. Prepare "
                "the original graph instead: RECIPES[...].prepare(load_dataset(..., recipe=None))."
            )
        graph = graph.replace(notes=graph.notes + self.public_notes)
        if self.shares is None:
            graph.labeled_in("train")
            return graph
        train, val = self.shares
        if self.by_id and self._class_filter(graph.name) is not None:
            graph = graph.replace(notes=(*graph.notes, MEMBERS_PUBLIC))
        graph = (hash_split if self.by_id else random_split)(graph, train=train, val=val, seed=seed)
        if not self.drop_crossing or graph.test_mask is None:
            return graph
        # By membership, because missing labels may be protected.
        side = graph.test_mask
        public = None if graph.public is None else graph.public.without_crossing(side)
        return graph.replace(adjacency=graph.adjacency.without_crossing(side), public=public)

    def _class_filter(self, name: str) -> ClassFilter | None:
        family = name.partition("/")[0]
        return self.class_filters.get(name, self.class_filters.get(family))


RECIPES: Mapping[str, DatasetRecipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            DatasetRecipe(
                name="gap",
                shares=SHARES,
                class_filters=MappingProxyType(_GAP_CLASSES),
                public_notes=(CLASSES_PUBLIC,),
                paper_deviations=(ISOLATED_DROPPED,),
            ),
            DatasetRecipe(
                name="lpgnn",
                shares=(0.50, 0.25),
                class_filters=MappingProxyType({"lastfm_asia": ClassFilter(largest=10)}),
                unit_features=True,
                public_notes=(CLASSES_PUBLIC, RANGES_PUBLIC),
                paper_deviations=(CONSTANT_DROPPED,),
            ),
            DatasetRecipe(
                name="weighted",
                shares=(0.72, 0.08),  # 80 for training, a tenth of which is kept for validation
                class_filters=MappingProxyType(_GAP_CLASSES),
                drop_crossing=True,
                public_notes=(CLASSES_PUBLIC, NO_CROSSING),
            ),
            DatasetRecipe(name="planetoid", shares=None, public_notes=(CLASSES_PUBLIC,)),
        )
    }
)


# -- ranges of features ----


def columns_beyond(x: Features, limit: float) -> list[int]:
    """Return the columns in which the absolute value of some entry exceeds a limit.

    >>> columns_beyond(torch.tensor([[1.0, -3.0], [2.0, 0.0]]), 2.0)
    [1]
    """
    values = x if isinstance(x, Tensor) else torch.from_numpy(x.data)
    if not values.numel() or max(map(abs, torch.aminmax(values))) <= limit:
        return []
    low, high = _column_range(x)
    return np.flatnonzero((low < -limit) | (high > limit)).tolist()


def unit_interval(x: Features, *, drop_constant: bool = False) -> Features:
    """Return the features with every column shifted and scaled to [0, 1]; constant columns become 0.

    Args:
        drop_constant: Whether to leave out constant columns. The number of columns then depends on the data.

    >>> unit_interval(torch.tensor([[2.0, 7.0], [4.0, 7.0], [3.0, 7.0]]))
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0000],
            [0.5000, 0.0000]])
    """
    low, high = _column_range(x)
    width = high - low
    scale = np.divide(1, width, out=np.zeros_like(width), where=width > 0)
    if isinstance(x, Tensor) or low.any():  # a shift would fill the zeros of a sparse matrix
        scaled: Features = (to_dense(x) - torch.from_numpy(low)) * torch.from_numpy(scale)
    else:
        scaled = sparse.csr_array((x.data * scale[x.indices], x.indices, x.indptr), shape=x.shape)
    if not drop_constant:
        return scaled
    keep = width > 0
    if isinstance(scaled, Tensor):
        return scaled[:, torch.from_numpy(keep)]
    return scaled[:, np.flatnonzero(keep)]


def _column_range(x: Features) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the minimum and maximum of every column, including zeros that are not stored."""
    if isinstance(x, Tensor):
        return x.amin(dim=0).numpy(), x.amax(dim=0).numpy()
    columns: Any = x.tocsc()
    return columns.min(axis=0).toarray().ravel(), columns.max(axis=0).toarray().ravel()


# -- public edges of experiments ----


def sample_public_edges(graph: Graph | Adjacency, private_fraction: float, *, seed: int) -> Adjacency:
    """Sample the public edges: each edge is independently private with the same probability.

    For experiments only: it reads the edges without privacy, and the result is treated as public.

    Args:
        graph: Undirected graph, or its edges.
        private_fraction: rho, in [0, 1].
        seed: Seed of the draw.

    Privacy:
        Reads: the edges, exactly. Charges: nothing. There is no guarantee for the edges in the result, which
        is treated as public.

    >>> ring = Adjacency.from_edges(range(6), [1, 2, 3, 4, 5, 0], num_nodes=6, directed=False)
    >>> sample_public_edges(ring, 0.5, seed=2).num_nodes
    6
    """
    checks.within(0, 1, private_fraction=private_fraction)
    adjacency = graph.adjacency if isinstance(graph, Graph) else graph
    source, target = _pairs(adjacency)
    private = PublicStreams(seed).numpy("private edges").random(len(source)) < private_fraction
    return _undirected(source[~private], target[~private], adjacency.num_nodes)


def public_edges_outside(graph: Graph | Adjacency, members: Tensor) -> Adjacency:
    """Return the edges that are not between two members; those between members are private.

    For experiments only: it reads the edges without privacy. Members may have private edges.

    Privacy:
        Reads: the edges, exactly. Charges: nothing. There is no guarantee for the edges in the result, which
        is treated as public.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> public_edges_outside(path, torch.tensor([True, True, False])).edge_index()
    tensor([[2, 1],
            [1, 2]])
    """
    adjacency = graph.adjacency if isinstance(graph, Graph) else graph
    if members.dtype != torch.bool or members.shape != (adjacency.num_nodes,):
        raise GraphError(
            f"members must be a bool array of shape ({adjacency.num_nodes},), one entry per node"
        )
    source, target = _pairs(adjacency)
    inside = members.numpy()[source] & members.numpy()[target]
    return _undirected(source[~inside], target[~inside], adjacency.num_nodes)


def _pairs(adjacency: Adjacency) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
    """Return each undirected edge once, in the order of node pairs."""
    if adjacency.directed:
        raise GraphError(
            "A graph with public and private edges must be undirected. Build it with directed=False."
        )
    source, target = (part.numpy() for part in adjacency.edge_index())
    once = source < target
    order = np.argsort(NodePairIndex(adjacency.num_nodes, directed=False).number(source[once], target[once]))
    return source[once][order], target[once][order]


def _undirected(source: object, target: object, num_nodes: int) -> Adjacency:
    return Adjacency.from_edges(np.asarray(source), np.asarray(target), num_nodes=num_nodes, directed=False)
