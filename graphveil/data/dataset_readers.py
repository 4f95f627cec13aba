"""Readers of the datasets: from files on disk, and from where they are published.

Each reader returns what ``Graph.from_edges`` takes. All of these graphs are undirected, and all are public,
so that edges may be read and counted here.

torch_geometric's own dataset classes do most downloads. They check no certificate, and some unpickle what
they get, so a local copy with known checksums is the better choice. The schools of Facebook100 and the
heterophilous graphs are fetched over verified TLS from one pinned commit and compared with known SHA-256
sums.

Files may be hostile. SciPy's reader of MATLAB files follows the file in compiled code, so that format is
read here from the bytes that are there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util.checks import suggestion
from graphveil._util.files import name_in_utf8
from graphveil.core import features
from graphveil.core.edges.csr import check_rows
from graphveil.core.features import Features, Sparse
from graphveil.data.conversion import fields_from_pyg, load_pyg
from graphveil.data.tables.encoding import PARTS
from graphveil.errors import GraphError

Fields: TypeAlias = dict[str, Any]
Ints: TypeAlias = npt.NDArray[np.integer]


# -- datasets on disk ----
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


def read_facebook100(root: Path, name: str) -> Fields:
    """Read ``facebook100/<School>.mat``: label = class year 2004 to 2009, other years unlabeled.

    Features are the one-hot codes of columns 0 to 4, whose code 0 means missing and sets no bit. The
    vocabulary is that of the whole school.
    """
    content = read_matlab(root / f"{name}.mat")
    friends, table = content.get("A"), content.get("local_info")
    if not isinstance(friends, SparsePattern) or not isinstance(table, np.ndarray):
        raise _unexpected(f"{name}.mat must contain a sparse matrix 'A' and a matrix 'local_info'")
    if not (np.abs(table) < _FLOAT64_EXACT).all() or (np.floor(table) != table).any():
        # Each would become any number at all.
        raise _unexpected("A table of codes contains values that are not integers")
    people = table.astype(np.int64)
    years = people[:, _YEAR]
    return {
        "x": one_hot(people[:, _CATEGORIES]),
        "y": np.where(np.isin(years, _YEARS), years - _YEARS[0], -1),
        "source": friends.rows,
        "target": np.repeat(np.arange(len(friends.starts) - 1), np.diff(friends.starts)),
        "class_names": tuple(map(str, _YEARS)),
    }


def _unexpected(words: str) -> GraphError:
    return GraphError(f"{words}. Download the file again.")


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
    return from_pattern(_offsets(present.sum(axis=1)), places[present], columns=offset)


def read_facebook_pages(root: Path, name: str) -> Fields:
    """Read the MUSAE page-page graph: label = page type."""
    types, fields = _musae(root / name, "facebook", "id", "page_type")
    # Objects, because text of a fixed width would cost the longest type for every page.
    classes, y = np.unique(types.astype(object), return_inverse=True)
    return {"y": y, "class_names": tuple(map(str, classes)), **fields}


def read_twitch(root: Path, name: str) -> Fields:
    """Read a MUSAE Twitch graph: label = whether the streamer's content is for adults."""
    mature, fields = _musae(root / name, Path(name).name, "new_id", "mature", _TWITCH_FEATURES)
    return {"y": mature.astype(np.int64), "class_names": ("False", "True"), **fields}


def read_wikipedia(root: Path, name: str) -> Fields:
    """Read a MUSAE Wikipedia graph: label = fifth of the average monthly traffic, lowest first."""
    traffic, fields = _musae(root / name, Path(name).name, "id", "target")
    return {"y": fifths(traffic), **fields}


def _musae(
    folder: Path, stem: str, id: str, value: str, columns: int | None = None
) -> tuple[npt.NDArray[Any], Fields]:
    """Return a column of the nodes in their order, and the features and edges of a graph of MUSAE."""
    values = _in_node_order(_csv(folder / f"{stem}_target.csv"), id, value)
    x = _vocabulary(folder / f"{stem}.json", columns)
    return values, {"x": x, **_edges(folder / f"{stem}_edges.csv")}


