"""What a method sees of a graph under a privacy unit: public fields as they are, protected ones as handles.

``protected_view`` returns a copy of a graph in which handles replace protected fields: ``ProtectedEdges`` for
edges, and ``ProtectedRows`` for features, labels and targets. Queries accept handles, ``collect`` passes
them to the randomizer of the clients, ``map_records`` evaluates a function of one record on them, and
everything else raises ``ProtectedDataError``. A method that would read a protected field without a query
therefore fails before anything is charged.

This stops accidents. Python code that wants to read the data can.
"""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency, ProtectedEdges
from graphveil.core.features import ProtectedRows
from graphveil.core.keys import keyed_digest
from graphveil.core.unit import LocalAttributes, Node, NodeRecord, Person, Unit
from graphveil.errors import ProtectedDataError

G = TypeVar("G")
D = TypeVar("D")
LABEL_FIELDS = ("y", "label_sets", "targets")
_PROBED, _TOLERANCE = 4, 1e-4  # records of a probe, and how far rounding may move a result


class RecordFunction:
    """A function of one record and public values, evaluated on many records at once.

    The function takes batches, one row per record, and returns a tensor or a tuple of tensors with one row
    per record. Row i of the result may depend on row i of the arguments only. This is probed on the first
    call: a few records are evaluated together, next to a nulled record, and alone.

    >>> rows = ProtectedRows(torch.tensor([[1.0], [3.0]]), "node-record")
    >>> RecordFunction(lambda x: 2 * x)(rows)
    ProtectedRows((2, 1))
    >>> RecordFunction(lambda x: x - x.mean())(rows)
    Traceback (most recent call last):
    graphveil.errors.ProtectedDataError: The result of a record function for one record depends on other \
records, which the unit protects from each other. Compute each row from its own record and public values.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._probed = function, False

    def __call__(self, *rows: Any) -> Any:
        """Return the results as handles if an argument is one, and otherwise as they are."""
        handles = [each for each in rows if isinstance(each, ProtectedRows)]
        if not handles:
            return self._function(*rows)
        values = [each._unwrap() if isinstance(each, ProtectedRows) else each for each in rows]
        if len({each.shape[0] for each in values}) > 1:
            raise ProtectedDataError(
                f"The arguments of a record function have {[each.shape[0] for each in values]} rows. Pass "
                "one row per record in each."
            )
        if not self._probed:
            self._probe(values, [isinstance(each, ProtectedRows) for each in rows])
            self._probed = True
        found, unit = self._function(*values), handles[0]._unit
        own = any(each._from_own_list for each in handles)
        if isinstance(found, tuple):
            return tuple(ProtectedRows(each, unit, from_own_list=own) for each in found)
        return ProtectedRows(found, unit, from_own_list=own)

    def _probe(self, values: Sequence[Any], protected: Sequence[bool]) -> None:
        few = [each[:_PROBED] for each in values]
        nulled = [_last_nulled(each) if own else each for each, own in zip(few, protected, strict=True)]
        with torch.random.fork_rng(devices=[]):
            together, changed, alone = (
                _parts(self._function(*given)) for given in (few, nulled, [each[:1] for each in few])
            )
        last = max(0, few[0].shape[0] - 1)
        same = all(_close(a[:last], b[:last]) for a, b in zip(together, changed, strict=True))
        if not same or not all(_close(a[:1], b) for a, b in zip(together, alone, strict=True)):
            raise ProtectedDataError(
                "The result of a record function for one record depends on other records, which the unit "
                "protects from each other. Compute each row from its own record and public values."
            )


def map_records(function: Callable[..., Any], *rows: Any) -> Any:
    """Evaluate a function of one record: ``RecordFunction(function)(*rows)``.

    Args:
        function: Takes batches of rows, and returns rows; row i may depend on row i of its arguments only.
        rows: Handles, or public tensors with one row per record.
    """
    return RecordFunction(function)(*rows)


def protected_view(graph: G, unit: Unit, public: Collection[str] = ()) -> G:
    """Return a copy of a graph with handles in place of the fields that a unit protects.

    Edge-level units protect the edges. Node-level units also protect features, labels and targets. Unit
    ``local-attributes`` protects these and leaves edges as they are. Edges that a mechanism has released are
    public.

    Args:
        public: Names of fields that clients report without protection, under unit ``local-attributes``.

    Privacy:
        Reads and charges: nothing.
    """
    if unit.level == "none":
        return graph
    seen: Any = copy.copy(graph)  # whose fields are checked
    if unit.protects_edges and not seen.adjacency.edge_set.released:
        object.__setattr__(seen, "adjacency", ProtectedEdges(seen.adjacency, unit.name))
    for name in ("x", *LABEL_FIELDS) if unit.protects_records else ():
        rows = getattr(seen, name)
        if rows is not None and name not in public and not isinstance(rows, ProtectedRows):
            object.__setattr__(seen, name, ProtectedRows(rows, unit.name))
    view: G = seen
    return view


def unwrapped(value: Any) -> Any:
    """Return the values of a handle, of a sequence of handles, or of anything else. For the core alone."""
    if isinstance(value, ProtectedRows):
        return value._unwrap_queried()
    if isinstance(value, list | tuple) and any(isinstance(each, ProtectedRows) for each in value):
        return [unwrapped(each) for each in value]
    return value


def unwrapped_fields(data: D) -> D:
    """Return the data of a query with values in place of handles. For the core alone."""
    own: Any = data
    handles = {part.name: getattr(own, part.name) for part in fields(own)}
    found = {
        name: _opened(each, own=False) for name, each in handles.items() if isinstance(each, ProtectedRows)
    }
    return replace(own, **found) if found else data


def own_rows(edges: Adjacency, *values: Any) -> tuple[Any, ...]:
    """Return values of which row v depends on v's own out-edges: handles if the edges are protected."""
    if not isinstance(edges, ProtectedEdges):
        return values
    if edges.unit not in (Node.name, NodeRecord.name, Person.name):
        raise ProtectedDataError(
            f"Unit {edges.unit!r} protects each edge from both of its nodes, so no node may read its own "
            "edges. Use unit 'node-record', or query the edges."
        )
    shared = edges.unit == Node.name  # where the neighbors' lists change as well if a node is nulled
    return tuple(ProtectedRows(each, edges.unit, from_own_list=shared) for each in values)


