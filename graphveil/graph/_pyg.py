"""To and from torch_geometric, which takes seconds to import and is loaded only when it is needed."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphveil.errors import GraphError
from graphveil.graph import features

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphveil.graph.graph import Graph

MASKS = ("train_mask", "val_mask", "test_mask")
REMARKS = {"notes": "graphveil_notes", "deviations": "graphveil_deviations"}  # by their name in a Data


def load(module: str) -> ModuleType:
    """Return ``torch_geometric.<module>`` without the deprecation warnings of its own import."""
    with warnings.catch_warnings():
        # Some of its modules call torch.jit.script while they load; a caller can do nothing about that.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"torch_geometric.{module}")


def to_data(graph: Graph) -> Data:
    """Return a graph as ``Data``: dense ``x``, ``y``, ``edge_index``, the masks, and remarks if any."""
    masks = {mask: getattr(graph, mask) for mask in MASKS} if graph.has_split else {}
    remarks = {there: list(found) for here, there in REMARKS.items() if (found := getattr(graph, here))}
    x, edge_index = features.to_dense(graph.x), graph.adjacency.edge_index()
    weights, bound = graph.adjacency.weights, graph.adjacency.max_weight
    weighted = {} if weights is None or bound is None else {"edge_weight": weights * bound}
    data: Data = load("data").Data(x=x, y=graph.y, edge_index=edge_index, **weighted, **masks, **remarks)
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
    """Return ``edge_weight``, one number an edge."""
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
