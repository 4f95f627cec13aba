"""Interrupted and failed runs: what is printed, and that they resume to the same bytes."""

import errno
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from command import PRIVATE, QUICK, RELEASE, SECRET, Files, Invoke, Progress, read, write


@pytest.mark.parametrize(("stage", "done"), [("encoder", 15), ("aggregate", 1), ("classifier", 12)])
def test_a_stopped_run_resumes_to_the_same_bytes(
    invoke: Invoke, files: Files, progress: Progress, stage: str, done: int
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, "--set", "epochs=20", "--unsafe-noise-seed", 3]
    invoke(*base, "--out", "whole")
    with progress.stopped_at(stage, done):
        stopped = invoke(*base, "--out", "parts")
        again = invoke(*base, "--out=parts", "--resume")
    assert stopped.code == again.code == 130
    assert "Stopped. Finish the run with: graphveil train gap" in stopped.err
    assert "--out parts --resume" in stopped.err
    assert again.err.rstrip().endswith("--out=parts --resume")  # a flag is not given twice
    assert not Path("parts/release").exists()
    assert invoke(*base, "--out", "parts", "--resume").code == 0
    for name in RELEASE:
        assert Path("whole/release", name).read_bytes() == Path("parts/release", name).read_bytes()


def test_finished_runs_are_not_run_again(invoke: Invoke, files: Files, progress: Progress) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--runs", 2, "--out", "r"]
    with progress.stopped_at("run 2/2 aggregate", 1):
        assert invoke(*base).code == 130
    progress.stages.clear()
    record = invoke(*base, "--resume", "--json").json
    assert progress.stages and not any("run 1/2" in name for name in progress.stages)
    assert len(record["test_accuracy"]["values"]) == 2


@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_resumed_runs_have_the_data_of_the_first(
    invoke: Invoke, files: Files, progress: Progress, tmp_path: Path, table: str
) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--runs", 2, "--out", "r"]
    with progress.stopped_at("run 2/2 classifier", 1):
        assert invoke(*base).code == 130
    path = getattr(files, table)
    whole = read(path)
    write(path, [*whole[:-1], [*whole[-1][:1], *whole[-2][1:]]])
    rejected = invoke(*base, "--resume")
    assert rejected.code == 2
    assert "runs on other data" in rejected.err
    write(path, whole)
    assert invoke(*base, "--resume").code == 0
    assert not list((tmp_path / "state" / "graphveil" / "keys").iterdir())


def test_a_run_without_its_data_key_is_not_resumed(
    invoke: Invoke, files: Files, progress: Progress, tmp_path: Path
) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "r"]
    with progress.stopped_at("classifier", 1):
        assert invoke(*base).code == 130
    (key,) = (tmp_path / "state" / "graphveil" / "keys").iterdir()
    key.unlink()
    rejected = invoke(*base, "--resume")
    assert rejected.code == 2
    assert "is missing, so its runs cannot be resumed" in rejected.err


class Interrupting(io.StringIO):
    """A stream that is interrupted by Ctrl-C when it is written to."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_during_output_does_not_claim_that_nothing_was_spent(
    invoke: Invoke, files: Files
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first"]
    with redirect_stdout(Interrupting()):
        stopped = invoke(*base)
    assert stopped.code == 130
    assert "No privacy budget was spent" not in stopped.err
    assert "--resume" in stopped.err
    assert invoke(*base, "--resume").code == 0


def test_an_interrupt_after_the_end_has_no_effect() -> None:
    late = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    ended = subprocess.run(
        [sys.executable, "-c", f"{late}; from graphveil.cli import main; main(['--version'])"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("graphveil ")


def test_a_complete_run_is_shown_again(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first", "--json"]
    assert invoke(*base).json == invoke(*base, "--resume").json


def test_a_failure_is_one_line_with_a_log_and_a_command(
    invoke: Invoke, files: Files, progress: Progress
) -> None:
    def fail(name: str, position: int) -> None:
        if name == "aggregate":
            raise ZeroDivisionError(SECRET)

    progress.then = fail
    answer = invoke("train gap", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert answer.code == 1
    (line,) = [line for line in answer.err.splitlines() if line.startswith("graphveil: ")]
    assert "ZeroDivisionError" in line
    assert "--resume" in line
    assert SECRET not in answer.err
    assert "Traceback" not in answer.err
    assert "Traceback" in Path("first/internal/error.log").read_text()


def test_a_full_disk_is_reported(invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphveil.publish import release_folder as storage

    def full(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(storage, "write_atomic", full)
    answer = invoke("train mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert answer.code == 1
    assert "The run failed: No space left on device: " in answer.err
    assert "model.safetensors" in answer.err
