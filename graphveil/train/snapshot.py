"""Snapshots of a training: tensors, and the settings that they are bound to, in one safetensors file."""

import json
import shlex
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
        raise ArtifactError(
            f"{path} is no checkpoint, or a damaged one; {_anew(path)}, and what has to be asked again is "
            "charged again"
        ) from None
    with opened as file:
        if (file.metadata() or {}).get("binding") != _words(binding):
            raise ArtifactError(
                f"{path} was saved by a run with other settings, other data or other noise. Resume with what "
                "it was started with; or begin in another, empty folder (--out, workspace=), which asks the "
                f"data again and is charged again. To begin in this one: {_anew(path.parent)}"
            )
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping


def _anew(path: Path) -> str:
    """Return what to remove, and how.

    >>> _anew(Path("my runs/first"))
    "delete it (rm -r 'my runs/first')"
    """
    return f"delete it (rm -r {shlex.quote(str(path))})"


def _words(binding: Binding) -> str:
    return json.dumps(binding, sort_keys=True)
