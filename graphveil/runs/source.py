"""Where a graph comes from: a dataset by name, a prepared folder, or the caller's own two tables."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from graphveil._util.escape import without_password
from graphveil.core.unit import is_node_level
from graphveil.data.tables.inspect_tables import TableFiles, TableInspection
from graphveil.data.tables.options import NOT_OF_PERSONS, TableOptions
from graphveil.errors import ConfigError, UnitError
from graphveil.runs.parameters import parse_classes
from graphveil.runs.table_source import EXAMPLES, date_or_number, in_keys, specs_by_name, table_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from graphveil.core.edges.node_pairs import PublicPart
    from graphveil.data import Graph, Interactions
    from graphveil.data.relational import RelationalGraph
    from graphveil.data.rows import Rows

_COLUMNS = ("id", "label", "source", "target")
_PATHS = ("root", "graph", "nodes", "edges", "node_ids", "items")
PERSON_FILES = ("persons", "rows", "public", "before")


def plain_options(group: Any) -> dict[str, Any]:
    """Return the options of a dataclass that are given, as plain values by name."""
    named = {part.name: getattr(group, part.name) for part in fields(group)}
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in named.items()
        if value is not None and value is not False and value != ()
    }


@dataclass(frozen=True, kw_only=True)
class DataOptions(TableFiles):
    """Where data come from: a dataset, a prepared folder, two tables, lists of items, or tables of persons.

    Data:
        dataset (NAME): Name of a dataset from `graphveil datasets`, instead of --nodes and --edges.
        root (FOLDER): Folder of downloaded datasets.
        graph (FOLDER): Folder written by `graphveil prepare`, instead of --nodes and --edges.
        nodes (FILE): Node table (.parquet or .csv).
        edges (FILE): Edge table (.parquet or .csv).
        persons (FILE): Table of persons with the columns --id and --label, instead of --nodes. Options of the
            node table apply to it. For relational and mlp.
        rows (FILE:KEY=...,...): Table of rows that persons own, with owner=COLUMN; optional far=COLUMN (other
            end), catalog=NAME (its public list), value=COLUMN with bins=3|4 or values=view|buy, time=COLUMN,
            name=NAME, and persons=one-sided or mutual if far ends are persons. FILE may be URL#TABLE of a
            database. Repeatable.
        public (FILE:id=COLUMN): Public catalog of far ends, named like its id column. Other columns are
            attributes. Repeatable.
        before (DATE): Use rows with an earlier time only.
        items (FILE): Table of all items, with the column --target. For recommender, where --nodes lists all
            users and --edges has a row for each item on the list of a user.
        rating (COLUMN): Column of the edge table with ratings of items, for --min-rating.
        min_rating: Lowest rating of an item on a list. Rows with a lower rating are dropped.

    Args:
        to_predict: Whether no label is needed.
    """

    dataset: str | None = None
    root: Path | None = None
    graph: Path | None = None
    persons: str | None = None
    rows: list[str] | None = None
    public: list[str] | None = None
    before: str | None = None
    items: Path | None = None
    rating: str | None = None
    min_rating: float | None = None
    to_predict: bool = False

    @property
    def has_persons(self) -> bool:
        """Whether the data are tables of persons and their rows."""
        return any(getattr(self, name) for name in PERSON_FILES)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of classes, which may be given as one text."""
        if self.classes is None:
            return None
        return parse_classes(self.classes) if isinstance(self.classes, str) else tuple(self.classes)

    def checked(self, *, to_predict: bool = False) -> "Source":
        """Return the source of these options, complete; with ``to_predict`` it needs no labels."""
        kind = TablesSource if self.has_persons else Source if self.items is None else ListSource
        named = {part.name: getattr(self, part.name) for part in fields(DataOptions)}
        named |= {"classes": self.class_names, "to_predict": to_predict or self.to_predict}
        if self.has_persons or any(path is not None for path in (self.nodes, self.edges, self.graph)):
            named["root"] = None  # the environment may set it
        return kind(**named)

    def topology(self) -> "Graph":
        """Read the edges of a dataset by name, or of the tables; of a table of nodes, its ids alone."""
        from graphveil.data.graph_files import read_topology

        source = self.checked(to_predict=True)
        return read_topology(source) if source.dataset is None else source.load()


