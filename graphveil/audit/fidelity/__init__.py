"""How faithful a released graph is to the true one. Everything here reads true edges, and is internal."""

from graphveil.audit.fidelity.communities import communities, modularity
from graphveil.audit.fidelity.comparison import (
    HEAD,
    StructuralComparison,
    StructuralQuery,
    compare,
    kl_divergence,
    mean_absolute_error,
    normalized_mutual_information,
    relative_error,
)
from graphveil.audit.fidelity.structure import (
    Clustering,
    PathLengths,
    SimpleGraph,
    assortativity,
    average_degree,
    clustering,
    degree_counts,
    degree_variance,
    eigenvector_centrality,
    path_lengths,
    sample_sources,
)

__all__ = [
    "HEAD",
    "Clustering",
    "PathLengths",
    "SimpleGraph",
    "StructuralComparison",
    "StructuralQuery",
    "assortativity",
    "average_degree",
    "clustering",
    "communities",
    "compare",
    "degree_counts",
    "degree_variance",
    "eigenvector_centrality",
    "kl_divergence",
    "mean_absolute_error",
    "modularity",
    "normalized_mutual_information",
    "path_lengths",
    "relative_error",
    "sample_sources",
]
