import pytest

from graphveil.core.events import ByGroup, Composed, Event, Gaussian, PoissonGaussian, compose
from graphveil.core.ledger import ledger_of
from graphveil.core.unit import NodeRecord, UndirectedEdge
from graphveil.data import Graph
from graphveil.errors import PrivacyError
from graphveil.estimators.mlp import MLP
from graphveil.privacy import Guarantee
from graphveil.runs.experiment import Experiment, combined_guarantee, preview
from graphveil.runs.source import Source

TINY = Source(dataset="synthetic/tiny")


def experiment(method: str = "gap", **parameters: object) -> Experiment:
    return Experiment(method, TINY, {"unit": "undirected-edge", "epsilon": 1.0, **parameters}, runs=2)


def test_nothing_is_spent_and_no_edge_is_read() -> None:
    configured = experiment()
    graph = configured.load()
    plan = preview(configured, graph, expect_edges=1000)
    empty = Graph.from_edges(graph.x, graph.y, [], [], directed=False, name=graph.name)
    without = preview(configured, empty, expect_edges=1000)
    assert ledger_of(graph.edge_set).entries == ()
    assert (plan.noise_std, plan.guarantee, plan.estimate) == (
        without.noise_std,
        without.guarantee,
        without.estimate,
    )


def test_runs_add_up_like_one_long_release() -> None:
    one = Guarantee.from_event(UndirectedEdge(), Gaussian(0.77050934), delta=1e-7, releases=2)
    assert combined_guarantee([one]) is one
    assert combined_guarantee([one] * 3).epsilon == pytest.approx(7.423, abs=1e-3)
    assert combined_guarantee([one] * 10).epsilon == pytest.approx(15.104, abs=1e-3)
    assert combined_guarantee([one] * 3).releases == 6


TRAINING = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.05, steps=200)
RECORDS = ByGroup("records", (TRAINING, Gaussian(0.8), Composed(())))


def of_records(event: Event) -> Guarantee:
    return Guarantee.from_event(NodeRecord(), event, delta=1e-5, releases=1)


def test_a_record_may_train_in_one_run_and_validate_in_another() -> None:
    two = combined_guarantee([of_records(RECORDS)] * 2).epsilon
    same_part_twice = of_records(compose(RECORDS, RECORDS)).epsilon
    mixed = of_records(compose(TRAINING, Gaussian(0.8))).epsilon
    assert two == pytest.approx(max(same_part_twice, mixed))
    assert two > of_records(RECORDS).epsilon


def test_releases_of_two_methods_may_distinguish_other_groups() -> None:
    other = ByGroup("records", (Gaussian(0.1), Gaussian(0.5)))  # the name alone says nothing
    assert combined_guarantee([of_records(RECORDS), of_records(other)]).epsilon > of_records(RECORDS).epsilon


def test_many_runs_are_never_cheaper_than_fewer() -> None:
    found = [combined_guarantee([of_records(RECORDS)] * runs).epsilon for runs in (1, 2, 5, 10, 20)]
    assert found == sorted(found)


def test_together_is_only_as_valid_as_its_parts() -> None:
    void = Guarantee.from_event(NodeRecord(), Gaussian(0.1), delta=1e-5, releases=1, deviations=("a flaw",))
    both = combined_guarantee([of_records(RECORDS), void])
    assert (both.valid, both.deviations) == (False, ("a flaw",))


def test_runs_that_would_use_up_delta_are_rejected() -> None:
    one = Guarantee.from_event(UndirectedEdge(), Gaussian(0.5), delta=1e-7, releases=1, slack=4e-8)
    with pytest.raises(PrivacyError, match="fewer --runs"):
        combined_guarantee([one] * 3)


def test_a_recipe_that_reads_protected_edges_voids_the_guarantee() -> None:
    strict, paper = experiment(), experiment("gap-paper")
    assert preview(strict, strict.load()).guarantee.valid
    found = preview(paper, paper.load()).guarantee
    assert not found.valid
    assert any("isolated nodes were dropped" in deviation for deviation in found.deviations)


def test_a_recipe_that_drops_edges_states_it() -> None:
    weighted = Experiment("gap", TINY, {"unit": "undirected-edge", "epsilon": 1.0}, recipe="weighted")
    found = preview(weighted, weighted.load()).guarantee
    assert "left out before anything is computed" in found.formal_statement()
    assert found.valid


def test_the_papers_baseline_trains_in_batches_of_the_same_size_and_ours_as_is_best() -> None:
    papers, ours = (experiment(one, batch_size=32).baseline(0) for one in ("gap-paper", "gap"))
    assert isinstance(papers, MLP) and isinstance(ours, MLP)
    assert (papers.batch_size, ours.batch_size) == (32, None)
