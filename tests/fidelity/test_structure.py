"""Statistics of one graph against networkx, on graphs of different kinds."""

import math

import networkx as nx
import numpy as np
import pytest

from fidelity.graphs import GRAPHS, adjacency, pair
from graphveil.audit import fidelity
from graphveil.audit.secret_edges import SecretEdges
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams

Pair = tuple[nx.Graph, SecretEdges]


@pytest.fixture(params=GRAPHS)
def both(request: pytest.FixtureRequest) -> Pair:
    return pair(request.param)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def partition(labels: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(labels == community).tolist()) for community in range(labels.max() + 1)]


def test_sizes_and_degrees(both: Pair) -> None:
    theirs, ours = both
    degrees = np.array([degree for _, degree in theirs.degree()])
    assert (ours.nodes, ours.edges) == (theirs.number_of_nodes(), theirs.number_of_edges())
    profile = fidelity.Profile(ours, np.arange(0), PublicStreams(0))
    found = {name: value(profile) for name, _, value in fidelity.QUERIES if "degree" in name}
    assert found["average degree"] == pytest.approx(degrees.mean())
    assert found["degree variance"] == pytest.approx(((degrees - degrees.mean()) ** 2).mean())
    assert found["degree distribution"][0].tolist() == nx.degree_histogram(theirs)


def test_triangles_and_clustering(both: Pair) -> None:
    theirs, ours = both
    found = fidelity.clustering(ours, rng=rng())
    assert found.triangles == sum(nx.triangles(theirs).values()) // 3
    assert found.transitivity == pytest.approx(nx.transitivity(theirs))
    assert found.average == pytest.approx(nx.average_clustering(theirs))
    assert not found.sampled


def test_triangles_are_counted_in_several_chunks() -> None:
    nodes = 600  # of a complete graph, with more than two chunks of products
    ends = np.triu_indices(nodes, 1)
    ours = SecretEdges.from_adjacency(Adjacency.from_edges(*ends, num_nodes=nodes, directed=False))
    found = fidelity.clustering(ours, rng=rng())
    assert (found.triangles, found.transitivity, found.average) == (math.comb(nodes, 3), 1.0, 1.0)


@pytest.mark.parametrize("name", ["karate", "random", "complete", "star", "preferential"])
def test_sampled_wedges_estimate_the_clustering(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "EXACT_PRODUCTS", 0)
    theirs, ours = pair(name)
    found = fidelity.clustering(ours, rng=rng())
    assert found.sampled
    assert found.transitivity == pytest.approx(nx.transitivity(theirs), abs=0.0025)  # five standard errors
    assert found.average == pytest.approx(nx.average_clustering(theirs), abs=0.0025)
    assert found.triangles == pytest.approx(sum(nx.triangles(theirs).values()) / 3, rel=0.05)


def test_shortest_paths(both: Pair) -> None:
    theirs, ours = both
    lengths = [
        length
        for source, of in nx.all_pairs_shortest_path_length(theirs)
        for target, length in of.items()
        if source != target
    ]
    found = fidelity.path_lengths(ours, np.arange(ours.nodes))
    assert found.counts.tolist() == np.bincount(lengths, minlength=1)[1:].tolist()
    assert found.apart == ours.nodes * (ours.nodes - 1) - len(lengths)
    assert found.average == (pytest.approx(np.mean(lengths)) if lengths else None)
    assert found.diameter == max(
        nx.diameter(theirs.subgraph(part)) for part in nx.connected_components(theirs)
    )
    assert found.complete


def test_paths_from_sampled_nodes() -> None:
    theirs, ours = pair("random")
    sources = fidelity.sample_sources(ours.nodes, 70, rng=rng())
    assert len(set(sources.tolist())) == 70
    for nodes, count, expected in ((4096, None, 4096), (4097, None, 512), (10, 512, 10)):
        assert len(fidelity.sample_sources(nodes, count, rng=rng())) == expected
    found = fidelity.path_lengths(ours, sources)
    lengths = [
        length
        for source in sources.tolist()
        for target, length in nx.single_source_shortest_path_length(theirs, source).items()
        if target != source
    ]
    assert found.counts.tolist() == np.bincount(lengths)[1:].tolist()
    assert not found.complete


@pytest.mark.filterwarnings(
    "ignore:invalid value encountered:RuntimeWarning"
)  # theirs, where it is undefined
def test_assortativity(both: Pair) -> None:
    theirs, ours = both
    found = fidelity.assortativity(ours)
    expected = nx.degree_assortativity_coefficient(theirs) if theirs.number_of_edges() else np.nan
    assert found is None if np.isnan(expected) else found == pytest.approx(expected)


def test_communities_and_their_modularity(both: Pair) -> None:
    theirs, ours = both
    labels = fidelity.communities(ours)
    assert sorted(np.unique(labels)) == list(range(labels.max() + 1))
    found = fidelity.modularity(ours, labels)
    if not theirs.number_of_edges():
        assert found is None and len(set(labels.tolist())) == ours.nodes
        return
    assert found == pytest.approx(nx.community.modularity(theirs, partition(labels), weight=None))
    best = max(
        nx.community.modularity(
            theirs, nx.community.louvain_communities(theirs, weight=None, seed=seed), weight=None
        )
        for seed in range(3)
    )
    assert found > best - 0.03


def test_planted_communities_are_found() -> None:
    planted = nx.planted_partition_graph(6, 25, 0.4, 0.01, seed=1)
    ours, groups = SecretEdges.from_adjacency(adjacency(planted)), np.arange(150) // 25
    labels = fidelity.communities(ours)
    assert np.array_equal(labels, fidelity.communities(ours))
    assert fidelity.normalized_mutual_information(labels, groups) > 0.95
    found, expected = fidelity.modularity(ours, labels), fidelity.modularity(ours, groups)
    assert found is not None and expected is not None and found >= expected


def test_eigenvector_centrality(both: Pair) -> None:
    theirs, ours = both
    found = fidelity.eigenvector_centrality(ours)
    expected = nx.eigenvector_centrality(theirs, max_iter=5000, tol=1e-10, weight=None)
    np.testing.assert_allclose(found, [expected[node] for node in theirs], atol=1e-6)
