"""Eigenvector centrality: a node matters if those do that it knows."""

import numpy as np

from graphveil.lab.fidelity.simple_graph import Floats, SimpleGraph

STEPS, TOLERANCE = 1000, 1e-10


def eigenvector_centrality(graph: SimpleGraph) -> Floats:
    """Return x >= 0 of length 1 with A x = lambda x for the largest eigenvalue lambda of A.

    By powers of A + I, which has the same eigenvectors and does not alternate on bipartite graphs, from equal
    entries, in O(m) a step: until no entry changes by more than 1e-10, or for 1,000 steps. Where several
    components share the largest eigenvalue, x is the part of the start that lies in its eigenvectors.

    Shapes: (N).

    >>> from graphveil.data import Adjacency
    >>> star = SimpleGraph.from_adjacency(Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=False))
    >>> eigenvector_centrality(star).round(4)
    array([0.7071, 0.5   , 0.5   ])
    """
    matrix, x = graph.matrix(), np.full(graph.nodes, graph.nodes**-0.5)
    for _ in range(STEPS):
        following = matrix @ x + x
        following /= np.linalg.norm(following)
        change = float(np.abs(following - x).max())
        x = following
        if change <= TOLERANCE:
            break
    return x
