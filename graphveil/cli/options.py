"""Options of commands, made from the signatures and docstrings of functions and keyword dataclasses.

A command is an ordinary typed function. Its positional parameters are arguments, and its keyword parameters
options. A parameter that is a dataclass stands for one option per field. Each section of a docstring that is
called as a panel of the help describes the options in it: ``name (METAVAR): Text.`` The docstring of a module
describes the options that its commands share.
"""

import copy
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from annotated_types import Ge

from graphveil.errors import ConfigError
from graphveil.estimators import METHODS
from graphveil.runs.source import PERSON_FILES, DataOptions

Result = TypeVar("Result")

LINK_METHODS = ("links", "recommender")  # models of pairs, which are no classifiers
PANELS = (
    *("Options", "Required", "Data", "Table columns", "Unit edge-subset", "Collection", "Files", "Privacy"),
    *("Attack", "Server", "Training", "Run", "Output"),
)


def _as_typed(text: str | None) -> str | None:
    """Decode a file name in UTF-8, as it was typed, if the locale has another encoding."""
    unknown = text is not None and any("\ud800" <= letter <= "\udfff" for letter in text)
    return os.fsencode(text).decode("utf-8", "surrogateescape") if text and unknown else text


def check_not_existing(path: Path, why: str) -> None:
    """Raise an error if an output exists or cannot be created, before a budget is spent on it."""
    from graphveil._util.files import can_create

    if path.exists():
        raise ConfigError(f"{path} already exists. {why}")
    if not can_create(path):
        raise ConfigError(f"Cannot create {path}. Choose another path.")


# -- docstrings -----------------------------------------------------------------------------------------


class Description(NamedTuple):
    """What a docstring says about a parameter: its section, the name of its value, and a text."""

    section: str
    metavar: str | None
    text: str


_ENTRY = re.compile(r"([a-z_][a-z_0-9, ]*?)(?: \(([^ )][^)]*)\))?: (.*)")


def described(documented: Any, sections: tuple[str, ...] = ("Args", *PANELS)) -> dict[str, Description]:
    """Return the parameters that a docstring describes in these sections.

    >>> def shown(width: int) -> None: "Show.\\n\\nArgs:\\n    width (N): Size in pixels."
    >>> described(shown)
    {'width': Description(section='Args', metavar='N', text='Size in pixels.')}
    """
    found, section, names = dict[str, Description](), "", list[str]()
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.fullmatch(line.strip()) if indent == 4 and section in sections else None
        if line and not indent:
            section, names = line.removesuffix(":"), []
        elif entry is not None:
            names = [name.strip() for name in entry[1].split(",")]
            found |= dict.fromkeys(names, Description(section, entry[2], entry[3]))
        elif not line:
            names = []
        for name in names if entry is None else ():
            found[name] = found[name]._replace(text=f"{found[name].text} {line.strip()}")
    return found


def descriptions_of(kind: type, sections: tuple[str, ...] = ("Args", *PANELS)) -> dict[str, Description]:
    """Return the parameters of a class; a class may describe one better than those it derives from."""
    found = dict[str, Description]()
    for base in kind.__mro__:
        found |= {name: one for name, one in described(base, sections).items() if name not in found}
    return found


# -- options that several commands share -----------------------------------------------------------------

AnyMethod = Annotated[str, typer.Argument(help=f"Method: {', '.join((*METHODS, *LINK_METHODS))}.")]
OneOrMore = Annotated[int, Ge(1)]


class SharedOptions:
    """Text of the parameters that several commands have, unless a command describes its own.

    Args:
        method (METHOD): Method.
        run (RUN): Run folder, or a copy of its release/ folder.

    Privacy:
        epsilon: Privacy budget epsilon. Required, except for units none and local-attributes.
        ledger (NAME|URL|URL#NAME): Ledger account to charge: a name in your ledger, or a database URL and a
            name. Default: the account of these data in your ledger.

    Training:
        recipe (NAME): Preprocessing and split: gap (default), lpgnn, weighted, planetoid.
        module (NAME): Architecture that gnn trains (sage, gcn, gat, gin), or FILE.py:NAME with your own
            module or method. A method's name is then METHOD. The file is executed.
        runs: Number of runs, each with its own split.
        seed: Random seed of splits, initial weights and batches, never of the noise.
        set (NAME=VALUE): Parameter of the method, listed by `graphveil train METHOD --help`. Repeatable.

    Run:
        backend (NAME): Aggregation backend: memory, disk, ray (disk needs --graph). Does not affect results.
        address (HOST:PORT): Address of the Ray cluster. Default: RAY_ADDRESS, or this machine.
        out (FOLDER): Run folder to write. Default: a new folder in runs/.
        dry_run: Print the plan and its privacy cost only. Nothing is spent or written.

    Output:
        json: Print one JSON object to standard output.
    """


