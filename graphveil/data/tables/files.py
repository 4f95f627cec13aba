"""Parquet and CSV files and frames as checked columns, and back. Errors name columns, never values."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeAlias, cast

from graphveil._util.escape import csv_cell
from graphveil._util.files import can_create, name_in_utf8, write_atomic
from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    import pyarrow as pa

Column: TypeAlias = "pa.Array"
Table: TypeAlias = "pa.Table"

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
DELIMITERS = {",": ",", ";": ";", "\t": "tab", "|": "|"}  # recognized in a header, as flags name them
WRITTEN = (".parquet", ".csv")
_LONGEST_HEADER = 1 << 20
_UUID_BYTES = 16
MAX_ID_BYTES = 1000
RELEASED = b"graphveil.released"  # the key of the record in the metadata of a table of released edges
_DIGESTED = 1 << 16  # rows that are hashed at a time
_DATABASE_ROWS = 1 << 16  # rows that are read at a time
AS_WRITTEN = "large_string"  # the type of a CSV column whose values are not parsed
NULL_VALUES = (  # words for a missing label or feature: those of pandas, and those of databases and of UCI
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "\\N", "?", "-"),
)


class FixableError(GraphError):
    """A problem of a table that other options solve.

    ``fix`` has one value by option: a column to add to ``drop`` or ``categories``, or (``features``) one to
    leave out of the features, or the value of ``missing``, ``unknown_ids`` or ``decimal``.
    """

    def __init__(self, words: str, **fix: str) -> None:
        super().__init__(words)
        self.fix = fix


@dataclass(frozen=True)
class CsvFormat:
    """The column separator of a CSV, and the decimal separator of a number."""

    delimiter: str = ","
    decimal: str = "."


COMMAS = CsvFormat()


def column_names(source: TableSource, wanted: Sequence[str]) -> list[str]:
    """Return the names of all columns, which must be unique and include the requested, distinct ones."""
    names, problems = check_columns(source, wanted)
    if problems:
        raise GraphError(problems[0])
    return names


def check_columns(source: TableSource, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and what is wrong with them.

    Once all wanted names are there, the first row is known to be a header, and may be quoted.
    """
    check_distinct(wanted)
    names = source.names()
    problems = [no_column(source.title, name, names) for name in wanted if name not in names]
    if not problems and (twice := first_duplicate(names)) is not None:
        problems = [f"{source.title} has more than one column {twice!r}; rename or drop all but one"]
    return names, problems


def no_column(title: str, name: str, names: Sequence[str]) -> str:
    """Return an error for a missing column that lists only the number of columns.

    The first row of a CSV without a header is data, so no near name can be suggested.
    """
    own = "name a column of the file, spelt as in the file (a CSV needs a header row)"
    if "." not in title:
        own = (
            "name one of its columns; an index of pandas is no column until frame.reset_index() makes it one"
        )
    how = commas(title, names) or own
    return f"{title} has no column {name!r} among its {len(names)}; {how}"


def commas(title: str, names: Sequence[str]) -> str:
    """Return a hint about the separator for a CSV with one column; empty for other tables.

    Only the delimiter that its first row seems to have is named: that row may be a secret edge.

    >>> commas("edges.csv", ["from;to"]).partition(", or")[0]
    "its columns seem to be separated by ';': add --delimiter ';'"
    """
    if len(names) > 1 or not title.lower().endswith(CSV):
        return ""
    header = "".join(names)
    found = max(DELIMITERS, key=header.count)
    if not header.count(found):
        return "a CSV is read with commas between its columns: save it with commas, and with a header row"
    word = DELIMITERS[found]
    return (
        f"its columns seem to be separated by {word!r}: add --delimiter {shlex.quote(word)}, or save both "
        "tables with commas; without this option a CSV is read with commas between its columns"
    )


