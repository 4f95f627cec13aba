"""Everything that the structural queries ask of one graph."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil._util.random import PublicStreams
from graphveil.lab.fidelity.centrality import eigenvector_centrality
from graphveil.lab.fidelity.communities import communities, modularity
from graphveil.lab.fidelity.degrees import assortativity, average_degree, degree_counts, degree_variance
from graphveil.lab.fidelity.paths import PathLengths, path_lengths
from graphveil.lab.fidelity.simple_graph import Floats, Integers, SimpleGraph
from graphveil.lab.fidelity.triangles import Clustering, clustering


@dataclass(frozen=True, eq=False)
class Profile:
    """The exact answers about a graph, and those from samples; as private as its edges."""

    nodes: int
    edges: int
    average_degree: float
    degree_variance: float
    degree_counts: Integers
    assortativity: float | None
    clustering: Clustering
    paths: PathLengths
    communities: Integers
    modularity: float | None
    centrality: Floats


def profile(graph: SimpleGraph, sources: npt.NDArray[np.intp], streams: PublicStreams) -> Profile:
    """Return the profile of a graph; two graphs with the same streams are sampled alike.

    Args:
        graph: whose profile it is.
        sources: the nodes that paths are measured from.
        streams: public randomness, for wedges and for the order in which nodes change communities.
    """
    found = communities(graph, rng=streams.numpy("communities"))
    return Profile(
        nodes=graph.nodes,
        edges=graph.edges,
        average_degree=average_degree(graph),
        degree_variance=degree_variance(graph),
        degree_counts=degree_counts(graph),
        assortativity=assortativity(graph),
        clustering=clustering(graph, rng=streams.numpy("wedges")),
        paths=path_lengths(graph, sources),
        communities=found,
        modularity=modularity(graph, found),
        centrality=eigenvector_centrality(graph),
    )
