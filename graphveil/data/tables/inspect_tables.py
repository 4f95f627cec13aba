"""Inspect two tables at once: the type of each column, all validation errors, and options that would pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from graphveil.data.tables import files
from graphveil.data.tables.encoding import (
    CONSTANT_FEATURE,
    REGRESSION,
    UNLABELED,
    ColumnRule,
    Encoding,
    Matrix,
    class_codes,
    encode,
    listed_classes,
    numeric_targets,
    reject_numeric,
)
from graphveil.data.tables.feature_rules import FeatureRules, is_index
from graphveil.data.tables.files import (
    AS_WRITTEN,
    Column,
    FileSource,
    FixableError,
    Table,
    TableSource,
    first_duplicate,
)
from graphveil.data.tables.ids import (
    GRAPH_ADVICE,
    Endpoints,
    KnownIds,
    distinct_ids,
    keys,
    keys_like,
    read_endpoints,
    read_ids,
    reject_two_kinds,
    reject_weights,
)
from graphveil.data.tables.options import ADD, DROP, ERROR, INDICATOR, ROLES, TableOptions
from graphveil.errors import GraphError, TableError

EDGES_FILE = "edges.parquet"  # in a folder of a released graph
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
ADD_NEEDS_PUBLIC_IDS_MESSAGE = (
    "unknown_ids='add' (--unknown-ids add) makes nodes of what edges name, and one secret edge would publish "
    "a node: list the nodes in a public table (--node-ids FILE), or drop such edges (--unknown-ids drop)"
)


@dataclass(frozen=True, kw_only=True)
class TableFiles(TableOptions):
    """A node table and an edge table, and how they are read."""

    nodes: Path | None = None
    edges: Path | None = None

    def inspect(self, *, private_records: bool = False, private_edges: bool = False) -> TableInspection:
        assert self.nodes is not None and self.edges is not None
        csv_format = self.csv_format
        return inspect_tables(
            FileSource(self.nodes, csv_format),
            FileSource(edges_file(self.edges), csv_format),
            self,
            private_records=private_records,
            private_edges=private_edges,
        )


@dataclass(frozen=True)
class ColumnFact:
    """Description of one column: its table, name and type, and its use in the graph."""

    table: str
    name: str
    type: str
    becomes: str


@dataclass(kw_only=True)
class TableInspection:
    """Contents of two tables and all problems in them, which ``raise_problems`` raises."""

    options: TableOptions
    problems: list[str] = field(default_factory=list)
    fixes: list[Mapping[str, str]] = field(default_factory=list)  # of the problems that options solve
    suggestion: TableOptions | None = None  # options that would pass; None if no option fixes it
    columns: list[ColumnFact] = field(default_factory=list)
    rules: tuple[ColumnRule, ...] = ()
    features: list[Column] = field(default_factory=list)
    ids: Column | None = None
    id_type: Any = None  # of the column of ids, before they were read
    written: bool = False  # whether the ids come from a CSV
    y: npt.NDArray[np.int64] | None = None
    targets: npt.NDArray[np.float64] | None = None  # with task='regression'
    class_names: tuple[str, ...] = ()
    parts: list[str | None] | None = None
    ends: Endpoints | None = None
    encoding: Encoding | None = None

    @property
    def rows(self) -> int:
        return 0 if self.ids is None else len(self.ids)

    def known_ids(self, name: str, table: str, advice: tuple[str, str]) -> KnownIds:
        """Return the ids of the nodes or persons, to which other columns refer."""
        assert self.ids is not None
        title, code = f"column {name!r} of the {table}", f"{table}[{name!r}]"
        return KnownIds(self.ids, title, code, self.id_type, self.written, *advice)

    def matrix(self) -> Matrix:
        return encode(self.features, self.rules, self.rows)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Record an error and continue: all problems are reported together."""
        try:
            yield
        except GraphError as error:
            self.problems.append(str(error))
            if isinstance(error, FixableError):
                self.fixes.append(error.fix)

    def describe(self, table: str, name: str, type: str, becomes: str) -> None:
        self.columns.append(ColumnFact(table, name, type, becomes))

    def raise_problems(self) -> None:
        if self.problems:
            passing = self.suggestion
            raise TableError(
                self.problems,
                None if passing is None else passing.flags(),
                None if passing is None else passing.keywords(),
            )


