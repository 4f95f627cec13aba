"""Flags that several commands share, each defined once, and groups of related flags."""

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from graphveil._util.backend_names import BACKENDS
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.data.tables.files import CsvFormat
    from graphveil.runs.source import PublicFlags, Source

Result = TypeVar("Result")

# As in graphveil.perturb, which takes a second to import.
GRAPH_MECHANISMS = ("edge-rand", "lap-graph", "arr", "priv-hrg", "edge-rr")
_DATA, _COLUMNS, _SUBSET = "Data", "Table columns", "Unit edge-subset"
_PRIVACY, _TRAINING, _RUN = "Privacy", "Training", "Run"


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
        raise ConfigError(f"{flag} {text!r} has an empty item. Write a list without empty items: a,b,c.")
    return found


def check_not_existing(path: Path, why: str) -> None:
    """Raise an error if an output exists or cannot be created, before a budget is spent on it."""
    from graphveil._util.files import can_create

    if path.exists():
        raise ConfigError(f"{path} already exists. {why}")
    if not can_create(path):
        raise ConfigError(f"Cannot create {path}. Choose another path.")


def flag(panel: str, name: str, help: str, **more: Any) -> Any:
    """Return an option that help shows in one of its panels."""
    return typer.Option(name, help=help, rich_help_panel=panel, **more)


def _column(panel: str, name: str, help: str, metavar: str = "COLUMN") -> Any:
    """Return a flag whose value is a name in a file."""
    return flag(panel, name, help, callback=_as_typed, metavar=metavar)


# -- arguments and output --------------------------------------------------------------------------------

LINK_METHODS = ("links", "recommender")  # models of pairs, which are no classifiers
Method = Annotated[
    str, typer.Argument(metavar="METHOD", help=f"Method: {', '.join(METHODS)}.", show_default=False)
]
AnyMethod = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help=f"Method: {', '.join((*METHODS, *LINK_METHODS))}.", show_default=False
    ),
]
RunFolderArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Run folder, or a copy of its release/ folder.", show_default=False),
]
WholeRunFolderArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Run folder with release/ and internal/.", show_default=False),
]
Json = Annotated[bool, flag("Output", "--json", "Print one JSON object to standard output.")]

# -- data ------------------------------------------------------------------------------------------------

