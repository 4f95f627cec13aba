"""Snapshots of a training: tensors, and the settings that they are bound to, in one safetensors file."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from graphveil._util.files import load_checked, save_checked
from graphveil.errors import ArtifactError

Binding = Mapping[str, object]


def save(path: Path, tensors: Mapping[str, Tensor], binding: Binding) -> None:
    """Write the tensors and their binding."""
    save_checked(path, tensors, {"binding": _describe_binding(binding)})


def load(path: Path, binding: Binding) -> dict[str, Tensor]:
    """Return the tensors of a snapshot with exactly this binding.

    Raises:
        ArtifactError: If the file is damaged, or was saved with other settings, other data or other noise.
    """
    try:
        tensors, words = load_checked(path)
    except ArtifactError:
        raise ArtifactError(
            f"{path} is not a checkpoint, or is damaged; {_restart_hint(path)}. Queries that have to "
            "be repeated are charged again."
        ) from None
    if words.get("binding") != _describe_binding(binding):
        raise ArtifactError(
            f"{path} was saved with other settings, data or noise. Resume with the original settings, "
            "or use another empty folder (--out, workspace=), which is charged again. To start again "
            f"in this folder: {_restart_hint(path.parent)}"
        )
    return tensors


def _restart_hint(path: Path) -> str:
    """Return a hint that names the file to remove, and the command.

    >>> _restart_hint(Path("my runs/first"))
    "delete it (rm -r 'my runs/first')"
    """
    return f"delete it (rm -r {shlex.quote(str(path))})"


def _describe_binding(binding: Binding) -> str:
    return json.dumps(binding, sort_keys=True)
