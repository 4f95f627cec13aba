"""Small graphs of different kinds, as networkx graphs and as adjacencies."""

from collections.abc import Callable

import networkx as nx
import numpy as np

from graphveil.audit.secret_edges import SecretEdges
from graphveil.core.edges.adjacency import Adjacency

GRAPHS: dict[str, Callable[[], "nx.Graph | nx.DiGraph"]] = {
    "one node": lambda: nx.empty_graph(1),
    "no edges": lambda: nx.empty_graph(5),
    "path": lambda: nx.path_graph(10),
    "star": lambda: nx.star_graph(8),
    "complete": lambda: nx.complete_graph(7),
    "ring": lambda: nx.cycle_graph(9),
    "disconnected": lambda: nx.disjoint_union(nx.barbell_graph(5, 3), nx.empty_graph(2)),
    "karate": nx.karate_club_graph,
    "tree": lambda: nx.random_labeled_tree(40, seed=1),
    "random": lambda: nx.gnp_random_graph(150, 0.06, seed=2),
    "preferential": lambda: nx.barabasi_albert_graph(120, 4, seed=3),
    "directed": lambda: nx.gnp_random_graph(30, 0.1, seed=4, directed=True),
}


def adjacency(graph: "nx.Graph | nx.DiGraph") -> Adjacency:
    """Return the same edges."""
    ends = np.array(list(graph.edges()), dtype=np.int64).reshape(-1, 2)
    return Adjacency.from_edges(
        ends[:, 0], ends[:, 1], num_nodes=graph.number_of_nodes(), directed=graph.is_directed()
    )


def pair(name: str) -> "tuple[nx.Graph, SecretEdges]":
    """Return a graph twice: undirected in networkx, and as ``SecretEdges``."""
    graph = GRAPHS[name]()
    return graph.to_undirected(), SecretEdges.from_adjacency(adjacency(graph))
