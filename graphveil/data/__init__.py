"""Graphs, graph files, public datasets, and the preprocessing of published papers.

Tables can be checked without torch, so a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.data.adjacency import Adjacency, EdgeSet
    from graphveil.data.datasets import dataset_info, list_datasets, load_dataset
    from graphveil.data.features import Features, rows, to_dense
    from graphveil.data.graph import Graph, Split
    from graphveil.data.graph_files import read_graph
    from graphveil.data.interactions import Interactions
    from graphveil.data.node_pairs import PublicPart
    from graphveil.data.preparation import prepare
    from graphveil.data.recipes import RECIPES, DatasetRecipe, hash_split, random_split, split
    from graphveil.data.stored_graph import open_graph
    from graphveil.data.synthetic_graphs import synthetic

_HOMES = {
    "Adjacency": "adjacency",
    "DatasetRecipe": "recipes",
    "EdgeSet": "adjacency",
    "Features": "features",
    "Graph": "graph",
    "Interactions": "interactions",
    "PublicPart": "node_pairs",
    "RECIPES": "recipes",
    "Split": "graph",
    "dataset_info": "datasets",
    "hash_split": "recipes",
    "list_datasets": "datasets",
    "load_dataset": "datasets",
    "open_graph": "stored_graph",
    "prepare": "preparation",
    "random_split": "recipes",
    "read_graph": "graph_files",
    "rows": "features",
    "split": "recipes",
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
    "Interactions",
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
