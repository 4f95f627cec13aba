"""The structural queries of a released graph and of the true one. Internal: it reads true edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil._util.checks import checked
from graphveil.audit.fidelity.structure import (
    Clustering,
    Floats,
    Integers,
    PathLengths,
    SimpleGraph,
    assortativity,
    average_degree,
    clustering,
    communities,
    degree_counts,
    degree_variance,
    eigenvector_centrality,
    modularity,
    path_lengths,
    sample_sources,
)
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import GraphError

if TYPE_CHECKING:
    from graphveil.perturb import PerturbedGraph

RELATIVE, KL, NMI, MAE = "relative error", "KL divergence", "NMI (1 is best)", "mean absolute error"
Value = float | int | list[float] | None
HEAD = ("query", "true", "released", "error", "measure")


@dataclass(frozen=True)
class StructuralQuery:
    """One query, its two answers and their difference.

    Args:
        true, released: Answers of the two graphs; None if undefined. Distributions are lists of shares over
            the same values. The answer for communities is their number, for centrality the largest entry.
        error: Difference of the answers; None if undefined.
        measure: Measure of the difference; 0 is best, except for NMI.
    """

    name: str
    true: Value
    released: Value
    error: float | None
    measure: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return dict(vars(self))


@dataclass(frozen=True)
class StructuralComparison:
    """The 15 structural queries of two graphs. Internal: the true answers are exact, and so are the errors.
    """

    queries: tuple[StructuralQuery, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> StructuralQuery:
        return {query.name: query for query in self.queries}[name]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON output of ``graphveil compare``."""
        queries = [query.as_dict() for query in self.queries]
        return {"internal": True, "queries": queries, "notes": list(self.notes)}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of ``HEAD`` for each query, as text."""
        return [
            (query.name, _cell(query.true), _cell(query.released), _cell(query.error), query.measure)
            for query in self.queries
        ]

    def __str__(self) -> str:
        lines = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, *self.notes])


@checked
def compare(
    graph: Graph, released: Graph | PerturbedGraph, *, seed: int = 0, sources: int | None = None
) -> StructuralComparison:
    """Measure how well a released graph keeps the structure of the true one, by 15 queries.

    They are the queries of the PGB benchmark (Liu et al., PGB: Benchmarking differentially private synthetic
    graph generation algorithms, 2024), with its measures: relative error of scalars, KL divergence of degrees
    and path lengths, normalized mutual information of communities, mean absolute error of eigenvector
    centrality. Both graphs are read as undirected graphs without weights.

    Args:
        graph: The true graph.
        released: A graph over the same nodes, such as a result of ``gv.perturb``.
        seed: Seed of sampling, the same for both graphs.
        sources: Number of source nodes of shortest paths; by default all of up to 4,096 nodes, else 512.

    Returns:
        The answers of both graphs and their differences.

    Raises:
        GraphError: If the graphs have different nodes.
        ConfigError: If ``sources`` is not an integer above 0.

    Privacy:
        Unit: none. Reads: the exact edges of ``graph``. Charges: nothing, and there is no guarantee. The
        whole result is internal, including the errors. Choosing a mechanism by them is another release.

    >>> import torch
    >>> import graphveil as gv
    >>> ring = gv.Graph.from_edges(
    ...     torch.eye(5), [0, 1, 0, 1, 0], range(5), [1, 2, 3, 4, 0], directed=False
    ... )
    >>> path = gv.Graph.from_edges(torch.eye(5), [0, 1, 0, 1, 0], range(4), [1, 2, 3, 4], directed=False)
    >>> found = gv.compare(ring, path)
    >>> found["edges"].error, found["diameter"].true, found["diameter"].released
    (0.2, 2, 4)
    """
    first, second = _graph_of(graph), _graph_of(released)
    same_ids = first.ids is None or second.ids is None or np.array_equal(first.ids, second.ids)
    if first.num_nodes != second.num_nodes or not same_ids:
        raise GraphError(
            "The two graphs have different nodes, or the same nodes in another order. Load the "
            "perturbed edges onto the nodes of the true graph: gv.perturb.load(FOLDER, graph)"
        )
    streams = PublicStreams(seed)
    start = sample_sources(first.num_nodes, sources, rng=streams.numpy("sources"))
    true, noisy = (
        profile(SimpleGraph.from_adjacency(one.adjacency), start, streams) for one in (first, second)
    )
    notes = [f"everything sampled was drawn with seed {seed}"]
    if not true.paths.complete:
        notes.append(
            f"paths are those from {len(start):,} of {true.nodes:,} nodes, the same of both graphs; a "
            "diameter is at least the one shown"
        )
    for name, one in (("true", true), ("released", noisy)):
        if one.clustering.sampled:
            notes.append(f"triangles and clustering of the {name} graph are estimates from a million wedges")
    return StructuralComparison(tuple(_queries(true, noisy)), tuple(notes))


def _graph_of(given: object) -> Graph:
    """Return a graph, or the one that a mechanism returned with its guarantee."""
    graph = getattr(given, "graph", given)
    if not isinstance(graph, Graph):
        raise GraphError(
            f"compare needs two graphs, got {type(given).__name__}. Read the data with read_graph first."
        )
    return graph


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
    """Return the profile of a graph; two graphs with the same streams are sampled alike."""
    found = communities(graph)
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


def _queries(true: Profile, noisy: Profile) -> list[StructuralQuery]:
    def scalar(name: str, first: float | None, second: float | None) -> StructuralQuery:
        return StructuralQuery(name, first, second, relative_error(first, second), RELATIVE)

    degrees = _aligned([true.degree_counts, noisy.degree_counts])
    paths = true.paths, noisy.paths
    finite = _aligned([one.counts for one in paths])  # pairs by length, and last those without a path
    lengths = [np.append(counts, one.apart) for counts, one in zip(finite, paths, strict=True)]
    close, far = true.clustering, noisy.clustering
    labels, entries = (true.communities, noisy.communities), (true.centrality, noisy.centrality)
    groups, nmi = [int(one.max()) + 1 for one in labels], normalized_mutual_information(*labels)
    largest, mae = [float(one.max()) for one in entries], mean_absolute_error(*entries)
    return [
        scalar("nodes", true.nodes, noisy.nodes),
        scalar("edges", true.edges, noisy.edges),
        scalar("triangles", close.triangles, far.triangles),
        scalar("average degree", true.average_degree, noisy.average_degree),
        scalar("degree variance", true.degree_variance, noisy.degree_variance),
        _distribution("degree distribution", degrees),
        scalar("diameter", true.paths.diameter, noisy.paths.diameter),
        scalar("average shortest path", true.paths.average, noisy.paths.average),
        _distribution("path-length distribution", lengths),
        scalar("global clustering", close.transitivity, far.transitivity),
        scalar("average clustering", close.average, far.average),
        scalar("modularity", true.modularity, noisy.modularity),
        scalar("assortativity", true.assortativity, noisy.assortativity),
        StructuralQuery("communities", groups[0], groups[1], nmi, NMI),
        StructuralQuery("eigenvector centrality", largest[0], largest[1], mae, MAE),
    ]


def _aligned(counts: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Return counts over the same values, those that one graph lacks being zero."""
    longest = max(map(len, counts))
    return [np.pad(one, (0, longest - len(one))) for one in counts]


