"""Readers of the data sets as they lie on disk. Each returns what ``Graph.from_edges`` takes.

All of these graphs are undirected, and all are public, so that edges may be read and counted here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util.files import name_in_utf8
from graphveil.data import features
from graphveil.data.features import Features, Sparse
from graphveil.data.published import matlab, npz
from graphveil.data.tables.split_parts import PARTS
from graphveil.errors import GraphError

Fields: TypeAlias = dict[str, Any]
Ints: TypeAlias = npt.NDArray[np.integer]

_CATEGORIES = slice(0, 5)  # status, gender, major, second major, dorm; then year and high school
_YEAR = 5
_YEARS = range(2004, 2010)
_TWITCH_FEATURES = 3170  # one vocabulary for all countries
_ROWS = ("x_indptr", "x_indices", "x_data", "x_shape")
_LABELS_AND_EDGES = ("y", "edges")
_FLOAT64_EXACT = 2.0**53  # whole numbers below are floats of their own
_MAX_WIDTH = 1 << 20
_DENSE_WIDTH = 1000  # below, rows of the archives' bags of words are smaller and faster dense

OGB_FILES = (
    "raw/edge.csv.gz",
    "raw/node-label.csv.gz",
    "raw/node-feat.csv.gz",
    "split/sales_ranking/train.csv.gz",
    "split/sales_ranking/valid.csv.gz",
    "split/sales_ranking/test.csv.gz",
)


def facebook100(root: Path, name: str) -> Fields:
    """Read ``facebook100/<School>.mat``: label = class year 2004 to 2009, other years unlabeled.

    Features are the one-hot codes of columns 0 to 4, whose code 0 means missing and sets no bit. The
    vocabulary is that of the whole school.
    """
    content = matlab.read(root / f"{name}.mat")
    friends, table = content.get("A"), content.get("local_info")
    if not isinstance(friends, matlab.SparsePattern) or not isinstance(table, np.ndarray):
        raise GraphError(
            f"{name}.mat must hold a sparse matrix 'A' and a matrix 'local_info'; fetch it again"
        )
    people = _whole_numbers(table)
    years = people[:, _YEAR]
    y = np.where(np.isin(years, _YEARS), years - _YEARS[0], -1)
    x = one_hot(people[:, _CATEGORIES])
    names = tuple(map(str, _YEARS))
    return {
        "x": x,
        "y": y,
        "source": friends.rows,
        "target": np.repeat(np.arange(len(friends.starts) - 1), np.diff(friends.starts)),
        "num_classes": 6,
        "class_names": names,
    }


def one_hot(codes: Ints) -> Sparse:
    """Return one binary column per distinct non-zero code of every column, in column and code order.

    >>> features.to_dense(one_hot(np.array([[7, 1], [0, 2], [5, 1]])))
    tensor([[0., 1., 1., 0.],
            [0., 0., 0., 1.],
            [1., 0., 1., 0.]])
    """
    places, offset = np.full(codes.shape, -1), 0
    for column, values in enumerate(codes.T):
        vocabulary = np.unique(values[values != 0])
        known = values != 0
        places[known, column] = np.searchsorted(vocabulary, values[known]) + offset
        offset += len(vocabulary)
    present = places >= 0
    return features.from_pattern(_offsets(present.sum(axis=1)), places[present], columns=offset)


def facebook_pages(root: Path, name: str) -> Fields:
    """Read the MUSAE page-page graph: label = page type."""
    folder = root / name
    table = _csv(folder / "facebook_target.csv")
    # Objects, because text of a fixed width would cost the longest type for every page.
    types = _in_node_order(table, "id", "page_type").astype(object)
    classes, y = np.unique(types, return_inverse=True)
    x = _vocabulary(folder / "facebook.json")
    return {"x": x, "y": y, "class_names": tuple(map(str, classes)), **_edges(folder / "facebook_edges.csv")}


def twitch(root: Path, name: str) -> Fields:
    """Read a MUSAE Twitch graph: label = whether the streamer's content is for adults."""
    folder, country = root / name, name.rpartition("/")[2]
    table = _csv(folder / f"{country}_target.csv")
    y = _in_node_order(table, "new_id", "mature").astype(np.int64)
    x = _vocabulary(folder / f"{country}.json", columns=_TWITCH_FEATURES)
    return {"x": x, "y": y, "class_names": ("False", "True"), **_edges(folder / f"{country}_edges.csv")}


def wikipedia(root: Path, name: str) -> Fields:
    """Read a MUSAE Wikipedia graph: label = fifth of the average monthly traffic, lowest first."""
    folder, topic = root / name, name.rpartition("/")[2]
    table = _csv(folder / f"{topic}_target.csv")
    traffic = _in_node_order(table, "id", "target")
    x = _vocabulary(folder / f"{topic}.json")
    return {"x": x, "y": fifths(traffic), **_edges(folder / f"{topic}_edges.csv")}


def fifths(values: npt.NDArray[np.floating]) -> Ints:
    """Return the quantile class 0 to 4 of every value.

    >>> fifths(np.arange(10.0))
    array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    """
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values)


def lastfm_asia(root: Path, name: str) -> Fields:
    """Read the LastFM graph without features (one constant column stands for them): label = country."""
    folder = root / f"{name}_structure"
    table = _csv(folder / "lastfm_asia_target.csv")
    y = _in_node_order(table, "id", "target")
    return {"x": torch.ones(len(y), 1), "y": y, **_edges(folder / "lastfm_asia_edges.csv")}


