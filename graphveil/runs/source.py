"""Where a graph comes from: a dataset by name, a prepared folder, or the caller's own two tables."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from annotated_types import Interval

from graphveil.core.unit import is_node_level
from graphveil.data.tables.inspect_tables import TableFiles, TableInspection
from graphveil.data.tables.options import CHOICES
from graphveil.errors import ConfigError, UnitError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from graphveil.core.edges.node_pairs import PublicPart
    from graphveil.data import Graph, Interactions

_COLUMNS = ("id", "label", "source", "target")
_PATHS = ("root", "folder", "nodes", "edges", "node_ids", "items")


@dataclass(frozen=True, kw_only=True)
class Source(TableFiles):
    """A named dataset, a prepared folder, or files and their columns: the command's flags, as written.

    Args:
        dataset: Name of a dataset.
        root: Folder of the datasets.
        folder: Folder of a prepared graph.
        to_predict: Whether no label is needed.
    """

    dataset: str | None = None
    root: Path | None = None
    folder: Path | None = None
    to_predict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        files = [f"--{name}" for name in ("nodes", "edges", *_COLUMNS) if getattr(self, name) is not None]
        named = "--dataset" if self.dataset is not None else "--graph" if self.folder is not None else None
        if named is not None:
            given = files + ["--directed"] * self.directed
            given += ["--graph"] if self.folder is not None and self.dataset is not None else []
            optional = ("split", "weight", "max_weight", "classes", *CHOICES, "node_ids")
            given += [f"--{name.replace('_', '-')}" for name in optional if getattr(self, name) is not None]
            if given:
                raise ConfigError(
                    f"{named} cannot be combined with {', '.join(given)}, because it already defines its "
                    "columns. Remove one of them."
                )
            return
        needed = [name for name in ("nodes", "edges", *_COLUMNS) if name != "label" or not self.to_predict]
        if (self.weight is None) != (self.max_weight is None):
            raise ConfigError(
                "--weight and --max-weight must be given together: the column of edge weights, and the "
                "public bound to which larger weights are clipped. Give both or neither."
            )
        missing = [f"--{name}" for name in needed if getattr(self, name) is None]
        if not files:
            more = (
                " For several tables set --persons FILE --id COLUMN --label COLUMN --rows FILE:owner=COLUMN."
            )
            raise ConfigError(
                "No data were given. Set --dataset NAME (see `graphveil datasets`), or --nodes FILE --edges "
                f"FILE --id COLUMN {'' if self.to_predict else '--label COLUMN '}--source COLUMN --target "
                f"COLUMN.{'' if self.to_predict else more}"
            )
        if missing:
            tables = f"--nodes {self.nodes} --edges {self.edges}"
            both = self.nodes is not None and self.edges is not None
            advice = f" `graphveil check {tables}` suggests the columns." if both else ""
            raise ConfigError(
                "A graph from files needs two tables and the names of their columns. "
                f"Add {', '.join(missing)}.{advice}"
            )

    def inspect_tables(
        self, *, unit: str | None = None, private_records: bool = False
    ) -> TableInspection | None:
        """Read the tables, and report all validation errors in one error.

        Datasets by name are not checked. The tables are kept for ``load``, so that nothing is read twice.

        Args:
            private_records: Whether node records are also protected under an edge-level privacy unit.
        """
        if self.dataset is not None or self.folder is not None:
            return None
        found = self.inspect(
            private_records=private_records or is_node_level(unit),
            private_edges=unit not in (None, "none"),
        )
        found.raise_problems()
        self._seen[0] = found
        return found

    @cached_property
    def _seen(self) -> list[TableInspection | None]:
        return [None]

    @property
    def has_persons(self) -> bool:
        """Whether the data are tables of persons and their rows."""
        return False

    @property
    def name(self) -> str:
        """What tables call the graph: the dataset, or the stem of the file of nodes."""
        if self.dataset is not None:
            return self.dataset
        if self.folder is not None:
            return self.folder.resolve().name
        assert self.nodes is not None
        return self.nodes.name.partition(".")[0]

    @property
    def published_name(self) -> str:
        """What a release may call the graph: never a file name."""
        return self.dataset or "a private graph, read from files"

    @property
    def fixed_split(self) -> bool:
        if self.folder is not None:
            from graphveil.data.graph_files import has_split

            return has_split(self.folder)
        return self.split is not None

    def load(self, classes: tuple[str, ...] | None = None) -> "Graph":
        """Read the graph, unprepared; ``classes`` fixes the labels and their order beforehand."""
        if classes is not None:
            return replace(self, classes=classes).load()
        from graphveil.data import load_dataset, open_graph
        from graphveil.data.graph_files import graph_of

        if self.dataset is not None:
            return load_dataset(self.dataset, root=self.root, recipe=None)
        if self.folder is not None:
            return open_graph(self.folder).replace(name=f"files:{self.name}")
        found, self._seen[0] = self._seen[0] or self.inspect_tables(), None
        assert found is not None
        return graph_of(
            found, self, name=f"files:{self.name}"
        )  # no recipe may take a file for a known data set

    def as_dict(self) -> dict[str, Any]:
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "encoding"}
        plain = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in given.items()
            if value not in (None, False, ())
        }
        return plain | self.choice_texts()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        return cls(**given | {name: Path(given[name]) for name in _PATHS if name in given})


@dataclass(frozen=True, kw_only=True)
class ListSource(Source):
    """Lists of items: a table of all users, a table of all items, and one row per item on a list.

    Args:
        items: Table of all items, with the column of edge targets.
        rating: Column of ratings in the table of lists.
        min_rating: Lowest rating of an item on a list.
    """

    items: Path
    rating: str | None = None
    min_rating: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.rating is None) != (self.min_rating is None):
            raise ConfigError(
                "--rating and --min-rating go together: the column of ratings, and the lowest rating that "
                "counts as a like. Give both, for example --rating stars --min-rating 4, or neither."
            )
        if self.weight is not None:
            raise ConfigError(
                "Method recommender does not use --weight and --max-weight. Remove them; to keep high "
                f"ratings only, use --rating {self.weight} --min-rating 4."
            )
        if self.edges is None:
            raise ConfigError(
                "recommender reads lists of items from tables. Set --edges, --nodes (all users) and --items "
                "instead of --dataset or --graph."
            )

    @property
    def words(self) -> str:
        from graphveil.data.tables.files import FileSource
        from graphveil.data.tables.ids import RATING_NAMES

        assert self.edges is not None
        if self.rating is not None:
            return f"rows of {self.edges.name} with {self.rating} of at least {self.min_rating:g}"
        names = FileSource(self.edges, self.csv_format).names()
        rated = next((name for name in names if name.lower() in RATING_NAMES), None)
        more = (
            f"; column {rated!r} is ignored, so low ratings count as likes (--rating {rated} --min-rating 4)"
        )
        return f"every row of {self.edges.name}{'' if rated is None else more}"

    def interactions(self) -> "Interactions":
        from graphveil.data.interactions import Interactions
        from graphveil.data.rows import Rows
        from graphveil.data.tables.files import FileSource
        from graphveil.data.tables.ids import KnownIds

        assert self.nodes is not None and self.source is not None
        assert self.id is not None and self.target is not None
        bins = None if self.min_rating is None else [self.min_rating]
        return Interactions.from_rows(
            Rows(self.edges, owner=self.source, far=self.target, value=self.rating, bins=bins),
            KnownIds.read(FileSource(self.nodes, self.csv_format), self.id),
            KnownIds.read(FileSource(self.items, self.csv_format), self.target),
            unknown_ids=self.unknown_ids or "error",
            csv_format=self.csv_format,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class InMemorySource(Source):
    """A graph that the caller passes in memory; with a test mask it keeps its own split."""

    graph: "Graph"

    @classmethod
    def from_graph(cls, graph: "Graph") -> "InMemorySource":
        return cls(dataset=graph.name or "graph", graph=graph)

    @property
    def published_name(self) -> str:
        return "a private graph, given in Python"

    @property
    def has_persons(self) -> bool:
        from graphveil.data.relational import RelationalGraph

        return isinstance(self.graph, RelationalGraph)

    @property
    def fixed_split(self) -> bool:
        return self.graph.has_split

    def load(self, classes: tuple[str, ...] | None = None) -> "Graph":
        return self.graph

    def as_dict(self) -> dict[str, Any]:
        return {"graph": self.name}


_ALL_NODES, _LABEL = "all", "label"
NO_LIST = (
    "public edges are given, and not who may have private ones: pass --private-nodes (a public list, "
    "or all) or --private-where. It is never found out from the edges, since a graph with one private edge "
    "would then differ from one with none for certain"
)


@dataclass(frozen=True, kw_only=True)
class PublicFlags:
    """The flags of unit ``edge-subset``: the public edges, and the nodes that may have private edges.

    Unit edge-subset:
        public_edges (FILE): Table of public edges, with the same columns as --edges.
        private_nodes (FILE|all): Table with the public list of nodes that may have private edges, or `all`.
        private_fraction: Probability that an edge is private, drawn with --seed. Other edges are public. For
            experiments.
        private_where (COLUMN=VALUE): Column and value that select nodes. Edges between two selected nodes
            are private. Other edges and the column are public. For experiments; a named dataset has the
            column `label`.
    """

    public_edges: Path | None = None
    private_nodes: str | None = None
    private_fraction: Annotated[float, Interval(ge=0, le=1)] | None = None
    private_where: str | None = None

    def __post_init__(self) -> None:
        names = ("public_edges", "private_fraction", "private_where")
        ways = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} both define which edges are public. Keep one.")
        if self.private_where is not None and self.private_nodes is not None:
            raise ConfigError(
                "--private-where already defines which nodes may have private edges. Remove --private-nodes."
            )
        if self.private_where is not None and "=" not in self.private_where:
            raise ConfigError(f"--private-where {self.private_where!r} has no value. Write COLUMN=VALUE.")

    @property
    def given(self) -> dict[str, Any]:
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in named.items()
            if value is not None
        }

    def check(self, unit: str | None) -> None:
        """Raise an error for flags that the unit does not use, instead of ignoring them."""
        if self.given and unit != "edge-subset":
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in self.given)
            raise UnitError(
                f"{flags}: public edges and private nodes need unit 'edge-subset', but the unit is "
                f"{unit!r}. Remove them, or change the unit."
            )

    def part(self, graph: "Graph", files: TableFiles, *, seed: int) -> "PublicPart | None":
        if not self.given:
            return None
        from graphveil.core.edges.node_pairs import PublicPart, no_public_edges
        from graphveil.data.graph_files import read_edges
        from graphveil.data.recipes import public_edges_outside, sample_public_edges

        if self.private_where is not None:
            members = _where(graph, files, self.private_where)
            return PublicPart(public_edges_outside(graph, members), members)
        if self.private_nodes is None:
            raise UnitError(NO_LIST)
        listed = _listed(graph, files, self.private_nodes)
        if self.private_fraction is not None:
            return PublicPart(sample_public_edges(graph, self.private_fraction, seed=seed), listed)
        public = no_public_edges(graph.num_nodes)
        if self.public_edges is not None:
            ends = {"source": files.source or "source", "target": files.target or "target"}
            ids, csv_format = ids_of(graph), files.csv_format
            public = read_edges(self.public_edges, ids, **ends, directed=False, csv_format=csv_format)
        return PublicPart(public, listed)


def ids_of(graph: "Graph") -> "npt.NDArray[np.generic]":
    """Return the ids that tables name the nodes by: their own, or their numbers where they have none."""
    import numpy as np

    return np.arange(graph.num_nodes) if graph.ids is None else graph.ids


def _listed(graph: "Graph", files: TableFiles, text: str) -> "torch.Tensor":
    import torch

    from graphveil.data.graph_files import read_ids
    from graphveil.data.tables.files import FileSource

    listed = torch.full((graph.num_nodes,), text == _ALL_NODES)
    if text != _ALL_NODES:
        source = FileSource(Path(text), files.csv_format)
        places = read_ids(source, ids_of(graph), column=files.id or "id")
        listed[torch.from_numpy(places)] = True
    return listed


def _where(graph: "Graph", files: TableFiles, text: str) -> "torch.Tensor":
    """Return which nodes have a value in a column, bool (N); a named dataset has its labels alone."""
    import numpy as np
    import torch

    from graphveil.data import tables
    from graphveil.data.graph_files import read_ids
    from graphveil.data.tables.files import FileSource, column_names

    column, _, value = (part.strip() for part in text.partition("="))
    if files.nodes is None:
        if column != _LABEL:
            raise ConfigError(
                f"--private-where {text!r} names an unknown column. A named dataset only has the column "
                f"{_LABEL!r}."
            )
        found = graph.in_class(value)
    else:
        source = FileSource(files.nodes, files.csv_format)
        column_names(source, [column])
        places = read_ids(source, ids_of(graph), column=files.id or "id")
        values = tables.column(source.read([column]), column).to_pylist()
        found = torch.zeros(graph.num_nodes, dtype=torch.bool)
        chosen = np.array([str(each) == value for each in values])
        found[torch.from_numpy(places[chosen])] = True
    if not bool(found.any()):
        raise ConfigError(f"--private-where {text!r} matches no node. Check the column and the value.")
    return found