def _distribution(name: str, counts: list[npt.NDArray[np.int64]]) -> StructuralQuery:
    first, second = ((one / max(1, one.sum())).tolist() for one in counts)
    return StructuralQuery(name, first, second, kl_divergence(*counts), KL)


def _cell(value: Value) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return f"{len(value)} shares"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


# -- measures ----------------------------------------------------------------------------------------------


def relative_error(true: float | None, released: float | None) -> float | None:
    """Return |true - released| / |true|; None if an answer is undefined, or only the true one is zero.

    >>> relative_error(4.0, 5.0), relative_error(0.0, 0.0), relative_error(0.0, 1.0)
    (0.25, 0.0, None)
    """
    if true is None or released is None:
        return None
    if true == released:
        return 0.0
    return abs(true - released) / abs(true) if true else None


def kl_divergence(true: npt.ArrayLike, released: npt.ArrayLike) -> float:
    """Return KL(p || q) = sum_k p_k ln(p_k / q_k) of two histograms over the same K values, in nats.

    A value that only one graph has would make it infinite. Therefore one more observation is spread evenly
    over the K values of each: p_k = (c_k + 1/K) / (n + 1) for counts c_k that add up to n.

    Args:
        true, released: Counts of each value (K).

    >>> kl_divergence([2, 1], [2, 1]), round(kl_divergence([3, 0], [0, 3]), 4)
    (0.0, 1.4594)
    """
    both = [np.asarray(counts, dtype=np.float64) for counts in (true, released)]
    p, q = ((counts + 1 / max(1, len(counts))) / (counts.sum() + 1) for counts in both)
    return max(0.0, float((p * np.log(p / q)).sum()))


def normalized_mutual_information(first: Integers, second: Integers) -> float:
    """Return 2 I / (H_1 + H_2) of two partitions of the same nodes: 1 if they are equal, 0 if independent.

    I is the mutual information of a random node's two communities and H their entropies. Two partitions with
    a single community each are equal.

    Args:
        first, second: Community of each node (N), numbered from 0.

    >>> halves, crossed = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> normalized_mutual_information(halves, 1 - halves), normalized_mutual_information(halves, crossed)
    (1.0, 0.0)
    """
    shares = np.full(len(first), 1 / max(1, len(first)))
    joint: Any = sparse.coo_array((shares, (first, second))).tocsr()  # of nodes in each pair of communities
    p, q = np.asarray(joint.sum(axis=1)).ravel(), np.asarray(joint.sum(axis=0)).ravel()
    both = _entropy(p) + _entropy(q)
    if both == 0:
        return 1.0
    mutual = both - _entropy(joint.data)
    return min(1.0, max(0.0, 2 * mutual / both))


def _entropy(shares: Floats) -> float:
    """Return the entropy of shares that add up to one, in nats."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def mean_absolute_error(true: Floats, released: Floats) -> float:
    """Return the mean over nodes of |true_v - released_v|.

    Args:
        true, released: One value per node (N).

    >>> mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.0
    """
    return float(np.abs(true - released).mean())
