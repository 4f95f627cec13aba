"""Graphs, graph files, public datasets, and the preprocessing of published papers.

Tables can be checked without torch, so a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.core.edges.adjacency import Adjacency as Adjacency
    from graphveil.core.edges.adjacency import EdgeSet as EdgeSet
    from graphveil.core.edges.node_pairs import PublicPart as PublicPart
    from graphveil.core.features import Features as Features
    from graphveil.core.features import rows as rows
    from graphveil.core.features import to_dense as to_dense
    from graphveil.data.datasets import dataset_info as dataset_info
    from graphveil.data.datasets import list_datasets as list_datasets
    from graphveil.data.datasets import load_dataset as load_dataset
    from graphveil.data.datasets import synthetic as synthetic
    from graphveil.data.graph import Graph as Graph
    from graphveil.data.graph import Split as Split
    from graphveil.data.graph_files import open_graph as open_graph
    from graphveil.data.graph_files import read_graph as read_graph
    from graphveil.data.interactions import Interactions as Interactions
    from graphveil.data.preparation import prepare as prepare
    from graphveil.data.recipes import RECIPES as RECIPES
    from graphveil.data.recipes import DatasetRecipe as DatasetRecipe
    from graphveil.data.recipes import hash_split as hash_split
    from graphveil.data.recipes import random_split as random_split
    from graphveil.data.recipes import split as split
    from graphveil.data.relational import Tables as Tables
    from graphveil.data.rows import Rows as Rows

_MODULES = {
    "graphveil.core.edges.adjacency": ("Adjacency", "EdgeSet"),
    "graphveil.core.edges.node_pairs": ("PublicPart",),
    "graphveil.core.features": ("Features", "rows", "to_dense"),
    "graphveil.data.datasets": ("dataset_info", "list_datasets", "load_dataset", "synthetic"),
    "graphveil.data.graph": ("Graph", "Split"),
    "graphveil.data.graph_files": ("open_graph", "read_graph"),
    "graphveil.data.interactions": ("Interactions",),
    "graphveil.data.preparation": ("prepare",),
    "graphveil.data.recipes": ("RECIPES", "DatasetRecipe", "hash_split", "random_split", "split"),
    "graphveil.data.relational": ("Tables",),
    "graphveil.data.rows": ("Rows",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphveil.data' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
