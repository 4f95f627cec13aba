"""Graphs, graph files, public datasets, and the preprocessing of published papers.

Tables can be checked without torch, so a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.core.edges.adjacency import Adjacency, EdgeSet
    from graphveil.core.edges.node_pairs import PublicPart
    from graphveil.core.features import Features, rows, to_dense
    from graphveil.data.datasets import dataset_info, list_datasets, load_dataset
    from graphveil.data.graph import Graph, Split
    from graphveil.data.graph_files import read_graph
    from graphveil.data.interactions import Interactions
    from graphveil.data.preparation import prepare
    from graphveil.data.recipes import RECIPES, DatasetRecipe, hash_split, random_split, split
    from graphveil.data.stored_graph import open_graph
    from graphveil.data.synthetic_graphs import synthetic

_HOMES = {
    "Adjacency": "graphveil.core.edges.adjacency",
    "DatasetRecipe": "graphveil.data.recipes",
    "EdgeSet": "graphveil.core.edges.adjacency",
    "Features": "graphveil.core.features",
    "Graph": "graphveil.data.graph",
    "Interactions": "graphveil.data.interactions",
    "PublicPart": "graphveil.core.edges.node_pairs",
    "RECIPES": "graphveil.data.recipes",
    "Split": "graphveil.data.graph",
    "dataset_info": "graphveil.data.datasets",
    "hash_split": "graphveil.data.recipes",
    "list_datasets": "graphveil.data.datasets",
    "load_dataset": "graphveil.data.datasets",
    "open_graph": "graphveil.data.stored_graph",
    "prepare": "graphveil.data.preparation",
    "random_split": "graphveil.data.recipes",
    "read_graph": "graphveil.data.graph_files",
    "rows": "graphveil.core.features",
    "split": "graphveil.data.recipes",
    "synthetic": "graphveil.data.synthetic_graphs",
    "to_dense": "graphveil.core.features",
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
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
