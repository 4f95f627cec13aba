"""Graphs released instead of models: each mechanism takes a private graph and returns a noisy one.

>>> import torch
>>> from graphveil import Graph, perturb
>>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
>>> perturbed = perturb.edge_rand(path, unit="undirected-edge", epsilon=4.0)
>>> perturbed.to_pyg().num_nodes
4
"""

from importlib import import_module

from graphveil._util import checks
from graphveil.data.public_edges import public_edges_outside, sample_public_edges
from graphveil.perturb.arr import ARR, arr
from graphveil.perturb.edge_rand import EdgeRand, edge_rand
from graphveil.perturb.edge_rr import EdgeRR, PrivHRG, edge_rr, priv_hrg
from graphveil.perturb.lap_graph import LapGraph, lap_graph
from graphveil.perturb.mechanism import GraphMechanism, parse_mechanism, release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph, guarantee_of, load

MECHANISMS: dict[str, type[GraphMechanism]] = {
    one.name: one for one in (EdgeRand, LapGraph, ARR, PrivHRG, EdgeRR)
}


def mechanism_class(name: str) -> type[GraphMechanism]:
    """Return a mechanism by its name; ``arr-paper`` is ``arr`` as in published code, without a guarantee.

    Raises:
        ConfigError: If no mechanism has this name.
    """
    published = name.removesuffix("-paper")
    if name != published in MECHANISMS:
        found: dict[str, type[GraphMechanism]]
        found = import_module("graphveil.papers.as_published.graph_mechanisms").PUBLISHED
        return found[published]
    checks.one_of(tuple(MECHANISMS), mechanism=name)
    return MECHANISMS[name]


__all__ = [
    "ARR",
    "MECHANISMS",
    "EdgeRR",
    "EdgeRand",
    "GraphMechanism",
    "LapGraph",
    "PerturbedGraph",
    "PrivHRG",
    "arr",
    "edge_rand",
    "edge_rr",
    "guarantee_of",
    "lap_graph",
    "load",
    "mechanism_class",
    "parse_mechanism",
    "priv_hrg",
    "public_edges_outside",
    "release_graph",
    "sample_public_edges",
]
