"""Flags that several commands share, each defined once, and groups of related flags."""

import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from graphveil.cli.examples import examples_text
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.data.tables.files import CsvFormat
    from graphveil.runs.source import PublicFlags, Source

Result = TypeVar("Result")

# As in graphveil.perturb, which takes a second to import.
GRAPH_MECHANISMS = ("edge-rand", "lap-graph", "arr", "priv-hrg", "edge-rr")
_DATA, _PRIVACY, _RUN = "Data", "Privacy", "Run"


def _as_typed(text: str | None) -> str | None:
    """Decode a file name in UTF-8, as it was typed, if the locale has another encoding."""
    unknown = text is not None and any("\ud800" <= letter <= "\udfff" for letter in text)
    return os.fsencode(text).decode("utf-8", "surrogateescape") if text and unknown else text


def items(flag: str, text: str | None) -> list[str]:
    """Return the items of a list a,b,c; an empty list if the option is not given.

    Raises:
        ConfigError: An item is empty.

    >>> items("--at", "0.5, 4"), items("--at", None)
    (['0.5', '4'], [])
    """
    found = [] if text is None else [item.strip() for item in text.split(",")]
    if "" in found:
        raise ConfigError(f"{flag} {text!r} has an empty item. Write a list without empty items, a,b,c.")
    return found


def check_not_existing(path: Path, why: str) -> None:
    """Raise an error if an output exists or cannot be created, before a budget is spent on it."""
    from graphveil._util.files import can_create

    if path.exists():
        raise ConfigError(f"{path} is there already: {why}")
    if not can_create(path):
        raise ConfigError(f"{path} cannot be made there; choose another place")


def flag(panel: str, name: str, help: str, **more: Any) -> Any:
    """Return an option that help shows in one of its panels."""
    return typer.Option(name, help=help, rich_help_panel=panel, **more)


def _column(name: str, help: str) -> Any:
    """Return a flag whose value is a name in a file."""
    return flag(_DATA, name, help, callback=_as_typed)


Method = Annotated[
    str, typer.Argument(metavar="METHOD", help=f"One of {', '.join(METHODS)}.", show_default=False)
]
RunFolderArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or its release part alone.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

