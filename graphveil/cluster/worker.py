"""The task of a Ray worker: open sealed values, compute a block, return noisy results.

Ray chooses a process for each task, and repeats a task whose process is lost. A result depends only on the
block and the work, which has the noise of each row, so a repeated task returns the same bytes. A process
creates one key pair when it starts. It forgets keys, edges and tables at the end of each task.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import graphveil
from graphveil.cluster.sealing import RecipientKey, SecretBox, open_value
from graphveil.data.stored_graph import StoredEdges
from graphveil.errors import GraphveilError

Rows = tuple[int, int]
Result = npt.NDArray[Any] | str | bytes  # noisy values, an error text, or a public key without a sealed key


class SealedValue(NamedTuple):
    """Name of a value, and references to its sealed parts."""

    name: str
    parts: tuple[Any, ...]


class Block(NamedTuple):
    """One task: a block of rows, its edges or the folder of the graph, and the work of the query."""

    rows: Rows
    edges: SealedValue | None
    work: SealedValue | None  # None only opens the graph


@cache
def recipient_key() -> RecipientKey:
    """Return the key pair of this process."""
    return RecipientKey()


def compute_block(version: str, sealed_keys: dict[bytes, bytes], block: Block, threads: int) -> Result:
    """Return the noisy result of a block.

    Errors are returned as text without data values, because Ray would log a raised exception with its whole
    context.

    Args:
        sealed_keys: The key of all values, sealed to the public key of each process that is known.
    """
    from ray import get

    if version != graphveil.__version__:
        return (
            f"the Ray cluster has graphveil {graphveil.__version__}, but this process has {version}. Install "
            "the same version on both."
        )
    public = recipient_key().public
    if public not in sealed_keys:
        return public
    try:
        torch.set_num_threads(threads)
        box = SecretBox(recipient_key().open(sealed_keys[public]))
        edges = None if block.edges is None else open_value(*block.edges, box, get)
        if isinstance(edges, StoredEdges):
            edges.map_files()
        if block.work is None:
            return np.empty(0)
        work = open_value(*block.work, box, get)
        values: Tensor = work(edges.rows(*block.rows) if isinstance(edges, StoredEdges) else edges)
        return values.numpy()
    except GraphveilError as error:
        return str(error)
    except Exception as error:
        return f"a worker failed with {type(error).__name__}"
