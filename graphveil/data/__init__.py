"""Graphs: the container, its files, the public data sets, and the papers' ways of preparing them."""

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
from graphveil.data.synthetic import synthetic

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
