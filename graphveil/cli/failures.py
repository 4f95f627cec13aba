"""Errors as one line on standard error and an exit code; never a traceback, never a data value."""

import errno
import io
import json
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphveil._util import process
from graphveil._util.escape import one_line, without_password
from graphveil._util.files import write_atomic
from graphveil._util.process import is_out_of_memory as memory_failed
from graphveil.data.tables.options import CHOICES
from graphveil.errors import (
    GraphError,
    GraphveilError,
    InputError,
    MissingDependencyError,
    PrivacyError,
    TableError,
)

if TYPE_CHECKING:
    from graphveil.core.ledger import PrivacyLedger

DONE, FAILED, MISUSE, STOPPED = 0, 1, 2, 130
_CHARGED_MESSAGE = "The privacy budget of this release was spent and cannot be refunded."
_UNSPENT_MESSAGE = "No privacy budget was spent."
_USAGE_ERRORS = (InputError, PrivacyError, MissingDependencyError)
_ENCODING_MESSAGE = (
    "An argument has characters that the locale cannot encode. Either set a locale of UTF-8 "
    "(LC_ALL=C.UTF-8), or choose another name."
)
_UNWRITABLE = "Unwritable"  # the kind of a failure to print what came out
_BROKEN_PIPE = "BrokenPipeError"  # the reader of the pipe has closed it, and needs no more lines
_PATH_ERRNOS = (errno.ENAMETOOLONG, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_REMEDIES = {
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EMFILE: "Close files, or allow more open files (ulimit -n).",
    errno.ENFILE: "Close files, or allow more open files.",
    errno.ENOSPC: "Free some disk space.",
}


class CommandError(Exception):
    """A command ended early: the exit code, the line to print, and the run folder if it can be resumed."""

    def __init__(self, code: int, message: str, kind: str, folder: Path | None = None) -> None:
        super().__init__(message)
        self.code, self.kind, self.folder = code, kind, folder
        self.tables: TableError | None = None  # two tables, and all that is wrong with them


def run_guarded(command: Any, arguments: Sequence[str]) -> int:
    begin_command(None)
    try:
        ending = _run_command(command, arguments)
        return ending if isinstance(ending, int) else _report_failure(ending, arguments)
    finally:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, ValueError):  # what is pending would fail again when Python exits
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(command: Any, arguments: Sequence[str]) -> "CommandError | int":
    try:
        code = command.main(args=list(arguments), prog_name="graphveil", standalone_mode=False)
        if code == STOPPED:  # what typer makes of an interrupt
            raise KeyboardInterrupt
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except (KeyboardInterrupt, typer.Abort):
        return CommandError(STOPPED, f"Stopped. {_UNSPENT_MESSAGE}", "Stopped")
    except Exception as error:
        failure = _to_command_error(error)
        if not process.received() or failure.code == STOPPED:
            return failure
        what = _UNSPENT_MESSAGE if failure.code == MISUSE else str(failure)
        return CommandError(STOPPED, f"Stopped. {what}", "Stopped", failure.folder)


# -- parameters of Python as options -----------------------------------------------------------------------

# Parameters that are called otherwise on the command line: by command, else for all commands.
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "": {
        "user_ids": "nodes",
        "item_ids": "items",
        "k": "top_k",
        "body_bytes": "max_body",
        "disjoint": "overlap",
    },
    "calibrate": {
        "nodes": "nodes_count",
        "classes": "classes_count",
        "dim": "features_count",
        "training": "training_count",
        "labeled": "labeled_count",
    },
    "attack linkteller": {"nodes": "count"},
    "collect randomize": {"path": "secret"},
    "serve": {"under_way": "max_under_way", "epsilon": "allow_releases"},
}
_VALUE = r"""'[^']*'|"[^"]*"|\{[^}]*\}|\(\.\.\.\)|[^\s,;:)('"{]*[^\s,;:.)('"{]"""
_WORDS = re.compile(
    rf"""`graphveil[^`]*`|[\w.-]+\([^()]*=[^()]*\)  # a command, or a name with settings in brackets
    |--[\w-]+(?:[ =](?:'[^']*'|"[^"]*"|[^\s,;)]+))?  # an option
    |(?<![\w.'"|/-])(?P<name>[A-Za-z_]\w*)=(?!=)(?P<value>{_VALUE})?(?:\ \((?:or\ )?(?P<flag>--[^()]*)\))?
    |(?<![\w.'"|/-])(?P<bare>[a-z]\w*)(?:\ \((?P<same>--[\w-]+)\)|(?![\w'"(=.]))""",
    re.VERBOSE,
)
_LITERAL = re.compile(r"""(-?[\d.]+(e[+-]?\d+)?|inf|nan|True|False|None|'.*'|".*"|\(\.\.\.\))?""")
_TWICE = re.compile(r"(--[\w-]+), \1(?![\w-])")
_context: Any = None  # of the command that runs


