"""Convert tables, networkx, torch_geometric, labels and masks to the fields of a graph.

torch_geometric takes seconds to import and is loaded only when it is needed.
"""

from __future__ import annotations

import importlib
import math
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.adjacency import EdgeSet
from graphveil.data import tables
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS, PARTS, SEVERAL_LABELS, class_codes
from graphveil.data.tables.inspect_tables import TableInspection
from graphveil.errors import GraphError, MissingDependencyError

if TYPE_CHECKING:
    from torch_geometric.data import Data


# -- tables, labels and masks ----


def fields_from_tables(found: TableInspection, *, classes_given: bool) -> dict[str, Any]:
    """Return the fields of a graph, with its edges if a table of edges was read."""
    assert found.ids is not None
    ends = found.ends
    edges = {} if ends is None else {"source": ends.tail, "target": ends.head, "weight": ends.weight}
    fields: dict[str, Any] = {
        "x": torch.from_numpy(found.matrix()),
        "y": found.y,
        "targets": found.targets,
        "num_classes": len(found.class_names),
        "class_names": found.class_names,
        "ids": tables.id_array(found.ids),
        "notes": () if classes_given or found.targets is not None else (CLASSES_FROM_LABELS,),
        "encoding": found.encoding,
        **edges,
    }
    if found.parts is not None:
        members = found.parts
        fields |= {f"{part}_mask": torch.tensor([entry == part for entry in members]) for part in PARTS}
    return fields


def named_labels(y: Any) -> tuple[npt.NDArray[np.int64], tuple[str, ...]] | None:
    """Return class numbers and class names of text labels, where None means no label."""
    import pyarrow as pa

    typed = getattr(y, "dtype", None)
    if not isinstance(y, Iterable) or (typed is not None and getattr(typed, "kind", "t") not in "OUT"):
        return None
    values = list(np.asarray(y, dtype=object).ravel()) if not isinstance(y, str) else [y]
    if not any(isinstance(value, str) for value in values):
        return None
    if not all(value is None or isinstance(value, str) for value in values):
        raise GraphError(
            "Labels must be text (None for a node without a label) or one class number per node."
        )
    return class_codes(pa.table({"y": pa.array(values, pa.large_string())}), "y", None)


