"""Predictions as a table: node, predicted class, one probability a class. Parquet or CSV."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.files import name_in_utf8
from graphveil.data import tables
from graphveil.errors import ArtifactError

if TYPE_CHECKING:
    import pyarrow as pa

Table: TypeAlias = "pa.Table"
Ids: TypeAlias = npt.NDArray[Any] | None

NODE, PREDICTION = "node", "prediction"
_MAX_EXPANSION = 200  # of a compressed table
_SPARE_BYTES = 1 << 26
_CODECS = {"SNAPPY", "UNCOMPRESSED"}  # what we write; others make gigabytes of kilobytes


def predictions_table(proba: Tensor, names: tuple[str, ...], ids: Ids = None) -> Table:
    """Return predictions as a table; nodes without ids of their own are called by their numbers."""
    import pyarrow as pa

    columns = {f"p_{name}": proba[:, index].float().numpy() for index, name in enumerate(names)}
    chosen = pa.array(names).take(pa.array(proba.argmax(dim=1).numpy()))
    return pa.table({NODE: np.arange(len(proba)) if ids is None else ids, PREDICTION: chosen, **columns})


def read_predictions(path: Path, names: tuple[str, ...]) -> tuple[Tensor, Ids]:
    """Return probabilities (N, C) and node ids of a parquet file that may be hostile.

    What is decoded is bounded by the size of the file: pages only in codecs that cannot expand much, rows by
    what they cost as numbers, and ids as a dictionary, so that a repeated one is held once.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = [f"p_{name}" for name in names]
    _check_pages(path, len(columns))
    name = name_in_utf8(path)
    schema = parquet.read_schema(name)
    if schema.names != [NODE, PREDICTION, *columns]:
        raise ArtifactError(f"{path.name} does not have the columns of this model's classes")
    if any(schema.field(name).type != pa.float32() for name in columns):
        raise ArtifactError(f"{path.name} must hold one float32 probability for each class")
    table = parquet.read_table(name, columns=[NODE, *columns], read_dictionary=[NODE])
    proba = np.column_stack([table.column(name).to_numpy() for name in columns])
    ids = _ids(table.column(NODE))
    if ids is None or not np.isfinite(proba).all():
        raise ArtifactError(
            f"{path.name} must hold a node id (at most 1,000 bytes) and finite probabilities in every row"
        )
    return torch.from_numpy(proba), ids


def _check_pages(path: Path, columns: int) -> None:
    """Refuse a parquet file that would grow far beyond its size, before any page of it is read."""
    import pyarrow.parquet as parquet

    metadata = parquet.read_metadata(name_in_utf8(path))
    parts = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    codecs = {part.column(number).compression for part in parts for number in range(part.num_columns)}
    if not codecs <= _CODECS:
        raise ArtifactError(f"{path.name} is packed in another way than ours; take it from the original run")
    if metadata.num_rows * columns * 4 > _MAX_EXPANSION * path.stat().st_size + _SPARE_BYTES:
        raise ArtifactError(
            f"{path.name} claims more rows than its size can hold; take it from the original run"
        )


def _ids(column: Any) -> Ids:
    """Return a column of ids without gaps as an array; None if it is of another type, or one is too long."""
    import pyarrow as pa

    ids = column.unify_dictionaries().combine_chunks()
    if ids.null_count:
        return None
    if not pa.types.is_dictionary(ids.type):
        return tables.id_array(ids) if pa.types.is_integer(ids.type) else None
    if not pa.types.is_string(ids.type.value_type) or tables.too_long(ids.dictionary):
        return None
    return tables.id_array(ids)
