"""What keyed fingerprints of a graph are made of: an unkeyed digest would distinguish neighboring graphs.

A ledger recognizes a dataset by its edges, its records and its people, in any order of its rows
(``fingerprint_parts``), under a key that is stored in the ledger. A run folder recognizes the data of an
interrupted run by all arrays in their order (``graph_arrays``). A fitted model recognizes its own graph by
features and edges in their order (``GraphFingerprint``). Anyone with both key and tag can test any guess
of the edges. Both are therefore kept with the fitted model in memory, and on disk in ``internal/`` alone. A
release, and a model saved with ``save``, contain neither.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from torch import Tensor

    from graphveil.data import Graph
    from graphveil.data.relational import Relation

NODE_IDS = "people"  # the fingerprint part of the people alone, without their edges or records
_BLOCK, _ROWS = 1 << 22, 1 << 17  # edges and rows at a time
_KEY_BYTES = 32
GRAPH_FINGERPRINT_FILE = "graph_fingerprint.json"  # private, like everything in internal/
Numbers = np.ndarray[Any, np.dtype[np.uint64]]


def fingerprint_parts(graph: "Graph") -> dict[str, Iterator[bytes]]:
    """Return what a graph's fingerprints are made of: edges, records and people, where it has them."""
    names = _names(graph)
    parts = {"edges": _edges(graph, names)}
    # Records are unknown if tables were read for edges alone: one constant column replaces the features.
    x = graph.x
    constant = not isinstance(x, sparse.csr_array) and x.shape[1] == 1 and bool((x == 1).all())
    has_features = bool(graph.num_features) and not constant
    if has_features or bool((graph.y >= 0).any()):
        parts["records"] = _records(graph, names)
        if has_features:
            parts["features"] = _features(graph, np.argsort(names, kind="stable"))
    if graph.ids is None or _are_row_numbers(graph.ids.tolist()):
        return parts
    return parts | id_fingerprint_parts(graph.ids.tolist())


def _are_row_numbers(ids: Sequence[object]) -> bool:
    """Whether ids are row numbers, from 0 or from 1, which do not identify people across datasets.

    >>> _are_row_numbers([2, 1, 0]), _are_row_numbers(["1", "2"]), _are_row_numbers([5, 6])
    (True, True, False)
    """
    texts = {str(each) for each in ids}
    return any(texts == {str(number) for number in range(first, first + len(ids))} for first in (0, 1))


def id_fingerprint_parts(ids: Iterable[object]) -> dict[str, Iterator[bytes]]:
    """Return the input of the fingerprint of some people: their ids, independent of the order.

    >>> one, other = (b"".join(id_fingerprint_parts(ids)["people"]) for ids in (["ann", 2], ["2", "ann"]))
    >>> one == other
    True
    """
    return {NODE_IDS: iter([np.sort(hash_ids(ids)).tobytes()])}


def hash_ids(ids: Iterable[object]) -> Numbers:
    """Return a number for each id, the same for an id and its text.

    >>> bool((hash_ids([7, "b"]) == hash_ids(["7", "b"])).all())
    True
    """
    digests = (hashlib.blake2b(str(each).encode("utf-8", "surrogatepass"), digest_size=8) for each in ids)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), dtype=np.uint64)


def _names(graph: "Graph") -> Numbers:
    """Return a number for each node that depends on its id alone, or on its place where it has none."""
    if graph.ids is None:
        return splitmix64(np.arange(graph.num_nodes, dtype=np.uint64))
    return hash_ids(graph.ids.tolist())