Dataset = Annotated[str | None, flag(_DATA, "--dataset", "Name of a dataset from `graphveil datasets`.")]
Root = Annotated[
    Path | None, flag(_DATA, "--root", "Folder of downloaded datasets.", envvar="GRAPHVEIL_DATA")
]
PreparedGraph = Annotated[Path | None, flag(_DATA, "--graph", "Folder written by `graphveil prepare`.")]
Nodes = Annotated[Path | None, flag(_DATA, "--nodes", "Table of nodes, Parquet or CSV.")]
Edges = Annotated[Path | None, flag(_DATA, "--edges", "Table of edges, Parquet or CSV.")]
Id = Annotated[str | None, _column("--id", "Column with node ids.")]
Label = Annotated[str | None, _column("--label", "Column with node labels.")]
SourceColumn = Annotated[str | None, _column("--source", "Column with the source node of an edge.")]
TargetColumn = Annotated[str | None, _column("--target", "Column with the target node of an edge.")]
Classes = Annotated[
    str | None,
    _column(
        "--classes",
        "Class labels in order, a,b,c; public. Default: the labels in the data, which become public.",
    ),
]
Weight = Annotated[str | None, _column("--weight", "Column with edge weights.")]
MaxWeight = Annotated[
    float | None,
    flag(_DATA, "--max-weight", "Public upper bound on edge weights. Larger weights are clipped."),
]
Directed = Annotated[bool, flag(_DATA, "--directed", "Treat edges as directed.")]
AssumeDisjointEdges = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--assume-disjoint-edges",
        "You assert that no edge of this graph was used for training or queried before: the maximum "
        "counts, not the sum.",
    ),
]
AssumeDisjointNodes = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--assume-disjoint-nodes",
        "Unit local-attributes: you assert that no person in this graph was used for training or queried "
        "before: the maximum counts, not the sum.",
    ),
]
AllowSpend = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--allow-spend",
        "Query this graph although it may be the training graph, which a release without the run's internal "
        "folder cannot determine.",
    ),
]
Split = Annotated[
    str | None, _column("--split", "Column of the node table with the values train, val and test.")
]
Features = Annotated[str | None, _column("--features", "Feature columns, a,b,c. Default: all other columns.")]
Drop = Annotated[str | None, _column("--drop", "Columns of the node table to ignore, a,b,c.")]
CategoryColumns = Annotated[
    str | None,
    _column(
        "--categories",
        "Categorical columns, a,b,c: plan='free|pro' (public list), country=hash:32 (feature hashing), or "
        "plan (values from the data; not under node-level units).",
    ),
]
Missing = Annotated[
    str | None,
    _column(
        "--missing",
        "Imputation of missing features: refuse (default), indicator (0 and an indicator column), "
        "constant=V, or median (not under node-level units).",
    ),
]
NullValues = Annotated[
    str | None,
    _column(
        "--null-values",
        "Texts that mean a missing label or feature, a,b,c. Default: those of pandas (NA, NULL, NaN, "
        "None, ...), \\N, ? and -.",
    ),
]
Delimiter = Annotated[
    str | None,
    _column(
        "--delimiter",
        "Column separator of CSV files, such as ; or tab. Default: a comma.",
    ),
]
Decimal = Annotated[
    str | None,
    _column("--decimal", "Decimal separator of CSV files, a period (default) or a comma."),
]
UnknownIds = Annotated[
    str | None,
    _column(
        "--unknown-ids",
        "Edges to unknown node ids: refuse (default), drop, or add (adds these nodes; requires --unit none "
        "or --node-ids; not in `prepare`).",
    ),
]
NodeIds = Annotated[
    Path | None,
    flag(
        _DATA,
        "--node-ids",
        "Table with the public list of node ids. Ids without a record are nodes as well.",
    ),
]
Recipe = Annotated[
    str | None,
    flag(_DATA, "--recipe", "Preprocessing and split: gap (default), lpgnn, weighted, planetoid."),
]
ExpectEdges = Annotated[
    int | None,
    flag(
        _DATA,
        "--expect-edges",
        "Estimated number of edges, for an estimate of memory and time.",
        min=0,
    ),
]

