"""To and from torch_geometric, which takes seconds to import and is loaded only when it is needed."""

from __future__ import annotations

import importlib
import warnings
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import features
from graphveil.data.adjacency import Adjacency
from graphveil.data.features import Features
from graphveil.data.identity import EdgeSet
from graphveil.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

PARTS = {"valid": "val", "validation": "val"}
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
    remark_fields = {REMARKS[name]: list(found) for name, found in remarks.items() if found}
    edges = {"edge_index": adjacency.edge_index()}
    if adjacency.weights is not None and adjacency.max_weight is not None:
        edges["edge_weight"] = adjacency.weights * adjacency.max_weight
    data: Data = load("data").Data(x=features.to_dense(x), y=y, **edges, **masks, **remark_fields)
    return data


def fields_of(
    data: Data, split: Mapping[str, Any] | None = None, max_weight: float | None = None
) -> dict[str, Any]:
    """Return what ``Graph.from_edges`` needs from a ``Data``.

    Raises:
        GraphError: a part is missing, nodes or edges are of several types, or edges have weights or features
            that would be ignored.
    """
    if not hasattr(data, "edge_index") and not hasattr(data, "adj_t") and _first_of(data) is not None:
        raise GraphError(
            f"from_pyg and fit take one graph, not a {type(data).__name__}; pass its graph: dataset[0]"
        )
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise GraphError(
            "a HeteroData has several types of nodes or edges, which methods here do not tell apart: give "
            "all types the same features and use data.to_homogeneous(), or build a Data of one type of edges"
        )
    if getattr(data, "y", None) is None:
        raise GraphError("the Data object has no 'y'; set data.y before converting it")
    held, source, target, values = _edges_of(data)
    remarks = {here: found for here, there in REMARKS.items() if (found := getattr(data, there, None))}
    if weighted := getattr(data, "edge_weight", None) is not None:
        values = _tensor(data.edge_weight, "edge_weight")
    if max_weight is None and values is not None:
        where = "edge_weight" if weighted else "adj_t"
        raise GraphError(
            f"The Data object has edge weights in {where!r}, which would be ignored. Use them "
            "with Graph.from_pyg(data, max_weight=...), a public bound, and a method with weights='given', "
            f"or drop them: data.{where} = {'None' if weighted else 'data.adj_t.fill_value(1)'}."
        )
    if getattr(data, "edge_attr", None) is not None:
        raise GraphError(
            "The Data object has edge features in 'edge_attr', which no method here reads. Drop them: "
            "data.edge_attr = None. Numbers of at least 0 can be used as edge weights: data.edge_weight."
        )
    if max_weight is not None and values is None:
        raise GraphError("the Data object has no 'edge_weight'; set it, or leave max_weight out")
    weights = {} if values is None else {"weight": values.reshape(-1), "max_weight": max_weight}
    return {
        "x": getattr(data, "x", None),
        "y": _labels_of(data.y),
        "source": source,
        "target": target,
        "edge_set": _edge_set_of(held),
        **weights,
        **_masks(data, split),
        **remarks,
    }


def _first_of(data: object) -> object:
    """Return the first graph of a dataset or a list of graphs, None where there is none."""
    if not isinstance(data, list | tuple) and not hasattr(data, "num_classes"):
        return None
    return next((one for one in data if hasattr(one, "edge_index")), None)  # type: ignore[attr-defined]


def _tensor(values: Any, part: str) -> Tensor:
    """Return a tensor, an array or a list of numbers as a tensor on the CPU.

    Raises:
        GraphError: it is something else.
    """
    try:
        made = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError):
        raise GraphError(
            f"data.{part} is a {type(values).__name__} that is no array of numbers; set it to a tensor"
        ) from None
    return made.detach().cpu()


