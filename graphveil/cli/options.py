"""The flags that commands share, each written once."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphveil.errors import ConfigError
from graphveil.estimators import METHODS

GRAPH_MECHANISMS = (
    "edge-rand",
    "lap-graph",
    "arr",
    "priv-hrg",
    "edge-rr",
)  # as in graphveil.perturb, which takes a second to import
_DATA, _PRIVACY, _RUN = "Data", "Privacy", "Run"


def _as_typed(text: str | None) -> str | None:
    """Return a name in a file as it was typed, in UTF-8, where the locale does not know its letters."""
    unknown = text is not None and any("\ud800" <= letter <= "\udfff" for letter in text)
    return os.fsencode(text).decode("utf-8", "surrogateescape") if text and unknown else text


def items(flag: str, text: str | None) -> list[str]:
    """Return the items of a list a,b,c; none where the option is not given.

    Raises:
        ConfigError: An item is empty.

    >>> items("--at", "0.5, 4"), items("--at", None)
    (['0.5', '4'], [])
    """
    found = [] if text is None else [item.strip() for item in text.split(",")]
    if "" in found:
        raise ConfigError(f"{flag} {text!r} has an empty item. Write a list without empty items, a,b,c.")
    return found


def _name(flag: str, help: str) -> Any:
    """Return a flag that names something in a file."""
    return typer.Option(flag, help=help, rich_help_panel=_DATA, callback=_as_typed)


Method = Annotated[
    str, typer.Argument(metavar="METHOD", help=f"One of {', '.join(METHODS)}.", show_default=False)
]
RunFolderArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or its release part alone.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

Dataset = Annotated[
    str | None, typer.Option("--dataset", help="A name from `graphveil datasets`.", rich_help_panel=_DATA)
]
Root = Annotated[
    Path | None,
    typer.Option("--root", envvar="GRAPHVEIL_DATA", help="Folder of the data sets.", rich_help_panel=_DATA),
]
Graph = Annotated[
    Path | None,
    typer.Option("--graph", help="A folder that `graphveil prepare` wrote.", rich_help_panel=_DATA),
]
Nodes = Annotated[
    Path | None, typer.Option("--nodes", help="Table of nodes, parquet or CSV.", rich_help_panel=_DATA)
]
Edges = Annotated[
    Path | None, typer.Option("--edges", help="Table of edges, parquet or CSV.", rich_help_panel=_DATA)
]
Id = Annotated[str | None, _name("--id", "Column of the nodes' ids.")]
Label = Annotated[str | None, _name("--label", "Column of the nodes' labels.")]
SourceColumn = Annotated[str | None, _name("--source", "Column of the edges' first ends.")]
TargetColumn = Annotated[str | None, _name("--target", "Column of the edges' second ends.")]
Classes = Annotated[
    str | None,
    _name(
        "--classes",
        "The labels that there are, a,b,c: a public list, in this order. Without it they are those that "
        "occur, which is public then.",
    ),
]
Weight = Annotated[str | None, _name("--weight", "Column of the edges' weights, if they have any.")]
MaxWeight = Annotated[
    float | None,
    typer.Option(
        "--max-weight",
        help="Public bound of an edge's weight; larger ones are cut to it.",
        rich_help_panel=_DATA,
    ),
]
Directed = Annotated[
    bool, typer.Option("--directed", help="An edge says nothing about its opposite.", rich_help_panel=_DATA)
]
AssumeDisjointEdges = Annotated[
    bool,
    typer.Option(
        "--assume-disjoint-edges",
        help="You assert that no edge of this graph was trained on or asked before: the larger figure "
        "counts, not the sum.",
        rich_help_panel=_PRIVACY,
    ),
]
AssumeDisjointNodes = Annotated[
    bool,
    typer.Option(
        "--assume-disjoint-nodes",
        help="Unit local-attributes: you assert that nobody in this graph was trained on or asked before: "
        "the larger figure counts, not the sum.",
        rich_help_panel=_PRIVACY,
    ),
]
AllowSpend = Annotated[
    bool,
    typer.Option(
        "--allow-spend",
        help="Ask this graph though it may be the one trained on, which a release without its run's internal "
        "folder cannot tell.",
        rich_help_panel=_PRIVACY,
    ),
]
Split = Annotated[str | None, _name("--split", "Column of the nodes with train, val or test.")]
Features = Annotated[str | None, _name("--features", "The feature columns, a,b,c; by default all others.")]
Drop = Annotated[str | None, _name("--drop", "Columns of the nodes that are no features, a,b,c.")]
CategoryColumns = Annotated[
    str | None,
    _name(
        "--categories",
        "Columns to one-hot: plan='free|pro' from a public list, country=hash:32 hashed into places, or plan "
        "alone with the values that occur (not where records are protected).",
    ),
]
Missing = Annotated[
    str | None,
    _name(
        "--missing",
        "What a missing feature becomes: refuse (the default), indicator (0, and one more column says so), "
        "constant=V, or median (not where records are protected).",
    ),
]
NullValues = Annotated[
    str | None,
    _name(
        "--null-values",
        "Words for a missing label or feature, a,b,c, instead of the default list: those of pandas (NA, "
        "NULL, NaN, None, N/A, ...), \\N, ? and -. An empty field is always missing. Ids are not affected.",
    ),
]
Delimiter = Annotated[
    str | None,
    _name(
        "--delimiter",
        "What stands between the columns of CSV files: ; | tab or another one; a comma by default.",
    ),
]
Decimal = Annotated[
    str | None,
    _name(
        "--decimal", "What stands before the decimals of numbers in CSV files: . (the default) or a comma."
    ),
]
UnknownIds = Annotated[
    str | None,
    _name(
        "--unknown-ids",
        "Edges to ids that no node has: refuse (the default), drop, or add those nodes (--unit none, or with "
        "--node-ids; `prepare` adds none).",
    ),
]
NodeIds = Annotated[
    Path | None,
    typer.Option(
        "--node-ids",
        help="A public list of nodes, a table with the column of ids: each is a node, with a row or not.",
        rich_help_panel=_DATA,
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="How to prepare and split: gap (the default), lpgnn, weighted, planetoid.",
        rich_help_panel=_DATA,
    ),
]
ExpectEdges = Annotated[
    int | None,
    typer.Option(
        "--expect-edges",
        min=0,
        help="Your guess of the number of edges, for an estimate of memory and time.",
        rich_help_panel=_DATA,
    ),
]

Mechanism = Annotated[
    str,
    typer.Argument(metavar="MECHANISM", help=f"One of {', '.join(GRAPH_MECHANISMS)}.", show_default=False),
]
PublicEdges = Annotated[
    Path | None,
    typer.Option(
        "--public-edges",
        help="Unit edge-subset: table of the edges that are public, with the columns of the edges.",
        rich_help_panel=_DATA,
    ),
]
PrivateNodes = Annotated[
    str | None,
    typer.Option(
        "--private-nodes",
        metavar="FILE|all",
        help="Unit edge-subset: the public list of nodes that may have private edges, a table with the "
        "column of ids, or all. It is never found out from the edges.",
        rich_help_panel=_DATA,
    ),
]
PrivateFraction = Annotated[
    float | None,
    typer.Option(
        "--private-fraction",
        min=0,
        max=1,
        help="For experiments: take each edge as private with this probability (by --seed), the others as "
        "public.",
        rich_help_panel=_DATA,
    ),
]
PrivateWhere = Annotated[
    str | None,
    typer.Option(
        "--private-where",
        metavar="COLUMN=VALUE",
        help="For experiments: edges between nodes with this value in a column of the nodes (of a named data "
        "set: label) are private, the others public. Who has it is public.",
        rich_help_panel=_DATA,
    ),
]
MaxEdges = Annotated[
    int | None,
    typer.Option(
        "--max-edges",
        min=1,
        help="The most edges that a released graph may be expected to have; 20 million by default.",
        rich_help_panel=_PRIVACY,
    ),
]
GraphOut = Annotated[
    Path,
    typer.Option(
        "--out", help="A new folder for the released graph, its guarantee and a page.", rich_help_panel=_RUN
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit",
        help="What is protected: undirected-edge or directed-edge (who is connected), node-record (a node's "
        "features, label and own edges), node-bounded-degree (all its edges, if no degree exceeds an "
        "asserted one), "
        "local-attributes (features and label, which each node randomizes: --set eps_x=.. --set eps_y=..), "
        "edge-subset (of a released graph: each pair on a public list that is no public edge), "
        "or none.",
        rich_help_panel=_PRIVACY,
    ),
]
Budget = Annotated[
    str | None, typer.Option("--epsilon", help="What may be spent at most.", rich_help_panel=_PRIVACY)
]
Ledger = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="NAME|URL|URL#NAME",
        help="The data set whose budget is charged: a name in your own ledger, or a database's URL and a "
        "name in it. Without it your own ledger recognizes the data, and says what they have cost so far.",
        rich_help_panel=_PRIVACY,
    ),
]
CallersLedger = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="NAME|URL|URL#NAME",
        help="Dataset whose budget is charged for --allow-releases: a name in your ledger, or a database URL "
        "and a name.",
        rich_help_panel=_PRIVACY,
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL|FILE",
        envvar="GRAPHVEIL_LEDGER",
        help="The ledger: a file, or postgresql+psycopg://user@host/database. By default your own, "
        "in the data folder.",
    ),
]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="The budget.", rich_help_panel=_PRIVACY)]
Delta = Annotated[
    str | None, typer.Option("--delta", help="A number, or auto (the default).", rich_help_panel=_PRIVACY)
]
Mode = Annotated[
    Literal["strict", "paper"] | None,
    typer.Option(
        "--mode",
        help="paper reproduces a paper, flaws included, and voids the guarantee.",
        rich_help_panel=_PRIVACY,
    ),
]
MaxUnits = Annotated[
    int | None,
    typer.Option(
        "--max-units",
        help="Public bound on the number of protected units, for delta auto.",
        rich_help_panel=_PRIVACY,
    ),
]
OutDegreeBound = Annotated[
    int | None,
    typer.Option(
        "--out-degree-bound",
        min=1,
        metavar="D",
        help="node-record: a node of more than D edges shares the weight of D among them. Any D keeps the "
        "guarantee.",
        rich_help_panel=_PRIVACY,
    ),
]
MaxDegree = Annotated[
    int | None,
    typer.Option(
        "--max-degree",
        min=1,
        metavar="D",
        help="Largest number of edges of a node, an assumption that you assert. Required for "
        "node-bounded-degree; a graph that violates it is rejected.",
        rich_help_panel=_PRIVACY,
    ),
]
ReplaceOne = Annotated[
    bool,
    typer.Option(
        "--replace-one",
        help="Node units: hide which of two records a node has, not only whether it has one. Doubles the "
        "noise.",
        rich_help_panel=_PRIVACY,
    ),
]
PrivateMetrics = Annotated[
    bool,
    typer.Option(
        "--private-metrics",
        help="Node units: also release accuracies, as noisy counts that the guarantee covers.",
        rich_help_panel=_PRIVACY,
    ),
]
UnsafeNoiseSeed = Annotated[
    int | None,
    typer.Option(
        "--unsafe-noise-seed", help="Fix the noise too: voids the guarantee.", rich_help_panel=_PRIVACY
    ),
]

Theta = Annotated[
    Path | None,
    typer.Option(
        "--theta",
        help="Unit local-attributes: a JSON list of public weights, one a feature, that add up to 1: how a "
        "node divides eps_x among its features. Weights computed from its own records depend on them.",
        rich_help_panel=_PRIVACY,
    ),
]

Module = Annotated[
    str | None,
    typer.Option(
        "--module",
        metavar="FILE.py:NAME",
        help="Code of your own, which is run: the module that gnn trains, or a method of your own, whose "
        "name is then the METHOD (docs/own_models.md).",
        rich_help_panel=_RUN,
    ),
]
Perturb = Annotated[
    str | None,
    typer.Option(
        "--perturb",
        metavar="MECHANISM",
        help=f"sage, gcn, gat: release a noisy graph first ({', '.join(GRAPH_MECHANISMS)}) and train on it; "
        "settings in brackets: 'edge-rr(structure=lazy_audited)'. Predictions see the released graph, never "
        "the true one.",
        rich_help_panel=_PRIVACY,
    ),
]
Runs = Annotated[
    int, typer.Option("--runs", help="How many runs, each with its own split.", rich_help_panel=_RUN)
]
Seed = Annotated[
    int,
    typer.Option("--seed", help="Of splits, weights and batches; never of the noise.", rich_help_panel=_RUN),
]
FractionSeed = Annotated[
    int,
    typer.Option(
        "--seed", help="Of the edges that --private-fraction takes; never of the noise.", rich_help_panel=_RUN
    ),
]
NoBaseline = Annotated[
    bool,
    typer.Option(
        "--no-baseline",
        help="Leave out the no-graph baseline (mlp). It learns from the same reports at no further cost.",
        rich_help_panel=_RUN,
    ),
]
Baseline = Annotated[
    bool | None,
    typer.Option(
        "--baseline/--no-baseline",
        help="Train the no-graph baseline (mlp). Default: yes, but no under node-level units, where it is a "
        "release of its own and adds to the total.",
        rich_help_panel=_RUN,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the plan and its total, and stop. Spends and writes nothing.",
        rich_help_panel=_RUN,
    ),
]
AggregationBackend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="Who sums over edges: memory, disk (--graph), ray, cuda; else where they are. Same result.",
        rich_help_panel=_RUN,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The cluster of --backend ray; by default RAY_ADDRESS, else this machine.",
        rich_help_panel=_RUN,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="The run folder; by default a new one in runs/.", rich_help_panel=_RUN),
]
PredictionsOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="A table with probabilities, .parquet or .csv; by default predictions are printed without.",
        rich_help_panel=_RUN,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any constructor keyword of the method; repeatable.",
        rich_help_panel=_RUN,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="mlflow[:URI]",
        help="Log the finished run's public figures there; may be given several times.",
        rich_help_panel=_RUN,
        show_default=False,
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Finish the run that --out holds.", rich_help_panel=_RUN)
]
