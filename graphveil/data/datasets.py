"""Public datasets by name: their catalog, their readers, and random graphs of the papers' sizes.

Each reader returns what ``Graph.from_edges`` takes. All of these graphs are undirected, and all are public,
so that edges may be read and counted here.

torch_geometric's own dataset classes do most downloads. They check no certificate, and some unpickle what
they get, so a local copy with known checksums is the better choice. The schools of Facebook100 and the
heterophilous graphs are fetched over verified TLS from one pinned commit and compared with known SHA-256
sums. Files may be hostile. SciPy's reader of MATLAB files follows the file in compiled code, so that format
is read here from the bytes that are there.

The random graphs are a degree-corrected block model with class-correlated features: Karrer and Newman,
"Stochastic blockmodels and community structure in networks" (2011). Every node has a class and an expected
degree from a log-normal law. One end of an edge is drawn in proportion to the expected degrees; the other one
likewise, from the same class with a probability equal to the homophily. Loops and repeats are redrawn until
the number of edges is exact. No real person is in these graphs, so edges may be counted here.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil._util.checks import checked, suggestion
from graphveil._util.files import name_in_utf8
from graphveil.core import features
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.edges.csr import check_rows
from graphveil.core.features import Features, Sparse
from graphveil.core.noise.random import PublicStreams
from graphveil.data.conversion import fields_from_pyg, load_pyg
from graphveil.data.graph import Graph
from graphveil.data.recipes import RECIPES
from graphveil.data.tables.encoding import PARTS
from graphveil.errors import ConfigError, GraphError, GraphveilError

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
    types, fields = _read_musae(root / name, "facebook", "id", "page_type")
    # Objects, because text of a fixed width would cost the longest type for every page.
    classes, y = np.unique(types.astype(object), return_inverse=True)
    return {"y": y, "class_names": tuple(map(str, classes)), **fields}


def read_twitch(root: Path, name: str) -> Fields:
    """Read a MUSAE Twitch graph: label = whether the streamer's content is for adults."""
    mature, fields = _read_musae(root / name, Path(name).name, "new_id", "mature", _TWITCH_FEATURES)
    return {"y": mature.astype(np.int64), "class_names": ("False", "True"), **fields}


def read_wikipedia(root: Path, name: str) -> Fields:
    """Read a MUSAE Wikipedia graph: label = fifth of the average monthly traffic, lowest first."""
    traffic, fields = _read_musae(root / name, Path(name).name, "id", "target")
    return {"y": fifths(traffic), **fields}


def _read_musae(
    folder: Path, stem: str, id: str, value: str, columns: int | None = None
) -> tuple[npt.NDArray[Any], Fields]:
    """Return a column of the nodes in their order, and the features and edges of a graph of MUSAE."""
    values = _in_node_order(_csv(folder / f"{stem}_target.csv"), id, value)
    x = _vocabulary(folder / f"{stem}.json", columns)
    return values, {"x": x, **_edge_list(folder / f"{stem}_edges.csv")}


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
    return {"x": torch.ones(len(y), 1), "y": y, **_edge_list(folder / "lastfm_asia_edges.csv")}


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


def _edge_list(path: Path) -> Fields:
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


def fetch_pinned(root: Path, name: str) -> Fields:
    """Fetch the file of a dataset from a fixed commit, and read it."""
    family, _, member = name.partition("/")
    if name not in _SHA256:
        near = suggestion(member, [Path(known).name for known in _SHA256 if known.startswith(f"{family}/")])
        raise GraphError(
            f"{name} was not found on this machine, and it cannot be downloaded because its checksum "
            f"is not known{near}. Put {member}.mat into a folder called {family}, and pass the "
            "parent of this folder with --root."
        )
    _, (file,), read, _ = _FAMILIES[family]
    path = root / file.format(member)
    url = f"https://raw.githubusercontent.com/{_PINNED[family]}/{path.name}"
    download(url, path, sha256=_SHA256[name])
    return read(root, name)