def _as_tensor(given: Any, problem: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor, an array or a list as a tensor on the CPU that shares no memory with an array."""
    try:
        made = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
        return made.to(dtype=dtype)
    except (TypeError, ValueError, RuntimeError):  # text, or lists of different lengths
        raise GraphError(problem) from None


def as_edge_index(given: Any, title: str) -> Tensor:
    """Return the edges of a Data or of a relation as an integer tensor (2, edges)."""
    problem = (
        f"The 'edge_index' of {title} is not an integer tensor of shape (2, edges). Convert it before you "
        "pass the object."
    )
    held = _as_tensor(given, problem)
    held = held if held.numel() else held.long()  # an empty list has no type
    if held.ndim != 2 or len(held) != 2 or held.is_floating_point() or held.layout != torch.strided:
        raise GraphError(problem)
    return held.long()


def _one_column(values: Tensor) -> Tensor:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def as_label_sets(given: Any, nodes: int) -> Tensor:
    """Return label sets as a bool matrix of one row per node."""
    sets = _as_tensor(given, "Label sets must be a matrix of 0 and 1 with one row per node.")
    if sets.ndim != 2 or sets.shape[0] != nodes or sets.shape[1] < 2:
        raise GraphError(
            f"Label sets have shape {tuple(sets.shape)}. They must be a matrix with one row for each "
            f"of the {nodes:,} nodes and one column for each of at least two labels."
        )
    if sets.dtype != torch.bool and bool(((sets != 0) & (sets != 1)).any()):
        raise GraphError("Label sets must contain only 0 and 1. Write 1 where the node has the label.")
    return sets.bool()


def as_targets(given: Any) -> Tensor:
    """Return numbers to predict as float64 (N), NaN for missing; one column counts as a vector."""
    no_vector = "targets must be a vector with one number per node, NaN where there is none"
    targets = _one_column(_as_tensor(given, no_vector, torch.float64))
    if targets.ndim == 2:
        raise GraphError(
            f"targets have {targets.shape[1]} columns, but a model predicts one number per node. "
            "Choose one column, and fit one model for each column."
        )
    if targets.ndim != 1 or not targets.numel():
        raise GraphError(no_vector)
    if bool(targets.isinf().any()):
        raise GraphError(
            "targets contain infinite numbers. Use finite numbers, or NaN for a node without a target."
        )
    return targets


def as_labels(y: Any) -> Tensor:
    """Return labels as a non-empty int64 vector; a matrix of one column counts as a vector."""
    no_vector = f"Labels must be a vector with one class number per node. {SEVERAL_LABELS}"
    labels = _one_column(_as_tensor(y, no_vector))
    if labels.numel() == 0:
        raise GraphError("The graph has no nodes. Give at least one.")
    if labels.ndim == 1 and labels.is_floating_point():
        raise GraphError(
            "Labels must be a vector with one class number per node. To predict numbers instead of "
            "classes, pass targets= (task='regression')."
        )
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise GraphError(no_vector)
    return labels.long()


def as_mask(given: Any) -> Any:
    """Convert a list or an array of bools to a tensor; return anything else unchanged.

    >>> as_mask([True, False])
    tensor([ True, False])
    """
    with suppress(ValueError):  # lists of different lengths are no mask
        bools = np.asarray(given) if isinstance(given, list | tuple | np.ndarray) else None
        if bools is not None and bools.dtype == np.bool_:
            return torch.tensor(bools)
    return given


# -- networkx ----
NODE, SOURCE, TARGET, WEIGHT = "node", "source", "target", "weight"  # of tables made here


def networkx_tables(
    graph: Any, weight: str | None, dropped: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a networkx graph as a node table, where attributes may be missing, and an edge table."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise GraphError(f"from_networkx needs a networkx graph, but a {type(graph).__name__} was given.")
    held = [(node, {str(name): own[name] for name in own}) for node, own in graph.nodes(data=True)]
    if not held:
        raise GraphError("The networkx graph has no nodes. Give at least one.")
    attributes = dict.fromkeys(name for _, own in held for name in own)
    if NODE in attributes:
        raise GraphError(
            f"A node attribute is called {NODE!r}, which is the name of the column of node ids. "
            "Rename the attribute."
        )
    columns = {name: [_plain(own.get(name)) for _, own in held] for name in attributes}
    pairs = list(graph.edges(data=True))
    ends: dict[str, Any] = {
        SOURCE: _node_id_column([edge[0] for edge in pairs]),
        TARGET: _node_id_column([e[1] for e in pairs]),
    }
    if weight is not None:
        ends[WEIGHT] = [own.get(weight, 1.0) for *_, own in pairs]
    else:
        carried = {str(name) for *_, own in pairs for name, value in own.items() if value != 1}
        tables.reject_weights(sorted(carried), "edge attribute", dropped)
    return {NODE: _node_id_column([node for node, _ in held]), **columns}, ends


def _plain(value: Any) -> Any:
    """Return an attribute as plain Python; NaN is a missing value."""
    plain = value.tolist() if isinstance(value, Tensor | np.ndarray | np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _node_id_column(ids: list[Any]) -> Any:
    import pyarrow as pa

    kinds = {type(one) for one in ids}
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return pa.array([int(one) for one in ids], pa.int64())
    if all(issubclass(kind, str) for kind in kinds):
        return pa.array(ids, pa.large_string())
    raise GraphError(
        "The nodes of the networkx graph must be all integers or all text. Convert them with "
        "graph = networkx.convert_node_labels_to_integers(graph)."
    )


# -- torch_geometric ----
_PART_NAMES = {"valid": "val", "validation": "val"}
_MASKS = ("train_mask", "val_mask", "test_mask")
PYG_NOTES = {"notes": "graphveil_notes", "deviations": "graphveil_deviations"}  # their names in a Data


def load_pyg(module: str) -> ModuleType:
    with warnings.catch_warnings():
        # Its modules call torch.jit.script while they load, which newer torch deprecates, under one category
        # or another. A caller can do nothing about that.
        warnings.filterwarnings("ignore", r"`torch\.jit\.script` is")
        try:
            return importlib.import_module(f"torch_geometric.{module}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("torch_geometric"):  # a package that it needs itself
                raise
            raise MissingDependencyError(
                "Published graphs, to_pyg() and the built-in architectures of gnn need torch_geometric, "
                "which is not installed. Install it: pip install 'graphveil[pyg]'"
            ) from None


def fields_from_pyg(
    data: Data, split: Mapping[str, Any] | None = None, max_weight: float | None = None
) -> dict[str, Any]:
    if not hasattr(data, "edge_index") and not hasattr(data, "adj_t"):
        # A list of graphs, or a dataset, which has a number of classes.
        several: Any = data if isinstance(data, list | tuple) or hasattr(data, "num_classes") else ()
        if any(hasattr(one, "edge_index") for one in several):
            raise GraphError(
                f"from_pyg and fit need one graph, but a {type(data).__name__} was given. Pass one graph "
                "of it, for example dataset[0]."
            )
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise GraphError(
            "This HeteroData has several types of nodes or edges, which node models do not support. "
            "Give all node types the same features and convert it with data.to_homogeneous(), or "
            "build a Data object with one edge type."
        )
    if getattr(data, "y", None) is None:
        raise GraphError("The Data object has no 'y'. Set data.y before you convert it.")
    held, source, target, values = _edges_of(data)
    remarks = {here: found for here, there in PYG_NOTES.items() if (found := getattr(data, there, None))}
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
            "The Data object has edge features in 'edge_attr', which no method uses. Remove them: "
            "data.edge_attr = None. To use numbers of at least 0 as edge weights, store them in "
            "data.edge_weight."
        )
    if max_weight is not None and values is None:
        raise GraphError(
            "max_weight needs edge weights, but the Data object has no 'edge_weight'. Set "
            "data.edge_weight, or remove max_weight."
        )
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


def _tensor(values: Any, part: str) -> Tensor:
    kind = type(values).__name__
    return _as_tensor(
        values, f"data.{part} is a {kind}, which is not an array of numbers. Set it to a tensor."
    )


def _edges_of(data: Data) -> tuple[object, Tensor, Tensor, Tensor | None]:
    if getattr(data, "edge_index", None) is not None:
        held = as_edge_index(data.edge_index, "the Data object")
        return (data if isinstance(data.edge_index, list) else data.edge_index), held[0], held[1], None
    adjacency: Any = getattr(data, "adj_t", None)
    if adjacency is None:
        raise GraphError(
            "The Data object has neither 'edge_index' nor 'adj_t'. Set data.edge_index before you convert it."
        )
    if isinstance(adjacency, Tensor):
        found = adjacency.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        (target, source), values = found.indices().cpu(), found.values().cpu()
    elif hasattr(adjacency, "coo"):  # a SparseTensor of torch_sparse
        target, source, values = (None if part is None else part.cpu() for part in adjacency.coo())
    else:
        raise GraphError(
            f"data.adj_t is a {type(adjacency).__name__}, which is not supported. Use a sparse tensor, or "
            "set data.edge_index instead."
        )
    if values is not None and bool((values == 1).all()):
        values = None  # an entry of 1 only means that there is an edge
    return adjacency, source, target, values


_known_sets: dict[int, tuple[weakref.ref[Any], EdgeSet]] = {}


def _edge_set_of(held: object) -> EdgeSet:
    """Return the edge set of an edge storage object, the same as long as that object exists.

    Two conversions of one ``Data`` are one dataset: with an edge set each, a second fit would begin with an
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
    """Return labels; integers that were stored as floats next to NaN become integers again."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "f":
        y = torch.from_numpy(y)
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return y
    missing = torch.isnan(y)
    whole = torch.where(missing, torch.full_like(y, -1.0), y)
    return whole.long() if bool((whole == whole.round()).all()) else y


def _masks(data: Data, split: Mapping[str, Any] | None) -> dict[str, Tensor]:
    scalar = getattr(data.y, "ndim", 1) == 0 or not hasattr(data.y, "__len__")
    count = len(as_labels(data.y) if scalar else data.y)
    if split is not None:
        if not isinstance(split, Mapping):
            raise GraphError(
                "split must be a mapping with node indices under 'train', 'valid' (or 'val') and 'test'."
            )
        parts = {f"{_PART_NAMES.get(str(part), part)}_mask": index for part, index in split.items()}
        if not set(parts) <= set(_MASKS):
            raise GraphError(
                "split has parts other than 'train', 'valid' (or 'val') and 'test'. Remove the other parts."
            )
    else:
        parts = {name: mask for name in _MASKS if (mask := getattr(data, name, None)) is not None}
    titles = {name: name if split is None else f"split[{name!r}]" for name in parts}
    given = {name: _mask(name, _tensor(mask, titles[name]), count) for name, mask in parts.items()}
    empty = torch.zeros(count, dtype=torch.bool)
    return {name: given.get(name, empty) for name in _MASKS} if given else {}


def _mask(name: str, mask: Tensor, count: int) -> Tensor:
    if mask.ndim != 1:
        raise GraphError(f"data.{name} contains several splits. Choose one: data.{name} = data.{name}[:, 0].")
    if mask.dtype == torch.bool or mask.is_floating_point():
        return mask
    if len(mask) == count and bool(((mask == 0) | (mask == 1)).all()):
        return mask.bool()  # a mask of zeros and ones
    if len(mask) and (int(mask.min()) < 0 or int(mask.max()) >= count):
        raise GraphError(
            f"{name} contains indices that are larger than the {count:,} nodes allow. Use the "
            "positions of nodes, counted from 0."
        )
    members = torch.zeros(count, dtype=torch.bool)
    members[mask.long()] = True
    return members
