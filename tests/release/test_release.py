import copy
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts.checks import KEY, Broken, edgeless, path, plan_of
from contracts.inside import reachable
from contracts.laws import has_the_law
from torch import Tensor

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import Gaussian
from graphveil.core.features import safe_unit
from graphveil.core.journal import FolderJournal
from graphveil.core.keys import KeyStore, ReleaseKey
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.core.noise.discrete_gaussian import RoundedGaussian
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, UndirectedEdge
from graphveil.errors import BudgetError, ConfigError, GraphveilError, ReleaseError, UnitError
from graphveil.ledger import Ledger

ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]])
TARGET_WEIGHTED = NeighborSumQuery(GroupWeights.target_weighted(), (3.0, 3.0, 2.0), 2)
COUNTS = EdgeCountQuery("train/val/target", (True, True, False), 3, (4.0,))
GROUPS = torch.tensor([0, 1, 2, 2, 0])  # path: Tr - V - T - T - Tr


def opened(plan: ReleasePlan, graph: Adjacency | None = None, **more: Any) -> Release:
    return Release.open(plan, graph or path(), more.pop("groups", None), budget=MemoryLedger(), **more)


# -- what is summed ----------------------------------------------------------------------------------------


def test_a_row_is_the_sum_of_its_in_neighbors_on_the_grid() -> None:
    answer = opened(zero_noise_plan(UndirectedEdge(), hops(1.0, 1, 2))).answer(NeighborSumData(ROWS))
    quantize_rows = torch.trunc(ROWS.double() * 1024) / 1024
    expected = [
        quantize_rows[1],
        quantize_rows[0] + quantize_rows[2],
        quantize_rows[1],
        quantize_rows[2] + quantize_rows[4],
        quantize_rows[3],
    ]
    assert answer.dtype == torch.float32
    assert torch.equal(answer, torch.stack(expected).float())


def test_target_weighted_hops_weight_messages_by_both_groups() -> None:
    fine = NeighborSumQuery(GroupWeights.target_weighted(), (1.0, 1.0, 1.0), 2, grid_bits=20)
    answer = opened(zero_noise_plan(UndirectedEdge(), (fine,)), groups=GROUPS).answer(NeighborSumData(ROWS))
    s = math.sqrt(0.5)
    into = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [s * 0.6 - 1.0, s * 0.8], [0.0, 0.0]]
    assert answer.numpy() == pytest.approx(np.array(into), abs=2**-19)


def test_undirected_edges_count_once_in_the_upper_triangle() -> None:
    # labeled: 0, 1, 2, 3 of classes 0, 1, 1, 2; node 4 is not.
    graph = Adjacency.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 4, 3], num_nodes=5, directed=False)
    query = EdgeCountQuery("labels", (True, False), 3, (4.0,))
    labels, groups = torch.tensor([0, 1, 1, 2, 99]), torch.tensor([0, 0, 0, 0, 1])
    cells = opened(zero_noise_plan(UndirectedEdge(), (query,)), graph, groups=groups).answer(
        EdgeCountData(labels)
    )
    assert cells.dtype == torch.float64
    assert cells.tolist() == [[0, 1, 1], [0, 1, 1], [0, 0, 0]]


def test_directed_edges_count_in_the_row_of_the_source_class() -> None:
    graph = Adjacency.from_edges([0, 1, 2], [1, 0, 1], num_nodes=3, directed=True)
    query = EdgeCountQuery("labels", (True,), 2, (4.0,))
    plan = zero_noise_plan(DirectedEdge(), (query,))
    cells = opened(plan, graph, groups=torch.zeros(3, dtype=torch.int64)).answer(
        EdgeCountData(torch.tensor([0, 1, 0]))
    )
    assert cells.tolist() == [[0, 2], [1, 0]]


def test_a_graph_of_one_node_and_one_without_edges_run_the_same_path() -> None:
    for nodes in (1, 4):
        noise = opened(plan_of(), edgeless(nodes)).answer(NeighborSumData(torch.zeros(nodes, 2)))
        assert noise.shape == (nodes, 2)
        assert bool((noise != 0).any())


def test_float64_inputs_and_float32_inputs_are_both_taken() -> None:
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(
            opened(zero_noise_plan(UndirectedEdge(), hops(1.0, 1, 2))).answer(
                NeighborSumData(torch.eye(5, 2, dtype=dtype))
            ),
            opened(zero_noise_plan(UndirectedEdge(), hops(1.0, 1, 2))).answer(
                NeighborSumData(torch.eye(5, 2))
            ),
        )


