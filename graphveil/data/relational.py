"""Several tables: people, catalogs of other entities, and rows that people own.

Rows are stored as directed edges: from the person who owns a row to its far end, one node for each entity and
value. So a row of any table is one edge, and everything that a person did is the person's own list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.features import Features, as_features, to_dense
from graphveil.core.unit import NoUnit, Person, Row
from graphveil.data.conversion import fields_from_tables
from graphveil.data.graph import Graph
from graphveil.data.rows import (
    UNKNOWN_IDS,
    FarPersons,
    Rows,
    check_sizes,
    pyg_rows,
    read_rows,
)
from graphveil.data.tables.encoding import REGRESSION
from graphveil.data.tables.files import CsvFormat, TableSource, as_source
from graphveil.data.tables.ids import ROW_ADVICE, KnownIds, NodePositions, id_array
from graphveil.data.tables.inspect_tables import inspect_persons
from graphveil.data.tables.options import NOT_OF_PERSONS, TableOptions
from graphveil.errors import ConfigError, GraphError, UnitError

if TYPE_CHECKING:
    from graphveil.data.interactions import Interactions

TABLE_UNITS = (Row.name, Person.name)
_MAX_CATEGORIES = 50  # different texts in a catalog's column that become columns of their own


@dataclass(frozen=True, eq=False)
class Relation:
    """The public part of one table of rows.

    Args:
        name: Name of the table.
        entities: Number of entities that a far end may be.
        values: Number of values.
        first: Number of its first far end among the nodes that edges are stored for, once these are numbered.
            Entity u with value e is node ``first + u * values + e``.
        features: Public attributes of the entities (entities, d), or None.
        columns: Names of the columns of the catalog that became attributes.
        persons: How far ends that are persons are declared.
        digest: Digest of the public ids of the entities and of the values.
        ids: The ids; None for indices.
        levels: Bins, or names of values; empty without values.
    """

    name: str
    entities: int
    values: int
    first: int = 0
    features: Features | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()
    persons: FarPersons | None = None
    digest: str = field(default="", repr=False)
    ids: npt.NDArray[Any] | None = field(default=None, repr=False)
    levels: tuple[float | str, ...] = ()

    def places(self, min_rating: float | None, values: Sequence[str] | None) -> list[int]:
        """Return the numbers of the values from a bin on, or of those with a name."""
        named = len(self.levels) == self.values
        if not self.levels:
            what, example, fits = "no values", "", min_rating is None and values is None
        elif named:
            what, example = "the values", f"values={[*self.levels[:1]]}"
            fits = min_rating is None and values is not None and set(values) <= set(self.levels)
        else:
            what, example = "the bins", f"min_rating={self.levels[-1]}"
            fits = values is None and min_rating in self.levels
        if not fits:
            listed = f"{what} {', '.join(map(str, self.levels))}".strip()
            raise ConfigError(
                f"Rows of table {self.name!r} have {listed}. Use tables.interactions({example})."
            )
        if named:
            return [self.levels.index(each) for each in values or ()]
        return list(range(0 if min_rating is None else self.levels.index(min_rating) + 1, self.values))

    @property
    def stop(self) -> int:
        """The number after its last far end."""
        return self.first + self.entities * self.values


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RelationalGraph(Graph):
    """A graph of persons, whose rows in several tables are edges to the far ends of ``relations``.

    ``adjacency`` has more nodes than the graph: the persons, and then the far ends of each relation.
    """

    relations: tuple[Relation, ...] = ()

    @property
    def num_far_ends(self) -> int:
        return sum(each.entities * each.values for each in self.relations)

    def __repr__(self) -> str:
        """Show public sizes only, never a number of rows."""
        return (
            f"RelationalGraph({self.name!r}, persons={self.num_nodes}, features={self.num_features}, "
            f"tables={[each.name for each in self.relations]}, split={self.has_split})"
        )

    def subgraph(self, keep: Tensor) -> NoReturn:
        """Raise an error: rows of other persons would be left out, which a table of rows decides."""
        raise GraphError(
            "Tables cannot be reduced to a part of their persons. Build them from fewer persons."
        )

    def grow(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error: tables do not grow."""
        raise GraphError("Tables cannot grow. Build them again with all persons, which is a new data set.")

    def to_pyg(self) -> NoReturn:
        """Raise an error: the rows are no edges between persons."""
        raise GraphError("Tables cannot be converted to one Data object. Keep the HeteroData they came from.")


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """Persons with a label each, and tables of what they did.

    Build them with the constructor, or with ``from_pyg``.

    Args:
        persons: Table of persons: a frame, a mapping of columns, or the path of a Parquet or CSV file.
        id: Column of ``persons`` with ids.
        label: Column of ``persons`` with labels; None for prediction only, with ``classes``.
        rows: Tables of rows by name.
        public: Public catalogs by name: tables with a column of this name, or ``"id"``, and attributes; or
            lists of ids. They have no owner and are not protected.
        before: Only rows with an earlier time are used, so that labels do not leak into features.
        unknown_ids: ``"error"`` rejects a row whose owner or far end is in no list, and ``"drop"`` drops it.
        edge_set: Identity of the data for their budget; a new one by default. It is one for all tables.
        name: Name of the data.
        options: Options of ``read_graph`` for the table of persons: ``split`` (without it models use the one
            of ``gv.split`` for their unit, with seed 0), ``features``, ``drop``,
            ``categories``, ``missing``, ``null_values``, ``delimiter``, ``decimal``, ``classes`` and
            ``task``.

    Raises:
        ConfigError: Argument of another type or out of range.
        GraphError: Table or column that is missing or invalid, or unknown ids.

    Privacy:
        Reads: all tables, exactly. Charges: nothing. Who owns a row is declared and never read from the data.
        Public: ids of persons, the split, catalogs, bins and lists of values. Rows of one person with the
        same far end and value count once.

    >>> tables = Tables(
    ...     {"user": ["ann", "bob"], "churn": ["no", "yes"]}, id="user", label="churn",
    ...     rows={"likes": Rows({"user": ["ann", "bob"], "movie": [1, 2]}, owner="user", far="movie")},
    ...     public={"movie": [1, 2, 3]},
    ... )
    >>> tables
    Tables(persons=2, rows={'likes': 3 far ends})
    """

    graph: RelationalGraph

    def __init__(
        self,
        persons: Any,
        *,
        id: str,
        rows: Mapping[str, Rows],
        label: str | None = None,
        public: Mapping[str, Any] | None = None,
        before: object = None,
        unknown_ids: str = "error",
        edge_set: EdgeSet | None = None,
        name: str = "tables",
        **options: Any,
    ) -> None:
        checks.one_of(UNKNOWN_IDS, unknown_ids=unknown_ids)
        read, people, csv_format = _persons(persons, {"id": id, "label": label, **options})
        catalogs = {key: _catalog(key, given, csv_format) for key, given in (public or {}).items()}
        _check_rows(rows, catalogs, before)
        found = []
        for title, one in rows.items():
            catalog = _catalog_of(title, one, catalogs, people)
            ids = catalog.known
            relation = Relation(
                title,
                1 if ids is None else len(ids.ids),
                one.num_values,
                features=catalog.features,
                columns=catalog.columns,
                persons=one.persons,
                digest=_digest(one, ids),
                ids=None if ids is None else id_array(ids.ids),
                levels=tuple(one.bins if one.bins is not None else (one.values or ())),
            )
            how: dict[str, Any] = {"unknown_ids": unknown_ids, "before": before, "csv_format": csv_format}
            known = [people] if ids is None else [people, ids]
            found.append((relation, *read_rows(one, f"table {title!r}", known, **how)))
        self._keep(read, found, edge_set, name)

    def _keep(
        self,
        read: dict[str, Any],
        found: Sequence[tuple[Relation, NodePositions, NodePositions, NodePositions]],
        edge_set: EdgeSet | None,
        name: str,
    ) -> None:
        """Store persons and the owners, far ends and values of each table; far ends are numbered here."""
        relations, ends, nodes = [], [np.empty((2, 0), np.int64)], len(read["y"])
        for relation, owners, far, values in found:
            relations.append(replace(relation, first=nodes))
            ends.append(np.stack([owners, nodes + far * relation.values + values]))
            nodes = relations[-1].stop
        check_sizes(nodes)
        owners, far = np.concatenate(ends, axis=1)
        edge_set = checks.fitting("edge_set", edge_set, EdgeSet | None)
        adjacency = Adjacency.from_edges(owners, far, num_nodes=nodes, directed=True, edge_set=edge_set)
        graph = RelationalGraph(adjacency=adjacency, relations=tuple(relations), name=name, **read)
        object.__setattr__(self, "graph", graph)

    def __repr__(self) -> str:
        """Show public sizes only, never a number of rows."""
        listed = ", ".join(f"{each.name!r}: {each.entities:,} far ends" for each in self.graph.relations)
        return f"Tables(persons={self.graph.num_nodes}, rows={{{listed}}})"

    def interactions(
        self,
        table: str | None = None,
        *,
        min_rating: float | None = None,
        values: Sequence[str] | None = None,
    ) -> Interactions:
        """Return one table as lists of items, for ``Recommender``: the data and budget are the same.

        Args:
            table: Name of the table; may be omitted if there is one.
            min_rating: For a table with bins: the bin from which a row is on the list of its owner.
            values: For a table with a list of values: those that put a row on the list.

        Returns:
            The lists, with the attributes of the catalog as item features.

        Raises:
            ConfigError: If there is no such table, its far ends are persons, or the argument for its values
                is missing or unknown.

        Privacy:
            Reads: the rows of the table, exactly. Charges: nothing. The result is private.
        """
        from graphveil.data.interactions import Interactions

        relation = self._relation(table, among_persons=False)
        owners, entities = self._ends(relation, relation.places(min_rating, values))
        graph = self.graph
        return Interactions._build(
            owners,
            entities,
            np.arange(graph.num_nodes) if graph.ids is None else graph.ids,
            np.arange(relation.entities) if relation.ids is None else relation.ids,
            graph.edge_set,
            relation.features,
            graph.notes,
        )

    def person_graph(self, table: str | None = None) -> Graph:
        """Return one table between persons as a directed graph, for ``LinkPredictor``; values are ignored.

        Args:
            table: Name of the table; may be omitted if there is one.

        Returns:
            The graph of persons, with the same budget.

        Raises:
            ConfigError: If there is no such table, or its far ends are not persons.

        Privacy:
            Reads: the rows of the table, exactly. Charges: nothing. The result is private.
        """
        relation = self._relation(table, among_persons=True)
        owners, others = self._ends(relation, list(range(relation.values)))
        persons = self.graph
        adjacency = Adjacency.from_edges(
            owners, others, num_nodes=persons.num_nodes, directed=True, edge_set=persons.edge_set
        )
        named = {part.name: getattr(persons, part.name) for part in fields(Graph) if part.name != "adjacency"}
        return Graph(adjacency=adjacency, **named)

    def _relation(self, table: str | None, *, among_persons: bool) -> Relation:
        kind = "between persons" if among_persons else "with a catalog"
        fitting = [each for each in self.graph.relations if (each.persons is not None) == among_persons]
        found = [each for each in fitting if table in (None, each.name)]
        if len(found) != 1:
            names = ", ".join(repr(each.name) for each in fitting) or "none"
            raise ConfigError(f"table={table!r} must name one table {kind}. There are: {names}.")
        return found[0]

    def _ends(self, relation: Relation, places: list[int]) -> tuple[NodePositions, NodePositions]:
        """Return owners and entities of the rows with some values."""
        owners, far = (part.numpy().astype(np.int64) for part in self.graph.adjacency.edge_index())
        own = (far >= relation.first) & (far < relation.stop)
        entity, value = np.divmod(far[own] - relation.first, relation.values)
        kept = np.isin(value, places)
        return owners[own][kept], entity[kept]

    def with_split(self, train: Tensor, val: Tensor, test: Tensor) -> Tables:
        """Return the tables with another split of the persons.

        Args:
            train, val, test: Disjoint masks, bool (persons).

        Returns:
            The tables, with the same data and budget.

        Raises:
            GraphError: Masks that overlap, or of another type or length.
        """
        graph = self.graph.with_split(train, val, test)
        made = object.__new__(Tables)
        object.__setattr__(made, "graph", graph)
        return made

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        person: str,
        rows: Sequence[tuple[str, str, str]],
        bins: Mapping[tuple[str, str, str], Sequence[float]] | None = None,
        persons: FarPersons | None = None,
        edge_set: EdgeSet | None = None,
        **others: Any,
    ) -> Tables:
        """Build tables from a torch_geometric ``HeteroData``.

        Args:
            data: ``HeteroData``. The person type has ``y``, and may have ``x`` and masks. Other node types
                are catalogs, with their ``x`` as public attributes.
            person: Node type of the persons.
            rows: Edge types whose rows a person owns, from persons. Leave out reverse edge types, which would
                store every row twice.
            bins: Bounds of values by edge type, for one number per edge in ``value``, ``rating``,
                ``edge_label`` or ``edge_attr``.
            persons: For edge types between persons: as for ``Rows``.
            edge_set: Identity of the data for their budget.
            others: Further fields of ``Graph`` for the persons, such as masks.

        Returns:
            The tables, with indices as ids.

        Raises:
            GraphError: If a type or an attribute is missing, or an index is out of range.

        Privacy:
            Reads: all edges and records, exactly. Charges: nothing.
        """
        store = data[person]
        y = getattr(store, "y", None)
        if y is None:
            raise GraphError(
                f"The node type {person!r} has no 'y'. Set data[{person!r}].y before you convert it."
            )
        masks = {name: getattr(store, name, None) for name in ("train_mask", "val_mask", "test_mask")}
        plain = Graph.from_edges(getattr(store, "x", None), y, [], [], directed=True, **{**masks, **others})
        read = {part.name: getattr(plain, part.name) for part in fields(Graph)}
        del read["adjacency"], read["name"]
        found, bins = [], bins or {}
        for kind in rows:
            if kind not in data.edge_types or kind[0] != person:
                raise GraphError(
                    f"{kind} is no edge type from {person!r}. Edge types: {list(data.edge_types)}."
                )
            if kind[2] == person and persons is None:
                raise GraphError(_declare(" ".join(kind)))
            x = getattr(data[kind[2]], "x", None) if kind[2] != person else None
            owners, far, values, (_, size) = pyg_rows(data, kind, bins.get(kind), plain.num_nodes)
            relation = Relation(
                kind[1],
                size,
                len(bins.get(kind, ())) + 1,
                features=None if x is None else _scaled(to_dense(as_features(x)).numpy()),
                persons=persons if kind[2] == person else None,
                digest=f"{size} indices",
            )
            found.append((relation, owners, far, values))
        made = object.__new__(cls)
        made._keep(read, found, edge_set, plain.name)
        return made


