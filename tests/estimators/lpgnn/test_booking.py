"""What nodes tell is booked first, kept whole or not at all, and paid once whenever a fit is killed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch

import graphveil as gv
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import BudgetError
from graphveil.estimators.method import State
from graphveil.estimators.session import Session
from graphveil.ledger import Entry, MemoryLedger
from graphveil.local import randomized_records
from graphveil.local.randomized_records import ReportFile, collect_reports
from graphveil.mechanisms import MultiBit
from graphveil.privacy import LocalAttributes, LocalReport

STEPS = ("check", "id", "record", "commit", "randomize", "reports")


class Killed(BaseException):
    """The process is gone."""


def entry_of(release_id: str) -> Entry:
    return Entry(release_id, "told", LocalReport("features", 1.0), unit=LocalAttributes())


class Told:
    """Nodes that tell how often they were asked; they are killed before a step, or after it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.ledger, self.kept = (
            MemoryLedger(),
            ReportFile(folder / "run" / "told.safetensors", {"by": "coins"}),
        )
        self.asked, self.steps, self.dies = 0, list[str](), ("", "")
        for name in ("check", "record", "commit"):
            patch.setattr(self.ledger, name, self._step(name, getattr(self.ledger, name)))
        save = ReportFile.save
        patch.setattr(
            randomized_records.ReportFile,
            "save",
            lambda kept, found: self._step("reports" if "told" in found else "id", save)(kept, found),
        )

    def _step(self, name: str, does: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object) -> object:
            if self.dies == (name, "before"):
                raise Killed
            answer = does(*given)
            self.steps.append(name)
            if self.dies == (name, "after"):
                raise Killed
            return answer

        return step

    def __call__(self, graph: Graph, dies: tuple[str, str] = ("", "")) -> State:
        self.dies = dies
        session = Session(streams=PublicStreams(0), ledger=self.ledger)
        return collect_reports(graph, session, entry_of, self._step("randomize", self._randomize), self.kept)

    def _randomize(self) -> State:
        self.asked += 1
        return {"told": torch.tensor(self.asked), "reproducible": torch.tensor(False)}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, monkeypatch)


def test_nobody_is_asked_before_it_is_booked(graph: Graph, told: Told) -> None:
    told(graph)
    assert tuple(told.steps) == STEPS


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_whenever_a_fit_is_killed_it_is_resumed_and_pays_once(
    graph: Graph, told: Told, step: str, when: str
) -> None:
    with pytest.raises(Killed):
        told(graph, (step, when))
    if told.asked:
        assert len(told.ledger.entries) == 1, "told and not booked"
    found = told(graph)
    again = told(graph)
    assert torch.equal(found["told"], again["told"]) and torch.equal(found["release"], again["release"])
    assert len(told.ledger.entries) == 1
    assert told.ledger.entries[0].release_id == randomized_records.release_id_of(found)
    assert not told.ledger.refund(randomized_records.release_id_of(found))


def test_a_ledger_that_refuses_leaves_nothing(graph: Graph, told: Told) -> None:
    told.ledger._epsilon, told.ledger._delta = 0.1, 0.0
    with pytest.raises(BudgetError):
        told(graph)
    assert not told.kept.path.parent.exists() and not told.asked


def test_a_ledger_that_another_process_has_filled_meanwhile_hears_of_nothing_told(
    graph: Graph, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(entry: Entry) -> None:
        raise BudgetError("another process was quicker")

    monkeypatch.setattr(told.ledger, "record", full)
    with pytest.raises(BudgetError, match="quicker"):
        told(graph)
    assert not told.asked


def test_two_fits_in_one_folder_have_one_answer(graph: Graph, told: Told) -> None:
    randomize, begun, waited = told._randomize, Event(), Event()

    def slowly() -> State:
        begun.set()
        waited.wait(0.5)  # for a second one that is not kept out
        return randomize()

    told._randomize = slowly
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(told, graph)
        assert begun.wait(60)
        second = pool.submit(told, graph)
        answers = [int(one.result()["told"]) for one in (first, second)]
    assert answers == [1, 1] and len(told.ledger.entries) == 1


@pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT])
def test_every_method_books_first(graph: Graph, method: type, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    gv.attach_ledger(graph.edge_set, ledger)
    seen = list[int]()
    perturb = MultiBit.perturb
    monkeypatch.setattr(
        MultiBit,
        "perturb",
        lambda *given, **named: seen.append(len(ledger)) or perturb(*given, **named),
    )
    method(unit="local-attributes", eps_x=2.0, eps_y=2.0, seed=0, epochs=1).fit(graph)
    assert seen and set(seen) == {1}
