"""The structural queries of a released graph against those of the true one. Internal: it reads true edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import GraphError
from graphveil.lab.fidelity.measures import (
    kl_divergence,
    mean_absolute_error,
    normalized_mutual_information,
    relative_error,
)
from graphveil.lab.fidelity.paths import PathLengths, sample_sources
from graphveil.lab.fidelity.profile import Profile, profile
from graphveil.lab.fidelity.simple_graph import SimpleGraph

if TYPE_CHECKING:
    from graphveil.perturb import PerturbedGraph

RELATIVE, KL, NMI, MAE = "relative error", "KL divergence", "NMI (1 is best)", "mean absolute error"
Value = float | int | list[float] | None


@dataclass(frozen=True)
class StructuralQuery:
    """One question, its two answers and how far they are apart.

    Args:
        name: what is asked.
        true, released: the answers; None where undefined. Distributions are lists of shares over the same
            values. Of communities it is how many there are, of centrality the largest entry.
        error: how far the answers are apart, None where that is undefined.
        measure: in what sense; in all but NMI 0 is best.
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

    Args:
        queries: in the order of the benchmark.
        notes: what was sampled, and how.
    """

    queries: tuple[StructuralQuery, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> StructuralQuery:
        """Return the query of a name."""
        return {query.name: query for query in self.queries}[name]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil compare --json`` prints."""
        queries = [query.as_dict() for query in self.queries]
        return {"internal": True, "queries": queries, "notes": list(self.notes)}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of :attr:`HEAD` for each query, as text."""
        return [
            (query.name, _cell(query.true), _cell(query.released), _cell(query.error), query.measure)
            for query in self.queries
        ]

    def __str__(self) -> str:
        """Return a table, and the notes under it."""
        lines = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, *self.notes])


HEAD = ("query", "true", "released", "error", "measure")


@checked
def compare(
    graph: Graph, released: Graph | PerturbedGraph, *, seed: int = 0, sources: int | None = None
) -> StructuralComparison:
    """Return how well a released graph keeps the structure of the true one, in 15 queries.

    They are those of the PGB benchmark (Liu et al., PGB: Benchmarking differentially private synthetic graph
    generation algorithms, 2024), with its measures: relative error of scalars, KL divergence of degrees and
    path lengths, normalized mutual information of communities, mean absolute error of eigenvector centrality.
    Both graphs are read as undirected ones without weights: two nodes are joined if any edge is between them.

    Guarantee: none, and nothing is recorded. The true graph is read exactly, so **no number of this may be
    published**, not even the errors. To choose a mechanism by it on private edges is a release of its own.

    Args:
        graph: the true graph.
        released: a graph over the same nodes, such as what ``gv.perturb`` returns.
        seed: of what is sampled, and of the order in which communities are found; the same for both graphs.
        sources: how many nodes shortest paths are measured from; by default all of up to 4,096, else 512.

    Raises:
        GraphError: the graphs have different nodes.
        ConfigError: ``sources`` is no whole number above 0.

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
    _check_nodes(first, second)
    streams = PublicStreams(seed)
    start = sample_sources(first.num_nodes, sources, rng=streams.numpy("sources"))
    true, noisy = (
        profile(SimpleGraph.from_adjacency(one.adjacency), start, streams) for one in (first, second)
    )
    return StructuralComparison(tuple(_queries(true, noisy)), tuple(_notes(true, noisy, len(start), seed)))


def _graph_of(given: object) -> Graph:
    """Return a graph, or the one that a mechanism returned with its guarantee."""
    graph = getattr(given, "graph", given)
    if not isinstance(graph, Graph):
        raise GraphError(f"compare takes two graphs, got {type(given).__name__}; read it with read_graph")
    return graph


def _check_nodes(graph: Graph, other: Graph) -> None:
    same_ids = graph.ids is None or other.ids is None or np.array_equal(graph.ids, other.ids)
    if graph.num_nodes != other.num_nodes or not same_ids:
        raise GraphError(
            "the two graphs have different nodes, or not in one order; put the released edges on the nodes "
            "of the true graph with gv.perturb.load(FOLDER, graph)"
        )


def _queries(true: Profile, noisy: Profile) -> list[StructuralQuery]:
    """Return the queries in the order of the benchmark."""

    def scalar(name: str, first: float | None, second: float | None) -> StructuralQuery:
        return StructuralQuery(name, first, second, relative_error(first, second), RELATIVE)

    degrees = _aligned([true.degree_counts, noisy.degree_counts])
    lengths = _with_apart([true.paths, noisy.paths])
    close, far = true.clustering, noisy.clustering
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
        _agreement(true, noisy),
        _centrality(true, noisy),
    ]


def _aligned(counts: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """Return counts over the same values, those that one graph lacks being zero."""
    longest = max(map(len, counts))
    return [np.pad(one, (0, longest - len(one))) for one in counts]


def _with_apart(paths: Sequence[PathLengths]) -> list[npt.NDArray[np.int64]]:
    """Return how many pairs have each length, and last how many have no path."""
    counts = _aligned([one.counts for one in paths])
    return [np.append(one, path.apart) for one, path in zip(counts, paths, strict=True)]


def _distribution(name: str, counts: list[npt.NDArray[np.int64]]) -> StructuralQuery:
    first, second = ((one / max(1, one.sum())).tolist() for one in counts)
    return StructuralQuery(name, first, second, kl_divergence(*counts), KL)


def _agreement(true: Profile, noisy: Profile) -> StructuralQuery:
    labels = true.communities, noisy.communities
    first, second = (int(one.max()) + 1 for one in labels)
    return StructuralQuery("communities", first, second, normalized_mutual_information(*labels), NMI)


def _centrality(true: Profile, noisy: Profile) -> StructuralQuery:
    both = true.centrality, noisy.centrality
    first, second = (float(one.max()) for one in both)
    return StructuralQuery("eigenvector centrality", first, second, mean_absolute_error(*both), MAE)


def _notes(true: Profile, noisy: Profile, sources: int, seed: int) -> list[str]:
    """Return what was sampled."""
    notes = [f"communities were found, and everything sampled was drawn, with seed {seed}"]
    if not true.paths.complete:
        notes.append(
            f"paths are those from {sources:,} of {true.nodes:,} nodes, the same of both graphs; a diameter "
            "is at least the one shown"
        )
    for name, one in (("true", true), ("released", noisy)):
        if one.clustering.sampled:
            notes.append(f"triangles and clustering of the {name} graph are estimates from a million wedges")
    return notes


def _cell(value: Value) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return f"{len(value)} shares"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