@contextmanager
def _reading(path: Path, csv_format: CsvFormat = COMMAS) -> Iterator[None]:
    """Replace errors of Arrow, whose messages quote the offending row."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, pa.ArrowException):
        raise _unreadable(path, csv_format) from None


def with_record(table: Table, record: str) -> Table:
    """Return a table of released edges with their record in its metadata, bound to these rows."""
    bound = json.loads(record) | _rows_of(table)
    return table.replace_schema_metadata({RELEASED: json.dumps(bound, sort_keys=True)})


def released(path: Path) -> str:
    """Return the record of a table of released edges; empty for any other table, and for a CSV.

    Tools that add, drop or change rows keep the metadata of a table, so the record counts only for the rows
    that it was written with.
    """
    import pyarrow.parquet

    if not _is_parquet(path):
        return ""
    name = name_in_utf8(path)
    with _reading(path):
        metadata = pyarrow.parquet.read_schema(name).metadata or {}
        record = bytes(metadata.get(RELEASED, b"")).decode()
        if not record:
            return ""
        found = _rows_of(pyarrow.parquet.read_table(name))
    try:
        plain = json.loads(record)
        bound = {name: plain[name] for name in ("rows", "sha256")}
    except (ValueError, TypeError, KeyError, RecursionError):
        bound = {}
    if bound != found:
        raise GraphError(
            f"The rows of {path.name} are not the rows that were released with its record: rows or columns "
            "were added, removed, changed or reordered. Use the file that `graphveil perturb` wrote. To use "
            "these edges as private ones, write them to a new file without the schema metadata "
            f"{RELEASED.decode()!r}."
        )
    return record


def _rows_of(table: Table) -> dict[str, Any]:
    """Return the number of rows of a table and a SHA-256 of their values, in order, without column names."""
    import pyarrow as pa

    digest = hashlib.sha256()
    for values in table.columns:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_string(values.type) or pa.types.is_string_view(values.type):
            values = values.cast(pa.large_string())
        digest.update(f"{values.type}\n".encode())
        for start in range(0, len(values), _DIGESTED):
            part = values.slice(start, _DIGESTED).to_pylist()
            digest.update(json.dumps(part, ensure_ascii=True, default=repr).encode())
    return {"rows": table.num_rows, "sha256": digest.hexdigest()}


def column(table: Table, name: str) -> Column:
    """Return one column as a single array, dictionaries decoded and text in its 64-bit form."""
    import pyarrow as pa

    chunks, types = table.column(name), pa.types
    coded = chunks.type.value_type if types.is_dictionary(chunks.type) else chunks.type
    as_text = f"write them as text: table[{name!r}] = table[{name!r}].astype(str)"
    if "interval" in str(getattr(coded, "extension_name", "")):  # of pandas.cut and pandas.qcut
        raise GraphError(
            f"column {name!r} holds intervals (pandas.cut), which are no categories yet; {as_text}"
        )
    if isinstance(chunks.type, pa.BaseExtensionType):
        chunks = pa.chunked_array([part.storage for part in chunks.chunks], chunks.type.storage_type)
    if types.is_dictionary(chunks.type) and types.is_string_view(chunks.type.value_type):
        # Arrow cannot decode dictionaries of string views.
        texts = (part.dictionary.cast(pa.large_string()).take(part.indices) for part in chunks.chunks)
        chunks = pa.chunked_array(texts, pa.large_string())
    elif types.is_dictionary(chunks.type):
        if isinstance(chunks.type.value_type, pa.BaseExtensionType):
            raise GraphError(f"column {name!r} holds categories of type {chunks.type.value_type}; {as_text}")
        try:
            chunks = chunks.cast(chunks.type.value_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise GraphError(
                f"column {name!r} holds categories that are no text or numbers; {as_text}"
            ) from None
    if types.is_string(chunks.type) or types.is_string_view(chunks.type):
        chunks = chunks.cast(pa.large_string())  # one array may then hold more than 2 GiB of text
    kind = chunks.type
    variable = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    # Bytes may be text, except 16 of a fixed width, which are a UUID.
    if variable or (types.is_fixed_size_binary(kind) and kind.byte_width != _UUID_BYTES):
        try:
            chunks = chunks.cast(pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid:
            raise GraphError(f"column {name!r} is not UTF-8 text. Save the file in UTF-8.") from None
    return chunks.combine_chunks()


def too_long(ids: Column) -> bool:
    import pyarrow.compute as pc

    return (pc.max(pc.binary_length(ids)).as_py() or 0) > MAX_ID_BYTES


def without_words(values: Column, words: Sequence[str]) -> Column:
    """Return a column of text in which blanks and the given words are missing, each value separately.

    >>> import pyarrow as pa
    >>> without_words(pa.array(["red", " NULL ", " "], pa.large_string()), ["", "NULL"]).to_pylist()
    ['red', None, None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_large_string(values.type):
        return values
    known = pa.array([*dict.fromkeys(("", *words))], pa.large_string())
    return pc.if_else(pc.is_in(pc.utf8_trim_whitespace(values), value_set=known), None, values)


def is_csv(path: Path) -> bool:
    return format_of(path) == "csv"


def encode(table: Table, suffix: str) -> bytes:
    """Return the bytes of a parquet or CSV file; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    sink = pa.BufferOutputStream()
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, sink)
    else:
        pyarrow.parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def check_output(path: Path) -> None:
    """Raise an error if the path's suffix is neither parquet nor CSV, or the file cannot be written."""
    if path.suffix not in WRITTEN:
        raise ConfigError(f"The output file {path.name} must end in {' or '.join(WRITTEN)}. Rename it.")
    if path.is_dir() or not can_create(path):
        raise ConfigError(f"Cannot write {path}. Choose another --out.")


def write(path: Path, table: Table) -> None:
    check_output(path)
    try:
        write_atomic(path, encode(table, path.suffix))
    except OSError as error:
        raise ConfigError(f"Cannot write {path} ({error.strerror}). Choose another --out.") from None


def without_formulas(table: Table) -> Table:
    """Return a table for CSV output, with text escaped that a spreadsheet would run as a formula."""
    import pyarrow as pa

    columns = [
        pa.array([csv_cell(text) for text in column.to_pylist()], column.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[csv_cell(name) for name in table.column_names])


def format_of(path: Path) -> str | None:
    name = path.name.lower()
    return "parquet" if name.endswith(PARQUET) else "csv" if name.endswith(CSV) else None


def _is_parquet(path: Path) -> bool:
    if format_of(path) is None:
        raise GraphError(
            f"{path.name or path} must end in {', '.join(PARQUET + CSV)}. Save the table as Parquet or CSV."
        )
    return format_of(path) == "parquet"


def _parse_options(csv_format: CsvFormat) -> Any:
    from pyarrow import csv as arrow_csv

    return arrow_csv.ParseOptions(delimiter=csv_format.delimiter)


def _convert_options(types: Mapping[str, Any], **more: Any) -> Any:
    from pyarrow import csv as arrow_csv

    # Only an empty field is missing here: in a column of ids, "NA" is a name.
    return arrow_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True, **more)


def _read_csv(
    name: str, columns: Sequence[str], types: Mapping[str, Any], words: Sequence[str], csv_format: CsvFormat
) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def table(types: Mapping[str, Any]) -> Table:
        convert = _convert_options(types, include_columns=list(columns), decimal_point=csv_format.decimal)
        return arrow_csv.read_csv(name, parse_options=_parse_options(csv_format), convert_options=convert)

    try:
        found = table(types)
    except pa.ArrowInvalid:  # a value of another type, or rows of different lengths: then it is raised again
        found = table(dict.fromkeys(types, pa.large_string()))
        for column in types:
            if types[column] == pa.float64() and csv_format.decimal != ".":
                place = found.column_names.index(column)
                found = found.set_column(place, column, _points(found.column(place), csv_format.decimal))
    for place, column in enumerate(found.column_names):
        if column not in types and pa.types.is_string(found.schema.field(place).type):
            found = found.set_column(
                place, column, _typed(found.column(place).cast(pa.large_string()), words, csv_format.decimal)
            )
    return found


def _points(values: Any, decimal: str) -> Any:
    """Return text in which numbers with a decimal comma are written with a point; other text stays."""
    import pyarrow.compute as pc

    number = rf"^(\s*[+-]?[0-9]*){re.escape(decimal)}([0-9]+([eE][+-]?[0-9]+)?\s*)$"
    return pc.replace_substring_regex(values, number, r"\1.\2")


def decimal_commas(values: Any) -> bool:
    """Whether a column of text contains numbers, some of them with a decimal comma.

    >>> import pyarrow as pa
    >>> decimal_commas(pa.array(["1,5", "2"])), decimal_commas(pa.array(["1,5", "red"]))
    (True, False)
    """
    import pyarrow.compute as pc

    there = _trimmed(values)
    if there is None:
        return False
    numbers = pc.match_substring_regex(there, r"^[+-]?[0-9]*(,[0-9]+)?([eE][+-]?[0-9]+)?$")
    if pc.all(pc.match_substring_regex(there, _THOUSANDS)).as_py():
        return False  # 12,500 is more likely a whole number
    return bool(pc.all(numbers).as_py() and pc.any(pc.match_substring(there, ",")).as_py())


def _trimmed(values: Any) -> Any:
    """Return the text that there is in a column, without blanks around it; None for another type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_large_string(values.type) or pa.types.is_string(values.type):
        return pc.utf8_trim_whitespace(values.drop_null())
    return None


_THOUSANDS = r"^[+-]?([1-9][0-9]{0,2}(,[0-9]{3})+|[0-9]+)(\.[0-9]+)?$"
_HINTS = (  # patterns of text that a spreadsheet shows as numbers and dates, and how to write them
    (
        r"^[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{2,4}([ T].*)?$",
        "holds dates in another form than 2024-04-23; convert them, for example table[{0}] = "
        "pandas.to_datetime(table[{0}], format='mixed')  # ISO dates",
    ),
    (
        r"^[+-]?\s*[0-9][0-9.,]*\s*%$",
        "holds numbers with a percent sign; convert them: table[{0}] = table[{0}].str.rstrip('% ')"
        ".astype(float)",
    ),
    (
        r"^[^0-9A-Za-z]{0,3}[0-9]{1,3}(,?[0-9]{3})*(\.[0-9]+)?\s*[^0-9A-Za-z]{0,3}$",
        "holds amounts with a currency sign or thousands separators; convert them: table[{0}] = "
        "table[{0}].str.replace(r'[^0-9.-]', '', regex=True).astype(float)",
    ),
)


def number_hint(values: Any, name: str) -> str | None:
    """Return what kind of numbers or dates a column of text holds and how to convert it; None for others.

    >>> import pyarrow as pa
    >>> number_hint(pa.array(["$1,234.56", "$7"]), "paid").partition(";")[0]
    'holds amounts with a currency sign or thousands separators'
    >>> number_hint(pa.array(["red", "$7"]), "paid") is None
    True
    """
    import pyarrow.compute as pc

    there = _trimmed(values)
    for pattern, words in _HINTS:
        if there is not None and len(there) and pc.all(pc.match_substring_regex(there, pattern)).as_py():
            return words.format(repr(name))
    return None


def _typed(values: Any, words: Sequence[str], decimal: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    there = without_words(values, words)
    trimmed = pc.utf8_trim_whitespace(there)
    for kind in (pa.int64(), pa.bool_(), pa.date32(), pa.timestamp("s"), pa.timestamp("ns"), pa.float64()):
        point = pa.types.is_floating(kind) and decimal != "."
        try:
            return (_points(trimmed, decimal) if point else trimmed).cast(kind)
        except pa.ArrowInvalid:
            continue
    return there


def _unreadable(path: Path, csv_format: CsvFormat = COMMAS) -> GraphError:
    if _is_parquet(path):
        return GraphError(
            f"{path.name} cannot be read as Parquet. Check the file, or save it again as Parquet."
        )
    delimiter = csv_format.delimiter
    between = "comma" if delimiter == "," else repr(DELIMITERS.get(delimiter, delimiter))
    kind = f"CSV ({between}-separated, UTF-8, header row, equal row lengths)"
    header = ""
    with suppress(OSError, EOFError), _opened(path) as file:
        header = file.readline(_LONGEST_HEADER).decode("utf-8-sig", "replace")
    if delimiter not in header and any(mark in header for mark in DELIMITERS):
        return GraphError(f"{path.name} cannot be read as {kind}: {commas(path.name, [header])}")
    where = _bad_line(path, delimiter)
    return GraphError(
        f"{path.name} cannot be read as {kind}{where and f': {where}'}; check the file, or save it again as "
        "parquet"
    )


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb"))


def _bad_line(path: Path, delimiter: str) -> str:
    number = 1

    def lines(file: BinaryIO) -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(file, start=1):
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")

    try:
        with _opened(path) as file:
            rows = csv.reader(lines(file), strict=True, delimiter=delimiter)
            fields = len(next(rows, []))
            start = number + 1
            for row in rows:
                if row and len(row) != fields:
                    return f"line {start:,} has {len(row):,} fields, and the header has {fields:,}"
                start = number + 1
    except UnicodeDecodeError:
        return f"line {number:,} is not text in UTF-8"
    except csv.Error:
        return f"line {number:,} has quotes that do not match"
    except (OSError, EOFError):
        pass
    return ""


@dataclass(frozen=True)
class FileSource:
    """A Parquet or CSV file that is read column by column."""

    path: Path
    csv_format: CsvFormat = COMMAS

    @property
    def title(self) -> str:
        return self.path.name

    def names(self) -> list[str]:
        import pyarrow.csv
        import pyarrow.parquet

        path = self.path
        if path.is_dir():
            raise GraphError(f"{path} is a folder. Name the table in it.")
        is_parquet = _is_parquet(path)
        if not path.is_file():
            raise GraphError(f"There is no file {path}. Check the path.")
        name = name_in_utf8(path)
        with _reading(path, self.csv_format):
            if is_parquet:
                return list(pyarrow.parquet.read_schema(name).names)
            with pyarrow.csv.open_csv(name, parse_options=_parse_options(self.csv_format)) as reader:
                names = list(reader.schema.names)
        if len(names) == 1 and any(mark in names[0] for mark in DELIMITERS):
            raise GraphError(f"{self.title} has one column; {commas(self.title, names)}")
        return names

    @property
    def written(self) -> bool:
        """Whether values are text without types: the file is a CSV."""
        return is_csv(self.path)

    def read(
        self,
        columns: Sequence[str],
        types: Mapping[str, Any] | None = None,
        null_values: Sequence[str] = NULL_VALUES,
    ) -> Table:
        """Return the chosen columns.

        A CSV has no types, and a type inferred from all rows may change with one of them. Columns in
        ``types`` get the given type if all their values can be converted; otherwise they remain text, for a
        reader that converts each value separately. Any other column of a CSV has the type of its values that
        are not among ``null_values``.
        """
        import pyarrow.parquet

        name = name_in_utf8(self.path)
        with _reading(self.path, self.csv_format):
            table = (
                _read_csv(name, columns, types or {}, null_values, self.csv_format)
                if self.written
                else pyarrow.parquet.read_table(name, columns=list(columns))
            )
            table.validate(full=True)  # what is not UTF-8 would otherwise be quoted by a later conversion
        return table

    def batches(self, columns: Sequence[str]) -> Iterator[Table]:
        """Yield parts of a table that may be larger than memory; the values of a CSV are not parsed."""
        import pyarrow as pa
        import pyarrow.dataset

        kind: Any = "parquet"
        if self.written:
            options = _convert_options(dict.fromkeys(columns, AS_WRITTEN))
            kind = pa.dataset.CsvFileFormat(_parse_options(self.csv_format), convert_options=options)
        with _reading(self.path, self.csv_format):
            for part in pa.dataset.dataset(name_in_utf8(self.path), format=kind).to_batches(
                columns=[*columns]
            ):
                part.validate(full=True)
                yield pa.Table.from_batches([part])


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A table in memory, with the interface of a file."""

    table: Table
    title: str
    written: ClassVar[bool] = False

    @classmethod
    def from_frame(cls, frame: Any, title: str) -> FrameSource:
        """Convert a frame of pandas, polars, Arrow or any with ``__arrow_c_stream__``, or plain columns."""
        import pyarrow as pa

        if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy frame of polars
            frame = frame.collect()
        supports_arrow = any(hasattr(frame, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))
        pandas = type(frame).__name__ == "DataFrame" and hasattr(frame, "columns")
        if not (supports_arrow or isinstance(frame, Mapping | pa.Table) or pandas):
            raise GraphError(
                f"{title} is a {type(frame).__name__}. Pass a pandas, polars or Arrow table, or a mapping "
                "of columns."
            )
        named = [str(name) for name in getattr(frame, "columns", ())] if pandas else []
        if (twice := first_duplicate(named)) is not None:
            raise GraphError(f"{title} has more than one column {twice!r}; rename or drop all but one")
        try:
            table = pa.table(dict(frame)) if isinstance(frame, Mapping) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):  # quotes values
            raise _no_table(frame, title) from None
        # The index of a pandas frame without a name.
        unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
        return cls(table.drop_columns(unnamed) if unnamed else table, title)

    def names(self) -> list[str]:
        return list(self.table.column_names)

    def read(self, columns: Sequence[str], *_: Any) -> Table:
        return self.table.select(list(columns))