def begin_command(context: Any) -> None:
    """Store the context of the command that runs, whose options errors name."""
    global _context
    _context = context


def in_options(text: str, parameters: Sequence[str] = ()) -> str:
    """Return an error message in which parameters of Python are options of the command that runs.

    Args:
        parameters: Names of parameters that a check rejected, which are rewritten in any case.

    >>> in_options("k=59 must lie between 1 and 12", ["k"])
    'k 59 must lie between 1 and 12'
    """
    options, settings = dict[str, Any](), frozenset[str]()
    if _context is not None:
        options = {str(one.name): one for one in _context.command.params}
        command = " ".join(_context.command_path.split()[1:])
        known = _OTHER_NAMES[""] | _OTHER_NAMES.get(command, {})
        options |= {name: options[other] for name, other in known.items() if other in options}
        settings = _settings(_context.params) if "set" in options else settings

    def spelled(match: re.Match[str]) -> str:
        name, value, flag = match["name"], match["value"] or "", match["flag"]
        if match["bare"] is not None:
            return _spelled_word(match, options)
        known = name in {*options, *settings, *parameters} or _LITERAL.fullmatch(value)
        if name is None or not (known or flag):
            return match[0]
        if flag is not None:
            return flag
        if value[:1] in ("'", '"') and re.fullmatch(r"[\w.,:/#+-]+", value[1:-1]):
            value = value[1:-1]
        if name not in options:
            return f"--set {name}={value or '..'}" if name in settings else f"{name} {value}".rstrip()
        option = options[name]
        if not option.opts[0].startswith("-"):  # an argument
            return f"{option.metavar or name} {value}".rstrip()
        if option.secondary_opts and value == "False":
            return str(option.secondary_opts[0])
        if getattr(option, "is_flag", False) or value in ("", "None", "(...)"):
            return str(option.opts[0])
        return f"{option.opts[0]} {value}"

    return _TWICE.sub(r"\1", _WORDS.sub(spelled, text))


def _spelled_word(match: re.Match[str], options: dict[str, Any]) -> str:
    """Return a word without a value: the option of a parameter, if it can only be its name."""
    name, flag = match["bare"], match["same"]
    own = name in options and flag in options[name].opts
    if flag is not None and (own or flag[2:].replace("-", "_") == name):
        return str(flag)
    if "_" not in name or name not in options:
        return match[0]
    return str(options[name].opts[0]) + (f" ({flag})" if flag else "")


def _settings(values: dict[str, Any]) -> frozenset[str]:
    from graphveil.cli.options import LINK_METHODS
    from graphveil.estimators import METHODS
    from graphveil.estimators.saved import parameter_types
    from graphveil.runs.parameters import model_class

    given = {text.partition("=")[0] for text in values["set"] or ()}
    named = str(values.get("method") or values.get("methods") or "").split(",")
    known = [name for name in map(str.strip, named) if name in LINK_METHODS or name in METHODS]
    return frozenset(given.union(*(parameter_types(model_class(name)) for name in known)))


def words_of(error: GraphveilError) -> str:
    return in_options(str(error), error.parameters)


def unwritable_output_error(error: Exception | None) -> CommandError:
    """Return the error of an unwritable standard output; without a cause it was closed from the start."""
    why = "it is closed" if not isinstance(error, OSError) else error.strerror
    kind = _BROKEN_PIPE if isinstance(error, BrokenPipeError) else _UNWRITABLE
    return CommandError(FAILED, f"Cannot write to standard output: {why}.", kind)


