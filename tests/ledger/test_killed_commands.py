"""Commands that are killed at any moment: whatever was drawn is recorded, and no release is paid twice.

A command here is the real one, with a line written before each draw of noise: what the ledger is compared
with. Quick kills are of copies of this process, which has everything loaded and holds no open release; slow
ones also of whole commands. ``GRAPHVEIL_KILLS`` says how many of a slow kind, by default as many as the claim
needs; their moments begin anywhere, so that a claim can be shown in pieces.
"""

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import Files

from graphveil.ledger import Ledger
from ledger.conftest import KINDS

GOLDEN = 0.6180339887  # multiples of it, modulo 1, are spread evenly however many there are
GAP = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--no-baseline", "--set", "epochs=2"]


def run_command(arguments: list[str], drawn: str) -> None:
    """Run the command in this process, and note when it opens a ledger, and each release before it draws."""
    import torch

    from graphveil.cli import main
    from graphveil.ledger.database import Store
    from graphveil.release import Release

    torch.set_num_threads(1)  # a copy of a process has none of its threads
    real, opening = Release._commit, Store.__init__

    def opened(self: Store, url: str, *, create: bool = True) -> None:
        mark = _mark(Path(drawn).parent, os.getpid())
        if not mark.exists():
            mark.write_text(str(time.process_time()))
        opening(self, url, create=create)

    def noted(self: Release, *given: object) -> object:
        committed = real(self, *given)  # type: ignore[arg-type]
        with Path(drawn).open("a") as file:
            file.write(json.dumps([arguments[-1], self.release_id]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return committed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "_commit", noted)
        patch.setattr(Store, "__init__", opened)
        main(arguments)


def _mark(folder: Path, process: int) -> Path:
    """Return the file in which a process notes the seconds that it had computed when it opened a ledger."""
    return folder / f"opened-{process}"


@dataclass
class Killer:
    """Starts commands, and kills them at moments that are spread over their time.

    Two of three moments are after the ledger was opened, which a whole command does in its last tenth. Time
    is what the command has computed, so that a busy machine does not make all of them early.
    """

    folder: Path
    files: Files
    whole: bool
    seconds: dict[str, float] = field(default_factory=dict)  # of a kind of command, to its end
    opened: dict[str, float] = field(default_factory=dict)  # and to where it opens the ledger
    names: set[str] = field(default_factory=set)
    started: int = 0
    first: float = field(default_factory=random.random)

    @property
    def drawn(self) -> Path:
        return self.folder / "drawn.jsonl"

    def run(self, kind: str, name: str, *more: str, kill: bool = True) -> None:
        """Run one command, whose name is the folder or file that it writes."""
        self.names.add(name)
        process = self._start([*self._words(kind), *more, "--out", name])
        mark = _mark(self.folder, process)
        if kill:
            self.started += 1
            _kill(process, self._moment(kind, mark))
        else:
            self.seconds[kind] = _computed_in_all(process)
            self.opened[kind] = float(mark.read_text())
        mark.unlink(missing_ok=True)

    def _moment(self, kind: str, mark: Path) -> Callable[[], float]:
        """Return when to kill the next command: what it has computed by then."""
        spread = (self.first + self.started * GOLDEN) % 1
        if not self.started % 3:
            return lambda: spread * self.seconds[kind]
        rest = 1.1 * spread * (self.seconds[kind] - self.opened[kind])
        return lambda: _read(mark) + rest

    def prepare(self) -> None:
        """Run each command to its end, twice where it is copied: only then everything is loaded."""
        names = {"train": "first", "predict": "first.csv", "perturb": "first-graph"}
        if not self.whole:
            for kind, name in names.items():
                with pytest.raises(SystemExit) as stop:
                    run_command([*self._words(kind), "--out", name], str(self.drawn))
                assert not stop.value.code
                self.names.add(name)
            names = {kind: f"second-{name}" for kind, name in names.items()}
        for kind, name in names.items():
            self.run(kind, name, kill=False)

    def _words(self, kind: str) -> list[str]:
        ends = self.files.flags[:6] + self.files.flags[8:]
        return {
            "train": ["train", "gap", *self.files.flags, *GAP],
            "predict": ["predict", "first", *self.files.flags[:2], "--edges", str(self.folder / "other.csv")],
            "perturb": ["perturb", "edge-rand", *ends, "--unit", "undirected-edge", "--epsilon", "1"],
        }[kind]

    def _start(self, words: list[str]) -> int:
        child = os.fork()
        if child == 0:
            try:
                os.chdir(self.folder)
                for stream in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
                if self.whole:
                    code = "import sys; from ledger.test_killed_commands import run_command as run; "
                    code += "run(sys.argv[2:], sys.argv[1])"
                    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                    os.execve(sys.executable, [sys.executable, "-c", code, str(self.drawn), *words], where)
                run_command(words, str(self.drawn))
            finally:
                os._exit(0)
        return child


def _computed_in_all(process: int) -> float:
    """Wait for a process, and return the seconds that it computed."""
    used = os.wait4(process, 0)[2]
    return used.ru_utime + used.ru_stime


def _read(mark: Path) -> float:
    """Return what a mark says; one that is not there yet is never reached."""
    return float(mark.read_text() or "inf") if mark.exists() else math.inf


def _kill(process: int, moment: Callable[[], float]) -> None:
    """Kill a process soon after it has computed for so long."""
    clock = ~process << 3 | 2  # CPUCLOCK_SCHED of another process, as clock_getcpuclockid of Linux has it
    while time.clock_gettime(clock) < moment():
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.001)
    time.sleep(0.005 * random.random())  # it may be waiting for the disk, or the database, by then
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.fixture
def killer(place: str, how: str, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> Killer:
    monkeypatch.setenv("GRAPHVEIL_LEDGER", place)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    head, *rows = files.edges.read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join([head, *rows[:100]]) + "\n")
    monkeypatch.chdir(tmp_path)
    found = Killer(tmp_path, files, how == "whole")
    found.prepare()
    return found


