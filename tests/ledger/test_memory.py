import gc
import math
import threading
import time

import pytest

from graphveil.data import EdgeSet, synthetic
from graphveil.errors import BudgetError, ConfigError
from graphveil.ledger import Entry, MemoryLedger, PrivacyLedger, attach_ledger, ledger_of
from graphveil.ledger.interface import JointLedger
from graphveil.privacy import Gaussian, NodeBoundedDegree, NodeRecord, UndirectedEdge, calibrate_mu
from graphveil.privacy.events import NonPrivate
from graphveil.privacy.gaussian import epsilon_of


def entry(name: str, epsilon: float = 1.0) -> Entry:
    return Entry(name, "rows", Gaussian(calibrate_mu(epsilon, 1e-7)))


def test_a_release_that_spends_the_limit_exactly_is_booked() -> None:
    budget = MemoryLedger(epsilon=1.0, delta=1e-7)
    budget.record(entry("a"))
    assert [known.release_id for known in budget.entries] == ["a"]


def test_a_release_over_the_limit_names_requested_spent_and_limit_and_books_nothing() -> None:
    budget = MemoryLedger(epsilon=1.4, delta=1e-7)
    budget.record(entry("a"))
    with pytest.raises(BudgetError, match=r"total to epsilon 1\.448 .*limit is 1\.4, spent so far 1;"):
        budget.record(entry("b"))
    assert [known.release_id for known in budget.entries] == ["a"]
    budget.record(entry("c", epsilon=0.5))  # what is left is still there


def test_two_releases_of_epsilon_one_fit_below_two() -> None:
    budget = MemoryLedger(epsilon=1.5, delta=1e-7)
    for name in "ab":
        budget.record(entry(name))
    with pytest.raises(BudgetError):
        budget.record(entry("c"))
    assert len(budget.entries) == 2


def test_what_was_recorded_elsewhere_counts_and_may_be_above_the_limit() -> None:
    before = entry("a", 2.0)
    ledger = MemoryLedger(epsilon=0.1, delta=1e-7, entries=[before])
    assert ledger.entries == (before,)
    with pytest.raises(BudgetError):
        ledger.record(entry("b", 0.01))


def test_a_release_id_is_booked_once() -> None:
    budget = MemoryLedger()
    budget.record(entry("a"))
    with pytest.raises(BudgetError, match="already recorded"):
        budget.record(entry("a"))


def test_the_slack_of_the_noise_counts_against_the_limit() -> None:
    mu = calibrate_mu(1.0, 1e-7)
    MemoryLedger(epsilon=1.0, delta=1e-7).record(Entry("a", "rows", Gaussian(mu)))
    with pytest.raises(BudgetError):
        MemoryLedger(epsilon=1.0, delta=1e-7).record(Entry("a", "rows", Gaussian(mu), slack=1e-8))
    with pytest.raises(BudgetError, match="epsilon inf"):
        MemoryLedger(epsilon=1.0, delta=1e-7).record(Entry("a", "rows", Gaussian(mu), slack=1e-7))


def test_a_release_without_noise_never_fits_a_limit() -> None:
    with pytest.raises(BudgetError, match="epsilon inf"):
        MemoryLedger(epsilon=100.0, delta=1e-7).record(Entry("a", "raw", NonPrivate()))


