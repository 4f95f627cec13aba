"""Commands that are killed at any moment: what they wrote is recorded, and a resumed run is charged once.

Quick kills are of forked copies of this process, which has everything loaded. Slow ones are also of whole
commands; ``GRAPHVEIL_KILLS`` sets their number.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import Files, Invoke

from graphveil.cli import main
from graphveil.ledger import Ledger
from ledger.conftest import KINDS

GOLDEN = 0.6180339887  # multiples of it, modulo 1, are spread evenly however many there are
GAP = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--no-baseline", "--set", "epochs=2"]
SUFFIXES = {"train": "", "predict": ".csv", "perturb": "-graph"}


@dataclass
class Killer:
    """Starts commands, and kills each at a moment that is spread over the time that its kind takes."""

    files: Files
    whole: bool
    seconds: dict[str, float] = field(default_factory=dict)  # of each kind of command
    names: set[str] = field(default_factory=set)
    kills: int = 0

    def run(self, kind: str, name: str, *more: str, kill: bool = True) -> None:
        """Run a command, whose name is the folder or file that it writes."""
        self.names.add(name)
        process, began = self._start([*self._words(kind), *more, "--out", name]), time.monotonic()
        if kill:
            self.kills += 1
            time.sleep(1.1 * self.seconds[kind] * ((self.kills * GOLDEN) % 1))
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if not kill:
            self.seconds[kind] = time.monotonic() - began

    def _words(self, kind: str) -> list[str]:
        ends = self.files.flags[:6] + self.files.flags[8:]
        return {
            "train": ["train", "gap", *self.files.flags, *GAP],
            "predict": ["predict", "first", *self.files.flags[:2], "--edges", "other.csv"],
            "perturb": ["perturb", "edge-rand", *ends, "--unit", "undirected-edge", "--epsilon", "1"],
        }[kind]

    def _start(self, words: list[str]) -> int:
        if child := os.fork():
            return child
        try:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            if self.whole:
                where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                os.execve(sys.executable, [sys.executable, "-m", "graphveil", *words], where)
            import torch

            torch.set_num_threads(1)  # a copy of a process has none of its threads
            main(words)
        finally:
            os._exit(0)


SLOW = [pytest.param(how, kind, marks=pytest.mark.slow) for how in ("whole", "copies") for kind in KINDS]


@pytest.mark.parametrize(("how", "kind"), [("few", "sqlite"), *SLOW])
def test_killed_commands_have_recorded_what_they_wrote(
    place: str, how: str, invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHVEIL_LEDGER", place)
    head, *rows = files.edges.read_text().splitlines()
    Path("other.csv").write_text("\n".join([head, *rows[:100]]) + "\n")
    killer = Killer(files, how == "whole")
    for kind, suffix in SUFFIXES.items():
        killer.run(kind, f"first{suffix}", kill=False)  # a first call loads more than later ones
        if kind != "predict":
            killer.run(kind, f"second{suffix}", kill=False)
    unfinished = list[str]()
    counts = {"few": 4, "whole": 100, "copies": 900}
    for number in range(int(os.environ.get("GRAPHVEIL_KILLS", counts[how])) if how != "few" else 4):
        kind = ("train", "predict", "train", "perturb")[number % 4]
        if number % 4 == 2 and unfinished:  # every other training resumes one that was killed
            killer.run("train", random.choice(unfinished), "--resume")
        else:
            killer.run(kind, f"{kind}-{number}{SUFFIXES[kind]}")
        unfinished = [
            path.name
            for path in sorted(Path().glob("train-*"))
            if (path / "internal" / "config.lock.json").is_file() and not (path / "release").is_dir()
        ]
    for name in unfinished:
        killer.run("train", name, "--resume", kill=False)
    ledger = Ledger(place)
    entries = [row for name in ledger.names() for row in ledger.export(name)]
    committed = {row["reference"] for row in entries if row["kind"] == "commit"}
    reserved = [row["reference"] for row in entries if row["kind"] == "reserve"]
    assert committed <= set(reserved)
    assert len(reserved) == sum(account.releases for account in ledger.accounts())
    assert len(set(reserved)) <= len(killer.names)  # one release for each, also if resumed
    assert ledger.verify() == []
    written = [*Path().glob("*.csv"), *Path().glob("*-graph"), *Path().glob("*/release")]
    assert len(written) - 1 <= len(committed)  # all but other.csv
    for path in Path().glob("*/internal/receipts.json"):
        releases = {receipt["release"] for receipt in json.loads(path.read_text())["receipts"]}
        assert len(releases) == 1 and releases <= set(reserved), path
        assert not (path.parents[1] / "release").is_dir() or releases <= committed, path
