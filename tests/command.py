"""The command line under test: what a call left behind, and two tables to call it with."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphveil.ledger import DataSetLedger
from graphveil.privacy import Entry, MemoryLedger

SECRET = "xyzzy-4711"  # planted in columns that nothing may repeat
NODES, CLASSES = 60, 3


@dataclass(frozen=True)
class Answer:
    """What one call of the command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it must be."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Invoke = Callable[..., Answer]


def calling(capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Return what calls the command in this process."""
    from graphveil.cli import main

    def call(*arguments: object) -> Answer:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(int(stop.value.code or 0), captured.out, captured.err)

    return call


@dataclass(frozen=True)
class Files:
    """Two tables of a small graph, and the flags that name their columns."""

    nodes: Path
    edges: Path

    @classmethod
    def written(cls, folder: Path, seed: int = 0) -> "Files":
        """Write a graph of three teams; text that must stay secret lies in a column that is not used."""
        rng = np.random.default_rng(seed)
        teams = rng.integers(CLASSES, size=NODES)
        nodes = [["user", "age", "height", "team"]]
        nodes += [
            [f"u{i}", f"{teams[i] + rng.normal():.3f}", f"{rng.normal():.3f}", f"t{teams[i]}"]
            for i in range(NODES)
        ]
        ends = rng.integers(NODES, size=(200, 2))
        found = cls(folder / "nodes.csv", folder / "edges.csv")
        write(found.nodes, nodes)
        write(found.edges, [["a", "b", "note"], *([f"u{a}", f"u{b}", SECRET] for a, b in ends)])
        return found

    @property
    def flags(self) -> list[str]:
        """The files and their columns."""
        columns = ["--id", "user", "--label", "team", "--source", "a", "--target", "b"]
        return ["--nodes", str(self.nodes), "--edges", str(self.edges), *columns]


def other_of(files: Files) -> list[str]:
    """Return the flags of a graph with one edge less, which is another one; its columns are called alike."""
    fewer = files.edges.with_name("fewer.csv")
    write(fewer, read(files.edges)[:-1])
    return ["--nodes", str(files.nodes), "--edges", str(fewer)]


def changed(words: Sequence[object], *more: object) -> list[object]:
    """Return a command with more words, whose flags stand in place of its own; --set may be repeated.

    >>> changed(["train", "gap", "--epsilon", 1, "--json"], "--epsilon", 8)
    ['train', 'gap', '--json', '--epsilon', 8]
    """
    kept = list(words)
    for flag in more:
        if str(flag).startswith("--") and flag != "--set" and flag in kept:
            place = kept.index(flag)
            del kept[place : place + 2]
    return [*kept, *more]


def spend_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a release is booked in any ledger."""
    for ledger in (MemoryLedger, DataSetLedger):
        monkeypatch.setattr(ledger, "record", lambda self, entry: pytest.fail("something was spent"))


def bookings(monkeypatch: pytest.MonkeyPatch, seen: Callable[[Entry], object] | None = None) -> list[Entry]:
    """Return the list that every booking of any ledger is added to; ``seen`` is told of each before."""
    booked: list[Entry] = []
    for ledger in (MemoryLedger, DataSetLedger):
        _watch(monkeypatch, ledger, booked, seen)
    return booked


def _watch(
    monkeypatch: pytest.MonkeyPatch,
    ledger: type[MemoryLedger] | type[DataSetLedger],
    booked: list[Entry],
    seen: Callable[[Entry], object] | None,
) -> None:
    real = ledger.record

    def record(self: Any, entry: Entry) -> None:
        if seen is not None:
            seen(entry)
        booked.append(entry)
        real(self, entry)

    monkeypatch.setattr(ledger, "record", record)


def write(path: Path, rows: list[list[str]]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def read(path: Path) -> list[list[str]]:
    """Read rows of CSV."""
    with path.open(newline="") as file:
        return list(csv.reader(file))
