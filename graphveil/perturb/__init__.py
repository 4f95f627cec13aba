"""Graphs released instead of models: each mechanism takes a private graph and returns a noisy one.

>>> import torch
>>> from graphveil import perturb
>>> path = perturb.Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
>>> perturbed = perturb.edge_rand(path, unit="undirected-edge", epsilon=4.0)
>>> perturbed.to_pyg().num_nodes
4
"""

from graphveil.graph import Graph as Graph
from graphveil.perturb.edge_rand import EdgeRand, edge_rand
from graphveil.perturb.mechanism import GraphMechanism, release_graph
from graphveil.perturb.origin import guarantee_of
from graphveil.perturb.released import Perturbed, load

MECHANISMS: dict[str, type[GraphMechanism]] = {mechanism.name: mechanism for mechanism in (EdgeRand,)}

__all__ = [
    "MECHANISMS",
    "EdgeRand",
    "GraphMechanism",
    "Perturbed",
    "edge_rand",
    "guarantee_of",
    "load",
    "release_graph",
]