@dataclass(frozen=True)
class DatabaseSource:
    """A table of a database, with the interface of a file: chosen columns are read in one pass."""

    url: str = field(repr=False)  # may contain a password
    title: str
    written: ClassVar[bool] = False

    @classmethod
    def from_address(cls, address: str) -> DatabaseSource:
        """Return the table of an address ``URL#TABLE``."""
        url, _, name = address.partition("#")
        if not name:
            raise GraphError(
                "A table of a database is written as URL#TABLE, such as sqlite:///shop.db#orders."
            )
        return cls(url, name)

    def names(self) -> list[str]:
        return [column.name for column in self._query(lambda table, connection: list(table.columns))]

    def read(self, columns: Sequence[str], *_: Any) -> Table:
        import pyarrow as pa
        from sqlalchemy import select

        def parts(table: Any, connection: Any) -> list[Table]:
            found = connection.execute(select(*(table.c[name] for name in columns))).partitions(
                _DATABASE_ROWS
            )
            chunks = ([*zip(*part, strict=True)] for part in found)
            return [pa.table(dict(zip(columns, chunk, strict=True))) for chunk in chunks]

        if not columns:
            return pa.table({})
        tables = self._query(parts) or [pa.table({name: pa.nulls(0) for name in columns})]
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()

    def _query(self, of: Callable[[Any, Any], list[Any]]) -> list[Any]:
        import pyarrow as pa
        import sqlalchemy

        try:
            engine = sqlalchemy.create_engine(self.url)
            try:
                with engine.connect() as connection:
                    table = sqlalchemy.Table(self.title, sqlalchemy.MetaData(), autoload_with=connection)
                    return of(table, connection)
            finally:
                engine.dispose()
        except (sqlalchemy.exc.SQLAlchemyError, ImportError, pa.ArrowException) as error:  # quotes values
            raise GraphError(
                f"Table {self.title!r} of the database cannot be read ({type(error).__name__}). Check the "
                "URL, and that its driver is installed."
            ) from None