def check_tables(graph: Graph, unit: str | None) -> None:
    """Reject tables under a unit of graphs, a graph under a unit of tables, and mutual rows of a person.

    Raises:
        UnitError: If data and unit do not fit.
    """
    if not isinstance(graph, RelationalGraph):
        if isinstance(unit, str) and unit in TABLE_UNITS:
            raise UnitError(
                f"unit {unit!r} is for several tables, but this is one graph. Pass gv.Tables "
                "(--persons, --rows), or use unit 'undirected-edge' or 'node'."
            )
        return
    if unit not in (*TABLE_UNITS, NoUnit.name, None):
        raise UnitError(
            f"unit {unit!r} is for one graph, but these are tables of persons and their rows. Use unit 'row' "
            "for one row, or 'person' for a person with all rows."
        )
    mutual = [each.name for each in graph.relations if each.persons == "mutual"]
    if unit == Person.name and mutual:
        raise UnitError(
            f"Table {mutual[0]!r} has mutual rows, which are in the records of two persons, so unit 'person' "
            "does not protect them. Leave this table out, or use unit 'row'."
        )


def reject_tables(graph: Graph) -> None:
    """Reject tables where one graph is needed.

    Raises:
        GraphError: If they are tables.
    """
    if isinstance(graph, RelationalGraph):
        raise GraphError(
            "These are several tables, but one graph is needed here. Use gv.RelationalClassifier, or gv.MLP "
            "on the attributes of persons alone."
        )


