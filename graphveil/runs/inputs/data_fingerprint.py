"""Runs that share a folder share their data: a keyed fingerprint, kept while there is something to resume.

An unkeyed digest of private data would tell neighboring graphs apart, so this is an HMAC. It lies in
``internal/work``, its key with those of the noise in the user's own state folder, and both are gone when the
release is published. The record names its key before there is one and until there is none, without a digest:
whenever a process is killed, the next one knows which key to erase.
"""

import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphveil._util.files import make_folder
from graphveil.errors import ConfigError, ReleaseError
from graphveil.release import KeyStore, ReleaseKey
from graphveil.runs.artifacts import RunFolder, damaged_file_error, read_checked, write_checked

if TYPE_CHECKING:
    from graphveil.data import Graph


def check_data(folder: RunFolder, graph: "Graph") -> None:
    """Remember the data that a folder's runs begin with, or refuse others where runs are resumed.

    Args:
        folder: the opened folder.
        graph: the prepared graph, not split yet.

    Raises:
        ConfigError: the data are not those of the first call, or nobody can tell, because the key is gone.
    """
    known = _known(folder)
    if known is None:
        _remember(folder, graph)
        return
    try:
        key = ReleaseKey(known.key, b"", KeyStore().load(known.key))
    except ReleaseError:
        raise ConfigError(
            f"the key that tells whether {folder.root} was begun with these data is gone, so its runs cannot "
            "be resumed; start a new one with another --out (what was recorded stays charged)"
        ) from None
    if not hmac.compare_digest(key.digest(*_arrays(graph)), known.digest):
        raise ConfigError(
            f"{folder.root} holds runs on other data, and figures of two graphs do not mix; resume with the "
            "files of the first call as they were, or choose another --out (what was recorded stays charged)"
        )


def forget_data(folder: RunFolder) -> None:
    """Erase the fingerprint and its key, when no run is left that could meet other data."""
    known = _known(folder)
    if known is not None:
        _write(folder, known.key)
        _drop(folder, known.key)


@dataclass(frozen=True)
class _Known:
    """Which key tells the data again, and what it made of them."""

    key: str
    digest: str


def _known(folder: RunFolder) -> _Known | None:
    """Return the record of a folder's data; a key that was never used, or not any more, is erased first."""
    if not _record(folder).exists():
        return None
    content = read_checked(_record(folder))
    try:
        key, digest = content["key"], content["digest"]
    except KeyError:
        raise damaged_file_error(_record(folder)) from None
    if digest is None:
        _drop(folder, key)
        return None
    return _Known(key, digest)


def _drop(folder: RunFolder, key: str) -> None:
    KeyStore().erase(key)
    _record(folder).unlink()


def _remember(folder: RunFolder, graph: "Graph") -> None:
    key, keys = ReleaseKey.fresh(), KeyStore()
    _write(folder, key.release_id)
    try:
        keys.save(key)
    except OSError as error:
        _record(folder).unlink()
        raise ConfigError(
            f"cannot keep a key in the state folder ({error.strerror}); let XDG_STATE_HOME name one that can "
            "be written"
        ) from None
    _write(folder, key.release_id, key.digest(*_arrays(graph)))


def _write(folder: RunFolder, key: str, digest: str | None = None) -> None:
    make_folder(folder.work, private=True)
    write_checked(_record(folder), {"key": key, "digest": digest})


def _record(folder: RunFolder) -> Path:
    return folder.work / "data.json"


def _arrays(graph: "Graph") -> Iterator[Tensor]:
    """Yield everything that a run reads of a graph."""
    x, masks = graph.x, (graph.train_mask, graph.val_mask, graph.test_mask)
    yield from (x,) if isinstance(x, Tensor) else map(torch.from_numpy, (x.indptr, x.indices, x.data))
    yield from (graph.y, *graph.adjacency.arrays)
    yield from () if graph.label_sets is None else (graph.label_sets,)
    yield from () if graph.public is None else graph.public.arrays
    yield from (mask for mask in masks if mask is not None)
    ids = [] if graph.ids is None else list(map(str, graph.ids.tolist()))  # numbers or text alike
    names = json.dumps([graph.class_names, ids]).encode()
    yield torch.frombuffer(bytearray(names), dtype=torch.uint8)