Mechanism = Annotated[
    str,
    typer.Argument(metavar="MECHANISM", help=f"One of {', '.join(GRAPH_MECHANISMS)}.", show_default=False),
]
PublicEdges = Annotated[
    Path | None,
    flag(
        _DATA,
        "--public-edges",
        "Table of public edges, with the columns of --edges. For unit edge-subset.",
    ),
]
PrivateNodes = Annotated[
    str | None,
    flag(
        _DATA,
        "--private-nodes",
        "Table with the public list of nodes that may have private edges, or all. For unit edge-subset.",
        metavar="FILE|all",
    ),
]
PrivateFraction = Annotated[
    float | None,
    flag(
        _DATA,
        "--private-fraction",
        "For experiments: probability that an edge is private, by --seed. Other edges are public.",
        min=0,
        max=1,
    ),
]
PrivateWhere = Annotated[
    str | None,
    flag(
        _DATA,
        "--private-where",
        "For experiments: edges between nodes with this column value are private, other edges and the "
        "column are public. Column of a named dataset: label.",
        metavar="COLUMN=VALUE",
    ),
]
MaxEdges = Annotated[
    int | None,
    flag(
        _PRIVACY,
        "--max-edges",
        "Maximum expected number of edges of a released graph. Default: 20,000,000.",
        min=1,
    ),
]
GraphOut = Annotated[Path, flag(_RUN, "--out", "New folder for the released graph and its guarantee.")]
Unit = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--unit",
        "What is protected: undirected-edge or directed-edge (who is connected), node-record (a node's "
        "features, label and own edges), node-bounded-degree (all its edges, if no degree exceeds an "
        "asserted one), local-attributes (features and label, which each node randomizes: --set eps_x=.. "
        "--set eps_y=..), edge-subset (of a released graph: each pair on a public list that is no public "
        "edge), or none.",
    ),
]
Budget = Annotated[str | None, flag(_PRIVACY, "--epsilon", "Limit of epsilon, for all releases together.")]
Ledger = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--ledger",
        "Dataset whose budget is charged: a name in your ledger, or a database URL and a name. "
        "Default: your ledger recognizes the data.",
        metavar="NAME|URL|URL#NAME",
    ),
]
CallersLedger = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--ledger",
        "Dataset whose budget is charged for --allow-releases: a name in your ledger, or a database URL "
        "and a name.",
        metavar="NAME|URL|URL#NAME",
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL|FILE",
        envvar="GRAPHVEIL_LEDGER",
        help="Ledger file, or postgresql+psycopg://user@host/database. Default: your ledger in the "
        "data folder.",
    ),
]
Epsilon = Annotated[
    float | None,
    flag(_PRIVACY, "--epsilon", "Privacy budget. Required for every unit but none and local-attributes."),
]
Delta = Annotated[
    str | None, flag(_PRIVACY, "--delta", "Delta of the guarantee, a number or auto (default).")
]
Mode = Annotated[
    Literal["strict", "paper"] | None,
    flag(
        _PRIVACY,
        "--mode",
        "strict (default), or paper: reproduces a paper exactly, without a valid guarantee.",
    ),
]
MaxUnits = Annotated[
    int | None,
    flag(_PRIVACY, "--max-units", "Public upper bound on the number of protected units, for --delta auto."),
]
OutDegreeBound = Annotated[
    int | None,
    flag(
        _PRIVACY,
        "--out-degree-bound",
        "Maximum total weight of a node's edges, at least 1. Every value keeps the guarantee. For unit "
        "node-record.",
        min=1,
        metavar="D",
    ),
]
MaxDegree = Annotated[
    int | None,
    flag(
        _PRIVACY,
        "--max-degree",
        "Maximum number of edges per node, asserted by you. Required for node-bounded-degree. A graph "
        "that violates it is rejected.",
        min=1,
        metavar="D",
    ),
]
ReplaceOne = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--replace-one",
        "Protect against replacement of a node record, not only its removal. Doubles the noise. For "
        "node-level units.",
    ),
]
PrivateMetrics = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--private-metrics",
        "Release accuracies as noisy counts within the guarantee. For node-level units.",
    ),
]
UnsafeNoiseSeed = Annotated[
    int | None,
    flag(_PRIVACY, "--unsafe-noise-seed", "Seed of the noise. For tests only: voids the guarantee."),
]

Theta = Annotated[
    Path | None,
    flag(
        _PRIVACY,
        "--theta",
        "JSON file with one public weight per feature, which divide eps_x and sum to 1. For unit "
        "local-attributes.",
    ),
]

