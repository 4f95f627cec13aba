"""Graphs: the container, its files, the public data sets, and the papers' ways of preparing them.

Tables can be checked without torch, so a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.data.adjacency import Adjacency
    from graphveil.data.datasets import dataset_info, list_datasets, load_dataset
    from graphveil.data.features import Features, rows, to_dense
    from graphveil.data.files import read_graph
    from graphveil.data.graph import Graph, Split
    from graphveil.data.identity import EdgeSet
    from graphveil.data.public_part import PublicPart
    from graphveil.data.recipes import RECIPES, DatasetRecipe
    from graphveil.data.splits import hash_split, random_split, split
    from graphveil.data.stored.prepare import prepare
    from graphveil.data.stored.reading import open_graph
    from graphveil.data.synthetic_graphs import synthetic

_HOMES = {
    "Adjacency": "adjacency",
    "DatasetRecipe": "recipes",
    "EdgeSet": "identity",
    "Features": "features",
    "Graph": "graph",
    "PublicPart": "public_part",
    "RECIPES": "recipes",
    "Split": "graph",
    "dataset_info": "datasets",
    "hash_split": "splits",
    "list_datasets": "datasets",
    "load_dataset": "datasets",
    "open_graph": "stored.reading",
    "prepare": "stored.prepare",
    "random_split": "splits",
    "read_graph": "files",
    "rows": "features",
    "split": "splits",
    "synthetic": "synthetic_graphs",
    "to_dense": "features",
}

__all__ = [
    "RECIPES",
    "Adjacency",
    "DatasetRecipe",
    "EdgeSet",
    "Features",
    "Graph",
    "PublicPart",
    "Split",
    "dataset_info",
    "hash_split",
    "list_datasets",
    "load_dataset",
    "open_graph",
    "prepare",
    "random_split",
    "read_graph",
    "rows",
    "split",
    "synthetic",
    "to_dense",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphveil.data' has no attribute {name!r}")
    found = getattr(import_module(f"graphveil.data.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
