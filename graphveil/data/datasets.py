"""The data sets by name: loading one, listing all, counting what is public about one."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphveil._util import checks
from graphveil._util.typed import checked
from graphveil.data.graph import Graph
from graphveil.data.identity import EdgeSet
from graphveil.data.published.catalog import CATALOG, Dataset, Reader, entry_of
from graphveil.data.published.local import Fields
from graphveil.data.recipes import RECIPES
from graphveil.data.synthetic_graphs import synthetic
from graphveil.errors import ConfigError, GraphError, GraphveilError

ROOT_VARIABLE = "GRAPHVEIL_DATA"


def _check_name(name: object) -> None:
    """Require text, as the name of a data set is."""
    if not isinstance(name, str):
        raise ConfigError(f"name must be text such as 'cora', not a {type(name).__name__}: list_datasets()")


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
    """Return a public data set, prepared and split as a paper does it.

    Local files come first, in the layout that the catalog names; otherwise the public copy is downloaded
    into the root, or into the user's cache if no root was given. The edge set is called ``dataset:<name>``.

    Args:
        name: such as ``cora`` or ``facebook100/Berkeley13``; :func:`list_datasets` has all.
        root: the folder of the data sets; by default ``$GRAPHVEIL_DATA``, then the user's cache.
        recipe: one of gap, lpgnn, weighted and planetoid, or none for the data as they are.
        seed: of the split, none for a random one. Several seeds split one graph: see ``Recipe.split``.
        mode: ``paper`` also does what reads protected data, which stays on the graph as its ``deviations``:
            no model on it, strict or not, has a valid guarantee.
        by_id: split by a hash of the node ids alone, and leave out what a recipe computes from everybody's
            features, for units that protect records.
        on_clients: the same, for unit ``local-attributes``.

    Raises:
        ConfigError: an unknown name, recipe or mode.
        GraphError: the files are neither there nor to be had, or damaged.

    >>> load_dataset("synthetic/tiny").mask("train").sum()
    tensor(225)
    """
    _check_name(name)
    checks.one_of(("strict", "paper"), mode=mode)
    if recipe is None:
        return _load(name, root)
    checks.one_of(RECIPES, recipe=recipe)
    chosen = RECIPES[recipe].on_clients() if on_clients or by_id else RECIPES[recipe]
    prepared = chosen.prepare(_load(name, root), paper=mode == "paper")
    return chosen.split(prepared, seed)


@checked
def list_datasets(root: str | PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Return one row per data set: name, nodes, features, classes, where, and whether it is here.

    >>> [row["local"] for row in list_datasets() if row["name"] == "synthetic/demo"]
    [True]
    """
    folders = _folders(root)
    return [
        {
            "name": entry.name,
            "nodes": entry.nodes,
            "features": entry.features,
            "classes": entry.classes,
            "where": entry.where,
            "local": any(entry.lies_under(folder) for folder in folders),
        }
        for entry in CATALOG.values()
    ]


def dataset_info(name: str, root: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Return the statistics of a data set as it is, before any recipe.

    The data sets of the catalog are published, so their edges may be counted. ``edges`` counts undirected
    edges once; ``homophily`` is the share of edges with equal labels among those whose ends both have one.

    >>> info = dataset_info("synthetic/tiny")
    >>> info["nodes"], info["edges"], info["degree_median"]
    (300, 1500, 8.0)
    """
    graph = _load(name, root)
    degrees = graph.adjacency.indptr.diff()
    counts = torch.bincount(graph.y[graph.labeled], minlength=graph.num_classes)
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
        "homophily": _homophily(graph),
        "split": graph.has_split,
        "where": entry_of(name).where,
    }


def _homophily(graph: Graph) -> float:
    labels = graph.y.to(torch.int32)
    source = labels[graph.adjacency.indices]
    target = labels.repeat_interleave(graph.adjacency.indptr.diff())
    both = (source >= 0) & (target >= 0)
    return float((source == target)[both].double().mean())


def _load(name: str, root: str | PathLike[str] | None) -> Graph:
    """Return a data set as it is."""
    entry = entry_of(name)
    if entry.preset:
        return synthetic(entry.preset)
    fields = _fields(entry, _folders(root))
    # The publishers' number of classes, and not the largest label that the files happen to hold.
    fields.setdefault("num_classes", len(fields.get("class_names", ())) or entry.classes)
    fields["edge_set"] = EdgeSet(f"dataset:{name}")  # whichever object held the edges on the way
    return Graph.from_edges(directed=False, name=name, **fields)


def _folders(root: str | PathLike[str] | None) -> list[Path]:
    """Return the folders to look in, of which the last one takes downloads."""
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if chosen:
        return [Path(chosen)]
    cache = os.environ.get("XDG_CACHE_HOME")
    return [(Path(cache) if cache else Path.home() / ".cache") / "graphveil"]


def _fields(entry: Dataset, folders: list[Path]) -> Fields:
    """Return the content from the first folder that has it, or else from the public copy."""
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
    """Call a reader; whatever goes wrong in the libraries below it becomes one line."""
    try:
        return read(folder, entry.name)
    except GraphveilError:
        raise
    except Exception as error:
        raise GraphError(f"{entry.name} {problem} ({type(error).__name__}); {remedy}") from None