Dataset = Annotated[
    str | None,
    flag(
        _DATA,
        "--dataset",
        "Name of a dataset from `graphveil datasets`, instead of --nodes and --edges.",
        metavar="NAME",
    ),
]
Root = Annotated[
    Path | None,
    flag(_DATA, "--root", "Folder of downloaded datasets.", envvar="GRAPHVEIL_DATA", metavar="FOLDER"),
]
PreparedGraph = Annotated[
    Path | None,
    flag(
        _DATA,
        "--graph",
        "Folder written by `graphveil prepare`, instead of --nodes and --edges.",
        metavar="FOLDER",
    ),
]
Nodes = Annotated[Path | None, flag(_DATA, "--nodes", "Node table (.parquet or .csv).", metavar="FILE")]
Edges = Annotated[Path | None, flag(_DATA, "--edges", "Edge table (.parquet or .csv).", metavar="FILE")]
Id = Annotated[str | None, _column(_DATA, "--id", "Column of the node table with node ids.")]
Label = Annotated[str | None, _column(_DATA, "--label", "Column of the node table with labels.")]
SourceColumn = Annotated[
    str | None, _column(_DATA, "--source", "Column of the edge table with the source nodes.")
]
TargetColumn = Annotated[
    str | None, _column(_DATA, "--target", "Column of the edge table with the target nodes.")
]
Directed = Annotated[bool, flag(_DATA, "--directed", "Treat edges as directed.")]
NodeIds = Annotated[
    Path | None,
    flag(
        _DATA,
        "--node-ids",
        "Table with the public list of node ids, including nodes without a record.",
        metavar="FILE",
    ),
]
Classes = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--classes",
        "Comma-separated class labels in order, which are public. Default: the labels in the data, which "
        "then become public.",
        "NAME,...",
    ),
]
Task = Annotated[
    str | None,
    flag(
        _COLUMNS,
        "--task",
        "classification, or regression to predict the numbers in the label column. Default: "
        "classification; a numeric label with many values is then rejected.",
        metavar="TASK",
    ),
]
Items = Annotated[
    Path | None,
    flag(
        "Data",
        "--items",
        "Table of all items, with the column --target. For recommender, where --nodes lists all users and "
        "--edges has a row for each item on the list of a user.",
        metavar="FILE",
    ),
]
Rating = Annotated[
    str | None,
    _column(_DATA, "--rating", "Column of the edge table with ratings of items, for --min-rating."),
]
MinRating = Annotated[
    float | None,
    flag(_DATA, "--min-rating", "Lowest rating of an item on a list. Rows with a lower rating are dropped."),
]
Weight = Annotated[str | None, _column(_COLUMNS, "--weight", "Column of the edge table with edge weights.")]
MaxWeight = Annotated[
    float | None,
    flag(_COLUMNS, "--max-weight", "Public upper bound on edge weights. Larger weights are clipped."),
]
Split = Annotated[
    str | None, _column(_COLUMNS, "--split", "Column of the node table with the values train, val and test.")
]
Features = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--features",
        "Comma-separated feature columns. Default: all other columns of the node table.",
        "COLUMN,...",
    ),
]
Drop = Annotated[
    str | None,
    _column(_COLUMNS, "--drop", "Comma-separated columns of the node table to ignore.", "COLUMN,..."),
]
CategoryColumns = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--categories",
        "Comma-separated categorical columns, each with an encoding: NAME='A|B' (one-hot, public list of "
        "values), NAME=hash:32 (feature hashing), or NAME (one-hot, values from the data; not for node-level "
        "units).",
        "COLUMN,...",
    ),
]
Missing = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--missing",
        "Imputation of missing features: error (default), indicator (0 and an "
        "indicator column), constant=V, or median (not for node-level units).",
        "RULE",
    ),
]
NullValues = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--null-values",
        "Comma-separated strings that mark missing values. Default: those of pandas (NA, NULL, NaN, None, "
        "...), \\N, ? and -.",
        "TEXT,...",
    ),
]
Delimiter = Annotated[
    str | None,
    _column(
        _COLUMNS, "--delimiter", "Column separator of CSV files, such as ; or tab. Default: a comma.", "TEXT"
    ),
]
Decimal = Annotated[
    str | None,
    _column(_COLUMNS, "--decimal", "Decimal separator of CSV files, a period (default) or a comma.", "TEXT"),
]
UnknownIds = Annotated[
    str | None,
    _column(
        _COLUMNS,
        "--unknown-ids",
        "Handling of edges with an id that is not in the node table: error (default), "
        "drop the edge, or add the node (requires --unit none or --node-ids; not for `prepare`).",
        "RULE",
    ),
]
PublicEdges = Annotated[
    Path | None,
    flag(
        _SUBSET, "--public-edges", "Table of public edges, with the same columns as --edges.", metavar="FILE"
    ),
]
PrivateNodes = Annotated[
    str | None,
    flag(
        _SUBSET,
        "--private-nodes",
        "Table with the public list of nodes that may have private edges, or `all`.",
        metavar="FILE|all",
    ),
]
PrivateFraction = Annotated[
    float | None,
    flag(
        _SUBSET,
        "--private-fraction",
        "Probability that an edge is private, drawn with --seed. Other edges are public. For experiments.",
        min=0,
        max=1,
    ),
]
PrivateWhere = Annotated[
    str | None,
    flag(
        _SUBSET,
        "--private-where",
        "Column and value that select nodes. Edges between two selected nodes are private. Other edges and "
        "the column are public. For experiments; a named dataset has the column `label`.",
        metavar="COLUMN=VALUE",
    ),
]

# -- privacy ---------------------------------------------------------------------------------------------

Unit = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--unit",
        "Privacy unit. undirected-edge, directed-edge: one edge. node-record: one node's features, label and "
        "out-edges. node-bounded-degree: one node and all its edges, requires --max-degree. "
        "local-attributes: one node's features and label, randomized by the node, requires --set eps_x=.. "
        "--set eps_y=.. edge-subset: one edge that is not public, requires --private-nodes. none: no "
        "protection.",
        metavar="UNIT",
    ),
]
Epsilon = Annotated[
    float | None,
    flag(
        _PRIVACY,
        "--epsilon",
        "Privacy budget epsilon. Required, except for units none and local-attributes.",
    ),
]
Delta = Annotated[
    str | None,
    flag(_PRIVACY, "--delta", "Delta of the guarantee: a number, or auto (default).", metavar="NUMBER|auto"),
]
Mode = Annotated[
    Literal["strict", "paper"] | None,
    flag(
        _PRIVACY,
        "--mode",
        "Privacy mode: strict (default), with a proven guarantee, or paper, which reproduces a paper "
        "without a valid guarantee.",
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
        "Maximum total weight of a node's out-edges, at least 1. The guarantee is valid for any value. For "
        "unit node-record.",
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
        "Protect against the replacement of a node record, not only its removal. Doubles the noise. For "
        "node-level units.",
    ),
]
PrivateMetrics = Annotated[
    bool,
    flag(
        _PRIVACY,
        "--private-metrics",
        "Release accuracies and other metrics from noisy counts within the guarantee. For node-level units.",
    ),
]
Metric = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--metric",
        "Metric of validation nodes that selects epochs and models: accuracy, balanced_accuracy, macro_f1, "
        "roc_auc, average_precision. Default: the rule of the method. For public labels.",
        metavar="NAME",
    ),
]
ClassWeight = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--class-weight",
        "Weights of classes in the loss: balanced, or NAME=WEIGHT,... with weight 1 for other classes. "
        "Under node-level units only public weights.",
        metavar="balanced|NAME=WEIGHT,...",
    ),
]
Positive = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--positive",
        "Positive class of two, for the average precision. Default: the rarer class, if labels are public.",
        metavar="CLASS",
    ),
]
UnsafeNoiseSeed = Annotated[
    int | None,
    flag(
        _PRIVACY,
        "--unsafe-noise-seed",
        "Seed of the noise, for tests only. The guarantee is then not valid.",
    ),
]
Theta = Annotated[
    Path | None,
    flag(
        _PRIVACY,
        "--theta",
        "JSON file with one public weight per feature, the share of eps_x that the feature gets. The "
        "weights sum to 1. For unit local-attributes.",
        metavar="FILE",
    ),
]
TargetRange = Annotated[
    tuple[float, float] | None,
    flag(
        _PRIVACY,
        "--target-range",
        "Public range of a number to predict (--task regression). Targets are clipped to it. Required under "
        "node-level units.",
        metavar="LOW HIGH",
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
Ledger = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--ledger",
        "Ledger account to charge: a name in your ledger, or a database URL and a name. Default: the "
        "account of these data in your ledger.",
        metavar="NAME|URL|URL#NAME",
    ),
]

