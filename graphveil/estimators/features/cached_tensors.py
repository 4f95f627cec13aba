"""What follows from public data alone, kept in a folder that fits share: a sweep learns it once.

The name of a file says what went in: a digest of features, public labels and who has one, of the randomness
and of the recipe. Edges are no part of it, nor is anything that was released: who finds a file there learns
nothing that is protected.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphveil._util.tensors import load_checked, save_checked
from graphveil.data import Features, Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.method import State


def cached_tensors(path: Path, compute: Callable[[], State], fits: Callable[[State], bool]) -> State:
    """Return the tensors of a file, or compute and keep them.

    A file that is damaged, or does not fit, is computed anew and replaced. Files are written in one step, so
    of several writers the last one stays.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ones.safetensors")
    >>> for value in (1.0, 2.0):
    ...     cached_tensors(path, lambda: {"a": torch.tensor(value)}, lambda state: "a" in state)["a"].item()
    1.0
    1.0
    """
    if path.exists():
        try:
            state = load_checked(path)[0]
        except ArtifactError:
            state = {}
        if state and fits(state):
            return state
    state = compute()
    save_checked(path, state)
    return state


def public_digest(graph: Graph, recipe: str, seed: int) -> str:
    """Return a digest of the features, the public labels, and how networks are trained on them.

    Labels of test nodes have no part in it.
    """
    labeled = graph.mask("train") | graph.mask("val")
    cache_key = {"recipe": recipe, "seed": seed, "torch": torch.__version__, "classes": graph.num_classes}
    hashed = hashlib.sha256(json.dumps(cache_key, sort_keys=True).encode())
    for array in (*_arrays(graph.x), labeled.numpy(), graph.y[labeled].numpy()):
        hashed.update(json.dumps([str(array.dtype), list(array.shape)]).encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


def _arrays(x: Features) -> "tuple[np.ndarray[tuple[int, ...], np.dtype[np.generic]], ...]":
    if isinstance(x, Tensor):
        return (x.numpy(),)
    return (np.asarray(x.shape), x.indptr, x.indices, x.data)