def sentence(text: object) -> str:
    """Return a text with a final period.

    >>> sentence("no such file"), sentence("Done.")
    ('no such file.', 'Done.')
    """
    return str(text) if str(text).endswith((".", "?")) else f"{text}."


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the command started: writing to it fails."""

    def write(self, text: str) -> int:
        raise unwritable_output_error(None)


@contextmanager
def report_output_failure(where: Path | None, *, again: bool = False) -> Iterator[None]:
    """Print results; a failure to print is an error, and does not undo what was saved."""
    try:
        yield
    except CommandError as error:
        if where is None or error.kind not in (_UNWRITABLE, _BROKEN_PIPE):
            raise
        how = " Add --resume to print them again." if again else ""
        done = f"{error} The results are complete in {where}.{how}"
        raise CommandError(FAILED, done, _UNWRITABLE) from None


@contextmanager
def explain_resume_on_failure(
    folder: Path, budget: "PrivacyLedger | None" = None, *, by_flag: bool = True
) -> Iterator[None]:
    """Write the details of a failed run to its internal folder, and print how to resume the run.

    Any error after this run charged the ledger is a failure: exit code 2 means that it spent nothing. Charges
    of other processes do not count.
    """
    from graphveil.core.ledger import own_releases

    known = folder if by_flag else None
    before = frozenset[str]() if budget is None else own_releases(budget)
    try:
        yield
    except CommandError:
        raise
    except _USAGE_ERRORS as error:
        if budget is None or own_releases(budget) == before:
            raise
        message = f"The run failed: {sentence(words_of(error))} {_CHARGED_MESSAGE}"
        raise CommandError(FAILED, message, type(error).__name__, known) from None
    except KeyboardInterrupt:
        raise CommandError(STOPPED, "Stopped.", "Stopped", known) from None
    except Exception as error:
        log = folder / "internal" / "error.log"
        _write_log(log, error)
        what = words_of(error) if isinstance(error, GraphveilError) else _safe_name(error)
        message = f"The run failed: {sentence(what)} Details: {log}."
        raise CommandError(FAILED, message, type(error).__name__, known) from None


@contextmanager
def report_charge_on_failure(budget: "PrivacyLedger", charged: str = _CHARGED_MESSAGE) -> Iterator[None]:
    """Let a command that ends early print what it had charged by then, and exit with 1."""
    from graphveil.core.ledger import own_releases

    before = own_releases(budget)
    try:
        yield
    except KeyboardInterrupt:
        if own_releases(budget) == before:
            raise
        raise CommandError(STOPPED, f"Stopped. {charged}", "Stopped") from None
    except Exception as error:
        if own_releases(budget) == before:
            raise
        failure = _to_command_error(error)
        raise CommandError(FAILED, f"{sentence(failure)} {charged}", failure.kind) from None


_NO_MODE = (
    "There is no option --mode. A method as published, without a valid guarantee, has a name of its own that "
    "ends in -paper: gap-paper for gap, arr-paper for the mechanism arr."
)


def _to_command_error(error: Exception) -> CommandError:
    if isinstance(error, CommandError):
        return error
    kind = type(error).__name__
    if isinstance(error, TableError):
        rejected = CommandError(MISUSE, in_options(error.words), GraphError.__name__)
        rejected.tables = error
        return rejected
    if isinstance(error, _USAGE_ERRORS):
        return CommandError(MISUSE, words_of(error), kind)
    if isinstance(error, GraphveilError):
        return CommandError(FAILED, words_of(error), kind)
    if hasattr(error, "format_message"):  # what the command-line parser raises
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "graphveil"
        message = error.format_message() or "No command was given."
        if getattr(error, "option_name", None) == "--mode":
            message = _NO_MODE
        return CommandError(MISUSE, f"{sentence(message)} See `{command} --help`.", "UsageError")
    if isinstance(error, BrokenPipeError):
        return unwritable_output_error(error)
    if isinstance(error, UnicodeEncodeError):  # an argument that the locale cannot encode
        return CommandError(MISUSE, _ENCODING_MESSAGE, kind)
    if isinstance(error, OSError) and error.strerror:
        code = MISUSE if error.errno in _PATH_ERRNOS else FAILED
        remedy = _REMEDIES.get(
            error.errno or 0, "Check that the folder exists and that you have access to it."
        )
        return CommandError(code, f"{_safe_name(error)}. {remedy}", kind)
    details = ""
    with suppress(OSError):
        handle, name = tempfile.mkstemp(prefix="graphveil-error-", suffix=".log")
        os.close(handle)
        _write_log(Path(name), error)
        details = f" Details: {name}."
    return CommandError(FAILED, f"Unexpected error: {_safe_name(error)}.{details}", kind)


def _safe_name(error: Exception) -> str:
    """Name an unexpected error without its text, which may quote data."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if memory_failed(error):
        return "not enough memory, close other programs or use a larger machine"
    few_files = os.strerror(errno.EMFILE)  # torch reports this in the error message alone
    return few_files if few_files in str(error) else type(error).__name__


