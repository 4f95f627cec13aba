"""The graph container: features, labels, split and in-edges. It contains no privacy logic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphveil._util.checks import plain
from graphveil.core import features
from graphveil.core.backends import AggregationBackend, backend_for
from graphveil.core.edges.adjacency import (
    Adjacency,
    AdjacencyVersion,
    EdgeSet,
    GrowthStep,
    Ids,
    grow_adjacency,
)
from graphveil.core.edges.node_pairs import PublicPart
from graphveil.core.features import Features, ProtectedRows
from graphveil.core.view import cache_key
from graphveil.data.conversion import (
    NODE,
    PYG_NOTES,
    SOURCE,
    TARGET,
    WEIGHT,
    as_label_sets,
    as_labels,
    as_mask,
    as_targets,
    fields_from_pyg,
    fields_from_tables,
    load_pyg,
    named_labels,
    networkx_tables,
)
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS, CONSTANT_FEATURE, UNLABELED, Encoding
from graphveil.data.tables.files import FrameSource
from graphveil.data.tables.inspect_tables import inspect_tables
from graphveil.data.tables.options import TableOptions, names
from graphveil.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
MAX_CLASSES = 1 << 14

NO_FOLDS = (
    "GridSearchCV and cross_val_score fit once per fold and setting, and each fit is a new release of the "
    "same edges. Use gv.sweep, which prints the total privacy cost first, or tune on the validation nodes "
    "of one fit."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Graph:
    """One graph whose nodes have features and, if known, one label each.

    Symbols: N nodes, d features, C classes.

    Args:
        x: Features (N, d), a float32 tensor or a sparse float32 ``csr_array``; other matrices are converted.
        y: Labels int64 (N), classes 0 to C - 1, or -1 for missing. All may be missing for prediction.
        adjacency: In-edges of all nodes.
        num_classes: Number of classes C, from 2 to 16,384.
        train_mask, val_mask, test_mask: Masks of the split, bool (N) each, disjoint; all three or none.
            Members may have no label: ``labeled_in`` leaves these out.
        name: Name of the graph in tables and reports.
        ids: Node ids of the caller (N), in node order.
        class_names: Label of the caller for each class, in class order.
        notes: Notes on data preparation that every guarantee includes.
        deviations: Preparation steps that read protected data; each makes a guarantee invalid.
        public: Public edges and nodes that may have private edges, for unit ``"edge-subset"``.
        encoding: Encoding of the node table as features, if there is a table.
        label_sets: Multi-label targets, bool (N, L), for models with ``multi_label``. All other models learn
            ``y``, which also defines the set of labeled nodes.
        targets: Numbers to predict, float64 (N), NaN for missing, for models with ``task="regression"``. The
            graph then has no classes: ``num_classes`` is 1, and ``y`` is 0 where there is a number and -1
            elsewhere.

    Raises:
        GraphError: Shapes that do not match, features that are not finite, labels or C out of range, or no
            nodes.

    Privacy:
        The graph holds protected data and has no privacy logic. Its ``repr`` shows public sizes only. The
        budget belongs to its edge set, which derived graphs share.

    >>> graph = Graph.from_edges(torch.eye(3), [0, 1, 1], [0, 1], [1, 2], directed=False)
    >>> graph
    Graph('graph', nodes=3, features=3, classes=2, directed=False, split=False)
    """

    x: Features
    y: Tensor
    adjacency: Adjacency
    num_classes: int
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None
    name: str = "graph"
    ids: npt.NDArray[Any] | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    public: PublicPart | None = None
    encoding: Encoding | None = None
    label_sets: Tensor | None = None
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        names: Any = self.class_names
        if isinstance(names, str) or not isinstance(names, Iterable) or getattr(names, "ndim", 1) != 1:
            raise GraphError("class_names must be a list with one name per class.")
        self._set(
            x=features.as_features(self.x),
            y=as_labels(self.y),
            class_names=tuple(names),
            num_classes=plain(self.num_classes),
            notes=tuple(dict.fromkeys(self.notes)),
            deviations=tuple(dict.fromkeys(self.deviations)),
            **{name: as_mask(mask) for name, mask in self.masks.items()},
        )
        if self.targets is not None:
            self._set_targets(as_targets(self.targets))
        if self.label_sets is not None:
            self._set(label_sets=as_label_sets(self.label_sets, self.num_nodes))
        stored = self.adjacency.num_nodes - self.num_far_ends
        if self.x.shape[0] != self.num_nodes or stored != self.num_nodes:
            raise GraphError(
                f"Features have {self.x.shape[0]} rows, labels {self.num_nodes} and the adjacency "
                f"{stored} nodes. All three need one row per node."
            )
        if self.num_features < 1:
            raise GraphError(
                "The nodes have no features. Add at least one column, for example x=torch.ones(num_nodes, 1)."
            )
        if self.public is not None:
            self.public.check_nodes(self.num_nodes)
        if self.ids is not None and np.ndim(self.ids) != 1:
            raise GraphError("ids must be a list with one id per node.")
        if self.ids is not None and len(self.ids) != self.num_nodes:
            raise GraphError(
                f"{len(self.ids)} ids were given for {self.num_nodes} nodes. Pass one id per node, or no ids."
            )
        self._check_classes()
        self._check_split(list(self.masks.values()))

    def __repr__(self) -> str:
        """Show public sizes only, never an edge count."""
        predicted = f"classes={self.num_classes}" if self.targets is None else "targets=True"
        return (
            f"Graph({self.name!r}, nodes={self.num_nodes}, features={self.num_features}, "
            f"{predicted}, directed={self.directed}, split={self.has_split})"
        )

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error on conversion to an array, which cross-validation would attempt first."""
        raise GraphError(f"A graph cannot be split into folds. {NO_FOLDS}")

    @property
    def num_nodes(self) -> int:
        """The number of nodes N."""
        return len(self.y)

    @property
    def num_far_ends(self) -> int:
        """The number of nodes that edges are stored for and that are not nodes of the graph."""
        return 0

    @property
    def num_features(self) -> int:
        """The number of features d."""
        return int(self.x.shape[1])

    @property
    def has_dense_features(self) -> bool:
        """Whether features are stored as a tensor, and not as a sparse matrix. It is public."""
        return self.x.is_dense if isinstance(self.x, ProtectedRows) else isinstance(self.x, Tensor)

    @property
    def directed(self) -> bool:
        """Whether an edge u -> v does not imply v -> u."""
        return self.adjacency.directed

    @property
    def edge_set(self) -> EdgeSet:
        """The identity of the edges, shared by every graph derived from this one."""
        return self.adjacency.edge_set

    def check_backend(self, backend: AggregationBackend | str | None) -> None:
        """Check that an aggregation backend can read the edges, before budget is spent on them.

        Args:
            backend: Backend, its name, or None for the default one.

        Raises:
            ConfigError: No backend has this name, or it cannot read these edges.
            GraphError: The edges are mapped from files that have changed.
        """
        backend_for(backend, self.adjacency)

    @property
    def labeled(self) -> Tensor:
        """The nodes that have a label, bool (N).

        Privacy:
            Reads: which nodes have a label. Node-level units protect this. Charges: nothing. The result is
            private under these units.
        """
        return self.y != UNLABELED

    @property
    def has_split(self) -> bool:
        """Whether the graph has train, val and test masks."""
        return self.train_mask is not None

    @property
    def masks(self) -> dict[str, Tensor]:
        """The masks of the split by the names of their fields; empty if there is no split.

        Privacy:
            Reads: the split, which is public. Charges: nothing.
        """
        given = {f"{part}_mask": getattr(self, f"{part}_mask") for part in SPLITS}
        return {name: mask for name, mask in given.items() if mask is not None}

    def labeled_in(self, *splits: str) -> Tensor:
        """Return the nodes of some parts of the split that have a label, bool (N).

        Args:
            splits: Any of ``"train"``, ``"val"`` and ``"test"``.

        Returns:
            The mask of the labeled members.

        Raises:
            GraphError: Graph without a split, or unknown part.

        Privacy:
            Reads: the set of labeled nodes, which units of node records protect. Charges: nothing.

        >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0], [1], directed=False)
        >>> train, val, test = torch.eye(4, dtype=torch.bool)[:3]
        >>> graph.with_split(train, val, test).labeled_in("val", "test")
        tensor([False,  True,  True, False])
        """
        return torch.stack([self.members(split) for split in splits]).any(dim=0) & self.labeled

    def mask(self, split: str) -> Tensor:
        """Return the nodes of one part of the split that have a label, as ``labeled_in(split)``, bool (N).

        Args:
            split: ``"train"``, ``"val"`` or ``"test"``.

        Privacy:
            Reads and charges: as ``labeled_in``.

        >>> graph = Graph.from_edges(torch.eye(3), torch.tensor([0, 1, 0]), [0], [1], directed=False)
        >>> train, val, test = torch.eye(3, dtype=torch.bool)
        >>> graph.replace(train_mask=train, val_mask=val, test_mask=test).mask("test").tolist()
        [False, False, True]
        """
        return self.labeled_in(split)

    def members(self, split: str) -> Tensor:
        """Return the nodes of one part of the split, with or without a label, bool (N).

        Args:
            split: ``"train"``, ``"val"`` or ``"test"``.

        Returns:
            The mask of the members.

        Raises:
            GraphError: Graph without a split, or unknown part.

        Privacy:
            Reads: the split, which is public. Charges: nothing.
        """
        if split not in SPLITS:
            raise GraphError(f"split={split!r} is not one of {', '.join(SPLITS)}")
        members: Tensor | None = getattr(self, f"{split}_mask")
        if members is None:
            raise GraphError(
                f"Graph {self.name!r} has no split. Call gv.split(graph, unit='undirected-edge') with "
                "your privacy unit, or graph.with_split(train, val, test)."
            )
        return members

    def in_class(self, name: str) -> Tensor:
        """Return the nodes with a label, bool (N), by its name, or by its number if labels have no names.

        Args:
            name: Name of a class. No node has an unknown one.

        Privacy:
            Reads: labels, which node-level units protect. Charges: nothing.
        """
        names = self.class_names or tuple(map(str, range(self.num_classes)))
        return self.y == (names.index(name) if name in names else self.num_classes)

    def edge_index(self) -> Tensor:
        """Return all stored edges, int64 (2, E): sources and targets, ordered by target.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private, unless a mechanism has
            released the edges.
        """
        return self.adjacency.edge_index()

    def edge_weights(self) -> Tensor | None:
        """Return the weights of all stored edges, float32 (E), in the order of ``edge_index``, or None.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private, unless a mechanism has
            released the edges.
        """
        return self.adjacency.weights

    @property
    def version(self) -> AdjacencyVersion:
        """The identity of this version of the in-edges, by which graphs are compared; it contains no edge."""
        return self.adjacency.version

    def features_digest(self, first: int | None = None) -> str:
        """Return the digest of the features of all nodes, or of the first ones, to recognize a graph.

        Privacy:
            Reads: features. Charges: nothing. The result is private, and never stored or sent.
        """
        return cache_key(self.x if first is None else features.rows(self.x, torch.arange(first)))

    def map_features(self, function: Callable[[Features], Features], **changes: Any) -> Graph:
        """Return the graph with a function of its features, and other changed fields.

        Args:
            function: Returns new features (N, d).
            changes: New values of other fields, as for ``replace``.

        Returns:
            The graph; the same object if nothing changes.

        Privacy:
            Reads: features. Charges: nothing. The result is as private as the graph.
        """
        x = function(self.x)
        return self if x is self.x and not changes else self.replace(x=x, **changes)

    def replace(self, **changes: Any) -> Graph:
        """Return a copy with some fields changed, checked like a new graph.

        Args:
            changes: New values of fields.

        Returns:
            The graph, with the same edge set unless ``adjacency`` has another one.

        Raises:
            GraphError: Invalid field, as for a new graph.

        Privacy:
            Reads: the graph, exactly. Charges: nothing. The result is as private as the graph and the new
            fields. With the same edge set, both share one budget; another ``adjacency`` brings its own.
        """
        return dataclasses.replace(self, **changes)

    def with_split(self, train: Tensor, val: Tensor, test: Tensor) -> Graph:
        """Return the graph with another split.

        Args:
            train, val, test: Disjoint masks, bool (N).

        Returns:
            The graph, with the same edge set.

        Raises:
            GraphError: Masks that overlap, or of another type or length.

        Privacy:
            Reads: the masks, which are treated as public. Charges: nothing. The result is as private as the
            graph.
        """
        return self.replace(train_mask=train, val_mask=val, test_mask=test)

    def with_public(self, edges: Adjacency, private_nodes: Tensor) -> Graph:
        """Return the graph with public edges, for unit ``edge-subset``.

        Args:
            edges: Public edges, undirected, over the same nodes.
            private_nodes: Nodes that may have private edges, bool (N), or their numbers.

        Returns:
            The graph, with the same edge set.

        Raises:
            GraphError: List that does not match the nodes, or directed edges.

        Privacy:
            Unit: ``edge-subset``. Charges: nothing. The public edges and the list of nodes are not protected,
            and you assert that both are public: neither may be computed from private edges. The result is as
            private as the graph.

        >>> path = Graph.from_edges(torch.eye(3), [0, 1, 1], [0, 1], [1, 2], directed=False)
        >>> one = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
        >>> path.with_public(one, torch.ones(3, dtype=torch.bool)).public
        PublicPart(edges=1, private_nodes=3)
        """
        return self.replace(public=PublicPart(edges, private_nodes))

    def subgraph(self, keep: Tensor) -> Graph:
        """Return the subgraph of the kept nodes, with the same class numbers.

        Args:
            keep: Mask of the kept nodes, bool (N).

        Returns:
            The subgraph, with the same edge set, and therefore the same budget.

        Raises:
            GraphError: Mask of another type or length.

        Privacy:
            Reads: features, labels and edges, exactly. Charges: nothing. The result is private. The mask is
            treated as public, so it must not be computed from protected data, such as degrees.

        >>> graph = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 2], [1, 3], directed=False)
        >>> graph.subgraph(torch.tensor([True, True, False, False])).num_nodes
        2
        """
        keep = as_mask(keep)
        adjacency = self.adjacency.subgraph(keep)
        public = None if self.public is None else self.public.subgraph(keep)
        return self.replace(adjacency=adjacency, public=public, **self._node_fields(keep))

    def _node_fields(self, keep: Tensor) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in ("y", "label_sets", "targets")} | self.masks
        rows = {name: None if value is None else value[keep] for name, value in given.items()}
        ids = None if self.ids is None else self.ids[keep.numpy()]
        return {"x": features.rows(self.x, keep), "ids": ids, **rows}

    def grow(
        self,
        x: object,
        y: object,
        source: Ids,
        target: Ids,
        *,
        ids: npt.NDArray[Any] | None = None,
        edge_set: EdgeSet | None = None,
        weight: object = None,
    ) -> Graph:
        """Return the graph with new nodes and their edges appended.

        A model that was fitted on this graph, or has predicted it, predicts the grown graph by querying the
        new edges alone. The set of new edges must follow from public facts, such as ids or times of arrival.
        Each new edge has an end among the new nodes.

        Args:
            x: Features of the new nodes, one row each.
            y: Labels of the new nodes, -1 for missing; None for no labels. Of a graph with ``targets``: the
                new numbers, NaN for missing.
            source, target: New edges; new nodes are numbered from N on.
            ids: Ids of the new nodes, if the graph has ids.
            edge_set: Identity of the new edges, a new one by default. Pass that of other edges if these are
                among them.
            weight: Weights of the new edges, if the edges are weighted.

        Returns:
            The grown graph. Its edge set is the union of the old one and that of the new edges. New nodes are
            in no part of the split.

        Raises:
            GraphError: Edge between two existing nodes, or shapes, labels or ids that do not match.

        Privacy:
            Reads: the new edges, exactly. Charges: nothing. Each part of the edge set keeps its own budget.

        >>> graph = Graph.from_edges(torch.eye(3), [0, 1, 1], [0, 1], [1, 2], directed=False)
        >>> grown = graph.grow([[0.0, 1.0, 1.0]], [0], [3, 3], [0, 2])
        >>> grown, grown.edge_set.parts[0] is graph.edge_set
        (Graph('graph', nodes=4, features=3, classes=2, directed=False, split=False), True)
        """
        if self.public is not None:
            raise GraphError(
                "A graph with public and private edges cannot grow, because its public list of nodes "
                "with private edges would have to grow as well. Build a new graph with the complete list."
            )
        if self.label_sets is not None:
            raise GraphError(
                "A graph with label sets cannot grow. Build a new graph with the label sets of all nodes."
            )
        if x is None:
            raise GraphError(
                "New nodes need features: one row per node, with the same columns as the graph. Got x=None."
            )
        more = features.as_features(x)
        if more.shape[1] != self.num_features:
            raise GraphError(
                f"The new nodes have {more.shape[1]} features, but the graph has {self.num_features}. "
                "Give the new nodes the same columns."
            )
        count, total = more.shape[0], self.num_nodes + more.shape[0]
        targets = None
        if self.targets is not None:
            new = torch.full((count,), torch.nan, dtype=torch.float64) if y is None else as_targets(y)
            targets, y = torch.cat([self.targets, new]), new.isnan().long().neg()
        labels = torch.full((count,), UNLABELED) if y is None else as_labels(y)
        adjacency = grow_adjacency(self.adjacency, source, target, total, edge_set, weight)
        if not count:
            return self  # no edge can have been added, so there is nothing to query
        if len(labels) != count:
            raise GraphError(
                f"{len(labels)} labels were given for {count} new nodes. Pass one label per node, or None "
                "for no labels."
            )
        return self.replace(
            x=features.stacked(self.x, more),
            y=torch.cat([self.y, labels]),
            targets=targets,
            adjacency=adjacency,
            ids=_joined_ids(self.ids, ids, count),
            **{name: pad(mask, (0, count), value=False) for name, mask in self.masks.items()},
        )

    @classmethod
    def from_edges(
        cls,
        x: object,
        y: object,
        source: Ids,
        target: Ids,
        *,
        directed: bool,
        num_classes: int | None = None,
        edge_set: EdgeSet | None = None,
        weight: object = None,
        max_weight: float | None = None,
        **fields: Any,
    ) -> Graph:
        """Build a graph from features, labels and a list of edges ``source[i] -> target[i]``.

        Self-loops are dropped and duplicates are merged.

        Args:
            x: Features (N, d). With None every node has one constant feature, 1, and accuracy comes from the
                edges only.
            y: Labels (N), -1 for missing; or text, with None for missing. The classes of text are the sorted
                labels that occur. None if ``targets`` are given.
            source, target: Node ids 0 to N - 1, of equal length.
            directed: Whether ``u -> v`` does not imply ``v -> u``.
            num_classes: Number of classes; the largest label plus one by default, which the notes record.
            edge_set: Identity of the edges; a new one by default.
            weight: Weight of at least 0 for each edge, if the edges are weighted.
            max_weight: Public bound to which larger weights are clipped.
            fields: Further fields of ``Graph``.

        Returns:
            The graph.

        Raises:
            GraphError: Invalid features, labels, edges or weights.

        Privacy:
            Reads: the edges and records, exactly. Charges: nothing. The result is private.

        >>> Graph.from_edges(torch.eye(3), ["b", None, "a"], [0], [1], directed=False).class_names
        ('a', 'b')
        """
        if fields.get("targets") is not None:
            targets = fields["targets"] = as_targets(fields["targets"])
            y, num_classes = (targets.isnan().long().neg() if y is None else y), 1
        named = named_labels(y)
        if named is not None:
            y, fields["class_names"] = named
            num_classes = len(fields["class_names"])
            fields["notes"] = (*fields.get("notes", ()), CLASSES_FROM_LABELS)
        y = as_labels(y)
        if x is None:
            x, fields["encoding"] = torch.ones(len(y), 1), Encoding(rules=(CONSTANT_FEATURE,))
        weights: dict[str, Any] = {"weight": weight, "max_weight": max_weight}
        adjacency = Adjacency.from_edges(
            source, target, num_nodes=len(y), directed=directed, edge_set=edge_set, **weights
        )
        if num_classes is None:
            num_classes = int(y.max()) + 1
            fields["notes"] = (*fields.get("notes", ()), CLASSES_FROM_LABELS)
        return cls(x=features.as_features(x), y=y, adjacency=adjacency, num_classes=num_classes, **fields)

    @classmethod
    def from_frames(
        cls,
        nodes: Any,
        edges: Any,
        *,
        id: str,
        source: str,
        target: str,
        name: str = "frames",
        **options: Any,
    ) -> Graph:
        """Build a graph from a node table and an edge table: pandas, polars, Arrow or similar frames.

        Each call creates a new edge set with a new budget, so keep the graph.

        Args:
            nodes, edges: Frames, or mappings of columns.
            id, source, target: Columns of the ids and of the two ends of edges.
            name: Name of the graph.
            options: Further options of ``read_graph``, such as ``label`` and ``features``.

        Returns:
            The graph, with nodes in the order of the frame.

        Raises:
            ConfigError: Argument of another type.
            GraphError: Invalid tables. One ``errors.TableError`` lists all their validation errors.

        Privacy:
            Reads: the edges and records, exactly. Charges: nothing. The result is private.

        >>> people = {"user": ["u", "v", "w"], "team": ["red", "blue", None], "age": [31, 45, 28]}
        >>> knows = {"a": ["u"], "b": ["v"]}
        >>> Graph.from_frames(people, knows, id="user", label="team", source="a", target="b")
        Graph('frames', nodes=3, features=1, classes=2, directed=False, split=False)
        """
        ends = {"id": id, "source": source, "target": target}
        read = TableOptions.from_keywords("from_frames", ends | options)
        read.require_labels()
        read.check_roles()
        if not isinstance(name, str):
            raise GraphError(f"name= must be of type str, not {type(name).__name__}")
        found = inspect_tables(
            FrameSource.from_frame(nodes, "nodes"), FrameSource.from_frame(edges, "edges"), read
        )
        found.raise_problems()
        fields = fields_from_tables(found, classes_given=read.classes is not None)
        return cls.from_edges(directed=read.directed, max_weight=read.max_weight, name=name, **fields)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        label: str | None = None,
        split: str | None = None,
        weight: str | None = None,
        max_weight: float | None = None,
        name: str = "networkx",
        **columns: Any,
    ) -> Graph:
        """Build a graph from a networkx graph, whose node attributes become features.

        Parallel edges count once, and self-loops are dropped.

        Args:
            graph: Graph of networkx, directed or not.
            label, split: Attributes of nodes.
            weight: Attribute of edges, 1 where it is missing. Weights that are not used are rejected, unless
                ``drop`` names them.
            max_weight: Public bound to which larger weights are clipped.
            name: Name of the graph.
            columns: Arguments ``features``, ``drop``, ``categories``, ``missing``, ``classes`` and ``task``
                of ``read_graph``.

        Returns:
            The graph, with nodes in the order of networkx.

        Raises:
            GraphError: Value of another type, ids that are neither all integers nor all text, or invalid
                attributes.

        Privacy:
            Reads: the edges and records, exactly. Charges: nothing. The result is private.

        >>> import networkx
        >>> path = networkx.path_graph(3)
        >>> networkx.set_node_attributes(path, {0: "a", 1: "b"}, "team")
        >>> networkx.set_node_attributes(path, {0: 1.5, 1: 2.5, 2: 0.5}, "age")
        >>> Graph.from_networkx(path, label="team")
        Graph('networkx', nodes=3, features=1, classes=2, directed=False, split=False)
        """
        dropped = names(columns.get("drop", ()), "drop")
        nodes, edges = networkx_tables(graph, weight, dropped)
        columns |= {"drop": [name for name in dropped if name in nodes], "label": label, "split": split}
        columns |= {"weight": None if weight is None else WEIGHT, "max_weight": max_weight, "name": name}
        columns |= {"id": NODE, "source": SOURCE, "target": TARGET, "directed": graph.is_directed()}
        return cls.from_frames(nodes, edges, **columns)

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        *,
        directed: bool = False,
        max_weight: float | None = None,
        split: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Graph:
        """Build a graph from a torch_geometric ``Data``: ``x``, ``y``, ``edge_index`` or ``adj_t``, masks.

        Labels that are NaN are missing. Without ``x`` every node has one constant feature, 1. Graphs of one
        edge tensor share their edge set, and therefore their budget. The edges are never tested for symmetry,
        because one edge would change the result.

        Args:
            data: Graph. Its masks and weights may also be NumPy arrays or lists.
            directed: Whether edges count as they are stored; otherwise each counts for both directions.
            max_weight: Public bound of ``edge_weight``. Weights without it and ``edge_attr`` are rejected,
                because they would be ignored.
            split: Node indices by ``train``, ``valid`` (or ``val``) and ``test``, as of
                ``dataset.get_idx_split()``. By default the masks, which are bool or indices of nodes.
            fields: Further fields of ``Graph``.

        Returns:
            The graph.

        Raises:
            GraphError: Missing or invalid part, or several types of nodes or edges.

        Privacy:
            Reads: the edges and records, exactly. Charges: nothing. The result is private.

        >>> data = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False).to_pyg()
        >>> Graph.from_pyg(data)
        Graph('graph', nodes=2, features=2, classes=2, directed=False, split=False)
        """
        read = fields_from_pyg(data, split, max_weight)
        return cls.from_edges(directed=directed, **(read | fields))

    def to_pyg(self) -> Data:
        """Return the graph as a torch_geometric ``Data``: dense ``x``, ``y``, ``edge_index`` and the masks.

        Returns:
            The data, with ``edge_weight`` if the edges have weights.

        Raises:
            MissingDependencyError: torch_geometric that is not installed.

        Privacy:
            Reads: the edges and records, exactly. Charges: nothing. The result is private.

        >>> graph = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
        >>> graph.to_pyg().edge_index
        tensor([[1, 0],
                [0, 1]])
        """
        edges = {"edge_index": self.adjacency.edge_index()}
        if self.adjacency.weights is not None and self.adjacency.max_weight is not None:
            edges["edge_weight"] = self.adjacency.weights * self.adjacency.max_weight
        notes = {there: list(found) for here, there in PYG_NOTES.items() if (found := getattr(self, here))}
        x = features.to_dense(self.x)
        y = self.y if self.targets is None else self.targets.float()
        data: Data = load_pyg("data").Data(x=x, y=y, **edges, **self.masks, **notes)
        return data

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _check_split(self, masks: list[Tensor]) -> None:
        if not masks:
            return
        if len(masks) < len(SPLITS):
            raise GraphError(
                "A split needs train_mask, val_mask and test_mask. Set all entries of an empty part to False."
            )
        for mask in masks:
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (self.num_nodes,):
                raise GraphError(
                    f"Split masks must be bool arrays of shape ({self.num_nodes},), with one entry per node."
                )
        if bool((torch.stack(masks).sum(dim=0) > 1).any()):
            raise GraphError(
                "A node is in two parts of the split. The masks of train, val and test must not overlap."
            )

    def _set_targets(self, targets: Tensor) -> None:
        """Store the targets of a regression graph; a node without a label has no target."""
        if len(targets) != self.num_nodes:
            raise GraphError(
                f"{len(targets)} targets were given for {self.num_nodes} nodes. Pass one target per node."
            )
        missing = targets.isnan() | (self.y == UNLABELED)
        targets = targets.masked_fill(missing, torch.nan)
        self._set(targets=targets, y=missing.long().neg(), num_classes=1, class_names=())

    def _check_classes(self) -> None:
        if isinstance(self.num_classes, bool) or not isinstance(self.num_classes, int):
            raise GraphError(f"num_classes must be a whole number, not a {type(self.num_classes).__name__}")
        # Labels first: a wrong one may be what num_classes was counted from.
        if int(self.y.min()) < UNLABELED or int(self.y.max()) >= self.num_classes:
            raise GraphError(
                f"Labels must be class numbers from 0 to num_classes - 1 = {self.num_classes - 1}, or -1 "
                "for nodes without a label."
            )
        if self.num_classes > MAX_CLASSES:
            raise GraphError(
                f"There are more than {MAX_CLASSES:,} classes, and a model has one output per class. "
                "Number the classes from 0, without gaps."
            )
        if self.num_classes < 2 and self.targets is None:
            raise GraphError(
                "The labels have fewer than two classes, so no classifier can be trained. If the graph "
                "is only used for prediction, pass num_classes= (classes= for files)."
            )
        if self.class_names and len(self.class_names) != self.num_classes:
            raise GraphError(
                f"{len(self.class_names)} class names were given for {self.num_classes} classes. Pass one "
                "name per class."
            )


