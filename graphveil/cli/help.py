"""The help of commands: panels of options, two examples, and the parameters of a method."""

import dataclasses
import inspect
import re
import textwrap
from collections import Counter
from typing import Any

import rich
import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup, TyperOption

from graphveil.cli.failures import begin_command
from graphveil.cli.options import LINK_METHODS
from graphveil.cli.reads import check_options
from graphveil.estimators import METHODS

# Options that a command cannot do without, or of which it needs one group: help shows them first.
_REQUIRED = {
    "train": ("unit", "epsilon", "dataset", "nodes", "edges", "id", "label", "source", "target"),
    "sweep": ("unit", "epsilon", "dataset", "nodes", "edges", "id", "label", "source", "target"),
    "perturb": ("unit", "epsilon", "dataset", "nodes", "edges", "id", "source", "target"),
    "calibrate": ("unit", "epsilon"),
    "check": ("nodes", "edges"),
    "prepare": ("nodes", "edges", "id", "source", "target", "out"),
    "init": ("unit",),
    "raise": ("unit", "epsilon", "delta", "reason"),
}
_PANELS = (
    *("Options", "Required", "Data", "Table columns", "Unit edge-subset", "Collection", "Files", "Privacy"),
    *("Attack", "Server", "Training", "Run", "Output"),
)
_METAVARS = {"Path": "PATH", "int": "N", "float": "NUMBER", "str": "TEXT"}

EXAMPLES: dict[str, tuple[str, str]] = {
    "": (
        "graphveil demo",
        "graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1",
    ),
    "attack": (
        "graphveil attack linkteller runs/first",
        "graphveil attack membership runs/first --shadows 8",
    ),
    "ledger": (
        "graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6",
        "graphveil ledger list",
    ),
    "collect": (
        "graphveil collect protocol --columns age,visits --high 100 --classes yes,no --eps-x 2 --eps-y 1 "
        "--out survey.json",
        "graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan "
        "--out reports.csv",
    ),
    "demo": ("graphveil demo", "graphveil demo --epsilon 2 --out runs/demo"),
    "datasets": ("graphveil datasets", "graphveil datasets synthetic/demo"),
    "check": (
        "graphveil check --nodes nodes.csv --edges edges.csv --label plan",
        "graphveil check --nodes nodes.csv --edges edges.csv --label plan --unit node-record",
    ),
    "prepare": (
        "graphveil prepare --nodes nodes.csv --edges edges.csv --id user --label plan --source a --target b "
        "--out graph",
        "graphveil prepare --nodes nodes.parquet --edges 'part-*.parquet' --id user --label plan --source a "
        "--target b --memory 4GB --out graph",
    ),
    "train": (
        "graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1",
        "graphveil train gnn --module sage --dataset synthetic/demo --unit node-record --epsilon 8",
    ),
    "sweep": (
        "graphveil sweep classcode,gap --dataset synthetic/demo --unit undirected-edge --epsilon 1,4 "
        "--out sweep",
        "graphveil sweep gap --dataset synthetic/demo --unit undirected-edge --epsilon 1 --set hops=1,2 "
        "--out sweep",
    ),
    "report": ("graphveil report runs/first runs/second", "graphveil report runs/first --out first.html"),
    "reproduce": ("graphveil reproduce list", "graphveil reproduce gap:table2 --quick"),
    "predict": (
        "graphveil predict runs/first --out predictions.parquet",
        "graphveil predict runs/links --top-k 10 --out best.csv",
    ),
    "perturb": (
        "graphveil perturb edge-rand --dataset synthetic/demo --unit undirected-edge --epsilon 4 --out noisy",
        "graphveil perturb lap-graph --dataset synthetic/demo --unit undirected-edge --epsilon 4 --out noisy",
    ),
    "compare": (
        "graphveil compare synthetic/demo noisy",
        "graphveil compare synthetic/demo noisy --sources 256",
    ),
    "calibrate": (
        "graphveil calibrate gap --unit undirected-edge --epsilon 1 --delta 1e-6",
        "graphveil calibrate gap --unit undirected-edge --noise-std 4 --delta 1e-6",
    ),
    "audit": ("graphveil audit runs/first", "graphveil audit runs/first --pairs 20"),
    "explain": ("graphveil explain runs/first", "graphveil explain runs/first --json"),
    "serve": ("graphveil serve runs/first", "graphveil serve runs/first --port 8080 --keys keys.json"),
    "keys": ("graphveil keys keys.json", "graphveil keys keys.json --subject alice --subject bob"),
    "attack linkteller": (
        "graphveil attack linkteller runs/first",
        "graphveil attack linkteller runs/first --count 200 --sampling balanced",
    ),
    "attack topology": (
        "graphveil attack topology runs/first",
        "graphveil attack topology runs/first --seed 1",
    ),
    "attack membership": (
        "graphveil attack membership runs/first",
        "graphveil attack membership runs/first --shadows 8",
    ),
    "attack reconstruction": (
        "graphveil attack reconstruction runs/local",
        "graphveil attack reconstruction runs/local --seed 1",
    ),
    "attack poisoning": (
        "graphveil attack poisoning runs/local --share 0.05",
        "graphveil attack poisoning runs/local --share 0.05 --hubs",
    ),
    "ledger init": (
        "graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6",
        "graphveil ledger init users --unit node-record --epsilon 8 --delta 1e-6",
    ),
    "ledger list": ("graphveil ledger list", "graphveil ledger list --json"),
    "ledger show": ("graphveil ledger show users", "graphveil ledger show users --last 20"),
    "ledger verify": ("graphveil ledger verify", "graphveil ledger verify users"),
    "ledger check-runs": ("graphveil ledger check-runs runs", "graphveil ledger check-runs runs/first"),
    "ledger export": (
        "graphveil ledger export users --out users.jsonl",
        "graphveil ledger export users --out users.jsonl --json",
    ),
    "ledger raise": (
        "graphveil ledger raise users --unit undirected-edge --epsilon 6 --delta 1e-6 --reason approved",
        "graphveil ledger raise users --unit node-record --epsilon 10 --delta 1e-6 --reason approved",
    ),
    "ledger unbind": ("graphveil ledger unbind users", "graphveil ledger unbind users --json"),
    "ledger backup": (
        "graphveil ledger backup backup.sqlite",
        "graphveil ledger backup backup.sqlite --json",
    ),
    "ledger restore": (
        "graphveil ledger restore backup.sqlite",
        "graphveil ledger restore backup.sqlite --runs runs",
    ),
    "collect protocol": (
        "graphveil collect protocol --columns age,visits --high 100 --eps-x 2 --out survey.json",
        "graphveil collect protocol --dim 8 --classes yes,no --eps-x 2 --eps-y 1 --out survey.json",
    ),
    "collect show": ("graphveil collect show survey.json", "graphveil collect show survey.json --json"),
    "collect randomize": (
        "graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan "
        "--out reports.csv",
        "graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan "
        "--max-eps 3 --out reports.csv",
    ),
    "collect decode": (
        "graphveil collect decode --protocol survey.json --reports reports.csv --id user --out nodes.csv",
        "graphveil collect decode --protocol survey.json --reports reports.csv --id user --skip-bad "
        "--out nodes.csv",
    ),
    "collect learn": (
        "graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv "
        "--source a --target b --out model",
        "graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv "
        "--source a --target b --method simgat --out model",
    ),
}


