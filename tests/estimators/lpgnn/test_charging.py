"""A collection is charged before nodes report, and charged once if a fit is interrupted at any step."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.core.collection import ReportFile, release_id_of
from graphveil.core.events import LocalReport
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import LocalAttributes
from graphveil.data import Graph
from graphveil.errors import BudgetError
from graphveil.estimators.method import State
from graphveil.estimators.session import Session
from graphveil.local.reports import collect_reports

STEPS = ("check", "id", "record", "commit", "randomize", "reports")


class Killed(BaseException):
    """The process ended."""


def entry_of(release_id: str) -> Entry:
    return Entry(release_id, "reports", LocalReport("features", 1.0), unit=LocalAttributes())


class Steps:
    """Runs named steps in order, and stops the process before or after one of them."""

    def __init__(self) -> None:
        self.done, self.stop = list[str](), ("", "")

    def run(self, name: str, step: Callable[..., Any], *given: object) -> Any:
        if self.stop == (name, "before"):
            raise Killed
        answer = step(*given)
        self.done.append(name)
        if self.stop == (name, "after"):
            raise Killed
        return answer


class SteppedLedger(MemoryLedger):
    """A ledger whose calls are steps."""

    def __init__(self, steps: Steps, **limits: float) -> None:
        super().__init__(**limits)
        self.steps, self.full, self.recording = steps, False, False

    def check(self, entry: Entry) -> None:
        if self.recording:  # the check inside `record` is a part of that step
            super().check(entry)
        else:
            self.steps.run("check", super().check, entry)

    def record(self, entry: Entry) -> None:
        if self.full:
            raise BudgetError("another process was quicker")
        self.recording = True
        try:
            self.steps.run("record", super().record, entry)
        finally:
            self.recording = False

    def commit(self, release_id: str) -> None:
        self.steps.run("commit", super().commit, release_id)


class SteppedFile(ReportFile):
    """A file of reports whose writes are steps."""

    steps: Steps

    def save(self, found: State) -> None:
        self.steps.run("reports" if "count" in found else "id", super().save, found)


class Collection:
    """Nodes that report how often they reported; the process is stopped before a step, or after it."""

    def __init__(self, folder: Path, **limits: float) -> None:
        self.steps = Steps()
        self.ledger = SteppedLedger(self.steps, **limits)
        self.file = SteppedFile(folder / "run" / "reports.safetensors", {"by": "coins"})
        object.__setattr__(self.file, "steps", self.steps)  # frozen
        self.reported = 0

    def __call__(self, graph: Graph, stop: tuple[str, str] = ("", "")) -> State:
        self.steps.stop = stop
        session = Session(streams=PublicStreams(0), ledger=self.ledger)
        randomize = lambda: self.steps.run("randomize", self.randomize)  # noqa: E731
        return collect_reports(graph, session, entry_of, randomize, (), self.file)

    def randomize(self) -> State:
        self.reported += 1
        return {"count": torch.tensor(self.reported), "reproducible": torch.tensor(False)}


def test_charges_the_ledger_before_nodes_report(graph: Graph, tmp_path: Path) -> None:
    collection = Collection(tmp_path)
    collection(graph)
    # Before the run folder is made, and again with the release id.
    assert tuple(collection.steps.done) == ("check", *STEPS)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_fit_is_resumed_and_charged_once(
    graph: Graph, tmp_path: Path, step: str, when: str
) -> None:
    collection = Collection(tmp_path)
    with pytest.raises(Killed):
        collection(graph, (step, when))
    if collection.reported:
        assert len(collection.ledger.entries) == 1, "reported and not charged"
    found, again = collection(graph), collection(graph)
    assert torch.equal(found["count"], again["count"]) and torch.equal(found["release"], again["release"])
    (entry,) = collection.ledger.entries
    assert entry.release_id == release_id_of(found)
    assert not collection.ledger.refund(entry.release_id)


def test_a_ledger_that_rejects_the_entry_leaves_nothing(graph: Graph, tmp_path: Path) -> None:
    collection = Collection(tmp_path, epsilon=0.1, delta=0.0)
    with pytest.raises(BudgetError):
        collection(graph)
    assert not collection.file.path.parent.exists() and not collection.reported


def test_nodes_do_not_report_if_another_process_has_used_the_budget(graph: Graph, tmp_path: Path) -> None:
    collection = Collection(tmp_path)
    collection.ledger.full = True
    with pytest.raises(BudgetError, match="quicker"):
        collection(graph)
    assert not collection.reported


def test_concurrent_fits_in_one_folder_have_the_same_reports(graph: Graph, tmp_path: Path) -> None:
    begun, waited = Event(), Event()

    class Slow(Collection):
        def randomize(self) -> State:
            begun.set()
            waited.wait(0.5)  # for a second fit that is not kept out
            return super().randomize()

    collection = Slow(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(collection, graph)
        assert begun.wait(60)
        second = pool.submit(collection, graph)
        counts = [int(one.result()["count"]) for one in (first, second)]
    assert counts == [1, 1] and len(collection.ledger.entries) == 1


@pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT, gv.LabelPosterior])
def test_a_method_reports_nothing_if_the_ledger_rejects_it(
    graph: Graph, method: type, tmp_path: Path
) -> None:
    gv.attach_ledger(graph.edge_set, MemoryLedger(epsilon=0.1, delta=0.0))
    budgets = {"eps_y": 2.0} if method is gv.LabelPosterior else {"eps_x": 2.0, "eps_y": 2.0}
    model = method(unit="local-attributes", **budgets, seed=0)
    with pytest.raises(BudgetError):
        model.fit(graph, workspace=tmp_path)
    assert not list(tmp_path.iterdir()) and model.proba_ is None