def _edges_of(data: Data) -> tuple[object, Tensor, Tensor, Tensor | None]:
    """Return what holds the edges, their two ends, and weights; ``adj_t`` has a row for each target."""
    if getattr(data, "edge_index", None) is not None:
        held = _tensor(data.edge_index, "edge_index")
        held = held if held.numel() else held.long()  # an empty list has no type
        if held.ndim != 2 or len(held) != 2 or held.is_floating_point():
            raise GraphError(
                "the Data object's 'edge_index' is no tensor (2, edges) of whole numbers; make it one first"
            )
        return (data if isinstance(data.edge_index, list) else data.edge_index), held[0], held[1], None
    adjacency: Any = getattr(data, "adj_t", None)
    if adjacency is None:
        raise GraphError(
            "the Data object has neither 'edge_index' nor 'adj_t'; set data.edge_index before converting it"
        )
    values: Any
    if isinstance(adjacency, Tensor):
        found = adjacency.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        (target, source), values = found.indices().cpu(), found.values().cpu()
    elif hasattr(adjacency, "tocoo") or isinstance(adjacency, np.ndarray | list):  # SciPy, or dense
        try:
            matrix: Any = sparse.coo_array(
                adjacency if hasattr(adjacency, "tocoo") else np.asarray(adjacency)
            )
            target, source, values = (
                torch.as_tensor(part) for part in (*map(np.int64, matrix.coords), matrix.data)
            )
        except (TypeError, ValueError):
            raise GraphError("data.adj_t is no matrix of numbers; set data.edge_index instead") from None
        if matrix.ndim != 2:
            raise GraphError("data.adj_t must be a matrix (nodes, nodes); set data.edge_index instead")
    elif hasattr(adjacency, "coo"):  # a SparseTensor of torch_sparse
        target, source, values = (None if part is None else part.cpu() for part in adjacency.coo())
    else:
        raise GraphError(
            f"data.adj_t is a {type(adjacency).__name__}; give a sparse tensor, a SciPy matrix or an array"
        )
    if values is not None and bool((values == 1).all()):
        values = None  # an entry of 1 says that there is an edge, and no more
    return (data if isinstance(adjacency, list) else adjacency), source, target, values


_known_sets: dict[int, tuple[weakref.ref[Any], EdgeSet]] = {}


def _edge_set_of(held: object) -> EdgeSet:
    """Return the edge set of an object that holds edges, the same as long as that object lives.

    Two conversions of one ``Data`` are one data set: with an edge set each, a second fit would begin with an
    empty budget.
    """
    number = id(held)
    known = _known_sets.get(number)
    if known is not None and known[0]() is held:
        return known[1]
    found = EdgeSet()
    _known_sets[number] = weakref.ref(held, lambda _: _known_sets.pop(number, None)), found
    return found


def _labels_of(y: Any) -> Any:
    """Return labels; where whole numbers stand as floats, as beside NaN, they are whole numbers again."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "f":
        y = torch.from_numpy(y)
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return y
    missing = torch.isnan(y)
    whole = torch.where(missing, torch.full_like(y, -1.0), y)
    return whole.long() if bool((whole == whole.round()).all()) else y


def _masks(data: Data, split: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """Return the masks; where only some are set, the others are empty."""
    count = len(data.y)
    if split is not None:
        if not isinstance(split, Mapping):
            raise GraphError("split must be a mapping of indices by train, valid (or val) and test")
        named = {f"{PARTS.get(str(part), part)}_mask": index for part, index in split.items()}
        unknown = set(named) - set(MASKS)
        if unknown:
            raise GraphError("split has parts besides train, valid (val) and test; name these three")
        given = {
            name: _mask(name, _tensor(index, f"split[{name!r}]"), count) for name, index in named.items()
        }
    else:
        given = {
            name: _mask(name, _tensor(mask, name), count)
            for name in MASKS
            if (mask := getattr(data, name, None)) is not None
        }
    empty = torch.zeros(count, dtype=torch.bool)
    return {name: given.get(name, empty) for name in MASKS} if given else {}


def _mask(name: str, mask: Tensor, count: int) -> Tensor:
    """Return a bool mask, of one that is or of the indices of its nodes."""
    if mask.ndim != 1:
        raise GraphError(f"data.{name} holds several splits; choose one: data.{name} = data.{name}[:, 0]")
    if mask.dtype == torch.bool or mask.is_floating_point():
        return mask
    if len(mask) == count and bool(((mask == 0) | (mask == 1)).all()):
        return mask.bool()  # a mask of zeros and ones
    if len(mask) and (int(mask.min()) < 0 or int(mask.max()) >= count):
        raise GraphError(f"{name} holds indices beyond the {count:,} nodes; give positions of nodes")
    members = torch.zeros(count, dtype=torch.bool)
    members[mask.long()] = True
    return members
