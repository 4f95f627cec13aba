"""Predictions as a table: node, predicted class, one probability a class. Parquet or CSV."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.errors import ArtifactError

if TYPE_CHECKING:
    import pyarrow as pa

    from graphveil.models.base import Estimator

Table: TypeAlias = "pa.Table"
Ids: TypeAlias = npt.NDArray[Any] | None

NODE, PREDICTION = "node", "prediction"
_MAX_EXPANSION = 200  # of a compressed table
_SPARE_BYTES = 1 << 26


def class_names(model: "Estimator") -> tuple[str, ...]:
    """Return the label of each class, or its number where labels have no names."""
    return model.class_names_ or tuple(str(number) for number in range(model._shape["classes"]))


def predictions_of(model: "Estimator", proba: Tensor | None = None, ids: Ids = None) -> Table:
    """Return the table of the fitted graph's predictions, or of those given."""
    import pyarrow as pa

    if proba is None:
        proba, ids = model.predict_proba(), model.ids_
    names = class_names(model)
    columns = {f"p_{name}": proba[:, index].float().numpy() for index, name in enumerate(names)}
    chosen = np.array(names)[proba.argmax(dim=1).numpy()]
    return pa.table({NODE: np.arange(len(proba)) if ids is None else ids, PREDICTION: chosen, **columns})


def read_predictions(path: Path, names: tuple[str, ...]) -> tuple[Tensor, Ids]:
    """Return probabilities (N, C) and node ids of a parquet file that may be hostile."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = [f"p_{name}" for name in names]
    rows = parquet.read_metadata(path).num_rows
    if rows * len(columns) * 4 > _MAX_EXPANSION * path.stat().st_size + _SPARE_BYTES:
        raise ArtifactError(
            f"{path.name} claims more rows than its size can hold; take it from the original run"
        )
    schema = parquet.read_schema(path)
    if schema.names != [NODE, PREDICTION, *columns]:
        raise ArtifactError(f"{path.name} does not have the columns of this model's classes")
    if any(schema.field(name).type != pa.float32() for name in columns):
        raise ArtifactError(f"{path.name} must hold one float32 probability for each class")
    table = parquet.read_table(path)
    proba = np.column_stack([table.column(name).to_numpy() for name in columns])
    ids = np.asarray(table.column(NODE).to_pylist()) if rows else np.arange(0)
    if not np.isfinite(proba).all() or ids.ndim != 1 or ids.dtype.kind not in "iU":
        raise ArtifactError(f"{path.name} must hold a node id and finite probabilities in every row")
    return torch.from_numpy(proba), ids
