"""Interrupt commands at random moments, and check the ledger, the files and the processes that remain.

    python benchmarks/interruptions.py [--runs 200] [--seed N] [--folder DIR]

Commands run in forks of this process, which has imported everything, so that signals arrive during the work
of a command and not during its imports. Each command gets SIGKILL, SIGINT or SIGTERM with equal probability.
After every signal the ledger must verify, and the exit code, files and processes are checked. Then the
command is finished, with ``--resume`` or by the same call. It must write the same bytes as an uninterrupted
run, and be charged once: the charges must equal the receipts in run folders. ``perturb`` and ``predict`` that
were interrupted after the charge are new releases when they are called again. Prints the counts, and exits
with 1 after a failed check.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
EXIT_CODES = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}
NODES, TEAMS = 60, 3
MAX_SECONDS = 120.0
GAP = ["--unit", "undirected-edge", "--delta", "1e-7", "--set", "epochs=2", "--unsafe-noise-seed", "7"]
COLUMNS = ["--id", "user", "--source", "a", "--target", "b"]


@dataclass(frozen=True)
class Kind:
    """A kind of command.

    Args:
        words: Arguments of the command for a given output and number.
        suffix: Suffix of the output file.
        charges: Number of releases that a finished command charges; None without a charge.
        again: Further arguments that finish an interrupted command.
        shared: Whether all commands of this kind share one charge.
        before: Number of releases of other commands in the same ledger.
        compared: Whether the output has the same bytes each time.
    """

    words: Callable[[str, int], list[str]]
    suffix: str = ""
    charges: int | None = None
    again: tuple[str, ...] = ()
    shared: bool = False
    before: int = 0
    compared: bool = True


@dataclass
class Bench:
    """A folder with data, ledgers and outputs of commands, and the failed checks."""

    folder: Path
    kinds: dict[str, Kind] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_of: dict[str, str] = field(default_factory=dict)
    finished: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    limits: float = 10.0

    def run(self, kind: str, words: list[str], stop: tuple[signal.Signals, float] | None = None) -> int:
        """Run a command in a fork of this process and return its exit code, negative for a signal."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[1:])  # until the command handles them
        child = os.fork()
        if child == 0:
            self._execute(kind, words)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
        if stop is not None:
            ended = self._wait(child, stop[1])
            if ended is not None:
                return ended
            os.kill(child, stop[0])
        ended = self._wait(child, MAX_SECONDS)
        if ended is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.failures.append(f"{kind}: no exit after {'a signal' if stop else 'the start'}")
            return -9
        for _ in range(200):  # workers may need some time to exit
            try:
                os.killpg(child, 0)
            except ProcessLookupError:
                return ended
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        self.failures.append(f"{kind}: an orphan process remains")
        return ended

    def _wait(self, child: int, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            process, status = os.waitpid(child, os.WNOHANG)
            if process:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        return None

    def _execute(self, kind: str, words: list[str]) -> None:
        code = 70
        try:
            os.setsid()
            os.chdir(self.folder)
            os.environ["GRAPHVEIL_LEDGER"] = str(self.ledger_of(kind))
            log = os.open(self.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(log, stream)
            from graphveil._util import process
            from graphveil.cli import main

            process.interrupt_on_termination()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
            main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0
        except KeyboardInterrupt:  # before the command started
            from graphveil._util import process

            code = process.exit_code()
        finally:
            os._exit(code)

    def ledger_of(self, kind: str) -> Path:
        """Return the path of the ledger of a kind of command."""
        return self.folder / f"ledger-{'people' if kind in ('decode', 'learn') else kind}.sqlite"

    def check_ledger(self, kind: str, when: str) -> None:
        """Add a failure if the ledger does not verify."""
        from graphveil.ledger import Ledger

        place = self.ledger_of(kind)
        if place.exists() and (problems := Ledger(str(place)).verify()):
            self.failures.append(f"{kind}: the ledger does not verify {when}: {problems}")

    def charged(self, kind: str) -> int:
        """Return the number of releases in a ledger."""
        from graphveil.ledger import Ledger

        place = self.ledger_of(kind)
        return sum(one.releases for one in Ledger(str(place)).accounts()) if place.exists() else 0

    def output(self, kind: str, number: int | str) -> Path:
        """Return the output path of a command."""
        return self.folder / f"{kind}-{number}{self.kinds[kind].suffix}"

    def digest(self, path: Path) -> str:
        """Return a digest of a file, or of a folder without measured times."""
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        found = hashlib.sha256()
        for file in files:
            place = file.relative_to(path.parent).parts[1:]
            if path.is_dir() and "internal" in place:
                continue
            if path.is_dir() and (file.name in ("PRIVACY.md", "manifest.json") or file.name.startswith(".")):
                continue
            found.update("/".join(place).encode() + b"\0" + file.read_bytes())
        return found.hexdigest()

    def interrupt_one(self, kind: str, number: int, how: signal.Signals, share: float) -> None:
        """Interrupt a command, check its remains, finish it, and check again."""
        form, out = self.kinds[kind], self.output(kind, number)
        words = form.words(out.name, number)
        self.started[kind] += 1
        code = self.run(kind, words, (how, share * self.seconds[kind]))
        label = f"{kind} {number} ({how.name} after {share:.2f} of its time)"
        if code not in (0, EXIT_CODES[how]):
            self.failures.append(f"{label}: exit code {code}")
        self.check_ledger(kind, f"after {label}")
        rest = list(self.folder.glob(f".{out.name}.*"))
        if rest and how is not signal.SIGKILL:
            self.failures.append(f"{label}: {rest[0].name} remains")
        for path in rest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if kind == "raise":
            self._check_limit(label, number, whole=code == 0)
            return
        if not self._whole(kind, out):
            self.failures.append(f"{label}: {out.name} is incomplete")
        if code:
            self._finish(kind, number, label)
        elif form.compared and self.digest(out) != self.bytes_of[kind]:
            self.failures.append(f"{label}: different bytes without an interruption")
        self.finished[kind] += 1
        self.check_charges(kind, label)

    def _finish(self, kind: str, number: int, label: str) -> None:
        form, out = self.kinds[kind], self.output(kind, number)
        started = (out / "internal" / "config.lock.json").is_file()
        words = form.words(out.name, number)
        if form.again and not started:
            shutil.rmtree(out, ignore_errors=True)  # killed before it started: there is nothing to resume
        elif form.again:
            words += form.again
        elif out.exists() and kind != "prepare":  # it finished before the signal
            return
        code = self.run(kind, words)
        if code:
            self.failures.append(f"{label}: finishing it exits with {code}")
        elif form.compared and self.digest(out) != self.bytes_of[kind]:
            self.failures.append(f"{label}: different bytes after it was finished")

    def _whole(self, kind: str, out: Path) -> bool:
        """Return whether an output is complete or does not exist."""
        if not out.exists():
            return True
        try:
            if out.suffix == ".jsonl":
                return all(json.loads(line) for line in out.read_text().splitlines())
            if out.suffix == ".csv":
                rows = list(csv.reader(out.open(newline="")))
                return len({len(row) for row in rows}) == 1 and out.read_bytes().endswith(b"\n")
            if kind == "perturb":
                names = {one.name for one in out.iterdir()}
                return {"edges.parquet", "guarantee.json", "RELEASED.md"} <= names
            if kind in ("train", "learn") and (out / "release").exists():
                from graphveil import load_model

                load_model(out)
            return True
        except Exception as error:
            self.failures.append(f"{kind}: {out.name} cannot be read: {type(error).__name__}")
            return False

    def check_charges(self, kind: str, label: str) -> None:
        """Compare the charges with the finished commands and with the receipts of run folders."""
        form = self.kinds[kind]
        charged = self.charged(kind) - form.before
        if form.charges is None:
            return
        done = form.charges * (self.finished[kind] + 1)  # including the uninterrupted one
        if form.shared:
            if charged != form.charges:
                self.failures.append(f"{label}: {charged} charges instead of {form.charges}")
        elif form.again:
            receipts = self._receipts(kind)
            if not charged == len(receipts) == done:
                self.failures.append(f"{label}: {charged} charges, {len(receipts)} receipts, {done} releases")
        elif not done <= charged <= form.charges * (2 * self.started[kind] + 1):
            self.failures.append(f"{label}: {charged} charges for {done} releases")

    def _receipts(self, kind: str) -> set[str]:
        found = set()
        for path in self.folder.glob(f"{kind}-*/**/internal/receipts.json"):
            found |= {one["release"] for one in json.loads(path.read_text())["receipts"]}
        return found

    def _check_limit(self, label: str, number: int, *, whole: bool) -> None:
        from graphveil.ledger import Ledger

        (account,) = Ledger(str(self.ledger_of("raise"))).accounts()
        assert account.limit is not None
        now, wanted = float(account.limit.epsilon), 11.0 + number
        if now not in ((wanted,) if whole else (self.limits, wanted)):
            self.failures.append(f"{label}: the limit is {now}")
        self.limits = now


def tables(folder: Path) -> None:
    """Write the tables of a small graph, and of a graph with fewer edges for each number."""
    draw = random.Random(0)
    teams = [draw.randrange(TEAMS) for _ in range(NODES)]
    with (folder / "nodes.csv").open("w", newline="") as file:
        rows = [[f"u{i}", round(team + draw.gauss(0, 1), 3), f"t{team}"] for i, team in enumerate(teams)]
        csv.writer(file, lineterminator="\n").writerows([["user", "age", "team"], *rows])
    ends = [[f"u{draw.randrange(NODES)}", f"u{draw.randrange(NODES)}"] for _ in range(900)]
    with (folder / "edges.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["a", "b"], *ends])


def write_smaller_graph(folder: Path, number: int) -> str:
    """Write a graph with fewer edges, and return its file name."""
    path = folder / f"other-{number}.csv"
    rows = (folder / "edges.csv").read_text().splitlines()
    path.write_text("\n".join(rows[: 800 - number]) + "\n")
    return path.name


def kinds_of(folder: Path) -> dict[str, Kind]:
    """Return all kinds of commands."""
    nodes, data = ["--nodes", "nodes.csv"], ["--nodes", "nodes.csv", "--edges", "edges.csv", *COLUMNS]
    labeled = [*data, "--label", "team"]
    answers = ["--protocol", "survey.json", "--reports", "messages.csv", "--id", "user", "--ledger", "people"]
    ends = ["--edges", "edges.csv", "--source", "a", "--target", "b"]
    records = [
        "--protocol",
        "survey.json",
        *nodes,
        "--id",
        "user",
        "--label",
        "team",
        "--secret",
        "secret.key",
    ]
    predict = ["predict", "trained", *nodes, "--allow-spend"]
    return {
        "train": Kind(
            lambda out, _: ["train", "gap", *labeled, *GAP, "--epsilon", "1", "--no-baseline", "--out", out],
            charges=1,
            again=("--resume",),
        ),
        "sweep": Kind(
            lambda out, _: ["sweep", "gap", *labeled, *GAP, "--epsilon", "1,2", "--out", out],
            charges=2,
            again=("--resume",),
        ),
        "perturb": Kind(
            lambda out, _: [
                *["perturb", "edge-rand", *data, "--unit", "undirected-edge", "--epsilon", "1"],
                *["--unsafe-noise-seed", "7", "--out", out],
            ],
            charges=1,
            compared=False,
        ),
        "predict": Kind(
            lambda out, number: [*predict, "--edges", write_smaller_graph(folder, number), "--out", out],
            suffix=".csv",
            charges=1,  # the nodes are those of the training graph, so both graphs have one account
            before=1,
            compared=False,
        ),
        "answer": Kind(
            lambda out, _: ["collect", "randomize", *records, "--out", out], ".csv", charges=1, shared=True
        ),
        "decode": Kind(
            lambda out, _: ["collect", "decode", *answers, "--out", out], ".csv", charges=1, shared=True
        ),
        "learn": Kind(
            lambda out, _: [
                *["collect", "learn", *answers, *ends, "--set", "epochs=2", "--no-baseline", "--out", out]
            ],
            charges=1,
            shared=True,
        ),
        "raise": Kind(
            lambda out, number: [
                *["ledger", "raise", "people", "--unit", "undirected-edge", "--delta", "1e-7"],
                *["--epsilon", str(11 + number), "--reason", "more"],
            ]
        ),
        "export": Kind(lambda out, _: ["ledger", "export", "people", "--out", out], ".jsonl"),
        "prepare": Kind(lambda out, _: ["prepare", *labeled, "--out", out]),
    }


def prepare_bench(folder: Path) -> Bench:
    """Write the data, run every command without interruption, and store its digest and time."""
    tables(folder)
    bench = Bench(folder)
    bench.kinds = kinds_of(folder)
    limit = ["--unit", "undirected-edge", "--epsilon", "10", "--delta", "1e-7"]
    protocol = ["collect", "protocol", "--eps-x", "2", "--columns", "age", "--low", "-5", "--high", "9"]
    first = {
        "answer": [*protocol, "--eps-y", "2", "--classes", "t0,t1,t2", "--out", "survey.json"],
        "predict": bench.kinds["train"].words("trained", 0),
        "raise": ["ledger", "init", "people", *limit],
        "export": ["ledger", "init", "people", *limit],
        "decode": ["ledger", "init", "people", "--unit", "local-attributes"],
    }
    for kind, words in first.items():
        if code := bench.run(kind, words):
            raise SystemExit(f"{kind}: its preparation exits with {code}; see {folder / 'log.txt'}")
    messages = bench.kinds["answer"].words("messages.csv", 0)
    if bench.run("answer", messages):
        raise SystemExit(f"the LDP reports cannot be prepared; see {folder / 'log.txt'}")
    for kind, form in bench.kinds.items():
        if kind == "raise":
            bench.seconds[kind] = 0.3
            continue
        out, began = bench.output(kind, "whole"), time.monotonic()
        if code := bench.run(kind, form.words(out.name, -1)):
            raise SystemExit(f"{kind}: exits with {code}; see {folder / 'log.txt'}")
        bench.seconds[kind] = time.monotonic() - began
        bench.bytes_of[kind] = bench.digest(out)
    return bench


def load() -> None:
    """Import everything that commands import, with one thread, because a fork has no other threads."""
    import importlib
    import pkgutil

    import torch

    import graphveil

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(graphveil.__path__, "graphveil."):
        if module.name.split(".")[1] not in ("serve", "reproduce", "__main__"):
            importlib.import_module(module.name)
    for name in ("duckdb", "pyarrow.csv", "pyarrow.parquet", "torch_geometric", "sqlalchemy"):
        importlib.import_module(name)


def main() -> None:
    """Interrupt commands, print the counts, and exit with 1 after a failed check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="number of interrupted commands")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="seed of the moments"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="folder to keep the files in; default: a deleted temporary folder",
    )
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="interruptions-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    os.environ |= {"OMP_NUM_THREADS": "1"}
    load()
    began, draw = time.monotonic(), random.Random(options.seed)
    bench = prepare_bench(folder)
    stopped: Counter[str] = Counter()
    for number in range(options.runs):
        kind, how = list(bench.kinds)[number % len(bench.kinds)], draw.choice(SIGNALS)
        bench.interrupt_one(kind, number, how, draw.random() * 1.05)
        stopped[how.name] += 1
    print(
        f"seed {options.seed}; {options.runs} commands in {time.monotonic() - began:.0f} s; {dict(stopped)}"
    )
    print(f"finished: {dict(bench.finished)}")
    print(f"charges: { {kind: bench.charged(kind) for kind in bench.kinds} }")
    for failure in bench.failures:
        print(f"FAILED {failure}")
    print(f"failed checks: {len(bench.failures)}")
    if options.folder is None:
        shutil.rmtree(folder)
    sys.exit(bool(bench.failures))


if __name__ == "__main__":
    main()
