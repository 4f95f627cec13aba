"""What a look at two tables gives a graph."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from graphveil.data import tables
from graphveil.data.tables.inspect_tables import TableInspection
from graphveil.data.tables.labels import CLASSES_FROM_LABELS
from graphveil.data.tables.split_parts import PARTS
from graphveil.errors import GraphError


def fields_of(found: TableInspection, *, classes_given: bool) -> dict[str, Any]:
    """Return what ``Graph.from_edges`` needs from tables with which nothing is wrong."""
    assert found.ids is not None and found.ends is not None
    fields: dict[str, Any] = {
        "x": torch.from_numpy(found.matrix()),
        "y": found.y,
        "source": found.ends.tail,
        "target": found.ends.head,
        "weight": found.ends.weight,
        "num_classes": len(found.class_names),
        "class_names": found.class_names,
        "ids": tables.id_array(found.ids),
        "notes": () if classes_given else (CLASSES_FROM_LABELS,),
        "encoding": found.encoding,
    }
    if found.parts is not None:
        members = found.parts
        fields |= {f"{part}_mask": torch.tensor([entry == part for entry in members]) for part in PARTS}
    return fields


def refuse_unlabeled() -> NoReturn:
    """Refuse a graph of which nobody says what is to be learned."""
    raise GraphError(
        "name the label column with label= (--label); a graph to predict only needs classes= instead"
    )