def download(url: str, path: Path, *, sha256: str) -> None:
    """Download a file to ``path``, which is only created if the checksum is correct."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), hash_prefix=sha256, progress=False)
    except RuntimeError:
        raise GraphError(
            f"The download of {url} does not have the expected SHA-256 checksum and was deleted. Run "
            "the same command again."
        ) from None


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


# -- random graphs ----
Keys: TypeAlias = npt.NDArray[np.int64]
MakeFeatures: TypeAlias = Callable[[Ints, "Preset", np.random.Generator], Features]

_CHUNK = 1 << 21  # edges drawn at a time; bounds the memory of a draw
_SPREAD = np.log(60.0)  # no expected degree differs from the median by more than a factor of 60


def gaussian(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return dense features: the mean of the node's class, which has norm ``signal``, plus standard noise."""
    means = rng.standard_normal((preset.classes, preset.features), dtype=np.float32)
    means *= preset.signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = rng.standard_normal((len(y), preset.features), dtype=np.float32)
    for number, mean in enumerate(means):
        x[y == number] += mean
    return torch.from_numpy(x)


def binary(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return dense 0/1 features, a fifth of them 1, whose log-odds vary by class with scale ``signal``."""
    log_odds = np.log(0.2 / 0.8) + preset.signal * rng.standard_normal((preset.classes, preset.features))
    rates = 1 / (1 + np.exp(-log_odds))
    return torch.from_numpy((rng.random((len(y), preset.features)) < rates[y]).astype(np.float32))


def categorical(y: Ints, preset: Preset, rng: np.random.Generator) -> Features:
    """Return sparse one-hot features of five attributes, a third of whose entries are missing.

    Within an attribute the log-frequencies of the codes differ by class with scale ``signal``.
    """
    sizes = np.array([2, 6, 120, 120], dtype=np.int64)
    codes = np.empty((len(y), 5), dtype=np.int64)
    for column, size in enumerate([*sizes, preset.features - sizes.sum()]):
        weights = np.exp(preset.signal * rng.standard_normal((preset.classes, size))) / np.arange(1, size + 1)
        cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        for number in range(preset.classes):
            members = np.flatnonzero(y == number)
            codes[members, column] = 1 + np.searchsorted(cumulative[number, :-1], rng.random(len(members)))
        codes[:size, column] = np.arange(1, size + 1)  # every code occurs, so that the width is exact
    codes[(rng.random(codes.shape) < 1 / 3) & (np.arange(len(y)) >= preset.features)[:, None]] = 0
    return one_hot(codes)


@dataclass(frozen=True)
class Preset:
    """Statistics of a synthetic graph.

    Args:
        median_degree: Median of the expected degrees; the mean is 2 edges / nodes.
        homophily: Share of edges inside a class, as drawn. In a dense graph the redrawing of repeats
            moves both a little: reddit ends at a median of 209 and a homophily of 0.75.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    median_degree: float
    homophily: float
    signal: float
    make_features: MakeFeatures


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {  # nodes, edges, features, classes, median degree, homophily, signal, function that draws the features
        "facebook": Preset(26_406, 1_058_962, 501, 6, 62, 0.5, 0.8, categorical),
        "reddit": Preset(116_713, 23_116_690, 602, 8, 194, 0.77, 2.5, gaussian),
        "amazon": Preset(1_790_731, 40_483_416, 100, 10, 22, 0.8, 2.1, gaussian),
        "large": Preset(2_000_000, 20_000_000, 100, 10, 12, 0.8, 2.1, gaussian),
        "demo": Preset(3_000, 37_500, 64, 5, 18, 0.61, 0.5, binary),
        "tiny": Preset(300, 1_500, 16, 3, 8, 0.72, 0.7, binary),
    }
)