@pytest.mark.parametrize("sigma", [50.0, 2000.0])  # below and above what float32 can hold
def test_noise_of_any_size_is_added_exactly_and_rounded_once(sigma: float) -> None:
    query = NeighborSumQuery(GroupWeights.unit_weights(), (sigma,), 3)
    plan = ReleasePlan(UndirectedEdge(), (query,), delta=1e-3, sampler=RoundedGaussian)
    answer = opened(plan, edgeless(30_000), key=KEY).answer(NeighborSumData(torch.zeros(30_000, 3)))
    has_the_law(answer.double().numpy() * 1024, sigma * 1024)


def test_counts_by_group_and_hops_of_one_group_share_a_plan() -> None:
    plan = zero_noise_plan(UndirectedEdge(), (*hops(1.0, 1, 2), COUNTS))
    release = opened(plan, groups=GROUPS)
    assert release.answer(NeighborSumData(ROWS)).shape == (5, 2)
    assert release.answer(EdgeCountData(torch.tensor([0, 1, 2, 2, 0]))).sum() == 1


# -- the order of queries ----------------------------------------------------------------------------------


def test_queries_are_answered_in_order_and_each_once() -> None:
    plan = ReleasePlan(UndirectedEdge(), (TARGET_WEIGHTED, COUNTS), delta=1e-3)
    release = opened(plan, groups=GROUPS)
    labels = torch.tensor([0, 1, 2, 2, 0])
    with pytest.raises(ReleaseError, match="answer it with NeighborSumData"):
        release.answer(EdgeCountData(labels))
    with pytest.raises(ReleaseError, match="all queries must be answered"):
        release.close()
    release.answer(NeighborSumData(ROWS))
    with pytest.raises(ReleaseError, match="answer it with EdgeCountData"):
        release.answer(NeighborSumData(ROWS))
    release.answer(EdgeCountData(labels))
    for answer in (
        lambda: release.answer(NeighborSumData(ROWS)),
        lambda: release.answer(EdgeCountData(labels)),
    ):
        with pytest.raises(ReleaseError, match="charged again"):
            answer()
    release.close()


@pytest.mark.parametrize(
    "rows",
    [
        torch.zeros(4, 2),
        torch.zeros(5, 3),
        torch.zeros(5),
        ROWS.bfloat16(),
        ROWS.to_sparse(),
        ROWS.to(torch.complex64),
        ROWS.clone().requires_grad_(),
    ],
)
def test_rejected_rows_use_up_no_answer(rows: Tensor) -> None:
    release = opened(plan_of())
    with pytest.raises(ReleaseError, match=r"rows of shape \(5, 2\)|dense floating-point table"):
        release.answer(NeighborSumData(rows))
    assert release.answer(NeighborSumData(ROWS)).shape == (5, 2)


@pytest.mark.parametrize("labels", [[0, 1, 2, 2], [0, 3, 2, 2, 0], [-1, 1, 2, 2, 0]])
def test_rejects_labels_outside_the_classes(labels: list[int]) -> None:
    release = opened(ReleasePlan(UndirectedEdge(), (COUNTS,), delta=1e-3), groups=GROUPS)
    with pytest.raises(ReleaseError, match="labels"):
        release.answer(EdgeCountData(torch.tensor(labels)))


def test_labels_outside_the_labeled_groups_are_not_read() -> None:
    release = opened(zero_noise_plan(UndirectedEdge(), (COUNTS,)), groups=GROUPS)
    assert release.answer(EdgeCountData(torch.tensor([0, 1, -1, 99, 0]))).sum() == 1


# -- rejections before the charge -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "groups",
    [
        None,
        torch.tensor([0, 1, 2, 2]),
        torch.tensor([0, 1, 2, 3, 0]),
        torch.tensor([0, 1, -1, 2, 0]),
        GROUPS / 1,
    ],
)
def test_rejects_groups_that_leave_a_node_without_noise(groups: Tensor | None) -> None:
    budget = MemoryLedger()
    with pytest.raises(ConfigError, match="groups"):
        Release.open(
            ReleasePlan(UndirectedEdge(), (TARGET_WEIGHTED,), delta=1e-3), path(), groups, budget=budget
        )
    assert not budget.entries


def test_queries_with_different_groups_are_rejected() -> None:
    two = EdgeCountQuery("split", (True, False), 3, (4.0,))
    with pytest.raises(ConfigError, match="groups"):
        opened(ReleasePlan(UndirectedEdge(), (TARGET_WEIGHTED, two), delta=1e-3), groups=GROUPS)