EDGE_LIST = ("nodes", "edges", "id", "source", "target", "directed")
LABELS = ("split", "classes", "task")
NO_TABLES = ("dataset", "root", "graph")
LISTS = frozenset({"items", "rating", "min_rating"})
DATA = frozenset(descriptions_of(DataOptions, PANELS)) - LISTS
# What commands read of the options of data.
AnyData = Annotated[DataOptions, DATA]
DataOrLists = Annotated[DataOptions, DATA | LISTS]
Tables = Annotated[DataOptions, DATA.difference(NO_TABLES)]
TablesToPredict = Annotated[DataOptions, DATA.difference(NO_TABLES, LABELS) | {"items"}]
PREPARED = DATA.difference(NO_TABLES, PERSON_FILES, ("edges", "node_ids", "weight", "max_weight"))
TablesToPrepare = Annotated[DataOptions, PREPARED]
EdgeList = Annotated[DataOptions, frozenset(("dataset", "root", *EDGE_LIST))]
MovedData = Annotated[DataOptions, frozenset(("root", "nodes", "edges"))]


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """The privacy unit and its options without the budget, because a sweep has several budgets.

    Privacy:
        unit (UNIT): Privacy unit. undirected-edge, directed-edge: one edge. node-record: one node's
            features, label and out-edges. node: one node's features, label and all its edges, for mutual
            edges. node-bounded-degree: the same, requires --max-degree. row: one row of one of several
            tables. person: one person's attributes, label and own rows in all tables. local-attributes: one
            node's features and label, randomized by the node, requires --set eps_x=.. --set eps_y=..
            edge-subset: one edge that is not public, requires --private-nodes. none: no protection.
        delta (NUMBER|auto): Delta of the guarantee: a number, or auto (default).
        max_units: Public upper bound on the number of protected units, for --delta auto.
        out_degree_bound (D): Maximum total weight of a node's out-edges, at least 1. The guarantee is valid
            for any value. For unit node-record.
        max_degree (D): Maximum number of edges per node, asserted by you. Required for node-bounded-degree.
            A graph that violates it is rejected.
        replace_one: Protect against the replacement of a node record, not only its removal. Doubles the
            noise. For node-level units.
        private_metrics: Release accuracies and other metrics from noisy counts within the guarantee. For
            node-level units.
        theta (FILE): JSON file with one public weight per feature, the share of eps_x that the feature gets.
            The weights sum to 1. For unit local-attributes.
        unsafe_noise_seed: Seed of the noise, for tests only. The guarantee is then not valid.
        max_edges: Maximum expected number of edges of a released graph. Default: 20,000,000.
        target_range (LOW HIGH): Public range of a number to predict (--task regression). Targets are clipped
            to it. Required under node-level units.

    Training:
        perturb (MECHANISM): Graph mechanism (edge-rand, lap-graph, arr, priv-hrg, edge-rr) that releases a
            noisy graph to train on, with settings in parentheses: 'edge-rr(rounds=2)'. Predictions read the
            released graph only. For sage, gcn and gat.
        metric (NAME): Metric of validation nodes that selects epochs and models: accuracy,
            balanced_accuracy, macro_f1, roc_auc, average_precision. Default: the rule of the method. For
            public labels.
        class_weight (balanced|NAME=WEIGHT,...): Weights of classes in the loss: balanced, or
            NAME=WEIGHT,... with weight 1 for other classes. Under node-level units only public weights.
        positive (CLASS): Positive class of two, for the average precision. Default: the rarer class, if
            labels are public.
    """

    unit: str | None = None
    delta: str | None = None
    max_units: int | None = None
    out_degree_bound: OneOrMore | None = None
    max_degree: OneOrMore | None = None
    replace_one: bool = False
    private_metrics: bool = False
    theta: Path | None = None
    unsafe_noise_seed: int | None = None
    max_edges: OneOrMore | None = None
    target_range: tuple[float, float] | None = None
    perturb: str | None = None
    metric: str | None = None
    class_weight: str | None = None
    positive: str | None = None

    def keywords(self) -> dict[str, Any]:
        found = {
            name: value
            for name, value in given(self).items()
            if name != "theta" and value is not None and value is not False
        }
        if self.class_weight is not None:
            from graphveil.runs.parameters import parse_class_weight

            found["class_weight"] = parse_class_weight(self.class_weight)
        return found