def synthetic(preset: str, *, seed: int = 0) -> Graph:
    """Return the undirected random graph of a preset; the same seed gives the same graph.

    >>> synthetic("tiny")
    Graph('synthetic/tiny', nodes=300, features=16, classes=3, directed=False, split=False)
    """
    checks.one_of(PRESETS, preset=preset)
    chosen, streams = PRESETS[preset], PublicStreams(seed)
    # Classes in random order, the largest about three times the smallest.
    shares = np.linspace(1.5, 0.5, chosen.classes)
    bounds = np.round(np.cumsum(shares / shares.sum()) * chosen.nodes).astype(int)
    y = streams.numpy("classes").permutation(np.searchsorted(bounds, np.arange(chosen.nodes), side="right"))
    # Log-normal expected degrees: mean / median = exp(sigma^2 / 2).
    sigma = np.sqrt(2 * np.log(2 * chosen.edges / chosen.nodes / chosen.median_degree))
    logs = sigma * streams.numpy("degrees").standard_normal(chosen.nodes)
    degrees = chosen.median_degree * np.exp(np.clip(logs, -_SPREAD, _SPREAD))
    low, high = _edges(y, degrees, chosen, streams.numpy("edges"))
    x = chosen.make_features(y, chosen, streams.numpy("features"))
    name = f"synthetic/{preset}"
    edge_set = EdgeSet(f"dataset:{name}" if seed == 0 else f"dataset:{name}@{seed}")
    return Graph.from_edges(
        x, y, low, high, directed=False, num_classes=chosen.classes, edge_set=edge_set, name=name
    )


def _edges(y: Ints, degrees: Floats, preset: Preset, rng: np.random.Generator) -> tuple[Ints, Ints]:
    draw = _EndSampler(y, degrees, preset.homophily, rng)
    keys = np.empty(0, dtype=np.int64)
    # Repeats are common among nodes of high degree. A few more edges than are missing are drawn, so that two
    # or three rounds suffice. The surplus is removed at random: the first keys have low node numbers.
    while (missing := preset.edges - len(keys)) > 0:
        wanted = missing + missing // 50 + 100
        fresh = [draw(min(_CHUNK, wanted - start)) for start in range(0, wanted, _CHUNK)]
        keys = np.concatenate([keys, *fresh])
        keys.sort()
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]  # distinct ones
    surplus = rng.choice(len(keys), len(keys) - preset.edges, replace=False)
    low, high = np.divmod(np.delete(keys, surplus), preset.nodes)
    return low.astype(np.int32), high.astype(np.int32)


class _EndSampler:
    """Draws edges {u, v} as keys min(u, v) * N + max(u, v), without loops but with repeats.

    A node occurs in the list of stubs as often as its expected degree, rounded, and the stubs of a class are
    consecutive. So a uniform draw from a range of stubs is a draw in proportion to the degrees of a class.
    The other end is in the same class with a probability equal to the homophily.
    """

    def __init__(self, y: Ints, degrees: Floats, homophily: float, rng: np.random.Generator) -> None:
        order = np.argsort(y, kind="stable").astype(np.int32)
        counts = np.maximum(np.rint(degrees), 1).astype(np.int64)
        self._stubs = np.repeat(order, counts[order])
        self._size = np.bincount(y, weights=counts).astype(np.int64)  # stubs of each class
        self._first = np.cumsum(self._size) - self._size
        self._classes, self._homophily, self._rng = y, homophily, rng

    def __call__(self, count: int) -> Keys:
        one = self._stubs[self._rng.integers(len(self._stubs), size=count)]
        classes = self._classes[one]
        first, size = self._first[classes], self._size[classes]
        inside = self._rng.random(count) < self._homophily
        room = np.where(inside, size, len(self._stubs) - size)
        place = (self._rng.random(count) * room).astype(np.int64)
        # Outside the class, places before its stubs stay as they are, and all others skip its stubs.
        place += np.where(inside, first, np.where(place >= first, size, 0))
        other = self._stubs[place]
        keys = np.minimum(one, other).astype(np.int64)
        keys *= len(self._classes)
        keys += np.maximum(one, other)
        proper: Keys = keys[one != other]
        return proper


# -- load, list and describe ----
ROOT_VARIABLE = "GRAPHVEIL_DATA"
_SYNTHETIC = "synthetic/"
Reader: TypeAlias = Callable[[Path, str], Fields]
_SCHOOL = re.compile(r"facebook100/[A-Za-z]+\d+")  # the publishers number every school


