"""Commands: their help, and the rejection of options that have no effect.

The help has panels of options, two examples, and the parameters of a method. A choice on the command line (a
method, a source of data, a privacy unit, a kind of run) declares the options that it reads, and an option
that it does not declare is rejected. A new option of ``train`` is thus rejected by ``links`` and
``recommender`` until it is added to their declarations below.
"""

import dataclasses
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import rich
import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup, TyperOption

from graphveil.cli.failures import begin_command
from graphveil.cli.options import (
    DATA,
    EDGE_LIST,
    LABELS,
    LINK_METHODS,
    LISTS,
    NO_TABLES,
    PANELS,
    PrivacyOptions,
    descriptions_of,
)
from graphveil.core.unit import is_node_level
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS
from graphveil.runs.parameters import model_class
from graphveil.runs.source import PERSON_FILES, PublicFlags

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
    summary, *sections = re.split(r"\n\n(?=[A-Z][a-z -]*:\n    )", inspect.cleandoc(text))
    examples = [part.partition(":\n")[2] for part in sections if part.startswith("Examples:")]
    return summary, [" ".join(one.split()) for part in examples for one in re.split(r"\n    (?=\S)", part)]


class Group(TyperGroup):
    """A group of commands, whose help ends with two examples."""

    def __init__(self, **settings: Any) -> None:
        settings["help"], self.examples = _split_docstring(settings["help"])
        super().__init__(**settings)

    def get_help_option(self, ctx: Any) -> Any:
        option: Any = super().get_help_option(ctx)
        option.metavar, option.help = "", "Show this help."
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        typer.echo(f"\n{examples_text(self)}")


class Command(TyperCommand):
    """A command that rejects a repeated option, and an option in place of a value.

    A second budget must not silently replace the first, and ``--reason --json`` has no reason. Flags that
    take several values, and switches, may be repeated. The help begins with what is required, and ends with
    two examples.
    """

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **settings: Any) -> None:
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
        option: Any = super().get_help_option(ctx)
        option.rich_help_panel, option.metavar, option.help = PANELS[-1], "", "Show this help."
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        if ctx.info_name == "train":
            named = [word for word in ctx.meta.get("words", ()) if word in METHODS or word in LINK_METHODS]
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


Values = Mapping[str, Any]
Names = frozenset[str]
Choice = Callable[[Values], Iterator["Declaration"]]


@dataclass(frozen=True)
class Declaration:
    """A choice on the command line.

    Args:
        among: Options that it decides on; None for all options of the command.
    """

    words: str
    reads: Names
    among: Names | None = None


def check_options(context: Any) -> None:
    given = given_options(context)
    if given:
        for choice in choices(" ".join(context.command_path.split()[1:]), context.params):
            check_choice(choice, given)


def check_choice(choice: Declaration, given: Mapping[str, str]) -> None:
    decided = given.keys() if choice.among is None else given.keys() & choice.among
    unread = [given[name] for name in given if name in decided - choice.reads]
    if unread:
        it = "it" if len(unread) == 1 else "them"
        raise ConfigError(f"{choice.words} does not use {', '.join(unread)}. Remove {it}.")


def given_options(context: Any) -> dict[str, str]:
    """Return the options of a command line, as they are spelled, by their names; none of the environment."""
    found = dict[str, str]()
    for one in context.command.params:
        source = context.get_parameter_source(one.name)
        if isinstance(one, TyperOption) and source is not None and source.name == "COMMANDLINE":
            negated = one.secondary_opts and context.params[one.name] is False
            found[str(one.name)] = (one.secondary_opts if negated else one.opts)[0]
    return found


def choices(command: str, values: Values) -> Iterator[Declaration]:
    for choice in _CHOICES.get(command, ()):  # other commands read all of their options in every case
        yield from choice(values)


def _names(*groups: type) -> Names:
    return frozenset(part.name for group in groups for part in fields(group))


# -- methods -------------------------------------------------------------------------------------------------