def examples_text(command: str) -> str:
    """Return the examples of a command or a group as lines that can be pasted.

    >>> print(examples_text("explain"))
    Examples:
      graphveil explain runs/first
      graphveil explain runs/first --json
    <BLANKLINE>
    """
    shown = ["Examples:"]
    for example in EXAMPLES[command]:
        # Lines break before an option, never between an option and its value.
        kept = re.sub(r" (?!--)", "\0", example)
        lines = textwrap.wrap(kept, 74, break_long_words=False, break_on_hyphens=False)
        shown.append("  " + " \\\n      ".join(lines).replace("\0", " "))
    return "\n".join([*shown, ""])


class Group(TyperGroup):
    """A group of commands, whose help ends with two examples."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, without the name of a type."""
        option: Any = super().get_help_option(ctx)
        option.metavar, option.help = "", "Show this help."
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the commands, and the examples."""
        super().format_help(ctx, formatter)
        typer.echo(f"\n{examples_text(ctx.command_path.partition(' ')[2])}")


class Command(TyperCommand):
    """A command that rejects a repeated option, and an option in place of a value.

    A second budget must not silently replace the first, and ``--reason --json`` has no reason. Flags that
    take several values, and switches, may be repeated. The help begins with what is required, and ends with
    two examples.
    """

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **settings: Any) -> None:
        """Assign each option to a panel, and sort the panels."""
        required, params = _REQUIRED.get(name or "", ()), params or []
        for one in params:
            if isinstance(one, TyperOption):
                if one.required or one.name in required:
                    one.rich_help_panel = "Required"
                elif one.rich_help_panel is None:
                    one.rich_help_panel = "Options"
                # Typer's own names are Python types, such as <bool> for a switch; choices list their values.
                if one.metavar is None and not one.type_descriptor.is_choice:
                    kind = getattr(one.type_descriptor.annotation, "__name__", "")
                    one.metavar = "" if one.is_flag else _METAVARS.get(kind, "VALUE")
        # Typer shows panels in the order of their first options; both sorts are stable.
        params.sort(key=lambda one: required.index(one.name) if one.name in required else len(required))
        params.sort(key=lambda one: _PANELS.index(one.rich_help_panel or _PANELS[0]))
        super().__init__(name, params=params, **settings)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, in the last panel."""
        option: Any = super().get_help_option(ctx)
        option.rich_help_panel, option.metavar, option.help = _PANELS[-1], "", "Show this help."
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the options, the parameters of a method if `train` names one, and the examples."""
        super().format_help(ctx, formatter)
        if ctx.info_name == "train":
            named = [word for word in ctx.meta.get("words", ()) if word in (*METHODS, *LINK_METHODS)]
            if named:
                table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
                table.add_column(overflow="fold", style="cyan bold")
                table.add_column()
                for assignment, description in parameters(named[0]).items():
                    table.add_row(Text(assignment), Text(description))
                title = f"Parameters of {named[0]}, set with --set"
                rich.print(Panel(table, title=title, title_align="left", border_style="dim"))
            else:
                typer.echo("\nRun `graphveil train METHOD --help` for the parameters of a method (--set).")
        # Not as Typer's epilog, which would wrap a command into lines that cannot be pasted.
        typer.echo(f"\n{examples_text(ctx.command_path.partition(' ')[2])}")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after counting each option."""
        ctx.meta["words"] = list(args)  # for --help, which ends the parsing
        self._check_values(ctx, args)
        # The parser lists an option once for each time that it is given; the values alone show the last one.
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option, count in Counter(order).items():
            if count == 1 or not isinstance(option, TyperOption) or option.multiple:
                continue
            if not option.is_flag or option.secondary_opts:  # a switch without an opposite may be repeated
                ctx.fail(f"{option.opts[0]} is given more than once; keep one.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, after rejecting options that it would not read."""
        begin_command(ctx)
        check_options(ctx)
        return super().invoke(ctx)

    def _check_values(self, ctx: Any, args: list[str]) -> None:
        """Reject an option whose value is missing, so that the next option would be read as the value."""
        options = [one for one in self.get_params(ctx) if isinstance(one, TyperOption)]
        names = {name for one in options for name in (*one.opts, *one.secondary_opts)}
        valued = {name for one in options if not one.is_flag and not one.count for name in one.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                return
            following = next(words, None) if word in valued else None
            if following is not None and (following.startswith("--") or following in names):
                ctx.fail(
                    f"{word} needs a value, and the next word is {following}. Write {word}={following} if "
                    "that is the value."
                )


# -- the parameters of a method --------------------------------------------------------------------------

# Keywords that have a flag of their own.
_FLAGS = {
    *("unit", "epsilon", "delta", "mode", "seed", "max_units", "out_degree_bound", "max_degree", "backend"),
    *(
        "replace_one",
        "private_metrics",
        "unsafe_noise_seed",
        "perturb",
        "max_edges",
        "metric",
        "class_weight",
        "positive",
    ),
}
_ENTRY = re.compile(r"^([a-z_][a-z_0-9, ]*): (.*)$")


def parameters(method: str) -> dict[str, str]:
    """Return the description of each parameter of a method, by its name and default.

    >>> parameters("gap")["hops=2"]
    'K, the number of aggregations.'
    """
    cls: Any
    if method in LINK_METHODS:
        from graphveil.links import link_model_class

        cls = link_model_class(method)
    else:
        cls = METHODS[method]
    descriptions = dict[str, str]()
    for base in reversed(cls.__mro__):  # a class may describe an argument better than those it derives from
        _, found, rest = inspect.cleandoc(base.__doc__ or "").partition("Args:\n")
        names = list[str]()
        for line in rest.splitlines() if found else ():
            if line and not line.startswith(" "):
                break
            first = line.startswith("    ") and not line.startswith("     ")
            entry = _ENTRY.match(line[4:]) if first else None
            if entry is not None:
                names = [name.strip() for name in entry[1].split(",")]
                descriptions |= dict.fromkeys(names, entry[2])
            elif names and line.strip():
                descriptions |= {name: f"{descriptions[name]} {line.strip()}" for name in names}
            elif not line.strip():
                names = []
    listed = dict[str, str]()
    for part in dataclasses.fields(cls):
        if part.init and part.name not in _FLAGS:
            default = "?" if part.default is dataclasses.MISSING else str(part.default).lower()
            listed[f"{part.name}={default}"] = descriptions.get(part.name, "").replace("``", "")
    return listed
