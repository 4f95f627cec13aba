"""The command ``graphveil``: each command is an ordinary typed function.

With ``--json`` a command prints exactly one JSON object to standard output, and all other text to standard
error. Exit codes: 0 success, 1 a run that failed, 2 misuse (nothing was spent or written), 130
stopped with Ctrl-C, 143 with SIGTERM, 129 with SIGHUP.
"""

import atexit
import io
import os
import sys
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command_from_info
from typer.models import CommandInfo

from graphveil import __version__
from graphveil._util import process
from graphveil.cli.failures import ClosedOutput, run_guarded
from graphveil.cli.help import Command, Group
from graphveil.cli.options import with_options

# Module and function of each command; the function has the name of the command.
_COMMANDS = (
    "train:demo",
    "inspect:datasets",
    "check:check",
    "prepare:prepare",
    "train:train",
    "sweep:sweep",
    "inspect:report",
    "reproduce:reproduce",
    "predict:predict",
    "perturb:perturb",
    "perturb:compare",
    "inspect:calibrate",
    "attack:audit",
    "inspect:explain",
    "serve:serve",
    "serve:keys",
)
_GROUPS = {
    "attack": (
        """Attack a finished run.

        Examples:
            graphveil attack linkteller runs/first
            graphveil attack membership runs/first --shadows 8
        """,
        ("linkteller", "topology", "membership", "reconstruction", "poisoning"),
    ),
    "ledger": (
        """Manage the privacy ledger.

        Examples:
            graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6
            graphveil ledger list
        """,
        (
            "init",
            "list_",
            "show",
            "verify",
            "check_runs",
            "export",
            "raise_",
            "unbind",
            "backup",
            "restore",
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
        ("protocol", "show", "randomize", "decode", "learn"),
    ),
}


class LazyCommands(Mapping[str, Any]):
    """Commands by name; each is imported on first use."""

    def __init__(self, places: Iterable[str]) -> None:
        functions = ((place, place.partition(":")[2]) for place in places)
        self._places = {name.removesuffix("_").replace("_", "-"): place for place, name in functions}
        self._made = dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module, _, function = self._places[name].partition(":")
            callback = with_options(getattr(import_module(f"graphveil.cli.{module}"), function))
            info = CommandInfo(name, cls=Command, callback=callback)
            self._made[name] = get_command_from_info(
                info, pretty_exceptions_short=False, rich_markup_mode="rich"
            )
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


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
    root: Any = typer.main.get_command(app)
    groups = {
        name: Group(
            name=name,
            commands=LazyCommands(f"{name}:{member}" for member in members),
            help=words,
            no_args_is_help=True,
            rich_markup_mode="rich",
        )
        for name, (words, members) in _GROUPS.items()
    }
    commands: Any = LazyCommands(_COMMANDS)
    root.commands = ChainMap(groups, commands)  # which lists its last map first
    return root


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