Module = Annotated[
    str | None,
    flag(
        _RUN,
        "--module",
        "The module that gnn trains: sage, gcn, gat or gin, or your own code in a file, which is run. "
        "FILE.py:NAME can also be a method of your own, whose name is then the METHOD.",
        metavar="NAME",
    ),
]
Perturb = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--perturb",
        f"sage, gcn, gat: release a noisy graph first ({', '.join(GRAPH_MECHANISMS)}) and train on it; "
        "settings in brackets: 'edge-rr(structure=lazy_audited)'. Predictions see the released graph, never "
        "the true one.",
        metavar="MECHANISM",
    ),
]
Runs = Annotated[int, flag(_RUN, "--runs", "Number of runs, each with its own split.")]
Seed = Annotated[
    int, flag(_RUN, "--seed", "Random seed of splits, initial weights and batches, never of the noise.")
]
FractionSeed = Annotated[int, flag(_RUN, "--seed", "Random seed of --private-fraction, never of the noise.")]
NoBaseline = Annotated[
    bool,
    flag(
        _RUN,
        "--no-baseline",
        "Do not train the no-graph baseline (mlp). It uses the same LDP reports at no further cost.",
    ),
]
Baseline = Annotated[
    bool | None,
    flag(
        _RUN,
        "--baseline/--no-baseline",
        "Train the no-graph baseline (mlp). Default: yes, except under node-level units, where it "
        "costs extra budget.",
    ),
]
DryRun = Annotated[
    bool,
    flag(_RUN, "--dry-run", "Print the plan and its privacy cost, without spending or writing anything."),
]
AggregationBackend = Annotated[
    str | None,
    flag(
        _RUN,
        "--backend",
        "Aggregation backend: memory, disk (with --graph) or ray. All give the same result.",
    ),
]
Address = Annotated[
    str | None,
    flag(_RUN, "--address", "Address of the Ray cluster. Default: RAY_ADDRESS, or this machine."),
]
Out = Annotated[Path | None, flag(_RUN, "--out", "Run folder to write. Default: a new folder in runs/.")]
PredictionsOut = Annotated[
    Path | None,
    flag(
        _RUN,
        "--out",
        "Table of predictions and probabilities to write, .parquet or .csv. Default: print predictions.",
    ),
]
Set = Annotated[
    list[str] | None,
    flag(_RUN, "--set", "Keyword argument of the method. Repeatable.", metavar="KEY=VALUE"),
]
Track = Annotated[
    list[str] | None,
    flag(
        _RUN,
        "--track",
        "Log the public results of the run to MLflow. Repeatable.",
        metavar="mlflow[:URI]",
        show_default=False,
    ),
]
Resume = Annotated[bool, flag(_RUN, "--resume", "Finish the interrupted run in --out.")]


# -- groups of flags -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InputColumnOptions:
    """The roles of the columns of a table of nodes and a table of edges."""

    id: Id = None
    label: Label = None
    source: SourceColumn = None
    target: TargetColumn = None
    directed: Directed = False
    features: Features = None
    drop: Drop = None
    categories: CategoryColumns = None
    missing: Missing = None
    unknown_ids: UnknownIds = None
    null_values: NullValues = None
    delimiter: Delimiter = None
    decimal: Decimal = None


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(InputColumnOptions):
    """The columns of tables to train on, which also have classes and a split."""

    split: Split = None
    classes: Classes = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of ``--classes``, None if not given."""
        from graphveil.runs.parameters import parse_classes

        return None if self.classes is None else parse_classes(self.classes)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The paths of two tables, and their options besides columns."""

    nodes: Nodes = None
    edges: Edges = None
    weight: Weight = None
    max_weight: MaxWeight = None
    node_ids: NodeIds = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """A dataset by name, or a folder that ``prepare`` wrote; neither if tables are given."""

    dataset: Dataset = None
    root: Root = None
    graph: PreparedGraph = None

    def source(self, tables: TableOptions, columns: ColumnOptions) -> "Source":
        """Return the source of the graph."""
        from graphveil.runs.source import Source

        named = tables.nodes is None and tables.edges is None and self.graph is None
        return Source(
            dataset=self.dataset,
            root=self.root if named else None,
            folder=self.graph,
            **given(tables),
            **{**given(columns), "classes": columns.class_names},
        )


