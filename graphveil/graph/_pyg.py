"""To and from torch_geometric, which takes seconds to import and is loaded only when it is needed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphveil.errors import GraphError
from graphveil.graph import features
from graphveil.graph.adjacency import Adjacency
from graphveil.graph.features import Features

if TYPE_CHECKING:
    from torch_geometric.data import Data

MASKS = ("train_mask", "val_mask", "test_mask")
REMARKS = {"notes": "graphveil_notes", "deviations": "graphveil_deviations"}  # by their name in a Data


def load(module: str) -> ModuleType:
    """Return ``torch_geometric.<module>`` without the warnings about its own use of torch."""
    with warnings.catch_warnings():
        # Its modules call torch.jit.script while they load, which newer torch deprecates, under one category
        # or another. A caller can do nothing about that.
        warnings.filterwarnings("ignore", r"`torch\.jit\.script` is")
        return importlib.import_module(f"torch_geometric.{module}")


def to_data(
    x: Features,
    y: Tensor,
    adjacency: Adjacency,
    masks: Mapping[str, Tensor],
    remarks: Mapping[str, tuple[str, ...]],
) -> Data:
    """Return a graph's fields as ``Data``: dense ``x``, ``y``, ``edge_index``, the masks, remarks if any."""
    said = {REMARKS[name]: list(found) for name, found in remarks.items() if found}
    edges = {"edge_index": adjacency.edge_index()}
    if adjacency.weights is not None and adjacency.max_weight is not None:
        edges["edge_weight"] = adjacency.weights * adjacency.max_weight
    data: Data = load("data").Data(x=features.to_dense(x), y=y, **edges, **masks, **said)
    return data


def fields_of(data: Data) -> dict[str, Any]:
    """Return what ``Graph.from_edges`` needs from a ``Data``."""
    for part in ("x", "y", "edge_index"):
        if getattr(data, part, None) is None:
            raise GraphError(f"the Data object has no {part!r}; set data.{part} before converting it")
    source, target = data.edge_index.cpu()
    remarks = {here: found for here, there in REMARKS.items() if (found := getattr(data, there, None))}
    return {"x": data.x, "y": data.y, "source": source, "target": target, **_masks(data), **remarks}


def weights_of(data: Data) -> Tensor:
    """Return ``edge_weight``, one number per edge."""
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        raise GraphError("the Data object has no 'edge_weight'; set it, or leave max_weight out")
    flat: Tensor = weight.detach().cpu().reshape(-1)
    return flat


def _masks(data: Data) -> dict[str, Tensor]:
    """Return the masks; where only some are set, the others are empty."""
    given = {name: mask.cpu() for name in MASKS if (mask := getattr(data, name, None)) is not None}
    for name, mask in given.items():
        if mask.ndim != 1:
            raise GraphError(f"data.{name} holds several splits; choose one: data.{name} = data.{name}[:, 0]")
    empty = torch.zeros(len(data.y), dtype=torch.bool)
    return {name: given.get(name, empty) for name in MASKS} if given else {}
