"""Run tests against mutated copies of the package, each in a forked process.

The parent process imports the third-party packages once and never imports graphveil. It forks a child process
for each mutation. The child imports graphveil from the copy and runs one test with pytest.
"""

import compileall
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from contracts.mutations import ROOT, Row

TIMEOUT = 600.0  # seconds for one mutation
# No plugin of pytest, and nothing that imports one (anyio, hypothesis): pytest has to import those itself.
PRELOADED = (
    *("numpy", "scipy.stats", "scipy.sparse", "scipy.special", "scipy.optimize", "torch", "torch.func"),
    *("pyarrow.parquet", "pandas", "dp_accounting.pld", "typer", "rich.console", "pydantic", "networkx"),
    *(
        "sqlalchemy.orm",
        "safetensors.torch",
        "cryptography.hazmat.primitives.ciphers.aead",
    ),
)
EXPECTED = ("AssertionError", "Failed")


@dataclass(frozen=True)
class Result:
    """What a row led to: `caught` is None where the test was skipped on the unchanged package."""

    caught: bool | None
    seconds: float
    detail: str


@dataclass
class Job:
    """One run of pytest in a child process."""

    tests: tuple[str, ...]
    path: str
    sources: dict[Path, str]
    subject: Any


def run_rows(rows: Iterable[Row], workers: int = 2) -> Iterator[tuple[Row, Result]]:
    """Check each test on the unchanged package, then run it with each mutation.

    Args:
        rows: Rows of the table.
        workers: Number of child processes at the same time; each has a copy of the package.

    Yields:
        Each row with its result, in the order in which they end.
    """
    rows = list(rows)
    _preload()
    plain: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        tests = plain.setdefault((row.test.partition("::")[0], row.path), [])
        if row.test not in tests:
            tests.append(row.test)
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(workers)]
        for folder in folders:
            _copy(folder)
        passed: dict[tuple[str, str], str] = {}
        jobs = [Job(tuple(tests), path, {}, None) for (_, path), tests in plain.items()]
        while jobs:
            alone = []
            for job, reports, _ in _run(jobs, folders):
                for test in job.tests:
                    passed[test, job.path] = _outcome(reports, test)
                    ran = any(report["test"] == test for report in reports)
                    if not ran and len(job.tests) > 1:  # one id that does not exist stops them all
                        alone.append(Job((test,), job.path, {}, None))
            jobs = alone
        ready = []
        for row in rows:
            outcome = passed[row.test, row.path]
            if outcome == "passed":
                ready.append(Job((row.test,), row.path, row.sources(ROOT), row))
            elif outcome == "skipped":
                yield row, Result(None, 0.0, "skipped without the mutation")
            else:
                yield row, Result(False, 0.0, f"without the mutation: {outcome}")
        for job, reports, seconds in _run(ready, folders):
            yield job.subject, _judge(job.subject, reports, seconds)


def _preload() -> None:
    """Import third-party packages, so that children need not."""
    assert not any(name.partition(".")[0] == "graphveil" for name in sys.modules), "graphveil is imported"
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)


def _copy(folder: Path) -> None:
    """Copy the package and compile it; bytecode of a changed file is recognized by the hash of the source."""
    shutil.copytree(ROOT / "graphveil", folder / "graphveil", ignore=shutil.ignore_patterns("__pycache__"))
    mode = PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(folder / "graphveil", quiet=2, invalidation_mode=mode)


Reports = list[dict[str, str]]


def _run(jobs: list[Job], folders: list[Path]) -> Iterator[tuple[Job, Reports, float]]:
    """Run jobs, one in each folder at a time, and yield them as they end."""
    waiting, free = list(reversed(jobs)), list(folders)
    running: dict[int, tuple[Job, Path, float]] = {}
    while waiting or running:
        while waiting and free:
            job, folder = waiting.pop(), free.pop()
            _write(folder, job.sources)
            running[_fork(job, folder)] = (job, folder, time.monotonic())
        for child, (job, folder, started) in list(running.items()):
            ended, _ = os.waitpid(child, os.WNOHANG)
            seconds = time.monotonic() - started
            if not ended and seconds < TIMEOUT:
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # also processes that the test left behind
            if not ended:
                os.waitpid(child, 0)
            del running[child]
            free.append(folder)
            _write(folder, {path: (ROOT / path).read_text() for path in job.sources})
            for library in ROOT.glob("graphveil/core/noise/_native.*.so"):
                shutil.copy(library, folder / "graphveil" / "core" / "noise")
            found = folder / "reports.json"
            reports = json.loads(found.read_text()) if found.exists() else []
            if not reports:
                text = f"no result after {seconds:.0f} s\n" + (folder / "output").read_text()[-2000:]
                reports = [{"test": "", "when": "process", "outcome": "failed", "kind": "", "text": text}]
            yield job, reports, seconds
        time.sleep(0.01)