def edges_file(path: Path) -> Path:
    """Return the table of edges: the path, or the table in a folder of a released graph."""
    return path / EDGES_FILE if path.is_dir() else path


# -- two tables ----


def inspect_tables(
    nodes: TableSource,
    edges: TableSource | None,
    options: TableOptions,
    *,
    private_records: bool = False,
    private_edges: bool = False,
) -> TableInspection:
    """Read both tables, or a table of nodes alone, once, and collect all validation errors.

    Args:
        options: The columns and their use. Options for features are ignored if there is an ``encoding``.
        private_records: Whether node records are protected, so that no rule may be read from them.
        private_edges: Whether edges are protected, so that each end must be a listed node.
    """
    options.check_roles(("id",) if edges is None else ("id", "source", "target"))
    options = options.resolved()
    id, (source, target) = str(options.id), map(str, (options.source, options.target))
    listed = None
    if options.node_ids is not None:
        public = FileSource(options.node_ids, options.csv_format)
        listed = files.column(read_ids(public, [id]), id)
    found = TableInspection(options=options, written=nodes.written)
    names = edge_names = None
    with found.collecting():
        names = _names(nodes, list(options.of_nodes().values()), [id], found)
        ends = options.of_edges()
        edge_names = ends if edges is None else _names(edges, ends, [source, target], found)
    if names is None or edge_names is None:
        return found
    before = len(found.problems)
    unread = [name for name in edge_names if name not in options.of_edges()]
    ignored = {name for name in options.drop or () if name in unread and name not in names}
    if edge_names:
        with found.collecting():
            reject_two_kinds(id, nodes.title, source, target)
    if len(found.problems) > before:  # other tables are needed, and their columns differ
        return found
    if options.weight is None and options.encoding is None:
        with found.collecting():
            reject_weights(unread, "column", tuple(ignored))
    absent = [role for role, name in options.of_nodes().items() if name not in names]
    absent += ["weight"] * (options.weight not in edge_names)
    there = replace(options, **dict.fromkeys(absent))  # type: ignore[arg-type]  # the column of ids is there
    kept = tuple(name for name in options.drop or () if name not in ignored)
    features = FeatureRules(replace(there, drop=kept), private=private_records, written=nodes.written)
    _inspect_nodes(found, nodes, names, there, features, listed)
    parts = dict(zip(there.of_edges(), ("source", "target", "weight"), strict=False))
    for name in edge_names:
        found.describe("edges", name, "", parts.get(name, "ignored"))
    with found.collecting():
        if private_edges and listed is None and options.unknown_ids == ADD:
            raise FixableError(ADD_NEEDS_PUBLIC_IDS_MESSAGE, unknown_ids=DROP)
        if found.ids is not None and edges is not None:
            _inspect_edges(found, edges, there)
    if found.problems:
        if len(found.fixes) == len(found.problems):
            found.suggestion = options.passing(found.fixes, features.columns)
        return found
    used = {*there.of_nodes().values(), *(rule.name for rule in found.rules)}
    found.encoding = Encoding(
        rules=found.rules,
        ignored_nodes=tuple(name for name in names if name not in used),
        ignored_edges=tuple(name for name in edge_names if name not in there.of_edges()),
        unknown_ids=options.unknown_ids or ERROR,
        null_values=None if options.null_values is None else tuple(options.null_values),
        delimiter=options.delimiter,
        decimal=options.decimal,
        nodes_from_edges=options.unknown_ids == ADD and listed is None,
    )
    return found


def inspect_persons(
    persons: TableSource, options: TableOptions, *, private_records: bool = False
) -> TableInspection:
    """Inspect a table of persons, who have no edges."""
    alone = replace(
        options.resolved(), source=None, target=None, weight=None, node_ids=None, unknown_ids=None
    )
    found = inspect_tables(persons, None, alone, private_records=private_records)
    found.columns = [replace(one, table="persons") for one in found.columns]
    return found


def _names(
    given: TableSource, wanted: list[str], needed: Sequence[str], found: TableInspection
) -> list[str] | None:
    names, problems = files.check_columns(given, wanted)
    found.problems += problems
    usable = {*needed} <= {*names} and first_duplicate(names) is None
    return names if usable else None