def amazon(root: Path, name: str) -> Fields:
    """Read an Amazon co-purchase graph: label = product category."""
    arrays = npz.read(root / f"{name}.npz", {*_ROWS, *_LABELS_AND_EDGES, "class_names"})
    class_names = arrays["class_names"]
    if class_names.ndim != 1 or class_names.dtype.kind != "U":
        raise GraphError(f"{name}.npz must hold one text per class in 'class_names'; fetch it again")
    return {
        "x": _compressed_rows(arrays),
        "class_names": tuple(class_names.tolist()),
        **_labels_and_edges(arrays),
    }


def planetoid(root: Path, name: str) -> Fields:
    """Read Cora, CiteSeer or PubMed with the public split: label = topic."""
    members = {f"{part}_idx" for part in PARTS}
    arrays = npz.read(root / "planetoid" / f"{name}.npz", {*_ROWS, *_LABELS_AND_EDGES, *members})
    fields = {"x": _compressed_rows(arrays), **_labels_and_edges(arrays)}
    masks = {f"{part}_mask": _mask(arrays[f"{part}_idx"], fields["y"]) for part in PARTS}
    return fields | masks


def karate(root: Path, name: str) -> Fields:
    """Read the karate club: label = community; every member is a feature of its own."""
    arrays = npz.read(root / name / "karate.npz", _LABELS_AND_EDGES)
    return {"x": torch.eye(len(arrays["y"])), **_labels_and_edges(arrays)}


def ogbn_products(root: Path, name: str) -> Fields:
    """Read ogbn-products as the Open Graph Benchmark packs it (CSV), with its sales-rank split."""
    edges, labels, values, *members = (_headless(root / name / file) for file in OGB_FILES)
    y = labels[0].to_numpy()
    masks = {f"{part}_mask": _mask(ids[0].to_numpy(), y) for part, ids in zip(PARTS, members, strict=True)}
    x = np.empty(values.shape, dtype=np.float32)
    for number, column in enumerate(values.columns):
        x[:, number] = column.to_numpy()
    return {"x": x, "y": y, "source": edges[0].to_numpy(), "target": edges[1].to_numpy(), **masks}


def _compressed_rows(arrays: npz.Arrays) -> Features:
    """Return the feature matrix of an archive, dense if it is narrow.

    Decided by its public width: a share of non-zeros could turn with one person's record.
    """
    indptr, indices = arrays["x_indptr"], arrays["x_indices"]
    columns = int(_ints(arrays["x_shape"])[1])
    if columns > _MAX_WIDTH:
        raise GraphError(f"an archive claims {columns} features; at most {_MAX_WIDTH} are read")
    x = features.from_pattern(indptr, indices, columns=columns)
    if "x_data" in arrays:
        x.data[:] = arrays["x_data"]
    return features.to_dense(x) if x.shape[1] < _DENSE_WIDTH else x


def _labels_and_edges(arrays: npz.Arrays) -> Fields:
    source, target = _ints(arrays["edges"])
    return {"y": _ints(arrays["y"]).astype(np.int64), "source": source, "target": target}


def _ints(array: npt.NDArray[Any]) -> Ints:
    if array.dtype.kind not in "iu":
        raise GraphError("an archive holds something else where whole numbers belong; fetch it again")
    return array


def _whole_numbers(values: npt.NDArray[np.float64]) -> Ints:
    """Return floats that are whole numbers as int64; one that is not would become any number at all."""
    if not (np.abs(values) < _FLOAT64_EXACT).all() or (np.floor(values) != values).any():
        raise GraphError("a table of codes holds something else than whole numbers; fetch the file again")
    return values.astype(np.int64)


def _mask(members: npt.NDArray[Any], y: Ints) -> torch.Tensor:
    mask = torch.zeros(len(y), dtype=torch.bool)
    mask[torch.from_numpy(_ints(members).astype(np.int64))] = True
    return mask


def _csv(path: Path) -> Any:
    from pyarrow import csv

    return csv.read_csv(name_in_utf8(path))


def _headless(path: Path) -> Any:
    from pyarrow import csv

    return csv.read_csv(name_in_utf8(path), read_options=csv.ReadOptions(autogenerate_column_names=True))


def _in_node_order(table: Any, id: str, value: str) -> npt.NDArray[Any]:
    """Return a column by ascending node id."""
    order = np.argsort(table[id].to_numpy())
    values: npt.NDArray[Any] = table[value].to_numpy()[order]
    return values


def _edges(path: Path) -> Fields:
    source, target = _csv(path).columns
    return {"source": source.to_numpy(), "target": target.to_numpy()}


def _vocabulary(path: Path, columns: int | None = None) -> Sparse:
    """Return the binary features of a JSON object: node id to a list of feature ids, repeats allowed."""
    content = json.loads(path.read_text(encoding="utf-8"))
    lists = [sorted(set(content[str(node)])) for node in range(len(content))]
    indices = np.array([feature for one in lists for feature in one], dtype=np.int32)
    return features.from_pattern(
        _offsets(np.array(list(map(len, lists)))), indices, columns or indices.max() + 1
    )


def _offsets(counts: Ints) -> Ints:
    """Return where every row starts and the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])