def given(group: Any) -> dict[str, Any]:
    return {part.name: getattr(group, part.name) for part in fields(group)}


# -- signatures ------------------------------------------------------------------------------------------


_SHARED = descriptions_of(DataOptions, PANELS) | descriptions_of(PrivacyOptions) | described(SharedOptions)
_VARIABLES = {"root": "GRAPHVEIL_DATA"}  # of the environment, for options with these names


def with_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Return a command with the signature that Typer reads: one annotated parameter for each option.

    >>> def shown(*, privacy: PrivacyOptions) -> str | None: return privacy.unit
    >>> list(inspect.signature(with_options(shown)).parameters)[:2]
    ['unit', 'delta']
    >>> with_options(shown)(unit="none")
    'none'
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    own = _SHARED | described(inspect.getmodule(command)) | described(command)
    groups, flat = dict[str, tuple[Any, list[str]]](), list[inspect.Parameter]()
    for name, parameter in signature.parameters.items():
        kind, *chosen = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if is_dataclass(kind):
            options = list(_of_group(kind, *chosen))
            groups[name] = (kind, [option.name for option in options])
            flat += options
        else:
            argument = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            flat.append(_parameter(name, hints[name], parameter.default, own.get(name), argument=argument))

    @functools.wraps(command)
    def called(**values: Any) -> Result:
        for name, (group, own) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in own if option in values})
        return command(**values)

    called.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    return called


def _of_group(kind: Any, chosen: frozenset[str] | None = None) -> Iterator[inspect.Parameter]:
    """Yield the options of a dataclass in the order of its docstring, all or the chosen ones."""
    hints, defaults = get_type_hints(kind, include_extras=True), {part.name: part for part in fields(kind)}
    for name, description in descriptions_of(kind, PANELS).items():
        if chosen is None or name in chosen:
            yield _parameter(name, hints[name], defaults[name].default, description)


def _parameter(
    name: str, hint: Any, default: Any, description: Description | None, *, argument: bool = False
) -> inspect.Parameter:
    kind, metadata = _plain(hint)
    found = [one for one in metadata if isinstance(one, typer.models.ParameterInfo)]
    made = copy.copy(found[0]) if found else typer.Argument() if argument else typer.Option()
    if description is not None:
        made.help, made.metavar = made.help or description.text, description.metavar
        made.rich_help_panel = None if argument or description.section == "Args" else description.section
        if description.metavar in _TEXTS:
            made.callback = _as_typed
    made.envvar = made.envvar or _VARIABLES.get(name)
    for bound in metadata:
        made.min, made.max = getattr(bound, "ge", made.min), getattr(bound, "le", made.max)
    if not argument:
        flag = name.strip("_").replace("_", "-")
        opposite = f"/--no-{flag}" if kind == bool | None else ""
        made.param_decls = (f"--{flag}{opposite}",)
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=empty if default is MISSING else default,
        annotation=Annotated[kind, made],
    )


_TEXTS = ("COLUMN", "COLUMN,...", "NAME,...", "RULE", "TEXT", "TEXT,...")  # names in files, and no files


def _plain(hint: Any) -> tuple[Any, list[Any]]:
    """Return a type that Typer knows, and what annotates it; text stands for any union with text."""
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        inner, more = _plain(kind)
        return inner, [*metadata, *more]
    if get_origin(hint) not in (Union, UnionType):
        return hint, []
    members = [_plain(member) for member in get_args(hint)]
    kinds, metadata = [kind for kind, _ in members], [one for _, more in members for one in more]
    kind = str if str in kinds else next(one for one in kinds if one is not NoneType)
    return (kind | None if NoneType in kinds else kind), metadata