@pytest.mark.parametrize(
    "limit",
    [
        {"epsilon": math.nan, "delta": 0.0},
        {"epsilon": -1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 2.0},
        {"epsilon": 1.0, "delta": math.nan},
    ],
)
def test_a_limit_that_nothing_can_be_held_to_is_refused(limit: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        MemoryLedger(**limit)


@pytest.mark.parametrize("half", [{"epsilon": 1.0}, {"delta": 1e-7}])
def test_half_a_limit_is_refused_instead_of_ignored(half: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="both epsilon= and delta="):
        MemoryLedger(**half)


def test_a_budget_belongs_to_one_edge_set() -> None:
    mine, yours = EdgeSet(), EdgeSet()
    ledger_of(mine).record(entry("a"))
    assert len(ledger_of(mine).entries) == 1
    assert not ledger_of(yours).entries


def test_a_budget_goes_with_its_edge_set() -> None:
    edges = EdgeSet()
    ledger_of(edges).record(entry("a"))
    del edges
    gc.collect()
    assert not ledger_of(EdgeSet()).entries


def test_a_limit_is_attached_before_the_first_release_only() -> None:
    edges = EdgeSet()
    limit = MemoryLedger(epsilon=1.0, delta=1e-7)
    attach_ledger(edges, limit)
    assert ledger_of(edges) is limit
    limit.record(entry("a"))
    with pytest.raises(BudgetError, match="already recorded"):
        attach_ledger(edges, MemoryLedger())


def booked_at_once(books: list[PrivacyLedger]) -> list[str]:
    """Record a release of its own in each ledger, all together; return which were refused."""
    refused: list[str] = []
    barrier = threading.Barrier(len(books))

    def book(name: int) -> None:
        barrier.wait()
        try:
            books[name].record(entry(str(name)))
        except BudgetError:
            refused.append(str(name))

    threads = [threading.Thread(target=book, args=(k,)) for k in range(len(books))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


def test_two_threads_cannot_both_take_the_rest() -> None:
    budget = MemoryLedger(epsilon=1.0, delta=1e-7)
    assert len(booked_at_once([budget] * 8)) == 7
    assert len(budget.entries) == 1


class Slow(MemoryLedger):
    """Leaves time between what it says and what is done."""

    def check(self, entry: Entry) -> None:
        super().check(entry)
        time.sleep(0.01)


def test_threads_record_in_all_ledgers_or_none() -> None:
    unlimited, limited = MemoryLedger(), Slow(epsilon=1.0, delta=1e-7)
    refused = booked_at_once([JointLedger([unlimited, limited]) for _ in range(8)])
    assert len(refused) == 7
    assert unlimited.entries == limited.entries


def test_the_book_knows_the_curve_of_everything_booked() -> None:
    budget = MemoryLedger()
    for k in range(3):
        budget.record(entry(str(k)))
    assert budget.curve().epsilon(1e-7) == pytest.approx(1.800, abs=6e-4)


def test_costs_of_different_units_do_not_add_up() -> None:
    edge = Entry("a", "rows", Gaussian(0.1), unit=UndirectedEdge())
    record = Entry("b", "rows", Gaussian(0.1), unit=NodeRecord())
    replaced = Entry("c", "rows", Gaussian(0.1), unit=NodeRecord(replace_one=True))
    for first, second in ((edge, record), (record, replaced)):
        limited, free = MemoryLedger(epsilon=10.0, delta=1e-5), MemoryLedger()
        limited.record(first)
        with pytest.raises(BudgetError, match="different units"):
            limited.record(second)
        assert limited.entries == (first,)
        free.record(first)
        free.record(second)
        with pytest.raises(BudgetError, match="different units"):
            free.curve()


def test_costs_of_one_unit_add_up() -> None:
    budget = MemoryLedger(epsilon=10.0, delta=1e-5)
    for name in "ab":
        budget.record(Entry(name, "rows", Gaussian(0.1), unit=NodeBoundedDegree(4)))
    assert budget.curve().epsilon(1e-5) == pytest.approx(epsilon_of(0.1 * 2**0.5, 1e-5))


def test_a_graph_stands_for_its_edges() -> None:
    graph = synthetic("tiny")
    limit = MemoryLedger(epsilon=1.0, delta=1e-5)
    attach_ledger(graph, limit)  # a limit on the graph alone would bind no fit
    assert ledger_of(graph) is ledger_of(graph.edge_set) is ledger_of(graph.adjacency) is limit


@pytest.mark.parametrize("nothing", [None, 5, "edges", (1, 2)])
def test_what_has_no_edges_or_is_no_ledger_is_refused(nothing: object) -> None:
    for ask in (lambda: ledger_of(nothing), lambda: attach_ledger(nothing, MemoryLedger())):
        with pytest.raises(ConfigError, match="hangs on a graph's edges"):
            ask()
    with pytest.raises(ConfigError, match="a ledger is needed"):
        attach_ledger(EdgeSet(), nothing)  # type: ignore[arg-type]  # it is checked at run time