def per_node(values: Any) -> Any:
    """Return predictions: the values of a handle, and a tensor as it is.

    Row v of a handle is only for people who are authorized to access v's record. A run stores the values in
    ``per_node/``, and no method may compute anything else from them. Under unit ``local-attributes``
    predictions are public, so a handle is rejected.
    """
    return _opened(values) if isinstance(values, ProtectedRows) else values


def owner_total(counts: Any) -> int | None:
    """Return the sum of one number per record, or None for None.

    The sum is for the data owner alone. A run stores it in ``internal/``, and nothing that is published may
    depend on it.
    """
    return None if counts is None else int(unwrapped(counts).sum())


def cache_key(rows: Any) -> str:
    """Return a digest of rows, for a cache in memory; it is not stored or sent."""
    x = unwrapped(rows)
    parts = (x.data, x.indices, x.indptr) if isinstance(x, sparse.csr_array) else (x,)
    return keyed_digest(b"cache", torch.tensor(x.shape), *map(torch.as_tensor, parts))


def kept_rows(
    keep: Callable[[str, Callable[[], dict[str, Tensor]]], dict[str, Tensor]],
    name: str,
    compute: Callable[[], Any],
    like: Any,
) -> Any:
    """Return rows that a run stores in its internal folder; those of protected records stay a handle."""
    rows = keep(name, lambda: {"rows": unwrapped(compute())})["rows"]
    return ProtectedRows(rows, like._unit) if isinstance(like, ProtectedRows) else rows


def _opened(rows: ProtectedRows, *, own: bool = True) -> Any:
    """Return the values of a handle, for its own nodes or for a query, unless clients would report them."""
    if rows._unit == LocalAttributes.name:
        raise ProtectedDataError(
            f"Unit {rows._unit!r} protects each record with the noise of its client, so no query or "
            "prediction may depend on exact records. Use the reports that collect returns."
        )
    return rows._unwrap() if own else rows._unwrap_queried()


def _parts(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _last_nulled(rows: Any) -> Any:
    kept = np.ones(rows.shape[0], dtype=np.float32)
    kept[-1:] = 0
    if isinstance(rows, Tensor):
        mask = torch.from_numpy(kept).view(-1, *[1] * (rows.ndim - 1))
        return torch.where(mask.bool(), rows, torch.zeros_like(rows))
    return sparse.csr_array(sparse.diags_array(kept) @ rows).astype(rows.dtype)


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor):
        a, b = (torch.from_numpy(each if isinstance(each, np.ndarray) else each.toarray()) for each in (a, b))
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