def fifths(values: npt.NDArray[np.floating]) -> Ints:
    """Return the quantile class 0 to 4 of every value.

    >>> fifths(np.arange(10.0))
    array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    """
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values)


def read_heterophilous(root: Path, name: str) -> Fields:
    """Read a graph of Platonov et al. without its ten published splits."""
    arrays = read_npz(root / f"{name}.npz", {"node_features", "node_labels", "edges"})
    source, target = _ints(arrays["edges"]).T
    x = arrays["node_features"]
    y = _ints(arrays["node_labels"]).astype(np.int64)
    wide = x.shape[1] >= _DENSE_WIDTH
    return {"x": sparse.csr_array(x) if wide else x, "y": y, "source": source, "target": target}


def read_lastfm_asia(root: Path, name: str) -> Fields:
    """Read the LastFM graph without features (replaced by one constant column): label = country."""
    folder = root / f"{name}_structure"
    table = _csv(folder / "lastfm_asia_target.csv")
    y = _in_node_order(table, "id", "target")
    return {"x": torch.ones(len(y), 1), "y": y, **_edges(folder / "lastfm_asia_edges.csv")}


def read_amazon(root: Path, name: str) -> Fields:
    """Read an Amazon co-purchase graph: label = product category."""
    arrays = read_npz(root / f"{name}.npz", {*_ROWS, *_LABELS_AND_EDGES, "class_names"})
    class_names = arrays["class_names"]
    if class_names.ndim != 1 or class_names.dtype.kind != "U":
        raise _unexpected(f"{name}.npz must contain one text per class in 'class_names'")
    x, names = _compressed_rows(arrays), tuple(class_names.tolist())
    return {"x": x, "class_names": names, **_labels_and_edges(arrays)}


def read_planetoid(root: Path, name: str) -> Fields:
    """Read Cora, CiteSeer or PubMed with the public split: label = topic."""
    members = {f"{part}_idx" for part in PARTS}
    arrays = read_npz(root / "planetoid" / f"{name}.npz", {*_ROWS, *_LABELS_AND_EDGES, *members})
    fields = {"x": _compressed_rows(arrays), **_labels_and_edges(arrays)}
    masks = {f"{part}_mask": _mask(arrays[f"{part}_idx"], fields["y"]) for part in PARTS}
    return fields | masks


def read_karate(root: Path, name: str) -> Fields:
    """Read the karate club: label = community; features are one-hot ids."""
    arrays = read_npz(root / name / "karate.npz", _LABELS_AND_EDGES)
    return {"x": torch.eye(len(arrays["y"])), **_labels_and_edges(arrays)}


def read_ogbn_products(root: Path, name: str) -> Fields:
    """Read ogbn-products as the Open Graph Benchmark packs it (CSV), with its sales-rank split."""
    from pyarrow import csv

    headless = csv.ReadOptions(autogenerate_column_names=True)
    read = (csv.read_csv(name_in_utf8(root / name / file), read_options=headless) for file in OGB_FILES)
    edges, labels, values, *members = read
    y = labels[0].to_numpy()
    masks = {f"{part}_mask": _mask(ids[0].to_numpy(), y) for part, ids in zip(PARTS, members, strict=True)}
    x = np.empty(values.shape, dtype=np.float32)
    for number, column in enumerate(values.columns):
        x[:, number] = column.to_numpy()
    return {"x": x, "y": y, "source": edges[0].to_numpy(), "target": edges[1].to_numpy(), **masks}


