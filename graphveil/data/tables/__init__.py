"""Read parquet, CSV and frames as checked columns, and encode columns as features.

Nothing here imports torch, so that a table is validated within a second.
"""

from graphveil.data.tables.edges import reject_weights
from graphveil.data.tables.encoding import matrix
from graphveil.data.tables.files import (
    AS_WRITTEN,
    CSV,
    NULL_VALUES,
    PARQUET,
    RELEASED,
    WRITTEN,
    Column,
    Table,
    check_output,
    column,
    column_names,
    encode,
    has_rows,
    is_csv,
    read,
    released,
    with_record,
    without_formulas,
    write,
)
from graphveil.data.tables.ids import MAX_ID_BYTES, id_array, id_types, keys, keys_like, too_long

__all__ = [
    "AS_WRITTEN",
    "CSV",
    "MAX_ID_BYTES",
    "NULL_VALUES",
    "PARQUET",
    "RELEASED",
    "WRITTEN",
    "Column",
    "Table",
    "check_output",
    "column",
    "column_names",
    "encode",
    "has_rows",
    "id_array",
    "id_types",
    "is_csv",
    "keys",
    "keys_like",
    "matrix",
    "read",
    "reject_weights",
    "released",
    "too_long",
    "with_record",
    "without_formulas",
    "write",
]
