"""Blocks are dealt to workers that die: each is answered once, in order, or the query is refused."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from graphveil.cluster.worker import Result
from graphveil.cluster.worker_pool import BlockScheduler, WorkerLostError
from graphveil.errors import ReleaseError


@dataclass(eq=False)
class Hands:
    """Workers in name only: ``dies`` says whether one is lost when its answer is taken."""

    count: int
    dies: Callable[[str, int], bool]
    order: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    started: int = 0
    there: list[str] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    handed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for _ in range(self.count):
            self.start()

    def start(self) -> None:
        self.started += 1
        self.there.append(f"worker {self.started}")

    def members(self) -> list[str]:
        return list(self.there)

    def submit(self, worker: str, block: int) -> object:
        assert block not in self.handed, "a block that was handed on was asked for again"
        self.asked.append((worker, block))
        return worker, block, len(self.asked)

    def first(self, tickets: list[object]) -> object | None:
        return tickets[int(self.order.integers(len(tickets)))]

    def fetch_result(self, ticket: object) -> Result:
        worker, block, _ = ticket  # type: ignore[misc]
        assert worker in self.there, "somebody who left was waited for"
        if self.dies(worker, block):
            raise WorkerLostError
        return np.array([block])

    def replace(self, worker: str) -> None:
        self.there.remove(worker)
        self.start()


def dealt(hands: Hands, count: int, losses: int = 16, last_worker: dict[int, str] | None = None) -> list[int]:
    answers: list[int] = []
    hands.handed.clear()
    for result in BlockScheduler(hands, count, {} if last_worker is None else last_worker, losses).run():
        assert not isinstance(result, str)
        answers.append(int(result[0]))
        hands.handed.add(answers[-1])
    return answers


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_every_block_is_answered_once_and_in_order(workers: int, count: int) -> None:
    hands = Hands(workers, lambda worker, block: False)
    assert dealt(hands, count) == list(range(count))
    assert Counter(block for _, block in hands.asked) == Counter(range(count))


@pytest.mark.parametrize("seed", range(20))
def test_what_lost_workers_had_is_asked_again_and_what_was_handed_on_is_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hands = Hands(3, lambda worker, block: bool(rng.random() < 0.1), np.random.default_rng(seed))
    assert dealt(hands, 30, losses=30) == list(range(30))
    assert len(hands.asked) >= 30 + hands.started - 3


def test_a_block_that_everybody_dies_of_is_refused() -> None:
    hands = Hands(3, lambda worker, block: block == 4)
    with pytest.raises(ReleaseError, match="one block lost too many workers"):
        dealt(hands, 9)
    assert hands.started <= 3 + 4


def test_too_many_losses_are_refused() -> None:
    rng = np.random.default_rng(1)
    hands = Hands(2, lambda worker, block: bool(rng.random() < 0.4))
    with pytest.raises(ReleaseError, match="stays charged"):
        dealt(hands, 1000, losses=5)
    assert hands.started <= 2 + 6


def test_a_worker_gets_the_blocks_that_it_had() -> None:
    last_worker: dict[int, str] = {}
    hands = Hands(2, lambda worker, block: False)
    dealt(hands, 20, last_worker=last_worker)
    first = dict(last_worker)
    assert set(first.values()) == {"worker 1", "worker 2"} and len(first) == 20
    hands.asked.clear()
    dealt(hands, 20, last_worker=last_worker)
    kept = sum(first[block] == worker for worker, block in hands.asked)
    assert kept >= 14  # whoever is done early takes others' blocks


def test_nobody_has_more_than_two_blocks_at_a_time() -> None:
    hands, most = Hands(3, lambda worker, block: False), []
    first = hands.first

    def watched(tickets: list[object]) -> object | None:
        most.append(max(Counter(ticket[0] for ticket in tickets).values()))  # type: ignore[index]
        return first(tickets)

    hands.first = watched  # type: ignore[method-assign]
    dealt(hands, 30)
    assert max(most) == 2