def _compressed_rows(arrays: Arrays) -> Features:
    """Return the feature matrix of an archive, dense if it is narrow.

    Decided by its public width: a share of non-zeros could turn with one person's record.
    """
    indptr, indices = arrays["x_indptr"], arrays["x_indices"]
    columns = int(_ints(arrays["x_shape"])[1])
    if columns > _MAX_WIDTH:
        raise _unexpected(f"An archive has {columns} feature columns, but at most {_MAX_WIDTH} are supported")
    x = from_pattern(indptr, indices, columns=columns)
    if "x_data" in arrays:
        x.data[:] = arrays["x_data"]
    return features.to_dense(x) if x.shape[1] < _DENSE_WIDTH else x


def _labels_and_edges(arrays: Arrays) -> Fields:
    source, target = _ints(arrays["edges"])
    return {"y": _ints(arrays["y"]).astype(np.int64), "source": source, "target": target}


def _ints(array: npt.NDArray[Any]) -> Ints:
    if array.dtype.kind not in "iu":
        raise _unexpected("An archive contains other values where integers are expected")
    return array


def _mask(members: npt.NDArray[Any], y: Ints) -> torch.Tensor:
    mask = torch.zeros(len(y), dtype=torch.bool)
    mask[torch.from_numpy(_ints(members).astype(np.int64))] = True
    return mask


def _csv(path: Path) -> Any:
    from pyarrow import csv

    return csv.read_csv(name_in_utf8(path))


def _in_node_order(table: Any, id: str, value: str) -> npt.NDArray[Any]:
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
    return from_pattern(_offsets(np.array(list(map(len, lists)))), indices, columns or indices.max() + 1)


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)])


# -- datasets to download ----
_PINNED = {  # where the files of a family are published, at a fixed commit
    "facebook100": "sisaman/pyg-datasets/9a92bf1e84f73b7b24dd745eb14f13e4d1979769/datasets/facebook100",
    "heterophilous": "yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data",
}
_SHA256 = {
    "facebook100/Berkeley13": "e8bcf00096b9cc18d95d1401ead634c0f5c4303511dc48b5e8056732387ce291",
    "facebook100/Reed98": "d12ec74dc8c6e237385975b976c3709555a83629a1260be693fb688e3446070e",
    "facebook100/Rutgers89": "40a138fda9324a24e2c14c409909d29f766383a50f370b525cd103da374b4760",
    "facebook100/Wisconsin87": "9e1bc77dd1486cf1b41a1aa38c80a41510c944085d8b8b84ac50f724f9c84e86",
    "heterophilous/minesweeper": "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3",
    "heterophilous/squirrel_filtered": "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7",
    "heterophilous/tolokers": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
}
_TIMEOUT = 60  # seconds without an answer


def fetch_facebook100(root: Path, name: str) -> Fields:
    if name not in _SHA256:
        school = Path(name).name
        near = suggestion(school, [Path(known).name for known in _SHA256 if known.startswith("facebook100/")])
        raise GraphError(
            f"{name} was not found on this machine, and it cannot be downloaded because its checksum "
            f"is not known{near}. Put {school}.mat into a folder called facebook100, and pass the "
            "parent of this folder with --root."
        )
    _fetch(root, name, ".mat")
    return read_facebook100(root, name)


def fetch_heterophilous(root: Path, name: str) -> Fields:
    _fetch(root, name, ".npz")
    return read_heterophilous(root, name)


def _fetch(root: Path, name: str, suffix: str) -> None:
    family, _, member = name.partition("/")
    url = f"https://raw.githubusercontent.com/{_PINNED[family]}/{member}{suffix}"
    download(url, root / f"{name}{suffix}", sha256=_SHA256[name])


