"""A model knows the graph that it was fitted on, by a keyed fingerprint that is never published.

An unkeyed digest of a private graph would tell neighboring graphs apart, and whoever holds both key and tag
can test any guess of the edges. So the two live with the fitted model in memory, and on disk in ``internal/``
alone: a release, and a model that was saved by hand, hold neither.
"""

import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy import sparse

from graphveil.artifacts.schemas import StrictSchema, read_schema
from graphveil.data import Graph

FILE = "graph_fingerprint.json"
_BYTES = 32


class GraphFingerprintFile(StrictSchema):
    """``internal/graph_fingerprint.json``: private, like everything beside it."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    tag: str = Field(pattern=r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class GraphFingerprint:
    """The fingerprint of one graph's features and edges: what predictions are computed from.

    >>> import torch
    >>> pair = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    >>> known = GraphFingerprint.from_graph(pair)
    >>> same = Graph.from_edges(torch.eye(2), [1, 0], [1], [0], directed=False)
    >>> known.matches(same), known.matches(pair.replace(x=torch.ones(2, 2))), known
    (True, False, GraphFingerprint())
    """

    key: bytes = field(repr=False)
    tag: bytes = field(repr=False)

    @classmethod
    def from_graph(cls, graph: Graph) -> "GraphFingerprint":
        """Return the fingerprint of a graph under a fresh key."""
        key = secrets.token_bytes(_BYTES)
        return cls(key, _tag(key, graph))

    @classmethod
    def read(cls, folder: Path) -> "GraphFingerprint | None":
        """Return the fingerprint that a run's internal folder holds; None if there is none."""
        path = folder / FILE
        if not path.is_file() or path.is_symlink():
            return None
        file = read_schema(path, GraphFingerprintFile)
        return cls(bytes.fromhex(file.key), bytes.fromhex(file.tag))

    def matches(self, graph: Graph) -> bool:
        """Whether the graph has these features and edges, in this order."""
        return hmac.compare_digest(self.tag, _tag(self.key, graph))

    def as_record(self) -> GraphFingerprintFile:
        """Return it as a file has it."""
        return GraphFingerprintFile(key=self.key.hex(), tag=self.tag.hex())


def _tag(key: bytes, graph: Graph) -> bytes:
    digest = blake2b(f"{graph.directed} {graph.adjacency.max_weight}".encode(), key=key, digest_size=_BYTES)
    for array in _arrays(graph):
        flat = np.ascontiguousarray(array)
        digest.update(f"{flat.dtype} {flat.shape}".encode())
        digest.update(flat.data.cast("B") if flat.size else b"")
    return digest.digest()


def _arrays(graph: Graph) -> Iterator[npt.NDArray[np.generic]]:
    x = graph.x
    yield from (x.indptr, x.indices, x.data) if isinstance(x, sparse.csr_array) else (x.numpy(),)
    yield from (part.numpy() for part in graph.adjacency.arrays)
    yield from () if graph.public is None else (part.numpy() for part in graph.public.arrays)
