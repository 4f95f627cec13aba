"""`graphveil train METHOD --help`: the flags of the command, and below them the method's own parameters."""

import dataclasses
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import typer

from graphveil.cli.command import Command
from graphveil.estimators import METHODS

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator

_FLAGS = ("unit", "epsilon", "delta", "mode", "seed", "max_units", "out_degree_bound", "max_degree")
_SKIPPED = {*_FLAGS, "replace_one", "private_metrics", "unsafe_noise_seed", "perturb", "max_edges"}
_ENTRY = re.compile(r"^([a-z_][a-z_0-9, ]*): (.*)$")


class MethodCommand(Command):
    """A command whose help ends with the parameters of the method that it names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the words before they are read, since --help is answered first."""
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the flags, and the method's parameters if one is named."""
        super().format_help(ctx, formatter)
        named = [word for word in ctx.meta.get("words", ()) if word in METHODS]
        if named:
            typer.echo(parameters_page(named[0]))
        else:
            typer.echo("`graphveil train METHOD --help` lists the parameters of a method for --set.\n")


def parameters_page(method: str) -> str:
    """Return a method's parameters as --set takes them: name, default and what it is.

    >>> "  hops=2  K, the number of aggregations." in parameters_page("gap")
    True
    """
    cls = METHODS[method]
    descriptions = _parameter_descriptions(cls)
    lines = [f"Parameters of {method}, for --set NAME=VALUE:"]
    for part in dataclasses.fields(cls):
        if part.init and part.name not in _SKIPPED:
            default = "?" if part.default is dataclasses.MISSING else str(part.default).lower()
            text = f"{part.name}={default}  {descriptions.get(part.name, '')}".rstrip()
            lines += textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="      ")
    return "\n".join([*lines, ""])


def _parameter_descriptions(cls: "type[Estimator]") -> dict[str, str]:
    """Return what the docstrings of a class and of those below it say of each argument."""
    descriptions = dict[str, str]()
    for base in reversed(cls.__mro__):
        descriptions |= _arguments(inspect.cleandoc(base.__doc__ or ""))
    return descriptions


def _arguments(page: str) -> dict[str, str]:
    """Read the part "Args:" of a docstring."""
    _, found, rest = page.partition("Args:\n")
    descriptions, names = dict[str, str](), list[str]()
    for line in rest.splitlines() if found else ():
        if line and not line.startswith(" "):
            break
        entry = _ENTRY.match(line[4:]) if line.startswith("    ") and not line.startswith("     ") else None
        if entry is not None:
            names = [name.strip() for name in entry[1].split(",")]
            descriptions |= dict.fromkeys(names, entry[2])
        elif names and line.strip():
            descriptions |= {name: f"{descriptions[name]} {line.strip()}" for name in names}
        elif not line.strip():
            names = []
    return {name: text.replace("``", "").replace(":class:", "") for name, text in descriptions.items()}
