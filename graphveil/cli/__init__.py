"""The command ``graphveil``: each command is an ordinary typed function.

With ``--json`` a command prints exactly one JSON object to standard output, and all other text to standard
error. Exit codes: 0 success, 1 a run that failed, 2 misuse (nothing was spent or written), 130
stopped with Ctrl-C, 143 with SIGTERM, 129 with SIGHUP.
"""

import atexit
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer

from graphveil import __version__
from graphveil._util import process
from graphveil.cli import (
    attack,
    check,
    collect,
    inspect,
    ledger,
    perturb,
    predict,
    prepare,
    reproduce,
    serve,
    sweep,
    train,
)
from graphveil.cli.failures import ClosedOutput, run_guarded
from graphveil.cli.help import Command, Group
from graphveil.cli.options import with_options

_COMMANDS: tuple[Callable[..., Any], ...] = (
    train.demo,
    inspect.datasets,
    check.check,
    prepare.prepare,
    train.train,
    sweep.sweep,
    inspect.report,
    reproduce.reproduce,
    predict.predict,
    perturb.perturb,
    perturb.compare,
    inspect.calibrate,
    attack.audit,
    inspect.explain,
    serve.serve,
    serve.keys,
)
_GROUPS: dict[str, tuple[str, tuple[Callable[..., Any], ...]]] = {
    "attack": (
        """Attack a finished run.

        Examples:
            graphveil attack linkteller runs/first
            graphveil attack membership runs/first --shadows 8
        """,
        (attack.linkteller, attack.topology, attack.membership, attack.reconstruction, attack.poisoning),
    ),
    "ledger": (
        """Manage the privacy ledger.

        Examples:
            graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6
            graphveil ledger list
        """,
        (
            ledger.init,
            ledger.list_,
            ledger.show,
            ledger.verify,
            ledger.check_runs,
            ledger.export,
            ledger.raise_,
            ledger.unbind,
            ledger.backup,
            ledger.restore,
        ),
    ),
    "collect": (
        """Collect data with local differential privacy.

        Examples:
            graphveil collect protocol --columns age,visits --high 100 --classes yes,no --eps-x 2 --eps-y 1
                --out survey.json
            graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan
                --out reports.csv
        """,
        (collect.protocol, collect.show, collect.randomize, collect.decode, collect.learn),
    ),
}

app = typer.Typer(
    name="graphveil",
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`graphveil COMMAND --help` shows the options and examples of a command.",
)
for _command in _COMMANDS:
    app.command(cls=Command)(with_options(_command))
for _name, (_help, _members) in _GROUPS.items():
    _group = typer.Typer(cls=Group, no_args_is_help=True, help=_help)
    for _command in _members:
        _words = _command.__name__.removesuffix("_").replace("_", "-")
        _group.command(_words, cls=Command)(with_options(_command))
    app.add_typer(_group, name=_name)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphveil {__version__}")
        raise typer.Exit


@app.callback()
def graphveil(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True, metavar=""
        ),
    ] = False,
) -> None:
    """Graph machine learning with differential privacy.

    Examples:
        graphveil demo
        graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1
    """


@cache
def command() -> Any:
    return typer.main.get_command(app)


def _prepare_streams() -> None:
    """Reopen closed standard streams on the null device, and replace characters that cannot be encoded."""
    for number in range(3):
        with suppress(OSError):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # it takes the lowest free number
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def main(arguments: Sequence[str] | None = None) -> None:
    # Threads that wait by spinning make small models many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = run_guarded(command(), given)
    # What is done is done: an interrupt while Python takes itself apart would end in a signal.
    atexit.register(process.ignore_all)
    sys.exit(code)
