import gc
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from graphveil import perturb, private_hops
from graphveil.core.accounting.gaussian import calibrate_mu, epsilon_of
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.events import Gaussian, NonPrivate
from graphveil.core.ledger import Entry, JointLedger, MemoryLedger, PrivacyLedger, attach_ledger, ledger_of
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge, Unit
from graphveil.data import synthetic
from graphveil.errors import BudgetError, ConfigError

FORK = multiprocessing.get_context("fork")


def entry(name: str, epsilon: float = 1.0) -> Entry:
    return Entry(name, "rows", Gaussian(calibrate_mu(epsilon, 1e-7)))


def test_records_releases_until_the_limit_is_spent() -> None:
    MemoryLedger(epsilon=1.0, delta=1e-7).record(entry("a"))  # spends the limit exactly
    ledger = MemoryLedger(epsilon=1.4, delta=1e-7)
    ledger.record(entry("a"))
    with pytest.raises(BudgetError, match=r"total to epsilon 1\.448 .*limit of 1\.4 \(spent so far: 1\)"):
        ledger.record(entry("b"))
    assert [known.release_id for known in ledger.entries] == ["a"]
    ledger.record(entry("c", epsilon=0.5))  # the remaining budget is still there
    with pytest.raises(BudgetError, match="already recorded"):
        ledger.record(entry("c", epsilon=0.01))


def test_earlier_entries_count_and_may_exceed_the_limit() -> None:
    before = entry("a", 2.0)
    ledger = MemoryLedger(epsilon=0.1, delta=1e-7, entries=[before])
    assert ledger.entries == (before,)
    with pytest.raises(BudgetError):
        ledger.record(entry("b", 0.01))


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (Entry("a", "rows", Gaussian(calibrate_mu(1.0, 1e-7)), slack=1e-8), "total to epsilon"),
        (Entry("a", "rows", Gaussian(calibrate_mu(1.0, 1e-7)), slack=1e-7), "epsilon inf"),
        (Entry("a", "raw", NonPrivate()), "epsilon inf"),
    ],
)
def test_rejects_slack_and_missing_noise_above_the_limit(release: Entry, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        MemoryLedger(epsilon=1.0, delta=1e-7).record(release)


@pytest.mark.parametrize(
    "limit",
    [
        {"epsilon": math.nan, "delta": 0.0},
        {"epsilon": -1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 2.0},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0},
        {"delta": 1e-7},
    ],
)
def test_rejects_invalid_limits(limit: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"epsilon=|delta="):
        MemoryLedger(**limit)


def test_each_edge_set_has_its_own_ledger() -> None:
    mine, other = EdgeSet(), EdgeSet()
    ledger_of(mine).record(entry("a"))
    assert (len(ledger_of(mine)), len(ledger_of(other))) == (1, 0)
    del mine
    gc.collect()
    assert len(ledger_of(EdgeSet())) == 0  # also if the new set has the address of the old one


def test_a_ledger_is_attached_before_the_first_release() -> None:
    graph, limit = synthetic("tiny"), MemoryLedger(epsilon=1.0, delta=1e-5)
    attach_ledger(graph, limit)
    assert ledger_of(graph) is ledger_of(graph.edge_set) is ledger_of(graph.adjacency) is limit
    limit.record(entry("a"))
    with pytest.raises(BudgetError, match="already recorded"):
        attach_ledger(graph.edge_set, MemoryLedger())


@pytest.mark.parametrize("nothing", [None, 5, "edges", (1, 2)])
def test_rejects_arguments_without_edges_or_ledger(nothing: object) -> None:
    for call in (lambda: ledger_of(nothing), lambda: attach_ledger(nothing, MemoryLedger())):
        with pytest.raises(ConfigError, match="is attached to an edge set"):
            call()
    with pytest.raises(ConfigError, match="must be a ledger"):
        attach_ledger(EdgeSet(), nothing)  # type: ignore[arg-type]  # it is checked at run time