def _write(folder: Path, sources: dict[Path, str]) -> None:
    for path, text in sources.items():
        (folder / path).write_text(text)


def _build(folder: Path) -> None:
    """Build the loops in C of a copy of the package, as ``pyproject.toml`` says."""
    for library in folder.glob("graphveil/core/noise/_native.*.so"):
        compiler, include = sysconfig.get_config_var("CC"), sysconfig.get_paths()["include"]
        flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", f"-I{include}"]
        command = [
            *shlex.split(compiler),
            *flags,
            "graphveil/core/noise/_native.c",
            "-o",
            str(library),
            "-lm",
        ]
        subprocess.run(command, cwd=folder, check=True)


def _fork(job: Job, folder: Path) -> int:
    (folder / "reports.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    child = os.fork()
    if child:
        with suppress(OSError):
            os.setpgid(child, child)
        return child
    try:
        _child(job, folder)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _child(job: Job, folder: Path) -> None:
    """Run pytest with the copy of the package on the path, and write what each test led to."""
    import pytest

    with suppress(OSError):
        os.setpgid(0, 0)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(output), "w") for _ in range(2))
    sys.dont_write_bytecode = True
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    sys.path[:] = [str(folder), *others, str(ROOT)]  # some tests import `tests` from the root
    for name in [name for name in sys.modules if name.partition(".")[0] == "contracts"]:
        del sys.modules[name]  # tests import it again, under pytest's rewriting of assertions
    os.environ.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
    for name in ("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"):
        os.environ.pop(name, None)
    os.chdir(ROOT)
    if job.path == "torch":
        sys.modules["graphveil.core.noise._native"] = None  # type: ignore[assignment]  # what a missing module looks like
    elif any(path.suffix == ".c" for path in job.sources):
        _build(folder)
    plugin = _Reporter()
    flags = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-m", "slow or not slow"]
    pytest.main([*flags, f"--basetemp={folder / 'tmp'}", f"--rootdir={ROOT}", *job.tests], plugins=[plugin])
    home = Path(sys.modules["graphveil"].__file__ or "") if "graphveil" in sys.modules else folder
    if folder.resolve() not in (home.resolve(), *home.resolve().parents):
        plugin.reports = [_failure("", "process", "", f"graphveil was imported from {home}")]
    (folder / "reports.json").write_text(json.dumps(plugin.reports))


def _failure(test: str, when: str, kind: str, text: str) -> dict[str, str]:
    return {"test": test, "when": when, "outcome": "failed", "kind": kind, "text": text}


class _Reporter:
    """Keeps the outcome of every phase of every test."""

    def __init__(self) -> None:
        self.reports: Reports = []
        self._kinds: dict[str, str] = {}

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        self._kinds[report.nodeid] = call.excinfo.typename

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.reports.append(_failure(report.nodeid, "collect", "", report.longreprtext))

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None:
            self._kinds[item.nodeid] = call.excinfo.typename

    def pytest_runtest_logreport(self, report: Any) -> None:
        kind = self._kinds.get(report.nodeid, "") if report.failed else ""
        text = report.longreprtext if report.failed else ""
        where = {"test": report.nodeid, "when": report.when, "outcome": report.outcome}
        self.reports.append({**where, "kind": kind, "text": text})


def _outcome(reports: Reports, test: str) -> str:
    """Return "passed", "skipped", or why a test did neither."""
    own = [report for report in reports if report["test"] == test]
    failed = next((report for report in own if report["outcome"] == "failed"), None)
    if failed is not None:
        return failed["text"][-1500:]
    if any(report["outcome"] == "skipped" for report in own):
        return "skipped"
    if any(report["when"] == "call" for report in own):
        return "passed"
    others = [report["text"] for report in reports if report["when"] in ("collect", "process")]
    return "\n".join(others)[-1500:] or "no such test"


def _judge(row: Row, reports: Reports, seconds: float) -> Result:
    """Decide whether a test failed because of the mutation."""
    failed = next((one for one in reports if one["outcome"] == "failed"), None)
    if failed is None:
        return Result(False, seconds, "the test passed")
    if failed["when"] in ("collect", "process"):
        return Result(False, seconds, f"failed at {failed['when']}: {failed['text'][-1500:]}")
    if row.reason is not None and row.reason not in failed["text"]:
        return Result(False, seconds, f"failed without {row.reason!r}: {failed['text'][-1500:]}")
    if row.reason is None and failed["kind"] not in EXPECTED:
        return Result(False, seconds, f"raised {failed['kind']}: {failed['text'][-1500:]}")
    return Result(True, seconds, failed["text"].strip().splitlines()[-1][:200])