def _inspect_nodes(
    found: TableInspection,
    given: TableSource,
    names: list[str],
    options: TableOptions,
    features: FeatureRules,
    listed: Column | None,
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    words, id, label = options.words, str(options.id), options.label
    own = list(options.of_nodes().values())
    features.choose(given.title, names, own, {*own, *options.aside}, found.problems)
    chosen, before = features.columns, len(found.problems)
    with found.collecting():
        written = [*features.as_written, *own]
        types = dict.fromkeys(written, AS_WRITTEN) if given.written else {}
        table = _without_words(given.read([*own, *chosen], types, words), features, words)
        if table.num_rows == 0:
            raise GraphError(f"{given.title} has no rows, so the graph has no nodes. Give at least one row.")
    if len(found.problems) > before:
        return
    found.id_type = files.column(table.slice(0, 0), id).type
    table = _with_listed(table, id, listed)
    with found.collecting():
        try:
            found.ids = distinct_ids(table, id)
        except GraphError:
            with suppress(GraphError):  # the edges are inspected in any case
                found.ids = pc.unique(keys(files.column(table, id).drop_null(), id))
            raise
    becomes = "label"
    with found.collecting():
        if options.task == REGRESSION:
            found.targets = numeric_targets(table, label, words, options.csv_format.decimal)
            found.y, becomes = -np.isnan(found.targets).astype(np.int64), "label: a number to predict"
        else:
            found.y, found.class_names = class_codes(table, label, options.classes, words)
            becomes = f"label: {listed_classes(found.class_names)}"
            if options.task is None and options.classes is None:
                reject_numeric(label, found.class_names)
    for role, name in options.of_nodes().items():
        found.describe("nodes", name, _type(table, name), becomes if role == "label" else role)
    if options.split is not None:
        with found.collecting():
            found.parts = _split_parts(table, options.split, words)
    for name in chosen:
        rule = None
        with found.collecting():
            rule = features.rule(table, name)
            found.rules += (rule,)
            found.features.append(files.column(table, name))
        becomes = "error, see below" if rule is None else f"feature: {rule.words()}"
        found.describe("nodes", name, _type(table, name), becomes)
    if not chosen:
        found.rules, found.features = (CONSTANT_FEATURE,), [pa.nulls(table.num_rows)]
        found.describe("nodes", CONSTANT_FEATURE.name, "", f"feature: {CONSTANT_FEATURE.words()}")
    for name in names:
        if name not in {*own, *chosen}:
            becomes = "ignored: the index of a pandas frame" if is_index(name) else "ignored"
            found.describe("nodes", name, "", becomes)


def _without_words(table: Table, features: FeatureRules, words: Sequence[str]) -> Table:
    import pyarrow as pa

    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary)
    tests = (*texts, types.is_large_binary, types.is_dictionary)
    for name in features.columns:
        if not any(test(table.schema.field(name).type) for test in tests):
            continue
        known = features.named_values(name)
        try:
            values = files.column(table, name)
        except GraphError:
            continue  # reported when the column is looked at
        kept = files.without_words(values, [word for word in words if word not in known])
        table = table.set_column(table.column_names.index(name), name, pa.chunked_array([kept]))
    return table


def _split_parts(table: Table, name: str, null_values: Sequence[str]) -> list[str | None]:
    import pyarrow as pa

    try:
        texts = files.column(table, name).cast(pa.large_string())
        words = files.without_words(texts, null_values).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        words = [""]
    parts = [None if word is None else SPLIT_WORDS.get(word.strip().lower(), "") for word in words]
    if "" in parts:
        raise GraphError(
            f"column {name!r} must only contain train, val (valid, validation), test or empty fields."
        )
    if "train" not in parts:
        raise GraphError(
            f"column {name!r} assigns no node to train. Write train in the rows of the training nodes."
        )
    # A member without a label is no error: under a unit of records that is what a null record looks like.
    return parts


