"""Tensors that a resumed run goes on from: safetensors with a digest of all that is in them.

A file of tensors is still one after a bit of its numbers has flipped, and a run that went on from it would
publish something that it never computed. So every internal file says what it holds, and is refused if it does
not hold it.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil._util.files import write_atomic
from graphveil.errors import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor

_DIGEST = "sha256"


def save_checked(path: Path, tensors: "Mapping[str, Tensor]", words: Mapping[str, str] | None = None) -> None:
    """Write tensors, and words that go with them, atomically.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp(), "rows.safetensors")
    >>> save_checked(path, {"rows": torch.ones(2)}, {"of": "a test"})
    >>> load_checked(path)
    ({'rows': tensor([1., 1.])}, {'of': 'a test'})
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = dict(words or {})
    write_atomic(path, save(plain, metadata={**metadata, _DIGEST: _digest(plain, metadata)}))


def load_checked(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return what :func:`save_checked` wrote, to the last bit.

    Raises:
        ArtifactError: the file is damaged, or of another version.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            words = dict(file.metadata() or {})
    except SafetensorError:
        raise _damaged(path) from None
    if words.pop(_DIGEST, None) != _digest(tensors, words):
        raise _damaged(path)
    return tensors, words


def _digest(tensors: "Mapping[str, Tensor]", words: Mapping[str, str]) -> str:
    import torch

    hashed = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        hashed.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _damaged(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged, so the run cannot go on from it; start a new one in a new folder (what was "
        "recorded in the ledger stays charged)"
    )
