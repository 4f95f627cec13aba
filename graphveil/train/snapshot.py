"""Snapshots of a training: tensors, and the settings that they are bound to, in one safetensors file."""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from graphveil._files import write_atomic
from graphveil.errors import ArtifactError

Binding = Mapping[str, object]


def save(path: Path, tensors: Mapping[str, Tensor], binding: Binding) -> None:
    """Write the tensors and what they are bound to."""
    from safetensors.torch import save as serialize

    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, serialize(contiguous, metadata={"binding": _words(binding)}))


def load(path: Path, binding: Binding) -> dict[str, Tensor]:
    """Return the tensors of a snapshot with this very binding.

    Raises:
        ArtifactError: the file is damaged, or was saved with other settings, other data or other noise.
    """
    from safetensors import SafetensorError, safe_open

    try:
        opened = safe_open(path, framework="pt")
    except SafetensorError:
        raise ArtifactError(f"{path.name} is no checkpoint, or a damaged one; remove it") from None
    with opened as file:
        if (file.metadata() or {}).get("binding") != _words(binding):
            raise ArtifactError(
                f"{path.name} was saved by a training with other settings, other data or other noise; resume "
                "with what it was started with, or remove it"
            )
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping


def _words(binding: Binding) -> str:
    return json.dumps(binding, sort_keys=True)
