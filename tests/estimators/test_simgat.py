"""SimGAT: its propagation by the formula, and LPGNN in all other respects."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, MissingDependencyError, UnitError
from graphveil.estimators.session import Session
from graphveil.nn.message_passing import k_prop
from graphveil.papers.simgat import SimGAT, union
from graphveil.papers.similarity import MultiHop, PublicEdges

GRAPH = RECIPES["gap"].split(synthetic("tiny"), seed=0)
LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": math.inf, "seed": 0, "epochs": 3}
NO_SIMILAR = "multihop(delta=1.0)"  # no share of walks is above one
SLIDE = Adjacency.from_edges([0, 0, 1, 2], [1, 3, 3, 3], num_nodes=4, directed=False)


def model(**changed: object) -> SimGAT:
    return SimGAT(**{**LOCAL, "x_steps": 1, "posterior_steps": 0, **changed})  # type: ignore[arg-type]


def operator(simgat: SimGAT, graph: Graph) -> torch.Tensor:
    """Return the matrix that features are propagated by."""
    hops = simgat.config.along(graph, Session(streams=PublicStreams(0)))
    return hops.apply(torch.eye(graph.num_nodes))


@pytest.fixture
def slide() -> Graph:
    return Graph(x=torch.eye(4), y=torch.tensor([0, 1, 0, 1]), adjacency=SLIDE, num_classes=2)


def test_golden_values_of_the_slides(slide: Graph) -> None:
    found = operator(model(x_steps=1, similarity="multihop(n=2, delta=0.25)"), slide)
    assert found[0].tolist() == pytest.approx([0.30274943, 0.30274943, 0.19245009, 0.27216553], abs=1e-7)
    assert found[3].tolist() == pytest.approx([0.40824829, 0.40824829, 0.57735027, 0], abs=1e-7)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_similar_nodes_are_averaged_after_the_hops(steps: int) -> None:
    edges = PublicEdges(GRAPH.adjacency, basis="drawn here")
    similar = MultiHop(delta=0.05)(edges, streams=PublicStreams(0)).toarray()
    hops = k_prop(GRAPH.adjacency, steps).apply(torch.eye(GRAPH.num_nodes)).numpy()
    for weight, kept in (("one", similar > 0), ("similarity", similar)):
        both = np.eye(len(hops)) + kept
        expected = both / both.sum(axis=1, keepdims=True) @ hops
        found = operator(model(x_steps=steps, similarity="multihop(delta=0.05)", weight=weight), GRAPH)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("max_union_degree", [None, 12])
def test_a_union_is_propagated_as_a_graph(max_union_degree: int | None) -> None:
    edges = PublicEdges(GRAPH.adjacency, basis="drawn here")
    joined = union(edges, MultiHop()(edges, streams=PublicStreams(0)), max_union_degree=max_union_degree)
    assert len(joined.indices) > len(GRAPH.adjacency.indices)
    expected = k_prop(joined, 2).apply(torch.eye(GRAPH.num_nodes))
    assert torch.equal(
        operator(model(x_steps=2, combine="union", max_union_degree=max_union_degree), GRAPH), expected
    )


@pytest.mark.parametrize(
    "combine", [{}, {"weight": "similarity"}, {"combine": "union", "max_union_degree": 5}]
)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_without_similar_nodes_it_is_bit_identical_to_kprop(steps: int, combine: dict[str, object]) -> None:
    found = operator(model(x_steps=steps, similarity=NO_SIMILAR, **combine), GRAPH)
    kprop = k_prop(GRAPH.adjacency, steps).apply(torch.eye(GRAPH.num_nodes))
    assert torch.equal(found, kprop)


@dataclasses.dataclass(kw_only=True, eq=False)
class AsLpgnn(SimGAT):
    """SimGAT with the initial weights that LPGNN draws for the same seed."""

    method = "lpgnn"


@pytest.mark.parametrize("backbone", ["sage", "gcn", "gat"])
def test_without_similar_nodes_a_fit_is_that_of_lpgnn(backbone: str) -> None:
    shared = {**LOCAL, "x_steps": 2, "posterior_steps": 0, "backbone": backbone, "unsafe_noise_seed": 1}
    ours = AsLpgnn(similarity=NO_SIMILAR, **shared).fit(GRAPH)  # type: ignore[arg-type]
    theirs = gv.LPGNN(**shared).fit(GRAPH)  # type: ignore[arg-type]
    assert torch.equal(ours.predict_proba(), theirs.predict_proba())
    with_similar = AsLpgnn(similarity="multihop", **shared).fit(GRAPH)  # type: ignore[arg-type]
    assert not torch.equal(with_similar.predict_proba(), theirs.predict_proba())


def test_the_guarantee_is_that_of_lpgnn() -> None:
    ours, theirs = (
        cls(unit="local-attributes", eps_x=0.5, eps_y=2.0, seed=0).preview(GRAPH).guarantee
        for cls in (SimGAT, gv.LPGNN)
    )
    assert ours == theirs
    assert ours.valid


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "node-record"])
def test_rejects_units_of_private_edges(unit: str) -> None:
    with pytest.raises(UnitError, match="supports unit 'local-attributes'"):
        SimGAT(unit=unit, eps_x=1.0, eps_y=1.0)


def test_similarities_depend_on_edges_alone() -> None:
    simgat = model(similarity="factorized(dim=8)")
    other = GRAPH.replace(x=GRAPH.x[:, :3], y=GRAPH.y.flip(0))
    assert torch.equal(operator(simgat, GRAPH), operator(simgat, other))


@pytest.mark.parametrize("similarity", ["deepwalk(walks=2, length=5)", "node2vec(walks=2, length=5, q=2)"])
def test_walks_are_reproducible(similarity: str) -> None:
    pytest.importorskip("gensim")
    first, second = (model(similarity=similarity, unsafe_noise_seed=2).fit(GRAPH) for _ in range(2))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_a_similarity_that_cannot_be_computed_charges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim", None)
    edges = GRAPH.adjacency
    graph = Graph.from_edges(GRAPH.x, GRAPH.y, *edges.edge_index(), directed=False)
    graph = graph.replace(train_mask=GRAPH.train_mask, val_mask=GRAPH.val_mask, test_mask=GRAPH.test_mask)
    with pytest.raises(MissingDependencyError, match=r"graphveil\[simgat\]"):
        model(similarity="deepwalk").fit(graph)
    with pytest.raises(ConfigError, match="dim=5000"):
        model(similarity="factorized(dim=5000)").fit(graph)
    assert gv.ledger_of(graph.edge_set).entries == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"similarity": "multi-hop"}, "similarity='multi-hop' is not supported"),
        ({"similarity": "multihop(n=0)"}, "n=0"),
        ({"combine": "both"}, "combine='both' is not one of post, union"),
        ({"weight": "cosine"}, "weight='cosine' is not one of"),
        ({"weight": "similarity", "combine": "union"}, "is only for combine='post'"),
        ({"max_union_degree": 5}, "is only for combine='union'"),
        ({"max_union_degree": 0, "combine": "union"}, "max_union_degree=0"),
    ],
)
def test_rejects_wrong_parameters(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(**wrong)


def test_averaging_reduces_noise() -> None:
    """Rows of independent noise of variance one keep sum_u w_vu^2 of it."""
    kept, less = (
        operator(model(similarity=name), GRAPH).square().sum(dim=1) for name in (NO_SIMILAR, "multihop")
    )
    assert less.mean() < 0.7 * kept.mean()
