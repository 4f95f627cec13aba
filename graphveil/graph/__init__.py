"""Graphs: the container, its files, the public data sets, and the papers' ways of preparing them."""

from graphveil.graph.adjacency import Adjacency, EdgeSet
from graphveil.graph.features import Features, rows, to_dense
from graphveil.graph.files import read_graph
from graphveil.graph.graph import Graph, Split

__all__ = ["Adjacency", "EdgeSet", "Features", "Graph", "Split", "read_graph", "rows", "to_dense"]