_DATA = DATA | LISTS
_KEYWORDS = _names(PrivacyOptions) | {"epsilon"}  # options that are parameters of methods, if these have them
_RUN = frozenset({"set", "seed", "runs", "out", "ledger", "resume", "dry_run", "json"})
_OF_ALL_METHODS = frozenset({"unit", "epsilon", "delta", "max_units"})
_OF_CLASSIFIERS = (
    DATA
    | _names(PublicFlags)
    | _RUN
    | {"recipe", "expect_edges", "backend", "address", "baseline", "track", "include_nonprivate", "jobs"}
)
_PERSONS = frozenset(PERSON_FILES)
_TABLES = DATA.difference(NO_TABLES, ("nodes", "edges", "node_ids", "source", "target", "directed"))
_TABLES -= {"weight", "max_weight"}
_OF_TABLES = _TABLES | _RUN | {"backend", "address", "baseline", "track", "include_nonprivate", "jobs"}
_TABLES_OF_USERS = frozenset(EDGE_LIST) - {"directed"} | LISTS
_TABLES_OF_USERS |= {"unknown_ids", "null_values", "delimiter", "decimal"}
_OF_PAIRS: dict[str, Names] = {
    "links": DATA.difference(LABELS, PERSON_FILES) | _RUN | {"jobs"},
    "recommender": _TABLES_OF_USERS | _RUN | {"jobs"},
}
_OF_METHODS: dict[str, Names] = {"relational": _OF_TABLES, "mlp": _OF_CLASSIFIERS}
_BUDGET = frozenset({"epsilon", "delta", "max_units", "unsafe_noise_seed", "ledger"})


def _of_method(method: str, values: Values) -> Names:
    if method in LINK_METHODS:
        return _OF_PAIRS[method] | (_KEYWORDS & {part.name for part in fields(model_class(method))})
    own = _OF_METHODS.get(method, _OF_CLASSIFIERS - _PERSONS)
    given = {name for name in _KEYWORDS | {"module"} if values.get(name) is not None}
    given -= {name for name in given if values[name] is False}
    if given <= _OF_ALL_METHODS:
        return own | given  # without the import of the method, which takes seconds
    code = {"module"} if ".py:" in (values.get("module") or "") else set[str]()  # which may define the method
    if method not in METHODS:
        return own | _KEYWORDS | code
    cls = METHODS[method]
    known = {part.name for part in fields(cls) if part.init}
    if not cls.is_local(values.get("unit")):
        known -= {"theta"}
    return own | (known & (_KEYWORDS | {"module"})) | code


def _of_data(values: Values) -> Iterator[Declaration]:
    if values.get("dataset") is not None:
        yield Declaration("--dataset", frozenset({"dataset", "root", "task"}), _DATA)
    elif values.get("graph") is not None:
        yield Declaration("--graph", frozenset({"graph", "task"}), _DATA)
    elif _of_persons(values):
        yield Declaration("--persons", _TABLES, _DATA | {"recipe", "expect_edges"} | _names(PublicFlags))
    else:
        yield Declaration("A graph from tables", _DATA - {"root"} - _PERSONS, _DATA)


def _where(option: str, value: object, words: str, *unread: str) -> Choice:
    """Return the choice of a command by an option with a value: some other options then have no effect."""

    def choice(values: Values) -> Iterator[Declaration]:
        if values.get(option) == value:
            yield Declaration(words, frozenset(), frozenset(unread))

    return choice


def _without(words: str, option: str, *unread: str) -> Choice:
    return _where(option, None, f"{words} without --{option.replace('_', '-')}", *unread)


def _train(values: Values) -> Iterator[Declaration]:
    yield Declaration(f"Method {values['method']}", _of_method(values["method"], values))


def _sweep(values: Values) -> Iterator[Declaration]:
    methods = [name.strip() for name in values["methods"].split(",")]
    words = f"Method {methods[0]}" if len(methods) == 1 else f"A sweep of {', '.join(methods)}"
    yield Declaration(words, frozenset().union(*(_of_method(name, values) for name in methods)))


def _calibrate(values: Values) -> Iterator[Declaration]:
    method, unit = values["method"], values["unit"] or ""
    sizes = {"nodes_count", "classes_count", "features_count", "training_count", "labeled_count"}
    reads = _of_method(method, values) & (_KEYWORDS | {"module"})
    if method in LINK_METHODS:
        yield Declaration(f"Method {method}", reads | {"noise_std", "nodes_count", "set", "json"})
    elif method in METHODS:
        yield Declaration(f"Method {method}", reads | sizes | {"noise_std", "set", "json"})
    if is_node_level(unit):
        yield Declaration(f"Unit {unit}", frozenset(), frozenset({"labeled_count"}))
    elif unit:
        yield Declaration(f"Unit {unit}", frozenset(), frozenset({"training_count"}))


# -- runs ----------------------------------------------------------------------------------------------------

_PREDICTED = frozenset({"out", "json"})
_OF_ANOTHER_GRAPH = (
    DATA.difference(NO_TABLES, LABELS, PERSON_FILES)
    | _names(PublicFlags)
    | _PREDICTED
    | {"assume_disjoint_edges", "assume_disjoint_nodes", "allow_spend", "ledger", "backend", "address"}
)


_OF_OTHER_TABLES = _TABLES.difference(LABELS) | _PREDICTED


