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
from graphveil.cli.options import LINK_METHODS, PANELS, PrivacyOptions, descriptions_of
from graphveil.cli.reads import check_options
from graphveil.estimators import METHODS
from graphveil.runs.parameters import model_class

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
_METAVARS = {"Path": "PATH", "int": "N", "float": "NUMBER", "str": "TEXT"}


def examples_text(command: Any) -> str:
    """Return the examples of a command or a group as lines that can be pasted.

    >>> from types import SimpleNamespace
    >>> print(examples_text(SimpleNamespace(examples=["graphveil explain runs/first"])))
    Examples:
      graphveil explain runs/first
    <BLANKLINE>
    """
    shown = ["Examples:"]
    for example in command.examples:
        # Lines break before an option, never between an option and its value.
        kept = re.sub(r" (?!--)", "\0", example)
        lines = textwrap.wrap(kept, 74, break_long_words=False, break_on_hyphens=False)
        shown.append("  " + " \\\n      ".join(lines).replace("\0", " "))
    return "\n".join([*shown, ""])


def _split_docstring(text: str) -> tuple[str, list[str]]:
    """Return the text before the first section of a docstring, and the commands in its examples."""
    summary, *sections = re.split(r"\n\n(?=[A-Z][a-z -]*:\n    )", inspect.cleandoc(text))
    examples = [part.partition(":\n")[2] for part in sections if part.startswith("Examples:")]
    return summary, [" ".join(one.split()) for part in examples for one in re.split(r"\n    (?=\S)", part)]


class Group(TyperGroup):
    """A group of commands, whose help ends with two examples."""

    def __init__(self, **settings: Any) -> None:
        """Separate the examples from the help."""
        settings["help"], self.examples = _split_docstring(settings["help"])
        super().__init__(**settings)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, without the name of a type."""
        option: Any = super().get_help_option(ctx)
        option.metavar, option.help = "", "Show this help."
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the commands, and the examples."""
        super().format_help(ctx, formatter)
        typer.echo(f"\n{examples_text(self)}")


class Command(TyperCommand):
    """A command that rejects a repeated option, and an option in place of a value.

    A second budget must not silently replace the first, and ``--reason --json`` has no reason. Flags that
    take several values, and switches, may be repeated. The help begins with what is required, and ends with
    two examples.
    """

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **settings: Any) -> None:
        """Separate the examples from the help, assign each option to a panel, and sort the panels."""
        settings["help"], self.examples = _split_docstring(settings["help"])
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
        params.sort(key=lambda one: PANELS.index(one.rich_help_panel or PANELS[0]))
        super().__init__(name, params=params, **settings)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, in the last panel."""
        option: Any = super().get_help_option(ctx)
        option.rich_help_panel, option.metavar, option.help = PANELS[-1], "", "Show this help."
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
        typer.echo(f"\n{examples_text(self)}")

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

# Keywords that have a flag of their own, and are not listed.
_FLAGS = {part.name for part in dataclasses.fields(PrivacyOptions)} - {"theta", "target_range"}
_FLAGS |= {"epsilon", "seed", "backend"}


def parameters(method: str) -> dict[str, str]:
    """Return the description of each parameter of a method, by its name and default.

    >>> parameters("gap")["hops=2"]
    'K, the number of aggregations.'
    """
    cls = model_class(method)
    descriptions = descriptions_of(cls, ("Args",))
    listed = dict[str, str]()
    for part in dataclasses.fields(cls):
        if part.init and part.name not in _FLAGS:
            default = "?" if part.default is dataclasses.MISSING else str(part.default).lower()
            text = descriptions[part.name].text if part.name in descriptions else ""
            listed[f"{part.name}={default}"] = text.replace("``", "")
    return listed
