"""Public datasets by name: their catalog, how one is loaded, and random graphs of the papers' sizes.

The random graphs are a degree-corrected block model with class-correlated features: Karrer and Newman,
"Stochastic blockmodels and community structure in networks" (2011). Every node has a class and an expected
degree from a log-normal law. One end of an edge is drawn in proportion to the expected degrees; the other one
likewise, from the same class with a probability equal to the homophily. Loops and repeats are redrawn until
the number of edges is exact. No real person is in these graphs, so edges may be counted here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.checks import checked, suggestion
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.features import Features
from graphveil.core.noise.random import PublicStreams
from graphveil.data.dataset_readers import (
    OGB_FILES,
    Fields,
    fetch_facebook100,
    fetch_heterophilous,
    fetch_karate,
    fetch_planetoid,
    fetch_ppi,
    fetch_wikipedia,
    one_hot,
    pyg_reader,
    read_amazon,
    read_facebook100,
    read_facebook_pages,
    read_heterophilous,
    read_karate,
    read_lastfm_asia,
    read_ogbn_products,
    read_planetoid,
    read_twitch,
    read_wikipedia,
)
from graphveil.data.graph import Graph
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, GraphError, GraphveilError

# -- random graphs ----
Ints: TypeAlias = npt.NDArray[np.integer]
Floats: TypeAlias = npt.NDArray[np.floating]
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
    on_clients: bool = False,
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
            the features of all nodes. For units that protect node records.
        on_clients: The same as ``by_id``, for unit ``local-attributes``.

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
    chosen = RECIPES[recipe].on_clients() if on_clients or by_id else RECIPES[recipe]
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
        fetch_facebook100,
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
        fetch_heterophilous,
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
