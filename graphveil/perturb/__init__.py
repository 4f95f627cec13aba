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
from graphveil.data.recipes import public_edges_outside as public_edges_outside
from graphveil.data.recipes import sample_public_edges as sample_public_edges
from graphveil.perturb.edge_rr import EdgeRR as EdgeRR
from graphveil.perturb.edge_rr import PrivHRG as PrivHRG
from graphveil.perturb.edge_rr import edge_rr as edge_rr
from graphveil.perturb.edge_rr import priv_hrg as priv_hrg
from graphveil.perturb.mechanism import ARR as ARR
from graphveil.perturb.mechanism import EdgeRand as EdgeRand
from graphveil.perturb.mechanism import GraphMechanism as GraphMechanism
from graphveil.perturb.mechanism import LapGraph as LapGraph
from graphveil.perturb.mechanism import arr as arr
from graphveil.perturb.mechanism import edge_rand as edge_rand
from graphveil.perturb.mechanism import lap_graph as lap_graph
from graphveil.perturb.mechanism import parse_mechanism as parse_mechanism
from graphveil.perturb.mechanism import release_graph as release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph as PerturbedGraph
from graphveil.perturb.perturbed_graph import guarantee_of as guarantee_of
from graphveil.perturb.perturbed_graph import load as load

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