class SlowLedger(MemoryLedger):
    """A ledger with time between check and record."""

    def check(self, entry: Entry) -> None:
        super().check(entry)
        time.sleep(0.01)


@pytest.mark.parametrize("joint", [False, True])
def test_concurrent_threads_cannot_spend_one_budget_twice(joint: bool) -> None:
    unlimited, limited = MemoryLedger(), SlowLedger(epsilon=1.0, delta=1e-7)
    ledgers: Sequence[PrivacyLedger] = [
        JointLedger([unlimited, limited]) if joint else limited for _ in range(8)
    ]
    rejected, barrier = list[int](), threading.Barrier(len(ledgers))

    def record(number: int) -> None:
        barrier.wait()
        try:
            ledgers[number].record(entry(str(number)))
        except BudgetError:
            rejected.append(number)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(len(ledgers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(rejected), len(limited)) == (7, 1)
    assert not joint or unlimited.entries == limited.entries


def test_releases_of_one_unit_compose() -> None:
    ledger = MemoryLedger(epsilon=10.0, delta=1e-5)
    for name in "ab":
        ledger.record(Entry(name, "rows", Gaussian(0.1), unit=NodeBoundedDegree(4)))
    assert ledger.curve().epsilon(1e-5) == pytest.approx(epsilon_of(0.1 * 2**0.5, 1e-5))


@pytest.mark.parametrize(
    ("first", "second"),
    [(UndirectedEdge(), NodeRecord()), (NodeRecord(), NodeRecord(replace_one=True))],
)
def test_releases_of_different_units_do_not_compose(first: Unit, second: Unit) -> None:
    one = Entry("one", "rows", Gaussian(0.1), unit=first)
    other = Entry("other", "rows", Gaussian(0.1), unit=second)
    limited, unlimited = MemoryLedger(epsilon=10.0, delta=1e-5), MemoryLedger()
    limited.record(one)
    with pytest.raises(BudgetError, match="different privacy units"):
        limited.record(other)
    assert limited.entries == (one,)
    unlimited.record(one)
    unlimited.record(other)
    with pytest.raises(BudgetError, match="different privacy units"):
        unlimited.curve()


CALLS: dict[str, Callable[[MemoryLedger], object]] = {
    "record": lambda ledger: ledger.record(entry("b")),
    "check": lambda ledger: ledger.check(entry("b")),
    "commit": lambda ledger: ledger.commit("a"),
    "refund": lambda ledger: ledger.refund("a"),
}


@pytest.mark.parametrize("limit", [{}, {"epsilon": 2.0, "delta": 1e-7}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("name", CALLS)
def test_rejects_calls_in_a_forked_process(name: str, limit: dict[str, float]) -> None:
    ledger = MemoryLedger(**limit)
    ledger.record(entry("a"))
    receiving, sending = FORK.Pipe(duplex=False)

    def child() -> None:
        try:
            sending.send(f"granted: {CALLS[name](ledger)}")
        except BudgetError as error:
            sending.send(str(error))

    process = FORK.Process(target=child)
    process.start()
    assert "forked process" in receiving.recv()
    process.join()
    ledger.record(entry("c", 0.1))
    assert len(ledger) == 2


def test_a_limit_at_delta_0_admits_a_released_graph_and_no_sums() -> None:
    graph = synthetic("tiny")
    attach_ledger(graph, MemoryLedger(epsilon=2.0, delta=0.0))
    for _ in range(2):
        perturb.edge_rand(graph, unit="undirected-edge", epsilon=1.0)
    with pytest.raises(BudgetError, match="epsilon 3 at delta 0, above the limit of 2"):
        perturb.edge_rand(graph, unit="undirected-edge", epsilon=1.0)
    fresh = synthetic("tiny")
    attach_ledger(fresh, MemoryLedger(epsilon=2.0, delta=0.0))
    with pytest.raises(BudgetError, match="epsilon inf at delta 0"):
        private_hops(fresh, unit="undirected-edge", epsilon=1.0)