def count_of(how: str) -> int:
    """How many kills: a few, or of each kind and database what adds up to 200 whole and 1,800 copies."""
    if how == "few":
        return 4
    return int(os.environ.get("GRAPHVEIL_KILLS", {"whole": 100, "copies": 900}[how]))


SLOW = [pytest.param(how, kind, marks=pytest.mark.slow) for how in ("whole", "copies") for kind in KINDS]


@pytest.mark.parametrize(("how", "kind"), [("few", "sqlite"), *SLOW])
def test_whatever_was_drawn_is_recorded_and_paid_once(killer: Killer, place: str, how: str) -> None:
    unfinished = list[str]()
    for number in range(count_of(how)):
        command = ("train", "predict", "train", "perturb")[number % 4]
        if number % 4 == 2 and unfinished:  # every other training goes on with one that was killed
            killer.run("train", unfinished[-1], "--resume")
        else:
            killer.run(command, f"{command}-{number}{'.csv' if command == 'predict' else ''}")
        unfinished = [path.name for path in sorted(killer.folder.glob("train-*")) if not _finished(path)]
    for name in unfinished:
        killer.run("train", name, "--resume", kill=False)
    _check(killer, Ledger(place))


def _finished(run: Path) -> bool:
    return (run / "release").is_dir() or not (run / "internal" / "config.lock.json").is_file()


def _check(killer: Killer, ledger: Ledger) -> None:
    drawn = [json.loads(line) for line in killer.drawn.read_text().splitlines()]
    rows = [row for name in ledger.names() for row in ledger.export(name)]
    committed = {row["reference"] for row in rows if row["kind"] == "commit"}
    reserved = {row["reference"] for row in rows if row["kind"] == "reserve"}
    assert {release for _, release in drawn} <= committed <= reserved
    assert len(reserved) <= len(killer.names)  # a command asks for one release, however often it is resumed
    runs = {path.parent.parent.name for path in killer.folder.glob("*/internal/receipts.json")}
    paid = {run: {release for name, release in drawn if name == run} for run in runs}
    assert all(len(releases) == 1 for releases in paid.values()), paid  # begun, killed and resumed: paid once
    for run in runs:
        receipts = json.loads((killer.folder / run / "internal" / "receipts.json").read_text())["receipts"]
        assert paid[run] <= {receipt["release"] for receipt in receipts}
    live = [account.releases for account in ledger.accounts()]
    assert sum(live) == sum(row["kind"] == "reserve" for row in rows)
    assert ledger.verify() == []
    made = len(list(killer.folder.glob("*.csv"))) + len(list(killer.folder.glob("perturb-*")))
    sys.stdout.write(  # for whoever measures: pytest -s
        f"\nkilled {killer.started}; drawn {len({one for _, one in drawn})}, committed {len(committed)}, "
        f"reserved {len(reserved)}; trainings {len(runs)}, files and folders {made}\n"
    )
