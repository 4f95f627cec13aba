"""Tables as they are: parquet, CSV and frames as checked columns, and what each column becomes.

Nothing here imports torch, so that a table is looked at, and refused, within a second.
"""

from graphveil.tables.files import (
    CSV,
    MAX_ID_BYTES,
    PARQUET,
    RELEASED,
    WRITTEN,
    Column,
    Table,
    check_output,
    column,
    column_names,
    encode,
    id_array,
    keys,
    keys_like,
    matrix,
    read,
    released,
    too_long,
    vector,
    with_record,
    write,
)

__all__ = [
    "CSV",
    "MAX_ID_BYTES",
    "PARQUET",
    "RELEASED",
    "WRITTEN",
    "Column",
    "Table",
    "check_output",
    "column",
    "column_names",
    "encode",
    "id_array",
    "keys",
    "keys_like",
    "matrix",
    "read",
    "released",
    "too_long",
    "vector",
    "with_record",
    "write",
]
