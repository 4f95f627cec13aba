"""Public datasets by name: load one, list all, return public statistics; and their catalog."""

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
import torch

from graphveil._util import checks
from graphveil._util.checks import checked, suggestion
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.data.dataset_readers import (
    OGB_FILES,
    Fields,
    fetch_facebook100,
    fetch_heterophilous,
    fetch_karate,
    fetch_planetoid,
    fetch_ppi,
    fetch_wikipedia,
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
from graphveil.data.synthetic_graphs import PRESETS, synthetic
from graphveil.errors import ConfigError, GraphError, GraphveilError

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
    folders = dataset_folders(root)
    shown = ("name", "nodes", "features", "classes", "where")
    return [
        {name: getattr(entry, name) for name in shown}
        | {"local": any(entry.lies_under(folder) for folder in folders)}
        for entry in CATALOG.values()
    ]


def dataset_info(name: str, root: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Return the statistics of an unmodified dataset, before any recipe.

    Args:
        name: Name such as ``cora``; ``list_datasets`` returns all of them.
        root: Folder of the datasets; by default ``$GRAPHVEIL_DATA``, then the user's cache.

    Returns:
        Sizes, degrees and label counts. ``edges`` counts undirected edges once. ``homophily`` is the share of
        edges with equal labels among those whose ends both have a label.

    Raises:
        ConfigError: Unknown name.
        GraphError: Files that are damaged, or that are neither present nor available for download.

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
    """Return an unmodified dataset."""
    entry = entry_of(name)
    if name.startswith(_SYNTHETIC):
        return synthetic(name.removeprefix(_SYNTHETIC))
    fields = read_or_fetch(entry, dataset_folders(root))
    # The published number of classes, which may exceed the largest label in the files.
    fields.setdefault("num_classes", len(fields.get("class_names", ())) or entry.classes)
    fields["edge_set"] = EdgeSet(f"dataset:{name}")  # instead of that of a torch_geometric object
    return Graph.from_edges(directed=False, name=name, **fields)


def dataset_folders(root: str | PathLike[str] | None) -> list[Path]:
    """Return the folders to search for datasets; downloads go to the last one."""
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if chosen:
        return [Path(chosen)]
    cache = os.environ.get("XDG_CACHE_HOME")
    return [(Path(cache) if cache else Path.home() / ".cache") / "graphveil"]


def read_or_fetch(entry: Dataset, folders: list[Path]) -> Fields:
    """Read a dataset from the first folder that contains it, or else download it."""
    for folder in folders:
        if entry.read is not None and entry.lies_under(folder):
            return _guarded(entry, entry.read, folder, "is damaged", "compare its files with their checksums")
    missing = f"is not under {folders[0]}"
    remedy = f"put {' and '.join(entry.files) or 'its files'} under a folder and give that with --root"
    if entry.fetch is None:
        raise GraphError(
            f"{entry.name} {missing} and has no download ({entry.where}); {entry.remedy or remedy}"
        )
    return _guarded(entry, entry.fetch, folders[-1], f"{missing} and cannot be downloaded", remedy)


def _guarded(entry: Dataset, read: Reader, folder: Path, problem: str, remedy: str) -> Fields:
    """Call a reader, and convert any error of the libraries below it into a one-line error."""
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
        name: Name for ``load_dataset``.
        nodes, features, classes: Sizes before any recipe, of the local files if there are any.
        where: Origin of the data, in one line.
        files: Files that must be under the root for reading from there.
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
        """Return whether the data are available without a download."""
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
        files=(
            "lastfm_asia_structure/lastfm_asia_edges.csv",
            "lastfm_asia_structure/lastfm_asia_target.csv",
        ),
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