# -- reading ---------------------------------------------------------------------------------------------


class _Catalog(NamedTuple):
    """A public list of entities and their attributes; no list for rows without a far end."""

    known: KnownIds | None
    features: Features | None = None
    columns: tuple[str, ...] = ()


def _catalog(name: str, given: Any, csv_format: CsvFormat) -> _Catalog:
    is_table = isinstance(given, str | PathLike | Mapping) or any(
        hasattr(given, attribute) for attribute in ("columns", "column_names", "collect_schema")
    )
    source = as_source(given if is_table else {name: given}, f"catalog {name!r}", csv_format)
    names = source.names()
    id = name if name in names else "id"
    if id not in names:
        raise GraphError(
            f"Catalog {name!r} has neither a column {name!r} nor 'id'. Rename its column of ids to {name!r}."
        )
    return _Catalog(KnownIds.read(source, id), *_attributes(source, id, csv_format))


def _digest(rows: Rows, known: KnownIds | None) -> str:
    """Return the digest of the ids of far ends and of the values of a table."""
    ids = [] if known is None else known.ids.to_pylist()
    text = "\n".join(map(str, (rows.bins, rows.values, *ids)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _persons(given: Any, options: dict[str, Any]) -> tuple[dict[str, Any], KnownIds, CsvFormat]:
    """Return the fields of a graph of persons, their ids, and the format of all CSV files."""
    read = TableOptions.from_keywords("Tables", options, NOT_OF_PERSONS)
    if read.task != REGRESSION:
        read.require_labels()
    found = inspect_persons(as_source(given, "persons", read.csv_format), read)
    found.raise_problems()
    fields = fields_from_tables(found, classes_given=read.classes is not None)
    return fields, found.known_ids(str(read.id), "persons", ROW_ADVICE), read.csv_format


def _attributes(
    source: TableSource, id: str, csv_format: CsvFormat
) -> tuple[Features | None, tuple[str, ...]]:
    """Return the usable columns of a catalog as features: numbers, and texts with few different values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in source.names() if name != id]
    table = source.read(names, {})
    categories, used = [], []
    for name in names:
        kind = table.column(name).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
            if len(pc.unique(table.column(name))) <= _MAX_CATEGORIES:
                categories.append(name)
                used.append(name)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            used.append(name)
    if not used:
        return None, ()
    options = TableOptions(
        id=id, features=used, categories=categories, missing="indicator", classes=("a", "b"),
        delimiter=csv_format.delimiter, decimal=csv_format.decimal,
    )  # fmt: skip
    found = inspect_persons(source, options)
    found.raise_problems()
    scaled = _scaled(found.matrix())
    return scaled, () if scaled is None else tuple(used)


def _scaled(x: npt.NDArray[Any]) -> Features | None:
    """Return the attributes of a catalog that vary, from 0 to 1; None if none does. The catalog is public."""
    low, high = x.min(axis=0), x.max(axis=0)
    varied = high > low
    return as_features(((x - low) / np.where(varied, high - low, 1))[:, varied]) if varied.any() else None


def _check_rows(rows: Mapping[str, Rows], catalogs: Mapping[str, _Catalog], before: object) -> None:
    if not isinstance(rows, Mapping) or not rows or not all(isinstance(each, Rows) for each in rows.values()):
        raise ConfigError("rows= must be a mapping of names to gv.Rows, with at least one table.")
    for (first, one), (second, other) in combinations(rows.items(), 2):
        if one.owner != other.owner and _same_table(one.table, other.table):
            raise ConfigError(
                f"{first!r} and {second!r} are the same table with two owners, so that each row would be in "
                "the records of two persons. List the table once, with persons= for its other persons."
            )
    if before is not None and all(each.time is None for each in rows.values()):
        raise ConfigError("before= has no effect, because no table names a column with time=. Name it.")
    unused = set(catalogs) - {each.catalog or each.far for each in rows.values()}
    if unused:
        raise ConfigError(
            f"No table of rows uses the catalog {min(unused)!r}. Set far= or catalog= of a table to its name."
        )


def _same_table(one: Any, other: Any) -> bool:
    paths = isinstance(one, str | PathLike) and isinstance(other, str | PathLike)
    return one is other or (paths and str(one) == str(other))


def _catalog_of(title: str, rows: Rows, catalogs: Mapping[str, _Catalog], people: KnownIds) -> _Catalog:
    if rows.far is None:
        return _Catalog(None)
    if rows.persons is not None:
        return _Catalog(people)
    name = rows.catalog or rows.far
    if name not in catalogs:
        raise GraphError(
            f"Which far ends occur in table {title!r} is protected, so their list must be public. Pass "
            f"public={{{name!r}: ids}}, or persons='one-sided' or 'mutual' if they are persons."
        )
    found = catalogs[name]
    assert found.known is not None
    if _same_people(found.known, people, named=rows.catalog is not None):
        raise GraphError(_declare(title))
    return found


def _declare(title: str) -> str:
    return (
        f"The far ends of table {title!r} have the ids of persons. Declare how rows arise: "
        "persons='one-sided' if only the owner can enter or remove a row, or persons='mutual' if both have "
        "it. If they are numbers of other things, name their list: catalog='NAME'."
    )


def _same_people(catalog: KnownIds, people: KnownIds, *, named: bool) -> bool:
    """Whether public ids look like those of the persons: half of them are, or all if both are counted.

    Ids of unrelated lists are often counted from zero or one, and then they overlap. Numbers of a list that
    has a name of its own are therefore accepted.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if catalog.ids.type != people.ids.type:
        return False
    shared: int = pc.sum(pc.is_in(catalog.ids, value_set=people.ids)).as_py()
    try:
        numbers = people.ids.cast(pa.int64())
    except pa.ArrowInvalid:  # not all are numbers
        return 2 * shared >= len(catalog.ids)
    if named:
        return False
    if pc.max(numbers).as_py() - pc.min(numbers).as_py() >= 2 * len(numbers):
        return 2 * shared >= len(catalog.ids)
    return shared == len(catalog.ids) == len(numbers)
