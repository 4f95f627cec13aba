"""The public folder of a link predictor or a recommender, in a run folder or saved on its own.

``links.json`` or ``recommender.json`` holds parameters and ids, ``model.safetensors`` the released numbers,
``privacy.json`` and ``PRIVACY.md`` the guarantee, which is computed again when the folder is read, and
``README.md`` the model card.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphveil._util.files import as_path, atomic_folder, load_checked, save_checked, writing_folder
from graphveil.core.plan import ReleasePlan
from graphveil.errors import ArtifactError, ConfigError
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard, pair_card
from graphveil.publish.queries import release_rows
from graphveil.publish.release_folder import HUB_PAGE, PRIVACY, WEIGHTS, read_privacy_file, write_guarantee
from graphveil.publish.results import LINK_METRIC_NAMES, LINKS, RECOMMENDER
from graphveil.training.metrics import Interval

Model = TypeVar("Model")


@dataclass(frozen=True)
class LinkFolder:
    """The public folder of a model, and its kind: ``links`` or ``recommender``."""

    kind: str
    path: Path


@dataclass(frozen=True, eq=False)
class LinkRecord:
    """The contents of a folder: parameters and ids as plain values, released numbers, and the guarantee."""

    plain: dict[str, Any]
    tensors: dict[str, Tensor]
    guarantee: Guarantee


def find_link_folder(folder: Path | str) -> LinkFolder | None:
    """Return the public folder of a model in a run folder, or the folder itself; None for other folders."""
    root = Path(folder)
    for path in (root, root / "release"):
        for kind in (LINKS, RECOMMENDER):
            if (path / f"{kind}.json").is_file():
                return LinkFolder(kind, path)
    return None


def write_link_folder(
    folder: Path | str,
    kind: str,
    plain: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    guarantee: Guarantee,
    plan: ReleasePlan,
    card: PairCard,
) -> Path:
    """Write a model to a new folder, atomically.

    Raises:
        ConfigError: If the folder exists, or cannot be written.
    """
    path = as_path(folder, "folder")
    if path.exists():
        raise ConfigError(
            f"{path} already exists, but a model must be saved to a new folder. Choose another folder."
        )
    with writing_folder(path), atomic_folder(path) as work:
        save_checked(work / WEIGHTS, tensors)
        (work / f"{kind}.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        write_guarantee(work, guarantee, release_rows(plan), plan.sampler.__name__)
        (work / HUB_PAGE).write_text(pair_card(card, guarantee), encoding="utf-8")
    return path


def card_metrics(metrics: Mapping[str, Interval] | None) -> list[tuple[str, str, float, float, float]]:
    """Return released metrics for a model card, or for a table."""
    return [
        (name, LINK_METRIC_NAMES[name], one.value, one.low, one.high) for name, one in (metrics or {}).items()
    ]


def read_link_folder(folder: Path | str, kind: str, build: Callable[[LinkRecord], Model]) -> Model:
    """Load a model from a folder, which is read as untrusted input.

    Raises:
        ArtifactError: If the folder holds no such model, or it is damaged.
    """
    path = as_path(folder, "folder")
    found = find_link_folder(path)
    damaged = ArtifactError(
        f"{path} is not a saved {kind}, or it is damaged. Pass the folder that save() wrote."
    )
    if found is None or found.kind != kind:
        raise damaged
    files = [found.path / name for name in (f"{kind}.json", WEIGHTS, PRIVACY)]
    if any(file.is_symlink() for file in files):
        raise ArtifactError(f"{found.path} contains a symbolic link. Copy the files instead.")
    try:
        plain = json.loads(files[0].read_text(encoding="utf-8"))
        guarantee = read_privacy_file(files[2]).guarantee
        return build(LinkRecord(plain, load_checked(files[1])[0], guarantee))
    except ArtifactError:
        raise
    except Exception as error:  # any value of the files may have another type
        raise damaged from error