def _of_persons(values: Values) -> bool:
    return any(values.get(name) for name in PERSON_FILES)


def _predict(values: Values) -> Iterator[Declaration]:
    from graphveil.links import find_link_folder

    found = find_link_folder(values["run"])
    if found is None and not values["run"].is_dir():
        return  # another error
    if found is None and _of_persons(values):
        yield Declaration("--persons", _OF_OTHER_TABLES)
    elif found is None:
        yield Declaration("A run that predicts nodes", _OF_ANOTHER_GRAPH)
        if values["nodes"] is None and values["edges"] is None:
            yield Declaration("A prediction without --nodes and --edges", _PREDICTED)
    elif found.kind == "recommender":
        yield Declaration("A run of recommender", _TABLES_OF_USERS | _PREDICTED | {"top_k"})
    elif values["pairs"] is not None:
        yield Declaration("--pairs", frozenset({"pairs", "source", "target"}) | _PREDICTED)
    else:
        yield Declaration("A run of links", frozenset({"pairs", "top_k"}) | _PREDICTED)


_ATTACKS = ("linkteller", "topology", "membership", "reconstruction", "poisoning")


def _attack(values: Values) -> Iterator[Declaration]:
    from graphveil.runs.run_folder import RunFolder

    data, folder = frozenset({"root", "nodes", "edges"}), RunFolder(values["run"])
    if folder.lock.is_file():
        named = "dataset" in folder.data_options
        words = "A run on a named dataset" if named else "A run on tables"
        yield Declaration(words, frozenset({"root"}) if named else data - {"root"}, data)
    if values.get("sampling") not in (None, "lo", "hi"):
        yield Declaration(f"--sampling {values['sampling']}", frozenset(), frozenset({"cutoff"}))


# -- other commands ------------------------------------------------------------------------------------------


def _of_edges(values: Values) -> Iterator[Declaration]:
    among = frozenset(EDGE_LIST) | {"dataset", "root"}
    if values["dataset"] is not None:
        yield Declaration("--dataset", frozenset({"dataset", "root"}), among)
    else:
        yield Declaration("A graph from tables", among - {"dataset", "root"}, among)


def _compare(values: Values) -> Iterator[Declaration]:
    if values["dataset"] is None and values["nodes"] is None and not Path(values["graphs"][0]).is_file():
        values = {**values, "dataset": values["graphs"][0]}
    yield from _of_edges(values)


def _check(values: Values) -> Iterator[Declaration]:
    if _of_persons(values):
        yield Declaration("--persons", _TABLES, DATA)
    else:
        yield Declaration("check without --persons", DATA - _PERSONS, DATA)
        yield from _without("check", "weight", "max_weight")(values)


def _ledger_init(values: Values) -> Iterator[Declaration]:
    named = ("dataset", "graph", "nodes", "edges")
    if all(values[name] is None for name in named) and not _of_persons(values):
        yield Declaration("ledger init without --dataset, --graph or tables", frozenset(), _DATA)
        return
    yield from _of_data(values)
    unlabeled = values["label"] is None and values["classes"] is None
    if values["nodes"] is not None and unlabeled and not _of_persons(values):
        edge_list = frozenset(EDGE_LIST) | {"delimiter", "decimal"}
        yield Declaration("ledger init without --label and --classes", edge_list, _DATA)


def _reproduce(values: Values) -> Iterator[Declaration]:
    if values["target"] == "list":
        yield Declaration("reproduce list", frozenset({"root", "json"}))


_of_unit = _where("unit", "none", "Unit none", *_BUDGET)
_of_dry_run = _where("dry_run", True, "--dry-run", "ledger", "track")
_CHOICES: dict[str, tuple[Choice, ...]] = {
    # The method mlp is the baseline.
    "train": (_train, _where("method", "mlp", "Method mlp", "baseline"), _of_data, _of_unit, _of_dry_run),
    "sweep": (_sweep, _of_data, _of_unit, _of_dry_run),
    "calibrate": (_calibrate,),
    "predict": (_predict,),
    "perturb": (_of_edges, _of_unit, _of_dry_run, _without("perturb", "private_fraction", "seed")),
    "compare": (_compare,),
    "check": (_check,),
    "reproduce": (_reproduce,),
    "serve": (_without("serve", "rate", "burst"),),
    "ledger init": (_ledger_init,),
    "collect protocol": (
        _without("A protocol", "eps_x", "low", "high", "mechanism", "theta", "set"),
        _without("A protocol", "eps_y", "label_mechanism"),
    ),
    **{f"attack {name}": (_attack,) for name in _ATTACKS},
}