def download(url: str, path: Path, *, sha256: str) -> None:
    """Download a file to ``path``, which is only created if the checksum is correct."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        digest = hashlib.sha256()
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, os.fdopen(handle, "wb") as file:
            while block := answer.read(1 << 20):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != sha256:
            raise GraphError(
                f"The download of {url} does not have the expected SHA-256 checksum and was deleted. Run "
                "the same command again."
            )
        Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)


def fetch_planetoid(root: Path, name: str) -> Fields:
    title = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}[name]
    return fields_from_pyg(load_pyg("datasets").Planetoid(str(root), title)[0])


def pyg_reader(dataset: str) -> Callable[[Path, str], Fields]:
    """Return a reader that fetches a dataset by its class in torch_geometric.

    Those of MUSAE have 128 dense features in place of the published thousands of binary ones.
    """

    def fetch(root: Path, name: str) -> Fields:
        family, _, member = name.rpartition("/")  # of twitch/DE the class takes the folder and the country
        arguments = (str(root / family), member) if family else (str(root / name),)
        return fields_from_pyg(getattr(load_pyg("datasets"), dataset)(*arguments)[0])

    return fetch


def fetch_wikipedia(root: Path, name: str) -> Fields:
    """Fetch a Wikipedia graph, with 128 dense features; the traffic is cut into fifths as for local files."""
    topic = name.rpartition("/")[2]
    data = load_pyg("datasets").WikipediaNetwork(str(root / "wikipedia"), topic, geom_gcn_preprocess=False)[0]
    return _without_split(fields_from_pyg(data)) | {"y": fifths(data.y.double().numpy())}


def fetch_karate(root: Path, name: str) -> Fields:
    """Return the karate club that torch_geometric contains: the same edges, four other communities."""
    return _without_split(fields_from_pyg(load_pyg("datasets").KarateClub()[0]))


def _without_split(fields: Fields) -> Fields:
    return {key: value for key, value in fields.items() if not key.endswith("mask")}


def fetch_ppi(root: Path, name: str) -> Fields:
    """Fetch the 24 PPI graphs as one, split by graph.

    A node has any of 121 labels: they are the label sets, and the first of them is the class.
    """
    parts = {part: _disjoint(load_pyg("datasets").PPI(str(root / name), part)) for part in PARTS}
    whole = _disjoint(parts.values())
    sizes = [part.num_nodes for part in parts.values()]
    place = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    masks = {f"{part}_mask": place == number for number, part in enumerate(parts)}
    source, target = whole.edge_index
    labels = {"y": whole.y[:, 0].long(), "label_sets": whole.y > 0}
    return {"x": whole.x, **labels, "source": source, "target": target, **masks}


def _disjoint(graphs: Any) -> Any:
    data = load_pyg("data")
    plain = [data.Data(x=graph.x, y=graph.y, edge_index=graph.edge_index) for graph in graphs]
    return data.Batch.from_data_list(plain)


# -- files that may be hostile ----
_MAX_EXPANSION, _SPARE_BYTES = 200, 1 << 26  # of what a file may unpack to
Floats = npt.NDArray[np.float64]
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _PACKED = 14, 15
_SPARSE, _NUMERIC = 5, range(6, 16)
_COMPLEX = 0x800


@dataclass(frozen=True)
class SparsePattern:
    """Positions of the entries of a sparse matrix: ``rows[starts[j]:starts[j + 1]]`` in column j."""

    shape: tuple[int, int]
    rows: Ints
    starts: Ints


def read_matlab(path: Path) -> dict[str, Floats | SparsePattern]:
    """Return the real matrices of a file and the offsets of its sparse ones, by name; skip all others."""
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or int.from_bytes(content[124:126], "little" if order == "<" else "big") != 0x0100:
        raise ValueError("is not a MATLAB 5 file")
    left = _MAX_EXPANSION * len(content) + _SPARE_BYTES
    found: dict[str, Floats | SparsePattern] = {}
    for kind, body in _elements(memoryview(content)[128:], order):
        if kind == _PACKED:
            stream = zlib.decompressobj()
            inside = stream.decompress(body, left)
            if stream.unconsumed_tail:
                raise ValueError("is much larger after decompression than expected")
            left -= len(inside)
            kind, body = next(_elements(memoryview(inside), order))
        if kind == _MATRIX:
            found |= _variable(body, order)
    return found


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and bytes of each element, which begin at every eighth byte if they are not packed."""
    place = 0
    while place + 8 <= len(content):
        word, size = (int(part) for part in np.frombuffer(content[place : place + 8], f"{order}u4"))
        if word >> 16:  # up to four bytes are in the tag itself
            kind, size, start, after = word & 0xFFFF, word >> 16, place + 4, place + 8
        else:
            kind, start = word, place + 8
            after = start + size + (0 if kind == _PACKED else -size % 8)
        if start + size > len(content) or (word >> 16 and size > 4):
            raise ValueError("is incomplete")
        yield kind, content[start : start + size]
        place = after


