"""Graphs: the container, its files, the public data sets, and the papers' ways of preparing them."""

from graphveil.graph.adjacency import Adjacency
from graphveil.graph.datasets import dataset_info, list_datasets, load_dataset
from graphveil.graph.features import Features, rows, to_dense
from graphveil.graph.files import read_graph
from graphveil.graph.graph import Graph, Split
from graphveil.graph.identity import EdgeSet
from graphveil.graph.public_part import PublicPart
from graphveil.graph.recipes import RECIPES, DatasetRecipe
from graphveil.graph.splits import hash_split, random_split, split
from graphveil.graph.stored.prepare import prepare
from graphveil.graph.stored.reading import open_graph
from graphveil.graph.synthetic import synthetic

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
