"""What goes wrong, as one line on standard error and an exit code; never a traceback, never a data value."""

import json
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphveil.errors import GraphveilError, InputError, MissingDependencyError, PrivacyError

if TYPE_CHECKING:
    from graphveil.privacy import PrivacyLedger

DONE, FAILED, MISUSE, STOPPED = 0, 1, 2, 130
_CHARGED = "the release on this graph's edges was booked and stays charged"
_MISUSE = (InputError, PrivacyError, MissingDependencyError)


class CommandError(Exception):
    """A command ended early: the exit code, the line to print, and the run folder if it can be resumed."""

    def __init__(self, code: int, message: str, kind: str, folder: Path | None = None) -> None:
        """Take what :func:`guarded` tells."""
        super().__init__(message)
        self.code, self.kind, self.folder = code, kind, folder


def guarded(command: Any, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code, printing one line if it fails."""
    try:
        code = command.main(args=list(arguments), prog_name="graphveil", standalone_mode=False)
        if code == STOPPED:  # what typer makes of an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _tell(CommandError(STOPPED, "stopped; nothing was spent", "Stopped"), arguments)
    except Exception as error:
        return _tell(_failure_of(error), arguments)


@contextmanager
def resumable(folder: Path, *, by_flag: bool = True) -> Iterator[None]:
    """Keep the details of a failed run in its internal folder, and let it be told how to finish the run."""
    known = folder if by_flag else None
    try:
        yield
    except (*_MISUSE, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        raise CommandError(STOPPED, "stopped", "Stopped", known) from None
    except Exception as error:
        log = folder / "internal" / "error.log"
        _write_log(log, error)
        what = str(error) if isinstance(error, GraphveilError) else _name(error)
        message = f"the run failed: {what}; details are in {log}"
        raise CommandError(FAILED, message, type(error).__name__, known) from None


@contextmanager
def spending(budget: "PrivacyLedger") -> Iterator[None]:
    """Let a command that ends early say so if a release had been booked by then."""
    before = len(budget.entries)
    try:
        yield
    except KeyboardInterrupt:
        if len(budget.entries) == before:
            raise
        raise CommandError(STOPPED, f"stopped; {_CHARGED}", "Stopped") from None
    except Exception as error:
        if len(budget.entries) == before or isinstance(error, BrokenPipeError):
            raise
        failure = _failure_of(error)
        raise CommandError(FAILED, f"{failure}; {_CHARGED}", failure.kind) from None


def _failure_of(error: Exception) -> CommandError:
    if isinstance(error, CommandError):
        return error
    kind = type(error).__name__
    if isinstance(error, _MISUSE):
        return CommandError(MISUSE, str(error), kind)
    if isinstance(error, GraphveilError):
        return CommandError(FAILED, str(error), kind)
    if hasattr(error, "format_message"):  # what the command-line parser raises
        return CommandError(MISUSE, _usage(error), "UsageError")
    handle, name = tempfile.mkstemp(prefix="graphveil-error-", suffix=".log")
    os.close(handle)
    _write_log(Path(name), error)
    return CommandError(FAILED, f"unexpected failure: {_name(error)}; details are in {name}", kind)


def _usage(error: Any) -> str:
    """Return a usage error with the command whose help explains it."""
    command = error.ctx.command_path if error.ctx else "graphveil"
    message = error.format_message() or "No command was given."
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{command} --help`."


def _name(error: Exception) -> str:
    """Name an unexpected error without its text, which may quote data."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return type(error).__name__


def _tell(failure: CommandError, arguments: Sequence[str]) -> int:
    again = f"; to finish it: {_resume_line(failure.folder, arguments)}" if failure.folder else ""
    line = " ".join(f"{failure}{again}".split())
    print(f"graphveil: {line}", file=sys.stderr)  # noqa: T201 - the one place that reports failures
    if "--json" in arguments:
        record = {"error": {"kind": failure.kind, "message": line, "exit_code": failure.code}}
        print(json.dumps(record))  # noqa: T201 - one JSON object, whatever happens
    return failure.code


def _resume_line(folder: Path, arguments: Sequence[str]) -> str:
    words = ["graphveil", *arguments]
    if "--out" not in arguments:
        words += ["--out", str(folder)]
    if "--resume" not in arguments:
        words += ["--resume"]
    return shlex.join(words)


def _write_log(path: Path, error: Exception) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError:
        return
