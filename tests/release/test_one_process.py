"""A release answers each query once: threads wait in turn, and a forked copy is rejected."""

import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from contracts.checks import edgeless, plan_of

from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_training import EdgeAttentionData, EdgeAttentionQuery, Gradients
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge
from graphveil.errors import ReleaseError

THREADS, NODES = 6, 50
ROWS = torch.zeros(NODES, 2)
STEPS = DPSGDQuery(parameters=40, steps=64, noise_multiplier=2.0, sampling_rate=0.5)


class Slow(EdgeAttentionQuery):
    """Lets other threads run whenever the number of steps is read."""

    def __getattribute__(self, name: str) -> object:
        if name == "steps":
            time.sleep(1e-4)
        return super().__getattribute__(name)


ATTENTION = Slow(dim=2, classes=2, steps=20, noise_multiplier=2.0, sampling_rate=0.5, learning_rate=0.1)


@pytest.fixture(autouse=True)
def switching_all_the_time() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(act: Callable[[], object]) -> tuple[list[object], list[Exception]]:
    """Return the answers and the errors of several threads that start together."""
    barrier, answers, rejections = threading.Barrier(THREADS), [], []

    def run() -> None:
        barrier.wait()
        try:
            answers.append(act())
        except ReleaseError as rejection:
            rejections.append(rejection)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers, rejections


def test_threads_receive_each_planned_answer_once() -> None:
    for planned in (1, 1, 1, 2, 3):
        release = Release.open(plan_of(planned), edgeless(NODES), budget=MemoryLedger())
        answers, rejections = at_once(lambda: release.answer(NeighborSumData(ROWS)))  # noqa: B023
        assert (len(answers), len(rejections)) == (planned, THREADS - planned)


def test_threads_take_each_step_on_the_edges_once() -> None:
    plan, taken = ReleasePlan(DirectedEdge(), (ATTENTION,), delta=1e-5), []

    def descend(start: torch.Tensor, gradients: Gradients) -> torch.Tensor:
        def all_steps() -> None:
            taken.extend(gradients(start) for _ in range(ATTENTION.steps))

        at_once(all_steps)
        return start

    start, nodes = torch.zeros(ATTENTION.parameters), torch.arange(NODES)
    data = EdgeAttentionData(ROWS, torch.zeros(NODES, dtype=torch.int64), nodes, start, descend)
    Release.open(plan, edgeless(NODES), budget=MemoryLedger()).answer(data)
    assert len(taken) == ATTENTION.steps
    assert len({tuple(step.tolist()) for step in taken}) == ATTENTION.steps


def test_threads_receive_the_noise_of_the_requested_step() -> None:
    noise = STEPS.randomness(bytes(32))
    alone = [STEPS.randomness(bytes(32)).noise(step).tolist() for step in range(STEPS.steps)]

    turns = itertools.count()

    def read() -> bool:
        order = range(STEPS.steps) if next(turns) % 2 else reversed(range(STEPS.steps))
        return all(noise.noise(step).tolist() == alone[step] for step in order)

    assert at_once(read)[0] == [True] * THREADS


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def in_a_fork(act: Callable[[], object]) -> str:
    """Return the result of an action in a forked copy of this process."""
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which wait here
        child = os.fork()
    if child == 0:
        try:
            act()
            outcome = "answered"
        except ReleaseError as rejection:
            outcome = str(rejection)
        except BaseException as other:
            outcome = repr(other)
        os.write(into, outcome.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        outcome = pipe.read()
    os.waitpid(child, 0)
    return outcome


@forks
def test_a_forked_copy_of_a_release_is_rejected() -> None:
    release = Release.open(plan_of(), edgeless(NODES), budget=MemoryLedger())
    assert "opened in another process" in in_a_fork(lambda: release.answer(NeighborSumData(ROWS)))
    assert release.answer(NeighborSumData(ROWS)).shape == (NODES, 2)
    assert "opened in another process" in in_a_fork(release.close)


@forks
def test_forked_copies_of_training_noise_are_rejected() -> None:
    noise = STEPS.randomness(bytes(32))
    noise.noise(0)
    assert "opened in another process" in in_a_fork(lambda: noise.noise(0))
    assert "opened in another process" in in_a_fork(lambda: noise.batch(0, NODES))
    assert len(noise.noise(1)) == STEPS.parameters
