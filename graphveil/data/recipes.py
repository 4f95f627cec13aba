"""Splits that are generated, and the papers' ways of preparing and splitting their graphs, as frozen
recipes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.data import features
from graphveil.data.graph import Graph, check_kind
from graphveil.data.tables.labels import CLASSES_FROM_LABELS, SHARES, UNLABELED, part_bounds
from graphveil.errors import ConfigError, GraphError

# -- generated splits ----
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
    """Return the graph with train, val and test where the part is 0, 1 and 2."""
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
    """Whether a note matters where edges are protected: what is public there anyway need not be said."""
    return note not in _ABOUT_RECORDS


@dataclass(frozen=True, kw_only=True)
class ClassFilter:
    """Which classes stay: those of at least ``min_nodes`` nodes, and of these the ``largest`` most frequent.

    Nodes of other classes and unlabeled nodes are removed together with their edges.
    """

    min_nodes: int = 1
    largest: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph of the classes that stay, numbered anew in their old order."""
        counts = torch.bincount(graph.y[graph.labeled], minlength=graph.num_classes)
        by_size = counts.argsort(descending=True, stable=True)[: self.largest]
        kept = by_size[counts[by_size] >= max(self.min_nodes, 1)].sort().values
        if len(kept) < 2:
            raise GraphError(
                f"fewer than two classes of {graph.name!r} have {self.min_nodes} nodes or more; "
                "lower min_nodes, or choose a recipe without a class filter"
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
        name: the name in :data:`RECIPES`.
        shares: the shares of train and val among the nodes that are split, the rest being test; none for the
            split that the data come with.
        class_filters: by data set (``facebook100/Reed98``) or family (``facebook100``).
        unit_features: scale every feature to [0, 1].
        drop_crossing: remove the edges between the nodes of test and all others.
        public_notes: what a guarantee has to say about this recipe; goes with the graph (``Graph.notes``).
        paper_deviations: what paper mode does on top, each of which voids a guarantee; goes with the graph
            (``Graph.deviations``).
        by_id: split by a hash of the ids alone, and say that a class filter picks nodes by their labels: for
            units that protect records, whether they were randomized or not.

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
        """Return the recipe for protected records: without what is computed from all of them.

        Features stay as they are, since their range is somebody's record, and the split hashes ids, since
        who has a label is protected too. Which classes stay is read from labels all the same; a guarantee
        then says so.

        >>> RECIPES["lpgnn"].on_clients().unit_features
        False
        """
        notes = tuple(note for note in self.public_notes if note != RANGES_PUBLIC)
        paper = tuple(words for words in self.paper_deviations if words != CONSTANT_DROPPED)
        return replace(self, unit_features=False, public_notes=notes, paper_deviations=paper, by_id=True)

    @property
    def fixed_split(self) -> bool:
        """Whether the split is the data's own, so that every seed gives the same."""
        return self.shares is None

    def prepare(self, graph: Graph, *, paper: bool = False) -> Graph:
        """Return the graph as the paper uses it, before it is split.

        Args:
            paper: also do what reads protected data (see ``paper_deviations``).
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
            graph = graph.replace(x=features.unit_interval(graph.x, drop_constant=drop))
        # Marked whether or not anything was dropped: a mark that depends on the data would be an answer.
        return graph.replace(deviations=graph.deviations + self.paper_deviations) if paper else graph

    def split(self, graph: Graph, seed: int | None, *, by_id: bool = False) -> Graph:
        """Return a prepared graph with the split that the seed gives.

        Several seeds are several splits of one prepared graph: split that graph, not a graph split before.

        Args:
            graph: the prepared graph.
            seed: of the split, none for a random one.
            by_id: split all nodes by a hash of their ids, reading no label, as units that protect records
                need it (:meth:`on_clients` does); otherwise the labeled nodes are split at random, in exact
                shares.

        Raises:
            GraphError: the recipe uses the data's own split and there is none, an earlier split took edges
                away that this one may need, or ``by_id`` is asked of a recipe that scales features.
        """
        by_id = by_id or self.by_id
        if by_id and self.unit_features:
            raise GraphError(
                f"recipe {self.name!r} scales features by their range in the data, which is read from single "
                f"records; use RECIPES[{self.name!r}].on_clients(), which leaves features as they are"
            )
        if self.drop_crossing and NO_CROSSING in graph.notes:
            raise GraphError(
                f"{graph.name!r} was split by recipe {self.name!r} before, which took edges away; split the "
                "prepared graph: RECIPES[...].prepare(load_dataset(..., recipe=None))"
            )
        graph = graph.replace(notes=graph.notes + self.public_notes)
        if self.shares is None:
            graph.mask("train")
            return graph
        train, val = self.shares
        if by_id and self._class_filter(graph.name) is not None:
            graph = graph.replace(notes=(*graph.notes, MEMBERS_PUBLIC))
        graph = (hash_split if by_id else random_split)(graph, train=train, val=val, seed=seed)
        if not self.drop_crossing or graph.test_mask is None:
            return graph
        # By membership: who has a label may be protected.
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