# -- training and runs -----------------------------------------------------------------------------------

Recipe = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--recipe",
        "Preprocessing and split: gap (default), lpgnn, weighted, planetoid.",
        metavar="NAME",
    ),
]
Module = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--module",
        "Architecture that gnn trains (sage, gcn, gat, gin), or FILE.py:NAME with your own module or method. "
        "A method's name is then METHOD. The file is executed.",
        metavar="NAME",
    ),
]
Perturb = Annotated[
    str | None,
    flag(
        _TRAINING,
        "--perturb",
        f"Graph mechanism ({', '.join(GRAPH_MECHANISMS)}) that releases a noisy graph to train on, with "
        "settings in parentheses: 'edge-rr(rounds=2)'. Predictions read the released graph "
        "only. For sage, gcn and gat.",
        metavar="MECHANISM",
    ),
]
Set = Annotated[
    list[str] | None,
    flag(
        _TRAINING,
        "--set",
        "Parameter of the method, listed by `graphveil train METHOD --help`. Repeatable.",
        metavar="NAME=VALUE",
    ),
]
Runs = Annotated[int, flag(_TRAINING, "--runs", "Number of runs, each with its own split.")]
Seed = Annotated[
    int, flag(_TRAINING, "--seed", "Random seed of splits, initial weights and batches, never of the noise.")
]
Out = Annotated[
    Path | None, flag(_RUN, "--out", "Run folder to write. Default: a new folder in runs/.", metavar="FOLDER")
]
DryRun = Annotated[
    bool, flag(_RUN, "--dry-run", "Print the plan and its privacy cost only. Nothing is spent or written.")
]
AggregationBackend = Annotated[
    str | None,
    flag(
        _RUN,
        "--backend",
        f"Aggregation backend: {', '.join(BACKENDS)} (disk needs --graph). Does not affect results.",
        metavar="NAME",
    ),
]
Address = Annotated[
    str | None,
    flag(
        _RUN,
        "--address",
        "Address of the Ray cluster. Default: RAY_ADDRESS, or this machine.",
        metavar="HOST:PORT",
    ),
]


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
    task: Task = None

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

    def source(self, tables: TableOptions, columns: ColumnOptions, *, to_predict: bool = False) -> "Source":
        """Return the source of the graph; ``to_predict`` if it needs no labels."""
        from graphveil.runs.source import Source

        named = tables.nodes is None and tables.edges is None and self.graph is None
        return Source(
            dataset=self.dataset,
            root=self.root if named else None,
            folder=self.graph,
            **given(tables),
            **{**given(columns), "classes": columns.class_names},
            to_predict=to_predict,
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
                    f"--dataset and {', '.join(flags)} exclude each other, because a named dataset has its "
                    "own columns. Remove one of them."
                )
            return load_dataset(dataset, root=root, recipe=None)
        if missing := [f"--{name}" for name, value in columns.items() if value is None]:
            raise ConfigError(
                "A graph needs --dataset NAME, or two tables and the names of their columns. Add "
                f"{', '.join(missing)}."
            )
        return read_topology(**columns, csv_format=csv_format or COMMAS)


@dataclass(frozen=True, kw_only=True)
class PublicEdgeOptions:
    """Options of unit ``edge-subset``: the public edges, and the nodes that may have private edges."""

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
    """The privacy unit and its options without the budget, because a sweep has several budgets."""

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
    metric: Metric = None
    class_weight: ClassWeight = None
    positive: Positive = None
    target_range: TargetRange = None

    def keywords(self) -> dict[str, Any]:
        """Return the given flags as keywords, all but theta, which is a file."""
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
    """Return the values of a group's flags by name."""
    return {part.name: getattr(group, part.name) for part in fields(group)}


def grouped(command: Callable[..., Result]) -> Callable[..., Result]:
    """Return a command with the options of each group as separate parameters.

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
