"""Runs that share a folder share their data: a keyed fingerprint, kept while there is something to resume.

An unkeyed digest of private data would tell neighbouring graphs apart, so this is an HMAC. It lies in
``internal/work``, its key with those of the noise in the user's own state folder, and both are gone when the
release is published.
"""

import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphveil.errors import ConfigError, ReleaseError
from graphveil.experiment.artifacts import RunFolder, read_json, write_json
from graphveil.release import KeyStore, ReleaseKey

if TYPE_CHECKING:
    from graphveil.graph import Graph


def check_data(folder: RunFolder, graph: "Graph") -> None:
    """Remember the data that a folder's runs begin with, or refuse others where runs are resumed.

    Args:
        folder: the opened folder.
        graph: the prepared graph, not split yet.

    Raises:
        ConfigError: the data are not those of the first call, or nobody can tell, because the key is gone.
    """
    if not _record(folder).exists():
        _remember(folder, graph)
        return
    known = read_json(_record(folder))
    try:
        key = ReleaseKey(known["key"], b"", KeyStore().load(known["key"]))
    except ReleaseError:
        raise ConfigError(
            f"the key that tells whether {folder.root} was begun with these data is gone, so its runs cannot "
            "be resumed; start a new one with another --out (what was booked stays charged)"
        ) from None
    if not hmac.compare_digest(key.digest(*_arrays(graph)), known["digest"]):
        raise ConfigError(
            f"{folder.root} holds runs on other data, and figures of two graphs do not mix; resume with the "
            "files of the first call as they were, or choose another --out (what was booked stays charged)"
        )


def forget_data(folder: RunFolder) -> None:
    """Erase the fingerprint and its key, when no run is left that could meet other data."""
    if _record(folder).exists():
        key = read_json(_record(folder))["key"]
        _record(folder).unlink()  # first: without its key it would refuse a run killed while publishing
        KeyStore().erase(key)


def _remember(folder: RunFolder, graph: "Graph") -> None:
    key = ReleaseKey.fresh()
    try:
        KeyStore().save(key)
    except OSError as error:
        raise ConfigError(
            f"cannot keep a key in the state folder ({error.strerror}); let XDG_STATE_HOME name one that can "
            "be written"
        ) from None
    folder.work.mkdir(parents=True, exist_ok=True)
    write_json(_record(folder), {"key": key.release_id, "digest": key.digest(*_arrays(graph))})


def _record(folder: RunFolder) -> Path:
    return folder.work / "data.json"


def _arrays(graph: "Graph") -> Iterator[Tensor]:
    """Yield everything that a run reads of a graph."""
    x, masks = graph.x, (graph.train_mask, graph.val_mask, graph.test_mask)
    yield from (x,) if isinstance(x, Tensor) else map(torch.from_numpy, (x.indptr, x.indices, x.data))
    yield from (graph.y, *graph.adjacency.arrays)
    yield from (mask for mask in masks if mask is not None)
    ids = [] if graph.ids is None else list(map(str, graph.ids.tolist()))  # numbers or text alike
    names = json.dumps([graph.class_names, ids]).encode()
    yield torch.frombuffer(bytearray(names), dtype=torch.uint8)