def load_dataset(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    recipe: str | None = "gap",
    seed: int | None = 0,
    mode: str = "strict",
    by_id: bool = False,
) -> Graph:
    """Return a public dataset, prepared and split as in a paper.

    Local files are used first, in the layout that the catalog names. Otherwise the public copy is downloaded
    into ``root``, or into the user's cache if ``root`` is None. The edge set is called ``dataset:<name>``.

    Args:
        name: Name such as ``cora`` or ``facebook100/Berkeley13``; ``list_datasets`` returns all of them.
        root: Folder of the datasets; by default ``$GRAPHVEIL_DATA``, then the user's cache.
        recipe: One of gap, lpgnn, weighted and planetoid, or None for the unmodified data.
        seed: Seed of the split, None for a random one. For several splits of one graph see ``Recipe.split``.
        mode: ``paper`` also applies steps that read protected data and records them in ``deviations``. No
            model fitted on such a graph has a valid guarantee.
        by_id: Whether to split by a hash of the node ids alone, and to omit the steps of the recipe that read
            the features of all nodes. For units that protect node records, and ``local-attributes``.

    Returns:
        The graph. It has a split unless ``recipe`` is None and the data have none.

    Raises:
        ConfigError: Unknown name, recipe or mode.
        GraphError: Files that are damaged, or that are neither present nor available for download.

    Privacy:
        Reads: public data. Charges: nothing. Fits treat the edges and records as protected nevertheless.

    >>> load_dataset("synthetic/tiny").labeled_in("train").sum()
    tensor(225)
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"name must be text such as 'cora', not a {type(name).__name__}. Call list_datasets() to "
            "list all names."
        )
    checks.one_of(("strict", "paper"), mode=mode)
    if recipe is None:
        return _load(name, root)
    checks.one_of(RECIPES, recipe=recipe)
    chosen = RECIPES[recipe].on_clients() if by_id else RECIPES[recipe]
    prepared = chosen.prepare(_load(name, root), paper=mode == "paper")
    return chosen.split(prepared, seed)


@checked
def list_datasets(root: str | PathLike[str] | None = None) -> list[dict[str, Any]]:
    """List the public datasets.

    Args:
        root: Folder of the datasets; by default ``$GRAPHVEIL_DATA``, then the user's cache.

    Returns:
        One dict per dataset with name, nodes, features, classes, origin (``where``), and whether its files
        are under the root (``local``).

    Raises:
        ConfigError: Root of another type.

    >>> [row["local"] for row in list_datasets() if row["name"] == "synthetic/demo"]
    [True]
    """
    folder = dataset_folder(root)
    shown = ("name", "nodes", "features", "classes", "where")
    return [
        {name: getattr(entry, name) for name in shown} | {"local": entry.lies_under(folder)}
        for entry in CATALOG.values()
    ]


def dataset_info(name: str, root: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Return the statistics of an unmodified dataset, before any recipe.

    Args:
        name: Name such as ``cora``; ``list_datasets`` returns all of them.
        root: Folder of the datasets; by default ``$GRAPHVEIL_DATA``, then the user's cache.

    Privacy:
        Reads: public data, whose edges may therefore be counted. Charges: nothing.

    >>> info = dataset_info("synthetic/tiny")
    >>> info["nodes"], info["edges"], info["degree_median"]
    (300, 1500, 8.0)
    """
    graph = _load(name, root)
    degrees = graph.adjacency.indptr.diff()
    counts = torch.bincount(graph.y[graph.labeled], minlength=graph.num_classes)
    labels = graph.y.to(torch.int32)
    source, target = labels[graph.adjacency.indices], labels.repeat_interleave(degrees)
    both = (source >= 0) & (target >= 0)
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": len(graph.adjacency.indices) // 2,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "labeled": int(graph.labeled.sum()),
        "class_counts": counts.tolist(),
        "class_names": list(graph.class_names),
        "degree_mean": float(degrees.double().mean()),
        "degree_median": float(np.median(degrees.numpy())),
        "degree_max": int(degrees.max()),
        "isolated": int((degrees == 0).sum()),
        "homophily": float((source == target)[both].double().mean()),
        "split": graph.has_split,
        "where": entry_of(name).where,
    }


def _load(name: str, root: str | PathLike[str] | None) -> Graph:
    entry = entry_of(name)
    if name.startswith(_SYNTHETIC):
        return synthetic(name.removeprefix(_SYNTHETIC))
    fields = read_or_fetch(entry, dataset_folder(root))
    # The published number of classes, which may exceed the largest label in the files.
    fields.setdefault("num_classes", len(fields.get("class_names", ())) or entry.classes)
    fields["edge_set"] = EdgeSet(f"dataset:{name}")  # instead of that of a torch_geometric object
    return Graph.from_edges(directed=False, name=name, **fields)