@dataclass(frozen=True, kw_only=True)
class Source(DataOptions):
    """A named dataset, a prepared folder, or two tables and their columns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset is not None or self.graph is not None:
            return
        files = [f"--{name}" for name in ("nodes", "edges", *_COLUMNS) if getattr(self, name) is not None]
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
        if self.dataset is not None or self.graph is not None:
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
    def name(self) -> str:
        """What tables call the graph: the dataset, or the stem of the file of nodes."""
        if self.dataset is not None:
            return self.dataset
        if self.graph is not None:
            return self.graph.resolve().name
        assert self.nodes is not None
        return self.nodes.name.partition(".")[0]

    @property
    def published_name(self) -> str:
        """What a release may call the graph: never a file name."""
        return self.dataset or "a private graph, read from files"

    @property
    def fixed_split(self) -> bool:
        if self.graph is not None:
            from graphveil.data.graph_files import has_split

            return has_split(self.graph)
        return self.split is not None

    def load(self) -> "Graph":
        """Read the graph, unprepared."""
        from graphveil.data import load_dataset, open_graph
        from graphveil.data.graph_files import graph_of

        if self.dataset is not None:
            return load_dataset(self.dataset, root=self.root, recipe=None)
        if self.graph is not None:
            return open_graph(self.graph).replace(name=f"files:{self.name}")
        found, self._seen[0] = self._seen[0] or self.inspect_tables(), None
        assert found is not None
        return graph_of(
            found, self, name=f"files:{self.name}"
        )  # no recipe may take a file for a known data set

    def as_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in plain_options(self).items() if name != "encoding"}
        return plain | self.choice_texts()

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> "Source":
        """Return the source whose ``as_dict`` is given, or some options more."""
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        return DataOptions(**given | {name: Path(given[name]) for name in _PATHS if name in given}).checked()


@dataclass(frozen=True, kw_only=True)
class ListSource(Source):
    """Lists of items: a table of all users, a table of all items, and one row per item on a list."""

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

        assert self.nodes is not None and self.source is not None and self.items is not None
        assert self.id is not None and self.target is not None
        bins = None if self.min_rating is None else [self.min_rating]
        return Interactions.from_rows(
            Rows(self.edges, owner=self.source, far=self.target, value=self.rating, bins=bins),
            KnownIds.read(FileSource(self.nodes, self.csv_format), self.id),
            KnownIds.read(FileSource(self.items, self.csv_format), self.target),
            unknown_ids=self.unknown_ids or "error",
            csv_format=self.csv_format,
        )


@dataclass(frozen=True, kw_only=True)
class TablesSource(Source):
    """Persons, tables of rows that they own, and public catalogs: the command's flags, as written."""

    def __post_init__(self) -> None:
        TableOptions.__post_init__(self)
        needed = ("persons", "rows", "id", *(() if self.to_predict else ("label",)))
        missing = [f"--{name}" for name in needed if not getattr(self, name)]
        if missing:
            raise ConfigError(
                "Several tables need a table of persons and at least one of rows that persons own. "
                f"Add {', '.join(missing)}. Example: --persons users.csv --id user --label churn "
                f"{EXAMPLES['--rows']}."
            )
        if self.unknown_ids == "add":
            raise ConfigError(
                "--unknown-ids add would publish a person who occurs in one row only. Use --unknown-ids "
                "drop, or list all persons in --persons."
            )
        _ = self.tables_of_rows, self.catalogs

    @property
    def name(self) -> str:
        """What tables call the data: the stem of the file of persons."""
        return table_name(str(self.persons))

    @property
    def published_name(self) -> str:
        return "private tables, read from files"

    @property
    def tables_of_rows(self) -> "dict[str, Rows]":
        """The tables of rows by name."""
        return {name: spec.rows() for name, spec in specs_by_name("--rows", self.rows or ()).items()}

    @property
    def catalogs(self) -> dict[str, str]:
        """The catalogs by name."""
        return {name: spec.table for name, spec in specs_by_name("--public", self.public or ()).items()}

    def inspect_tables(
        self, *, unit: str | None = None, private_records: bool = False
    ) -> TableInspection | None:
        """Read the table of persons, and report all validation errors in one error."""
        from graphveil.data.tables.files import as_source
        from graphveil.data.tables.inspect_tables import inspect_persons

        persons = as_source(self.persons, "persons", self.csv_format)
        found = inspect_persons(persons, self, private_records=private_records or is_node_level(unit))
        found.raise_problems()
        return found

    def load(self) -> "RelationalGraph":
        """Read all tables."""
        from graphveil.data.relational import Tables

        named = {part.name: getattr(self, part.name) for part in fields(TableOptions)}
        given = {
            name: value for name, value in named.items() if value is not None and name not in NOT_OF_PERSONS
        }
        with in_keys():
            return Tables(
                self.persons,
                rows=self.tables_of_rows,
                public=self.catalogs,
                before=date_or_number(self.before),
                unknown_ids=self.unknown_ids or "error",
                name=f"files:{self.name}",
                **given,
            ).graph

    def as_dict(self) -> dict[str, Any]:
        """Return the flags without passwords of databases."""
        given = super().as_dict()
        texts = {name: given[name] for name in ("persons", "rows", "public") if name in given}
        return given | {
            name: without_password(text) if isinstance(text, str) else [*map(without_password, text)]
            for name, text in texts.items()
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class InMemorySource(Source):
    """A graph that the caller passes in memory; with a test mask it keeps its own split."""

    memory: "Graph"

    @classmethod
    def from_graph(cls, graph: "Graph") -> "InMemorySource":
        return cls(dataset=graph.name or "graph", memory=graph)

    @property
    def published_name(self) -> str:
        return "a private graph, given in Python"

    @property
    def has_persons(self) -> bool:
        from graphveil.data.relational import RelationalGraph

        return isinstance(self.memory, RelationalGraph)

    @property
    def fixed_split(self) -> bool:
        return self.memory.has_split

    def load(self) -> "Graph":
        return self.memory

    def as_dict(self) -> dict[str, Any]:
        return {"graph": self.name}


_ALL_NODES = "all"
NO_LIST = (
    "public edges are given, and not who may have private ones: pass --private-nodes (a public list, "
    "or all). It is never found out from the edges, since a graph with one private edge would then differ "
    "from one with none for certain"
)


@dataclass(frozen=True, kw_only=True)
class PublicFlags:
    """The flags of unit ``edge-subset``: the public edges, and the nodes that may have private edges.

    Unit edge-subset:
        public_edges (FILE): Table of public edges, with the same columns as --edges.
        private_nodes (FILE|all): Table with the public list of nodes that may have private edges, or `all`.
        private_fraction: Probability that an edge is private, drawn with --seed. Other edges are public. For
            experiments.
    """

    public_edges: Path | None = None
    private_nodes: str | None = None
    private_fraction: Annotated[float, Interval(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        if self.public_edges is not None and self.private_fraction is not None:
            raise ConfigError(
                "--public-edges and --private-fraction both define which edges are public. Keep one."
            )

    @property
    def given(self) -> dict[str, Any]:
        return plain_options(self)

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
        from graphveil.data.recipes import sample_public_edges

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