def _with_listed(table: Table, id: str, listed: Column | None) -> Table:
    """Return the table with an empty row for each listed node that has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if listed is None:
        return table
    try:
        ids = keys(files.column(table, id), id)
        extra = pc.unique(keys_like(listed, id, ids))
    except GraphError:
        return table  # reported when the ids are read
    new = extra.filter(pc.invert(pc.is_in(extra, value_set=ids))).drop_null()
    table = table.set_column(table.column_names.index(id), id, pa.chunked_array([ids]))
    rows = {field.name: new if field.name == id else pa.nulls(len(new), field.type) for field in table.schema}
    return pa.concat_tables([table, pa.table(rows, schema=table.schema)])


def _inspect_edges(found: TableInspection, given: TableSource, options: TableOptions) -> None:
    import pyarrow as pa

    nodes = found.known_ids(str(options.id), "nodes", GRAPH_ADVICE)
    found.ends, problems = read_endpoints(given, options.of_edges(), nodes, options.unknown_ids or ERROR)
    for problem in problems:
        with found.collecting():
            raise problem
    added = found.ends.added
    if added is None or not len(added):
        return
    # Nodes that only edges name have no label, no part of the split, and no value in any column.
    count = len(added)
    found.ids = pa.concat_arrays([nodes.ids, added])
    if found.y is not None:  # None if the labels cannot be used, which is reported
        found.y = np.concatenate([found.y, np.full(count, UNLABELED)])
    if found.targets is not None:
        found.targets = np.concatenate([found.targets, np.full(count, np.nan)])
    if found.parts is not None:
        found.parts = [*found.parts, *[None] * count]
    found.features = [pa.concat_arrays([one, pa.nulls(count, one.type)]) for one in found.features]
    for rule in found.rules:
        if rule.fill is None and rule.kind != "category":
            with found.collecting():
                raise FixableError(
                    f"column {rule.name!r} has no value for the nodes that edges alone name; state what a "
                    "missing value becomes (--missing indicator)",
                    missing=INDICATOR,
                )


def _type(table: Table, name: str) -> str:
    return str(table.schema.field(name).type).partition("[")[0].removeprefix("large_")


# -- unnamed roles ----
Options = TypeVar("Options", bound=TableOptions)
_IDS = ("id", "node", "node_id", "user", "user_id", "uid", "key", "name")
_ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("a", "b"),
    ("u", "v"),
    ("head", "tail"),
    ("sender", "receiver"),
)
_LABELS = ("label", "class", "target", "y", "segment", "category")
_SPLITS = ("split", "fold")


def guess_roles(nodes: TableSource, edges: TableSource | None, options: Options) -> tuple[Options, list[str]]:
    """Return options with a guessed column for each role that has none, and the guesses as text."""
    names = nodes.names()
    roles = ROLES if edges is not None else ("id", "label", "split")
    given = {role: name for role in roles if (name := getattr(options, role)) is not None}
    found = dict(given)
    if "id" not in found:
        found["id"] = _id_of(nodes, names, [given[role] for role in ("label", "split") if role in given])
    if edges is not None and ("source" not in found or "target" not in found):
        found = _guessed_ends(edges, given.get("weight")) | found
    for role, words in (("label", _LABELS), ("split", _SPLITS)):
        guess = _called(words, [name for name in names if name not in found.values()])
        if role not in found and guess is not None:
            found[role] = guess
    return replace(options, **found), [f"{role} = {found[role]}" for role in found if role not in given]


def _guessed_ends(edges: TableSource, weight: str | None) -> dict[str, str]:
    ends = edges.names()
    free = [name for name in ends if name != weight]
    if len(free) < 2:
        how = files.commas(edges.title, ends) or "name its ends with --source, --target"
        raise GraphError(f"the table of edges has fewer than two columns; {how}")
    called = ((_called((first,), free), _called((second,), free)) for first, second in _ENDS)
    source, target = next((pair for pair in called if None not in pair), free[:2])
    return {"source": str(source), "target": str(target)}


def _id_of(nodes: TableSource, names: Sequence[str], taken: Sequence[str]) -> str:
    """Return the column with a usual name for ids, or else the first one of distinct values."""
    import pyarrow as pa

    free = [name for name in names if name not in taken and not is_index(name)]
    called = _called(_IDS, free)
    types = {called: AS_WRITTEN} if nodes.written and called is not None else {}
    table = nodes.read(free, types, ("",))
    order = [called, *free] if called is not None else free
    for name in order:
        column = files.column(table, name)
        if pa.types.is_integer(column.type) or pa.types.is_large_string(column.type):
            with suppress(GraphError):
                distinct_ids(table, name)
                return name
    if called is not None:
        distinct_ids(table, called)  # raises the error
    raise GraphError(
        f"{nodes.title} has no column with a different id in each row. Name the id column with --id."
    )


def _called(words: Sequence[str], names: Sequence[str]) -> str | None:
    lower = {name.lower().strip(): name for name in reversed(names)}
    return next((lower[word] for word in words if word in lower), None)