def _report_failure(ending: CommandError, arguments: Sequence[str]) -> int:
    if ending.code == STOPPED:
        ending.code = process.exit_code()
    if ending.kind == _BROKEN_PIPE:
        return ending.code
    arguments = [without_password(word) for word in arguments]  # what is shown lands in logs
    message, known = without_password(str(ending)), dict[str, Any]()
    if ending.folder:
        words = ["graphveil", *arguments]
        if not any(word.partition("=")[0] == "--out" for word in arguments):
            words += ["--out", str(ending.folder)]
        words += [] if "--resume" in arguments else ["--resume"]
        message = f"{sentence(message)} Finish the run with: {shlex.join(words)}"
    if ending.tables is not None:
        flags, problems = ending.tables.flags, [in_options(one) for one in ending.tables.problems]
        command = None if flags is None else suggested_command(arguments, flags)
        known = {"problems": problems, "command": command}
        message = f"{sentence(message)} Suggested command: {command}" if command else message
    line = one_line(message)
    if len(known.get("problems", ())) > 1:
        _print_line(f"graphveil: {len(problems)} errors in these tables. {_UNSPENT_MESSAGE}")
        for number, words_of_one in enumerate(problems, start=1):
            _print_line(f"  {number}. {one_line(words_of_one)}")
        remedy = "Correct the tables, or the options that name columns."
        _print_line(f"graphveil: {one_line(f'Suggested command: {command}' if command else remedy)}")
    else:
        _print_line(f"graphveil: {line}")
    if "--json" in arguments and ending.kind != _UNWRITABLE:
        record = {"error": {"kind": ending.kind, "message": line, "exit_code": ending.code, **known}}
        with suppress(OSError, ValueError, CommandError):
            print(json.dumps(record), flush=True)  # noqa: T201 - one JSON object in every case
    return ending.code


def _print_line(line: str) -> None:
    if sys.stderr is not None:  # print() would take standard output instead
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr)  # noqa: T201 - the one place for failures


def _write_log(path: Path, error: Exception) -> None:
    """Write a traceback without the error messages, which may quote data."""
    try:
        write_atomic(path, "".join(_format_traceback(error)).encode())
    except OSError:
        return


def _format_traceback(error: BaseException) -> Iterator[str]:
    """Yield the source locations that led to an error, with the errors that caused it."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _format_traceback(before)
        yield "\nthen:\n\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"


_CHOICE_FLAGS = tuple(f"--{name.replace('_', '-')}" for name in CHOICES)


def suggested_command(arguments: Sequence[str], flags: Sequence[str]) -> str:
    """Return a command line with the given choices instead of its own ones.

    >>> suggested_command(["train", "gap", "--drop", "a", "--json"], ["--drop", "a,b"])
    'graphveil train gap --json --drop a,b'
    """
    kept, skip = list[str](), False
    for word in arguments:
        if skip:
            skip = False
        elif word in _CHOICE_FLAGS:
            skip = True
        elif word.partition("=")[0] not in _CHOICE_FLAGS:
            kept.append(word)
    return shlex.join(["graphveil", *kept, *flags])
