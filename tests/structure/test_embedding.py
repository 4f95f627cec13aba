"""Similarity by vectors: communities are found, by skip-gram and by its matrix, the same each time."""

import numpy as np
import pytest

from graphveil.core.noise.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.papers.similarity import (
    DeepWalk,
    Embedding,
    Factorized,
    Node2Vec,
    PublicEdges,
    RandomWalk,
    logarithms,
    nearest,
)
from tests.structure.conftest import random_edges

SHORT = {"dim": 8, "walks": 20, "length": 12, "window": 3, "top": 3}
LAWS = [
    DeepWalk(**SHORT),  # type: ignore[arg-type]
    DeepWalk(**SHORT, negative=0),  # type: ignore[arg-type]
    Node2Vec(**SHORT, p=2.0, q=0.5),  # type: ignore[arg-type]
    Factorized(dim=4, window=3, negative=1, top=3),
]


@pytest.mark.parametrize("law", LAWS, ids=["negative", "hierarchical", "node2vec", "factorized"])
def test_similar_nodes_are_of_the_same_clique(law: Embedding, cliques: PublicEdges) -> None:
    if isinstance(law, DeepWalk):
        pytest.importorskip("gensim")
    found = law(cliques, streams=PublicStreams(3))
    assert np.diff(found.indptr).tolist() == [3] * 12 + [0]
    rows, columns = found.nonzero()
    assert np.mean((rows < 6) == (columns < 6)) > 0.9
    assert (rows != columns).all()
    assert found.data.min() > 0
    assert 12 not in columns
    again = law(cliques, streams=PublicStreams(3))
    assert (again.indices == found.indices).all()
    assert (again.data == found.data).all()


def test_walks_start_at_every_node_as_often_as_requested() -> None:
    paths = DeepWalk(walks=3).paths(RandomWalk(length=4), random_edges(1), PublicStreams(0))
    assert (np.bincount(paths[:, 0]) == 3).all()


def test_logarithms_are_the_formula() -> None:
    matrix = random_edges(1).matrix()
    degrees = matrix.sum(axis=1)
    inverse = np.diag(np.divide(1.0, degrees, out=np.zeros(30), where=degrees > 0))
    step = inverse @ matrix.toarray()
    powers = sum(np.linalg.matrix_power(step, r) for r in (1, 2, 3))
    expected = np.log(np.maximum(1, degrees.sum() / (2 * 3) * powers @ inverse))
    np.testing.assert_allclose(logarithms(matrix, window=3, negative=2).toarray(), expected, atol=1e-12)


def test_vectors_reproduce_the_matrix() -> None:
    edges = random_edges(4, edges=100)
    matrix = logarithms(edges.matrix(), window=2, negative=1).toarray()
    vectors = Factorized(dim=29, window=2, negative=1).vectors(edges, streams=PublicStreams(0))
    sizes = np.linalg.svd(matrix, compute_uv=False)[:29]
    np.testing.assert_allclose(np.sort((vectors**2).sum(axis=0)), np.sort(sizes), atol=1e-4)


@pytest.mark.parametrize(("top", "above"), [(1, 0.0), (4, 0.0), (4, 0.5), (None, 0.3), (100, 0.0)])
def test_nearest_is_the_definition(top: int | None, above: float) -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    vectors[7] = 0
    unit = vectors / np.maximum(1e-30, np.linalg.norm(vectors, axis=1, keepdims=True))
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    least = -np.sort(-cosines, axis=1)[:, [min(299, (top or 300) - 1)]]
    expected = np.where((cosines >= least) & (cosines > above), cosines, 0)
    np.testing.assert_allclose(nearest(vectors, top=top, above=above).toarray(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("law", "wrong"),
    [
        (DeepWalk, {"dim": 0}),
        (DeepWalk, {"length": 1}),
        (DeepWalk, {"negative": -1}),
        (DeepWalk, {"above": 1.5}),
        (DeepWalk, {"top": 0}),
        (DeepWalk, {"top": None}),
        (Node2Vec, {"q": 0.0}),
        (Factorized, {"negative": 0}),
    ],
)
def test_parameters_out_of_range_are_rejected(law: type[Embedding], wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        law(**wrong)  # type: ignore[arg-type]


def test_rejects_more_dimensions_than_nodes(cliques: PublicEdges) -> None:
    with pytest.raises(ConfigError, match="dim=128"):
        Factorized()(cliques, streams=PublicStreams(0))