def dataset_folder(root: str | PathLike[str] | None) -> Path:
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "graphveil"


def read_or_fetch(entry: Dataset, folder: Path) -> Fields:
    if entry.read is not None and entry.lies_under(folder):
        return _guarded(entry, entry.read, folder, "is damaged", "compare its files with their checksums")
    missing = f"is not under {folder}"
    remedy = f"put {' and '.join(entry.files) or 'its files'} under a folder and give that with --root"
    if entry.fetch is None:
        raise GraphError(
            f"{entry.name} {missing} and has no download ({entry.where}); {entry.remedy or remedy}"
        )
    return _guarded(entry, entry.fetch, folder, f"{missing} and cannot be downloaded", remedy)


def _guarded(entry: Dataset, read: Reader, folder: Path, problem: str, remedy: str) -> Fields:
    try:
        return read(folder, entry.name)
    except GraphveilError:
        raise
    except Exception as error:
        raise GraphError(f"{entry.name} {problem} ({type(error).__name__}); {remedy}") from None


# -- the catalog ----


@dataclass(frozen=True)
class Dataset:
    """One dataset of the catalog.

    Args:
        read: Reader of those files; None without a local layout.
        fetch: Reader of the public copy; None without a download.
        remedy: Fix if the dataset is missing, other than to put ``files`` under the root.
    """

    name: str
    nodes: int | None
    features: int | None
    classes: int | None
    _: KW_ONLY
    where: str
    files: tuple[str, ...] = ()
    read: Reader | None = None
    fetch: Reader | None = None
    remedy: str = ""

    def lies_under(self, root: Path) -> bool:
        if self.read is None:
            return self.name.startswith(_SYNTHETIC)
        return all((root / file).is_file() for file in self.files)


def entry_of(name: str) -> Dataset:
    """Return the catalog entry of a name; every school of Facebook100 has one.

    >>> entry_of("cora").nodes
    2708
    >>> entry_of("coara")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: name='coara' is not the name of a data set; did you mean 'cora'?
    """
    if name in CATALOG:
        return CATALOG[name]
    if _SCHOOL.fullmatch(name) is None:
        near = suggestion(name, CATALOG) or "; `graphveil datasets` lists them"
        raise ConfigError(f"name={name!r} is not the name of a data set{near}")
    return _member(name, None, None, 6)


def _musae(folder: str, stem: str) -> tuple[str, ...]:
    return f"{folder}/{stem}_edges.csv", f"{folder}/{stem}.json", f"{folder}/{stem}_target.csv"


_FAMILIES: Mapping[str, tuple[str, tuple[str, ...], Reader, Reader]] = {
    # Origin, files of a member {}, their reader, and that of the public copy.
    "facebook100": (
        "Facebook100 (Traud et al. 2011), class years 2004 to 2009",
        ("facebook100/{}.mat",),
        read_facebook100,
        fetch_pinned,
    ),
    "amazon": (
        "Amazon co-purchases (Shchur et al. 2018)",
        ("amazon/{}.npz",),
        read_amazon,
        pyg_reader("Amazon"),
    ),
    "planetoid": (
        "Planetoid citations (Yang et al. 2016), with the public split",
        ("planetoid/{}.npz",),
        read_planetoid,
        fetch_planetoid,
    ),
    "twitch": (
        "MUSAE Twitch social networks (Rozemberczki et al. 2021); the download has 128 dense features",
        _musae("twitch/{0}", "{0}"),
        read_twitch,
        pyg_reader("Twitch"),
    ),
    "wikipedia": (
        "MUSAE Wikipedia links (Rozemberczki et al. 2021); label: fifth of the traffic",
        _musae("wikipedia/{0}", "{0}"),
        read_wikipedia,
        fetch_wikipedia,
    ),
    "heterophilous": (
        "heterophilous graphs (Platonov et al. 2023)",
        ("heterophilous/{}.npz",),
        read_heterophilous,
        fetch_pinned,
    ),
}