def test_rejects_undirected_edges_stored_as_directed_edges() -> None:
    graph = Adjacency.from_edges([0, 1], [1, 0], num_nodes=5, directed=True)
    budget = MemoryLedger()
    with pytest.raises(UnitError, match="directed=False"):
        Release.open(ReleasePlan(UndirectedEdge(), (COUNTS,), delta=1e-3), graph, GROUPS, budget=budget)
    assert not budget.entries


# -- what stays inside -------------------------------------------------------------------------------------


def test_no_reachable_object_contains_a_sum_or_its_noise(tmp_path: Path) -> None:
    nodes = 200
    rng = np.random.default_rng(5)
    source, target = rng.integers(nodes, size=(2, 1500))
    graph = Adjacency.from_edges(source, target, num_nodes=nodes, directed=False)
    rows = safe_unit(torch.from_numpy(rng.normal(size=(nodes, 2))))
    oracle = (
        opened(zero_noise_plan(UndirectedEdge(), hops(1.0, 1, 2)), graph)
        .answer(NeighborSumData(rows))
        .double()
        .numpy()
        .copy()
    )
    release = opened(plan_of(), graph, journal=FolderJournal(tmp_path / "run", KeyStore(tmp_path / "keys")))
    answer = release.answer(NeighborSumData(rows))
    noise = answer.double().numpy() - oracle
    assert graph.indices.numpy().shape in {array.shape for array in reachable(release)}  # the walk gets there
    assert not leaks(release, oracle, noise)
    release._journal.leak = {"sums": [torch.from_numpy(oracle)]}  # type: ignore[attr-defined]
    assert leaks(release, oracle, noise)


def leaks(start: object, oracle: np.ndarray, noise: np.ndarray) -> bool:
    """Whether a reachable array holds the sums or the noise, in either unit."""
    held = [array for array in reachable(start) if array.shape == oracle.shape]
    secrets = (oracle, noise, 1024 * oracle, 1024 * noise)
    return any(np.allclose(array, secret, rtol=0.01) for array in held for secret in secrets)


def test_no_message_or_repr_or_file_shows_a_number_of_edges(tmp_path: Path) -> None:
    nodes, hub = 211, 173
    leaves = np.arange(1, hub + 1)
    graph = Adjacency.from_edges(
        np.concatenate([leaves, leaves[:-1]]),
        np.concatenate([np.zeros(hub), leaves[1:]]).astype(int),
        num_nodes=nodes,
        directed=False,
    )
    secret = {len(graph.indices), len(graph.indices) // 2, hub, hub + 1, hub - 1}
    run = tmp_path / "run"
    release = opened(plan_of(), graph, journal=FolderJournal(run, KeyStore(tmp_path / "keys")))
    shown = [repr(release), str(release), repr(release._plan), repr(graph), repr(vars(release))]
    for act in (
        lambda: release.answer(EdgeCountData(torch.zeros(nodes))),
        lambda: release.answer(NeighborSumData(torch.zeros(3, 2))),
        lambda: release.close(),
        lambda: copy.copy(release),
        lambda: opened(ReleasePlan(UndirectedEdge(), (TARGET_WEIGHTED,), delta=1e-3), graph),
        lambda: opened(plan_of(mu=0.5), graph, journal=FolderJournal(run, KeyStore(tmp_path / "keys"))),
    ):
        with pytest.raises(GraphveilError) as caught:
            act()
        shown.append(str(caught.value))
    release.answer(NeighborSumData(torch.zeros(nodes, 2)))
    shown.append((run / "release.json").read_text())
    for text in shown:
        assert not secret & {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_a_release_cannot_be_copied(copier: Any) -> None:
    with pytest.raises(ReleaseError, match="cannot be copied"):
        copier(opened(plan_of()))


def test_a_failed_query_is_not_repeated_under_its_key() -> None:
    release = opened(plan_of(), backend=Broken())
    with pytest.raises(MemoryError):
        release.answer(NeighborSumData(ROWS))
    with pytest.raises(ReleaseError, match="charged again"):
        release.answer(NeighborSumData(ROWS))


# -- keys and noise ----------------------------------------------------------------------------------------


def test_one_seed_gives_the_same_bytes_and_another_one_others() -> None:
    answers = [
        opened(plan_of(2), key=ReleaseKey.from_seed(seed, "gap")).answer(NeighborSumData(ROWS))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(answers[0], answers[1])
    assert not (answers[0] == answers[2]).any()


def test_reproducible_is_true_only_for_seeded_noise() -> None:
    assert opened(plan_of(), key=KEY).reproducible
    assert not opened(plan_of()).reproducible


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": (1.5,)},
        {"grid_bits": 11},
        {"weights": GroupWeights("all", ((0.5,),))},
    ],
)
def test_another_descriptor_draws_other_noise_under_one_key(change: dict[str, Any]) -> None:
    fields = {"weights": GroupWeights.unit_weights(), "sigma": (1.0,), "dim": 2} | change
    plans = [
        ReleasePlan(
            UndirectedEdge(), (NeighborSumQuery(GroupWeights.unit_weights(), (1.0,), 2),), delta=1e-3
        ),
        ReleasePlan(UndirectedEdge(), (NeighborSumQuery(**fields),), delta=1e-3),
    ]
    first, second = (
        opened(plan, edgeless(400), key=KEY).answer(NeighborSumData(torch.zeros(400, 2))) for plan in plans
    )
    assert abs(np.corrcoef(first.reshape(-1), second.reshape(-1))[0, 1]) < 0.25
    unit = ReleasePlan(DirectedEdge(), plans[0].queries, delta=1e-3)
    third = opened(unit, edgeless(400), key=KEY).answer(NeighborSumData(torch.zeros(400, 2)))
    assert not (first == third).all()


# -- charges -----------------------------------------------------------------------------------------------

TRIPLE = Adjacency.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), num_nodes=3, directed=False)