def _edges(graph: "Graph", names: Numbers) -> Iterator[bytes]:
    """Yield sums over edges, in which no order of rows is left."""
    from graphveil.core.edges.blocks import blocks

    adjacency, count = graph.adjacency, 0
    ends = np.concatenate([names, *_far_names(graph)])
    sums = np.zeros(2, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for block in blocks(adjacency, _ROWS):
            for part in block.pieces(_ROWS, _BLOCK):
                into = np.repeat(np.arange(part.start, part.stop), part.degrees.numpy())
                pair = splitmix64(ends[part.sources.numpy()] ^ splitmix64(ends[into]))
                sums += np.array([pair.sum(), splitmix64(pair).sum()], dtype=np.uint64)
            count += len(block.sources)
    yield f"{graph.num_nodes} {adjacency.directed} {count}".encode()
    yield sums.tobytes()
    yield np.sort(names).tobytes()


def _relations(graph: "Graph") -> "tuple[Relation, ...]":
    from graphveil.data.relational import RelationalGraph

    return graph.relations if isinstance(graph, RelationalGraph) else ()


def _far_names(graph: "Graph") -> Iterator[Numbers]:
    """Yield numbers of the far ends of each table, which depend on its name and their places alone."""
    for one in _relations(graph):
        yield splitmix64(hash_ids([one.name]) ^ np.arange(one.stop - one.first, dtype=np.uint64))


def _catalogs(graph: "Graph") -> "Iterator[Tensor]":
    """Yield the public catalogs of tables, in order."""
    import torch

    for one in _relations(graph):
        title = f"{one.name} {one.entities} {one.values} {one.persons} {one.digest}"
        yield torch.frombuffer(bytearray(title.encode()), dtype=torch.uint8)
        yield from () if one.features is None else _arrays_of(one.features)


def _records(graph: "Graph", names: Numbers) -> Iterator[bytes]:
    """Yield features and labels, people in the order of their names."""
    order = np.argsort(names, kind="stable")
    yield from _features(graph, order)
    for labels in (graph.y, graph.label_sets, graph.targets):
        if labels is not None:
            yield np.ascontiguousarray(labels.numpy()[order]).tobytes()


def _features(graph: "Graph", order: "np.ndarray[Any, np.dtype[np.intp]]") -> Iterator[bytes]:
    x = graph.x
    if isinstance(x, sparse.csr_array):
        yield from (np.ascontiguousarray(part).tobytes() for part in _parts_of(x[order]))
        return
    rows = x.numpy()
    yield f"{rows.dtype}{rows.shape}".encode()
    at_once = max(1, _BLOCK // rows.shape[1])  # a copy of all would not fit where the features just do
    for first in range(0, len(rows), at_once):
        yield rows[order[first : first + at_once]].tobytes()


def splitmix64(values: Numbers) -> Numbers:
    """Return Steele, Lea and Flood's SplitMix64 of each number of 64 bits."""
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True)
class GraphFingerprint:
    """The fingerprint of one graph's features and edges: what predictions are computed from.

    >>> import torch
    >>> from graphveil.data import Graph
    >>> pair = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    >>> known = GraphFingerprint.from_graph(pair)
    >>> same = Graph.from_edges(torch.eye(2), [1, 0], [1], [0], directed=False)
    >>> known.matches(same), known.matches(pair.replace(x=torch.ones(2, 2))), known
    (True, False, GraphFingerprint())
    """

    key: bytes = field(repr=False)
    tag: bytes = field(repr=False)

    @classmethod
    def from_graph(cls, graph: "Graph") -> "GraphFingerprint":
        """Return the fingerprint of a graph under a fresh key."""
        key = secrets.token_bytes(_KEY_BYTES)
        return cls(key, _tag(key, graph))

    def matches(self, graph: "Graph") -> bool:
        return hmac.compare_digest(self.tag, _tag(self.key, graph))


def _tag(key: bytes, graph: "Graph") -> bytes:
    digest = blake2b(
        f"{graph.directed} {graph.adjacency.max_weight}".encode(), key=key, digest_size=_KEY_BYTES
    )
    public = [] if graph.public is None else graph.public.arrays
    for array in (*_arrays_of(graph.x), *graph.adjacency.arrays, *public, *_catalogs(graph)):
        flat = np.ascontiguousarray(array.numpy())
        digest.update(f"{flat.dtype} {flat.shape}".encode())
        digest.update(flat.data.cast("B") if flat.size else b"")
    return digest.digest()


def graph_arrays(graph: "Graph") -> "Iterator[Tensor]":
    """Yield everything that a run reads of a graph, in order."""
    import torch

    yield from _arrays_of(graph.x)
    yield from (graph.y, *graph.adjacency.arrays, *_catalogs(graph))
    yield from () if graph.label_sets is None else (graph.label_sets,)
    yield from () if graph.public is None else graph.public.arrays
    yield from (mask for mask in (graph.train_mask, graph.val_mask, graph.test_mask) if mask is not None)
    ids = [] if graph.ids is None else list(map(str, graph.ids.tolist()))  # numbers or text alike
    names = json.dumps([graph.class_names, ids]).encode()
    yield torch.frombuffer(bytearray(names), dtype=torch.uint8)


def _arrays_of(x: Any) -> "list[Tensor]":
    import torch

    return [torch.from_numpy(part) for part in _parts_of(x)] if isinstance(x, sparse.csr_array) else [x]


def _parts_of(x: sparse.csr_array) -> "list[np.ndarray[Any, Any]]":
    return [x.indptr, x.indices, x.data]