TableSource: TypeAlias = FileSource | FrameSource | DatabaseSource


def as_source(given: Any, title: str, csv_format: CsvFormat = COMMAS) -> TableSource:
    """Return the table of an address ``URL#TABLE``, of a path, or of a frame with a title."""
    if isinstance(given, str) and "://" in given:
        return DatabaseSource.from_address(given)
    if isinstance(given, str | PathLike):
        return FileSource(Path(given), csv_format)
    return FrameSource.from_frame(given, title)


def _no_table(frame: Any, title: str) -> GraphError:
    import pyarrow as pa

    names = list(frame.keys()) if hasattr(frame, "keys") else []
    for name in names:
        try:
            values = frame[name]
            pa.table({str(name): values}) if isinstance(frame, Mapping) else pa.table(frame[[name]])
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError):
            return GraphError(f"column {name!r} of {title} {reason(frame[name])}")
    lengths = {len(frame[name]) for name in names if hasattr(frame[name], "__len__")}
    if len(lengths) > 1:
        return GraphError(
            f"The columns of {title} have different lengths. Give each column one value per row."
        )
    return GraphError(f"{title} cannot be converted to an Arrow table. Pass a pyarrow.Table.")


def reason(values: Any) -> str:
    kind = str(getattr(values, "dtype", ""))
    if kind.startswith("Sparse"):
        return "is sparse; make it dense first: column.sparse.to_dense()"
    if "complex" in kind:
        return "holds complex numbers; give their real and imaginary parts as two columns"
    if not hasattr(values, "__len__") or isinstance(values, str):
        return f"is a {type(values).__name__}; give a list or an array with one value per row"
    if getattr(values, "ndim", 1) != 1:
        return "has more than one dimension; give one value, or one list, per row"
    try:
        kinds = sorted({type(one).__name__ for one in values if one is not None})
    except TypeError:
        kinds = []
    if kinds == ["complex"]:
        return "holds complex numbers; give their real and imaginary parts as two columns"
    if kinds == ["int"]:
        return "holds integers beyond 64 bits; write them as text: column.astype(str)"
    if len(kinds) > 1:
        return f"has values of mixed types ({', '.join(kinds[:4])}); give it one type: column.astype(str)"
    return f"holds values ({', '.join(kinds) or kind}) that are no numbers, text or dates; convert or drop it"


def first_duplicate(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_distinct(chosen: Sequence[str]) -> None:
    if (twice := first_duplicate(chosen)) is not None:
        raise GraphError(
            f"column {twice!r} is used for two different roles. Name a different column for each role."
        )


def feature_columns(
    path: Path, roles: Sequence[str], features: Sequence[str] | None, *, needs: str
) -> list[str]:
    chosen = [] if features is None else list(features)
    names = column_names(FileSource(path), [*roles, *chosen])
    if features is None:
        chosen = [name for name in names if name not in roles]
    if not chosen:
        how = commas(path.name, names) or "add at least one column of numbers"
        raise GraphError(f"{path.name} has no feature column, and {needs}; {how}")
    return chosen