def test_a_key_cannot_open_two_releases() -> None:
    budget, key = MemoryLedger(), ReleaseKey.fresh()
    cheap = ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5)
    dear = ReleasePlan(UndirectedEdge(), hops(5.0, 1, 2), delta=1e-5)
    Release.open(cheap, TRIPLE, budget=budget, key=key)
    with pytest.raises(BudgetError, match="already recorded"):
        Release.open(dear, TRIPLE, budget=budget, key=key)
    assert len(budget.entries) == 1


def test_a_key_cannot_open_two_releases_on_a_ledger_that_deduplicates(tmp_path: Path) -> None:
    key, plan = ReleaseKey.fresh(), ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    Release.open(plan, TRIPLE, budget=friends, key=key)
    with pytest.raises(BudgetError, match="key can be used for one release only"):
        Release.open(plan, TRIPLE, budget=friends, key=key)
    ledger.close()


def test_a_release_is_refunded_until_its_first_answer(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 3, 2), delta=1e-3)
    release = Release.open(plan, path(), budget=friends)
    release.answer(NeighborSumData(ROWS))  # of three
    assert not friends.refund(release.release_id)
    other = Release.open(plan, path(), budget=friends)
    assert friends.refund(other.release_id)
    with pytest.raises(BudgetError, match="no noise may be drawn"):
        other.answer(NeighborSumData(ROWS))
    ledger.close()


def test_a_resume_with_other_groups_is_rejected(tmp_path: Path) -> None:
    plan, journal = ReleasePlan(UndirectedEdge(), (COUNTS,), delta=1e-3), FolderJournal(tmp_path / "run")
    opened(plan, groups=GROUPS, journal=journal)
    with pytest.raises(ReleaseError, match="same noise for different data"):
        opened(plan, groups=GROUPS.flip(0), journal=FolderJournal(tmp_path / "run"))
    opened(plan, groups=GROUPS, journal=FolderJournal(tmp_path / "run"))


def test_a_closed_release_is_not_refunded(tmp_path: Path) -> None:
    plan, keys = ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5), KeyStore(tmp_path / "keys")

    def resumed(budget: MemoryLedger) -> Release:
        return Release.open(plan, TRIPLE, budget=budget, journal=FolderJournal(tmp_path / "run", keys))

    first = resumed(MemoryLedger())
    answer = first.answer(NeighborSumData(torch.eye(3, 2)))
    first.close()
    budget = MemoryLedger()  # a new process begins with an empty one
    again = resumed(budget)
    assert torch.equal(again.answer(NeighborSumData(torch.eye(3, 2))), answer)
    assert not budget.refund(again.release_id)


@pytest.mark.parametrize("slack", [-1e-9, 1.5, math.nan])
def test_a_slack_that_is_no_share_is_rejected(slack: float) -> None:
    with pytest.raises(ConfigError, match="slack="):
        ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5, slack=slack)
    with pytest.raises(ConfigError, match="slack="):
        Entry("a", "rows", Gaussian(0.1), slack)


def test_releases_of_different_units_do_not_compose() -> None:
    budget = MemoryLedger(epsilon=10.0, delta=1e-5)
    Release.open(ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5), TRIPLE, budget=budget)
    assert [entry.unit for entry in budget.entries] == [UndirectedEdge()]
    bounded_degree = NodeBoundedDegree(2)
    records = ReleasePlan(bounded_degree, hops(0.1, 1, 2, bounded_degree), delta=1e-5)
    with pytest.raises(BudgetError, match="different privacy units"):
        Release.open(records, TRIPLE, budget=budget)
