"""The command line under test: what a call left behind, and two tables to call it with."""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECRET = "xyzzy-4711"  # planted in columns that nothing may repeat
NODES, CLASSES = 60, 3
PRIVATE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
QUICK = ["--set", "epochs=3"]
RELEASE = {
    "model.safetensors",
    "model.json",
    "aggregates.safetensors",
    "predictions.parquet",
    "privacy.json",
    "PRIVACY.md",
    "MODEL_CARD.md",
    "README.md",
    "MLmodel",
}


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
    """Return what calls the command in this process; the first argument may be several words."""
    from graphveil.cli import main

    def call(command: str, *arguments: object) -> Answer:
        with pytest.raises(SystemExit) as stop:
            main([*command.split(), *map(str, arguments)])
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


def recorded() -> list[dict[str, Any]]:
    """Return what the ledger of a test says of each release that was recorded, refunded ones too."""
    from graphveil.ledger import Ledger

    place = Path(os.environ["GRAPHVEIL_LEDGER"])
    if not place.exists():
        return []
    ledger = Ledger(str(place), create=False)
    rows = [row for name in ledger.names() for row in ledger.export(name) if row["kind"] == "reserve"]
    ledger.close()
    return rows


@contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Set variables of the environment for a while; None removes one."""

    def assign(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    before = {name: os.environ.get(name) for name in variables}
    assign(variables)
    try:
        yield
    finally:
        assign(before)


class Progress:
    """What a command reports while it runs: each stage with what is done of it, and what happens then."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.then: Callable[[str, int], object] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note a stage."""
        self.stages.append(stage)
        if self.then is not None:
            self.then(stage, done)

    @contextmanager
    def stopped_at(self, stage: str, done: int) -> Iterator[None]:
        """Interrupt each command where so much of a stage, named by its last words, is done."""

        def stop(name: str, position: int) -> None:
            if name.endswith(stage) and position == done:
                raise KeyboardInterrupt

        self.then = stop
        yield
        self.then = None


def write(path: Path, rows: list[list[str]]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def read(path: Path) -> list[list[str]]:
    """Read rows of CSV."""
    with path.open(newline="") as file:
        return list(csv.reader(file))


def edit(path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    write(path, change(read(path)))


def rejected(answer: Answer, words: str) -> None:
    """Assert that a call exited with 2 and an error message in one line that has the words."""
    line = " ".join(answer.err.strip().splitlines()[-1:])
    assert (answer.code, line.startswith("graphveil: "), words in line) == (2, True, True), answer.err
    assert "Traceback" not in answer.err


def assert_rejected(answer: Answer, words: str) -> None:
    """One clear line, exit code 2, no traceback, nothing spent or written, nothing secret repeated."""
    assert answer.code == 2, answer.err
    assert not recorded()
    line = answer.err.strip().splitlines()[-1]
    assert line.startswith("graphveil: ")
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert SECRET not in answer.err
    assert not list(Path().iterdir())