def _variable(body: memoryview, order: str) -> dict[str, Floats | SparsePattern]:
    """Return one variable by its name; nothing if it is of a kind that is not read."""
    parts = _elements(body, order)
    flags, shape = _numbers(next(parts), order), _numbers(next(parts), order)
    name = bytes(next(parts)[1]).decode("ascii")
    if flags.dtype.kind != "u" or not len(flags) or shape.dtype.kind != "i" or len(shape) < 2:
        raise ValueError("has a variable without a type or a size")
    kind, size = int(flags[0]) & 0xFF, tuple(int(length) for length in shape)
    if kind == _SPARSE and len(size) == 2:
        return {name: _places(parts, order, size)}
    if kind in _NUMERIC and not int(flags[0]) & _COMPLEX:
        values = _numbers(next(parts), order)
        if min(size) < 0 or math.prod(size) != len(values):
            raise ValueError("has a matrix that does not have the size in its header")
        return {name: values.astype(np.float64).reshape(size, order="F")}
    return {}


def _numbers(element: tuple[int, memoryview], order: str) -> npt.NDArray[Any]:
    kind, body = element
    if kind not in _NUMBERS:
        raise ValueError("has other values where numbers are expected")
    return np.frombuffer(body, order + _NUMBERS[kind])


def _places(parts: Iterator[tuple[int, memoryview]], order: str, size: tuple[int, int]) -> SparsePattern:
    """Return the positions of the nonzero entries of a sparse matrix, without its trailing spare space."""
    rows, starts = _numbers(next(parts), order), _numbers(next(parts), order)
    if starts.dtype.kind != "i" or len(starts) != size[1] + 1 or not 0 <= starts[-1] <= len(rows):
        raise ValueError("has a sparse matrix that does not have the size in its header")
    rows = rows[: starts[-1]]
    check_rows(starts, rows, size[0])
    return SparsePattern(size, rows, starts)


Arrays = dict[str, npt.NDArray[Any]]


def read_npz(path: Path, names: Collection[str]) -> Arrays:
    with zipfile.ZipFile(path) as archive:
        wanted = {name: f"{name}.npy" for name in names}
        members = {name: archive.getinfo(file) for name, file in wanted.items() if file in archive.namelist()}
        if {one.compress_type for one in members.values()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("uses a compression that NumPy does not write")
        total = sum(member.file_size for member in members.values())
        if total > _MAX_EXPANSION * path.stat().st_size + _SPARE_BYTES:
            raise ValueError("is much larger after decompression than expected")
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                if file.read(1):  # the checksum of a member is compared at its end
                    raise ValueError("does not have the size in its header")
        return arrays


def from_pattern(indptr: npt.NDArray[np.integer], indices: npt.NDArray[np.integer], columns: int) -> Sparse:
    """Return the sparse binary features with ones at the given places of each row.

    >>> from graphveil.core.features import to_dense
    >>> to_dense(from_pattern(np.array([0, 1, 3]), np.array([2, 0, 2]), columns=3))
    tensor([[0., 0., 1.],
            [1., 0., 1.]])
    """
    check_rows(indptr, indices, columns)
    ones = np.ones(len(indices), dtype=np.float32)
    shape = (len(indptr) - 1, columns)
    return sparse.csr_array((ones, indices.astype(np.int32), indptr.astype(np.int32)), shape=shape)
