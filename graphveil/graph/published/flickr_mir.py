"""FLICKR-MIR as the programs of HeteroRR read it: images, joined by galleries and tags, and by friends.

Of their files only names and content are known, from those programs; the files themselves were never
published. A folder ``flickr_mir`` holds them in their places:

- ``mir.csv``: a row an image, whose column ``people`` is 1 where somebody is in the picture, and 0 elsewhere;
- ``feat/resnet50_plain_feat.npy``: the images' embeddings (N, F), in the same order;
- ``feat/mask_tr.npy``, ``mask_va.npy``, ``mask_te.npy``: which images are for training, validation and
  testing (N);
- ``pairs/mir_priv.pairs``: a line an edge, two image numbers from 0 and at the end 1 where friends took both
  images, which is private, or 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil.errors import GraphError
from graphveil.graph.adjacency import Adjacency
from graphveil.graph.public_part import PublicPart

_IMAGES, _EMBEDDINGS, _PAIRS = "mir.csv", "feat/resnet50_plain_feat.npy", "pairs/mir_priv.pairs"
_MASKS = {"train": "feat/mask_tr.npy", "val": "feat/mask_va.npy", "test": "feat/mask_te.npy"}
FILES = (_IMAGES, _EMBEDDINGS, *_MASKS.values(), _PAIRS)
CLASS_NAMES = ("nobody", "people")


def read(root: Path, name: str) -> dict[str, Any]:
    """Read the graph: label = whether people are in the picture.

    Every image may have private edges: the source lists those that have one, which tells.
    """
    from pyarrow import csv

    folder = root / name
    embeddings = _array(folder / _EMBEDDINGS, None)
    images = len(embeddings)
    people = csv.read_csv(folder / _IMAGES)["people"].to_numpy()
    if embeddings.ndim != 2 or people.shape != (images,) or not np.isin(people, (0, 1)).all():
        raise GraphError(
            f"{_IMAGES} must have 0 or 1 in a column 'people' for each of the {images} rows of {_EMBEDDINGS}"
        )
    source, target, private = _pairs(folder / _PAIRS, images)
    known = Adjacency.from_edges(source[~private], target[~private], num_nodes=images, directed=False)
    masks = {f"{part}_mask": _mask(folder / file, images) for part, file in _MASKS.items()}
    return {
        "x": torch.from_numpy(embeddings.astype(np.float32)),
        "y": torch.from_numpy(people.astype(np.int64)),
        "class_names": CLASS_NAMES,
        "source": source,
        "target": target,
        "public": PublicPart(known, torch.ones(images, dtype=torch.bool)),
        **masks,
    }


def _pairs(
    path: Path, images: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the two ends of every edge, and whether it is private."""
    rows = np.loadtxt(path, dtype=np.int64, ndmin=2)
    if rows.shape[1] < 3 or not np.isin(rows[:, -1], (0, 1)).all():
        raise GraphError(
            f"{_PAIRS} must have two image numbers a line, and 1 at its end if private, 0 if not"
        )
    source, target = rows[:, 0], rows[:, 1]
    if len(rows) and (rows[:, :2].min() < 0 or rows[:, :2].max() >= images):
        raise GraphError(f"{_PAIRS} has an image number that is not in 0..{images - 1}")
    return source, target, rows[:, -1] == 1


def _mask(path: Path, images: int) -> torch.Tensor:
    return torch.from_numpy(_array(path, (images,)).astype(bool))


def _array(path: Path, shape: tuple[int, ...] | None) -> npt.NDArray[Any]:
    """Return an array, of numbers alone: what could run is never unpacked."""
    array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    if shape is not None and array.shape != shape:
        raise GraphError(f"{path.name} has shape {array.shape}, where the embeddings want {shape}")
    return array
