import pytest

from graphveil.errors import PrivacyError
from graphveil.experiment.experiment import Experiment
from graphveil.experiment.preview import preview, together
from graphveil.experiment.source import Source
from graphveil.graph import Graph
from graphveil.privacy import Gaussian, Guarantee, UndirectedEdge, budget_of

TINY = Source(dataset="synthetic/tiny")


def experiment(**parameters: object) -> Experiment:
    return Experiment("gap", TINY, {"unit": "undirected-edge", "epsilon": 1.0, **parameters}, runs=2)


def test_nothing_is_spent_and_no_edge_is_read() -> None:
    configured = experiment()
    graph = configured.load()
    plan = preview(configured, graph, expect_edges=1000)
    empty = Graph.from_edges(graph.x, graph.y, [], [], directed=False, name=graph.name)
    without = preview(configured, empty, expect_edges=1000)
    assert budget_of(graph.edge_set).entries == ()
    assert (plan.noise_std, plan.guarantee, plan.estimate) == (
        without.noise_std,
        without.guarantee,
        without.estimate,
    )


def test_runs_add_up_like_one_long_release() -> None:
    one = Guarantee.of(UndirectedEdge(), Gaussian(0.77050934), delta=1e-7, releases=2)
    assert together([one]) is one
    assert together([one] * 3).epsilon == pytest.approx(7.423, abs=1e-3)
    assert together([one] * 10).epsilon == pytest.approx(15.104, abs=1e-3)
    assert together([one] * 3).releases == 6


def test_runs_that_would_use_up_delta_are_refused() -> None:
    one = Guarantee.of(UndirectedEdge(), Gaussian(0.5), delta=1e-7, releases=1, slack=4e-8)
    with pytest.raises(PrivacyError, match="fewer --runs"):
        together([one] * 3)


def test_a_recipe_that_reads_protected_edges_voids_the_guarantee() -> None:
    strict, paper = experiment(), experiment(mode="paper")
    assert preview(strict, strict.load()).guarantee.valid
    found = preview(paper, paper.load()).guarantee
    assert not found.valid
    assert any("isolated nodes were dropped" in deviation for deviation in found.deviations)


def test_a_recipe_that_drops_edges_says_so() -> None:
    weighted = Experiment("gap", TINY, {"unit": "undirected-edge", "epsilon": 1.0}, recipe="weighted")
    found = preview(weighted, weighted.load()).guarantee
    assert "left out before anything is computed" in found.statement()
    assert found.valid
