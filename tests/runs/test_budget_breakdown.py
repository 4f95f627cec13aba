import pytest

from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.plan import Query, ReleasePlan, hops
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.record_counts import AccuracyCountQuery
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.estimators.classcode.edge import code_sum_queries
from graphveil.papers.attention import AttentionTraining
from graphveil.publish.queries import QueryRow, release_rows, stages_of, unequal_shares_note

GROUPS = 3
TRAIN, OTHERS = (True, False, False), (False, True, True)


def steps(noise_multiplier: float, rate: float = 0.0625) -> DPSGDQuery:
    return DPSGDQuery(
        parameters=40, steps=300, noise_multiplier=noise_multiplier, sampling_rate=rate, pays=TRAIN
    )


def push(sigma: float) -> OutEdgeSumQuery:
    return OutEdgeSumQuery(dim=5, sigma=sigma, out_degree_bound=10, bounds=(1.0,) * GROUPS)


def pipeline(*queries: Query) -> tuple[QueryRow, ...]:
    return stages_of(ReleasePlan(NodeRecord(), queries, delta=1e-5))


def test_a_pipeline_states_the_cost_of_each_group() -> None:
    tally = AccuracyCountQuery(candidates=2, sigma=9.0, pays=OTHERS)
    found = pipeline(steps(2.0), push(4.0), push(4.0), steps(2.0), tally)
    assert [(stage.kind, stage.count, stage.pays) for stage in found] == [
        ("training", 1, ("train",)),
        ("push", 2, ("all",)),
        ("training", 1, ("train",)),
        ("tally", 1, ("val", "other")),
    ]
    encoder, aggregations, _, counts = found
    assert (encoder.noise, encoder.batches, encoder.charged_groups) == (
        "multiplier 2",
        "300 at 0.0625",
        "train",
    )
    assert (aggregations.name, aggregations.noise) == ("out-edge aggregation x 2", "std 4")
    assert (counts.noise, counts.batches, counts.charged_groups) == ("std 9", "", "val, test and unsplit")
    assert aggregations.epsilon == pytest.approx(epsilon_of(2**0.5 / 4, 1e-5))


def test_the_shares_of_the_records_that_pay_most_add_up_to_the_whole() -> None:
    found = pipeline(
        steps(2.0), push(4.0), steps(3.0), AccuracyCountQuery(candidates=2, sigma=9.0, pays=OTHERS)
    )
    assert sum(stage.share for stage in found[:3]) == pytest.approx(1)
    assert found[0].share > found[2].share
    assert found[3].share < 1 - found[1].share  # others pay for counts with what training leaves


def test_full_batches_have_exact_shares() -> None:
    found = pipeline(steps(100.0, rate=1.0), push(4.0))
    trained, pushed = 300 / 100**2, 1 / 4**2
    assert [stage.share for stage in found] == pytest.approx(
        [trained / (trained + pushed), pushed / (trained + pushed)]
    )
    assert found[0].batches == "300 on all"


def test_a_whole_plan_in_one_kind_of_group_is_paid_by_every_record() -> None:
    plan = ReleasePlan(
        NodeBoundedDegree(max_degree=9), hops(0.3, 2, 4, NodeBoundedDegree(max_degree=9)), delta=1e-5
    )
    (stage,) = stages_of(plan)
    assert (stage.kind, stage.count, stage.pays) == ("hop", 2, ("all",))
    assert stage.share == pytest.approx(1)


def test_names_of_groups_may_be_in_the_name_of_their_partition() -> None:
    query = AccuracyCountQuery(candidates=2, sigma=9.0, partition="labeled/unlabeled", pays=(False, True))
    assert pipeline(query)[0].pays == ("unlabeled",)
    unnamed = AccuracyCountQuery(candidates=2, sigma=9.0, partition="records", pays=(False, True))
    assert pipeline(unnamed)[0].pays == ("group 2",)


def test_edges_have_no_group_to_name() -> None:
    queries = code_sum_queries(
        UndirectedEdge(), 0.2, 3, count_share=0.05, few_labels=False, reverse_weight=0.3
    )
    found = stages_of(ReleasePlan(UndirectedEdge(), queries, delta=1e-7))
    assert [stage.pays for stage in found] == [(), ()]
    assert [stage.share for stage in found] == pytest.approx([0.05, 1])  # of the pair that pays most for it
    assert unequal_shares_note(found).startswith("no edge is charged the full cost of every stage")
    assert not unequal_shares_note(found[:1])


def test_records_that_pay_are_named_and_need_no_remark() -> None:
    assert not unequal_shares_note(pipeline(push(4.0), push(4.0)))


def test_stages_are_plain_values() -> None:
    (stage,) = pipeline(push(4.0))
    assert stage.as_stage()["noise_std"] == [4.0]
    assert stage.as_stage()["noise_multiplier"] is None


def test_no_plan_has_no_stages() -> None:
    assert stages_of(None) == ()


def test_training_on_edges_has_a_share_too() -> None:
    config = AttentionTraining(unit=UndirectedEdge(), dim=16, classes=4, targets=17_976, multiplier=2.0)
    training, hop = stages_of(config.plan(1.0, 1e-5, num_nodes=22_470))
    assert (training.kind, training.noise, training.batches) == (
        "training on edges",
        "multiplier 2",
        "100 at 0.0142",
    )
    assert (hop.kind, hop.noise, hop.pays) == ("hop", "std 6.24", ())
    assert training.epsilon == pytest.approx(0.506, rel=1e-3)
    assert training.share + hop.share == pytest.approx(1)
    assert 0.2 < training.share < 0.3


def test_a_card_distinguishes_training_on_edges_from_the_sums() -> None:
    config = AttentionTraining(unit=UndirectedEdge(), dim=16, classes=4, targets=17_976, multiplier=2.0)
    training, hop = release_rows(config.plan(1.0, 1e-5, num_nodes=22_470))
    assert (training.kind, training.steps, training.sensitivity, training.noise_std) == (
        "attention",
        100,
        2,
        (2,),
    )
    assert (hop.kind, hop.steps, hop.values_per_node) == ("rows", None, 16)
