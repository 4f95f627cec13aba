"""Blocks are distributed to workers that may be lost: each is returned once, in order, or the query fails."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from graphveil.cluster.worker import Result
from graphveil.cluster.worker_pool import BlockScheduler, WorkerLostError
from graphveil.errors import ReleaseError


@dataclass(eq=False)
class FakePool:
    """Workers without processes: ``is_lost`` decides whether one is lost when its result is fetched."""

    count: int
    is_lost: Callable[[str, int], bool]
    order: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    started: int = 0
    running: list[str] = field(default_factory=list)
    requested: list[tuple[str, int]] = field(default_factory=list)
    returned: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for _ in range(self.count):
            self.start()

    def start(self) -> None:
        self.started += 1
        self.running.append(f"worker {self.started}")

    def members(self) -> list[str]:
        return list(self.running)

    def submit(self, worker: str, block: int) -> object:
        assert block not in self.returned, "a block that was returned was requested again"
        self.requested.append((worker, block))
        return worker, block, len(self.requested)

    def first(self, tickets: list[object]) -> object | None:
        return tickets[int(self.order.integers(len(tickets)))]

    def fetch_result(self, ticket: object) -> Result:
        worker, block, _ = ticket  # type: ignore[misc]
        assert worker in self.running, "the result of a lost worker was fetched"
        if self.is_lost(worker, block):
            raise WorkerLostError
        return np.array([block])

    def replace(self, worker: str) -> None:
        self.running.remove(worker)
        self.start()


def results(
    pool: FakePool, count: int, losses: int = 16, last_worker: dict[int, str] | None = None
) -> list[int]:
    answers: list[int] = []
    pool.returned.clear()
    for result in BlockScheduler(pool, count, {} if last_worker is None else last_worker, losses).run():
        assert not isinstance(result, str)
        answers.append(int(result[0]))
        pool.returned.add(answers[-1])
    return answers


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_every_block_is_returned_once_and_in_order(workers: int, count: int) -> None:
    pool = FakePool(workers, lambda worker, block: False)
    assert results(pool, count) == list(range(count))
    assert Counter(block for _, block in pool.requested) == Counter(range(count))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_lost_workers_are_requested_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = FakePool(3, lambda worker, block: bool(rng.random() < 0.1), np.random.default_rng(seed))
    assert results(pool, 30, losses=30) == list(range(30))
    assert len(pool.requested) >= 30 + pool.started - 3


def test_a_block_that_loses_every_worker_fails() -> None:
    pool = FakePool(3, lambda worker, block: block == 4)
    with pytest.raises(ReleaseError, match="One block lost too many workers"):
        results(pool, 9)
    assert pool.started <= 3 + 4


def test_too_many_losses_fail() -> None:
    rng = np.random.default_rng(1)
    pool = FakePool(2, lambda worker, block: bool(rng.random() < 0.4))
    with pytest.raises(ReleaseError, match="stays charged"):
        results(pool, 1000, losses=5)
    assert pool.started <= 2 + 6


def test_a_worker_first_gets_the_blocks_that_it_computed_before() -> None:
    last_worker: dict[int, str] = {}
    pool = FakePool(2, lambda worker, block: False)
    results(pool, 20, last_worker=last_worker)
    first = dict(last_worker)
    assert set(first.values()) == {"worker 1", "worker 2"} and len(first) == 20
    pool.requested.clear()
    results(pool, 20, last_worker=last_worker)
    kept = sum(first[block] == worker for worker, block in pool.requested)
    assert kept >= 14  # a worker that is done early takes blocks of others


def test_a_worker_has_at_most_two_blocks_at_a_time() -> None:
    pool, most = FakePool(3, lambda worker, block: False), []
    first = pool.first

    def watched(tickets: list[object]) -> object | None:
        most.append(max(Counter(ticket[0] for ticket in tickets).values()))  # type: ignore[index]
        return first(tickets)

    pool.first = watched  # type: ignore[method-assign]
    results(pool, 30)
    assert max(most) == 2