@dataclass(frozen=True, kw_only=True)
class EdgeListOptions:
    """Two tables and their columns, for commands that read only the edges of a graph."""

    nodes: Nodes = None
    edges: Edges = None
    id: Id = None
    source: SourceColumn = None
    target: TargetColumn = None
    directed: Directed = False

    def load(
        self, dataset: str | None = None, root: Path | None = None, csv_format: "CsvFormat | None" = None
    ) -> "Graph":
        """Read the edges of a dataset by name, or of the tables; of a table of nodes, its ids alone."""
        from graphveil.data import load_dataset
        from graphveil.data.graph_files import read_topology
        from graphveil.data.tables.files import COMMAS

        columns = given(self)
        if dataset is not None:
            flags = [f"--{name}" for name, value in columns.items() if value not in (None, False)]
            if flags:
                raise ConfigError(
                    f"--dataset and {', '.join(flags)} exclude each other: a named data set knows its own "
                    "columns; drop the one or the other"
                )
            return load_dataset(dataset, root=root, recipe=None)
        if missing := [f"--{name}" for name, value in columns.items() if value is None]:
            raise ConfigError(
                "a graph is a data set by name (--dataset NAME), or two files and the names of their "
                f"columns: add {', '.join(missing)}"
            )
        return read_topology(**columns, csv_format=csv_format or COMMAS)


@dataclass(frozen=True, kw_only=True)
class PublicEdgeOptions:
    """Under ``edge-subset``: the public edges, and the nodes that may have private ones."""

    public_edges: PublicEdges = None
    private_nodes: PrivateNodes = None
    private_fraction: PrivateFraction = None
    private_where: PrivateWhere = None

    def flags(self) -> "PublicFlags":
        """Return the values, checked for consistency."""
        from graphveil.runs.source import PublicFlags

        return PublicFlags(**given(self))


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """The privacy unit and its options, except the budget, of which a sweep has several."""

    unit: Unit = None
    delta: Delta = None
    mode: Mode = None
    max_units: MaxUnits = None
    out_degree_bound: OutDegreeBound = None
    max_degree: MaxDegree = None
    replace_one: ReplaceOne = False
    private_metrics: PrivateMetrics = False
    theta: Theta = None
    unsafe_noise_seed: UnsafeNoiseSeed = None
    perturb: Perturb = None
    max_edges: MaxEdges = None

    def keywords(self) -> dict[str, Any]:
        """Return the given flags as keywords, all but theta, which is a file."""
        return {
            name: value
            for name, value in given(self).items()
            if name != "theta" and value is not None and value is not False
        }


def given(group: Any) -> dict[str, Any]:
    """Return the values of a group's flags by name."""
    return {part.name: getattr(group, part.name) for part in fields(group)}


def grouped(command: Callable[..., Result]) -> Callable[..., Result]:
    """Return a command whose signature has each group's flags one by one.

    >>> def shown(public: PublicEdgeOptions) -> str | None: return public.private_nodes
    >>> list(inspect.signature(grouped(shown)).parameters)[:2]
    ['public_edges', 'private_nodes']
    >>> grouped(shown)(private_nodes="all")
    'all'
    """
    signature = inspect.signature(command, eval_str=True)
    groups = dict[str, tuple[type, list[str]]]()
    flat = list[inspect.Parameter]()
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            own = inspect.signature(kind, eval_str=True).parameters
            groups[name] = (kind, list(own))
            flat += own.values()
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**given: Any) -> Result:
        for name, (group, flags) in groups.items():
            given[name] = group(**{flag: given.pop(flag) for flag in flags if flag in given})
        return command(**given)

    called.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    return called


class Command(TyperCommand):
    """A command that rejects a repeated option, and an option in place of a value.

    A second budget must not silently replace the first, and ``--reason --json`` has no reason. Flags that
    take several values, and switches, may be repeated. The help ends with two examples.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, then the examples."""
        super().format_help(ctx, formatter)
        typer.echo(examples_text(ctx.command_path.partition(" ")[2]))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after counting each option."""
        self._check_values(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option, count in Counter(order).items():
            if count == 1 or not isinstance(option, TyperOption) or option.multiple:
                continue
            if not option.is_flag or option.secondary_opts:  # a switch without an opposite may be repeated
                ctx.fail(f"{option.opts[0]} is given more than once; keep one.")
        return super().parse_args(ctx, args)

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