def _member(name: str, nodes: int | None, features: int | None, classes: int) -> Dataset:
    """Return the entry of a graph in a family; those of Planetoid are named without it."""
    family, _, member = name.partition("/")
    where, files, read, fetch = _FAMILIES[family]
    own = tuple(file.format(member) for file in files)
    called = name.removeprefix("planetoid/")
    return Dataset(called, nodes, features, classes, where=where, files=own, read=read, fetch=fetch)


_MEMBERS = (  # name, nodes, features and classes
    ("facebook100/Berkeley13", 22_937, 437, 6),
    ("facebook100/Wisconsin87", 23_842, 613, 6),
    ("facebook100/Rutgers89", 24_580, 376, 6),
    ("facebook100/Reed98", 962, 117, 6),
    ("facebook100/UIllinois20", None, None, 6),
    ("amazon/computers", 13_752, 767, 10),
    ("amazon/photo", 7_650, 745, 8),
    ("planetoid/cora", 2_708, 1_433, 7),
    ("planetoid/citeseer", 3_327, 3_703, 6),
    ("planetoid/pubmed", 19_717, 500, 3),
    ("twitch/DE", 9_498, 3_170, 2),
    ("twitch/EN", 7_126, 3_170, 2),
    ("twitch/ES", 4_648, 3_170, 2),
    ("twitch/FR", 6_551, 3_170, 2),
    ("twitch/PT", 1_912, 3_170, 2),
    ("twitch/RU", 4_385, 3_170, 2),
    ("wikipedia/chameleon", 2_277, 3_132, 5),
    ("wikipedia/squirrel", 5_201, 3_148, 5),
    ("heterophilous/minesweeper", 10_000, 7, 2),
    ("heterophilous/squirrel_filtered", 2_223, 2_089, 5),
    ("heterophilous/tolokers", 11_758, 10, 2),
)
_OTHERS = (
    Dataset(
        *("facebook_pages", 22_470, 4_714, 4),
        where="MUSAE page-page links (Rozemberczki et al. 2021); the download has 128 dense features",
        files=_musae("facebook_pages", "facebook"),
        read=read_facebook_pages,
        fetch=pyg_reader("FacebookPagePage"),
    ),
    Dataset(
        *("lastfm_asia", 7_624, 1, 18),
        where="LastFM Asia (Rozemberczki and Sarkar 2020); no features locally, 128 in the download",
        files=("lastfm_asia_structure/lastfm_asia_edges.csv", "lastfm_asia_structure/lastfm_asia_target.csv"),
        read=read_lastfm_asia,
        fetch=pyg_reader("LastFMAsia"),
    ),
    Dataset(
        *("reddit", 232_965, 602, 41),
        where="GraphSAGE Reddit (Hamilton et al. 2017), by download only",
        fetch=pyg_reader("Reddit"),
    ),
    Dataset(
        *("ogbn_products", 2_449_029, 100, 47),
        where="Open Graph Benchmark (Hu et al. 2020)",
        files=tuple(f"ogbn_products/{file}" for file in OGB_FILES),
        read=read_ogbn_products,
        remedy="unpack https://snap.stanford.edu/ogb/data/nodeproppred/products.zip as ROOT/ogbn_products",
    ),
    Dataset(
        *("ppi", 56_944, 50, 2),
        where="GraphSAGE PPI (Hamilton et al. 2017), 121 labels a node, the first of which is its class; by "
        "download only",
        fetch=fetch_ppi,
    ),
    Dataset(
        *("flickr_mir", None, None, None),
        where="images from the MIR Flickr collection, whose features were never published as a graph",
        remedy="make a table of nodes and one of edges, and read them with read_graph (--nodes, --edges)",
    ),
    Dataset(
        *("karate", 34, 34, 4),
        where="Zachary's karate club (1977), one feature per member; where the file is not, the copy in "
        "torch_geometric, whose labels are four other communities",
        files=("karate/karate.npz",),
        read=read_karate,
        fetch=fetch_karate,
    ),
)
_GENERATED = (
    Dataset(
        *(_SYNTHETIC + preset, shape.nodes, shape.features, shape.classes),
        where="generated here: degree-corrected block model",
    )
    for preset, shape in PRESETS.items()
)
CATALOG: Mapping[str, Dataset] = MappingProxyType(
    {entry.name: entry for entry in (*(_member(*sizes) for sizes in _MEMBERS), *_OTHERS, *_GENERATED)}
)