def check_kind(graph: object) -> None:
    """Raise an error if the value is not a graph of this library.

    >>> check_kind("karate")
    Traceback (most recent call last):
    graphveil.errors.GraphError: Expected a graph, but got a str. Create one with load_dataset or read_graph.
    """
    if not isinstance(graph, Graph):
        raise GraphError(
            f"Expected a graph, but got a {type(graph).__name__}. Create one with load_dataset or read_graph."
        )


def _joined_ids(
    old: npt.NDArray[Any] | None, new: npt.NDArray[Any] | None, count: int
) -> npt.NDArray[Any] | None:
    """Return the ids of old and new nodes, no two alike; None where the graph has none."""
    if old is None and new is None:
        return None
    if old is None or new is None or len(new) != count:
        raise GraphError(
            "ids= does not match the graph. Pass one id per new node if the graph has ids, and no "
            "ids otherwise."
        )
    both = np.concatenate([old, np.asarray(new)])
    if len(np.unique(both)) < len(both):
        raise GraphError(
            "ids= contains an id twice, or the id of an existing node. Give every node a different id."
        )
    return both


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """One step of growth as a graph: all nodes up to this step, and only the edges that the step added.

    ``version`` identifies the in-edges after the step.
    """

    step: GrowthStep
    version: AdjacencyVersion
    graph: Graph

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"Batch({self.step.base_nodes} to {self.graph.num_nodes} nodes)"


def batches(graph: Graph) -> Iterator[Batch]:
    """Yield the steps in which a graph grew, oldest first.

    >>> pair = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    >>> list(batches(pair.grow([[1.0, 1.0]], None, [2], [0])))
    [Batch(2 to 3 nodes)]
    """
    steps = graph.adjacency.history
    after = [*(step.base for step in steps), graph.adjacency.version][1:]
    for step, version in zip(steps, after, strict=True):
        present = torch.arange(step.added.num_nodes)  # later steps added the other nodes
        yield Batch(step, version, graph.replace(adjacency=step.added, **graph._node_fields(present)))
