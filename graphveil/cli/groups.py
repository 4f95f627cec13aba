"""Flags that go together, as one argument of a command: each group is written once, for all that take it."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil.cli import options

if TYPE_CHECKING:
    from graphveil.runs.source import PublicFlags, Source

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What the columns of a table of nodes and a table of edges are."""

    id: options.Id = None
    label: options.Label = None
    source: options.SourceColumn = None
    target: options.TargetColumn = None
    directed: options.Directed = False
    split: options.Split = None
    classes: options.Classes = None
    features: options.Features = None
    drop: options.Drop = None
    categories: options.CategoryColumns = None
    missing: options.Missing = None
    unknown_ids: options.UnknownIds = None
    null_values: options.NullValues = None
    delimiter: options.Delimiter = None
    decimal: options.Decimal = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of ``--classes``, None where they were not given."""
        from graphveil.runs.parameters import parse_classes

        return None if self.classes is None else parse_classes(self.classes)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which two tables, and what is known of them besides their columns."""

    nodes: options.Nodes = None
    edges: options.Edges = None
    weight: options.Weight = None
    max_weight: options.MaxWeight = None
    node_ids: options.NodeIds = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """A data set by name, or a folder that ``prepare`` wrote; neither where there are tables."""

    dataset: options.Dataset = None
    root: options.Root = None
    graph: options.Graph = None

    def source(self, tables: TableOptions, columns: ColumnOptions) -> "Source":
        """Return where the graph comes from."""
        from graphveil.runs.source import Source

        read = {part.name: getattr(columns, part.name) for part in fields(columns)}
        given = {part.name: getattr(tables, part.name) for part in fields(tables)}
        named = tables.nodes is None and tables.edges is None and self.graph is None
        return Source(
            dataset=self.dataset,
            root=self.root if named else None,
            folder=self.graph,
            **given,
            **{**read, "classes": columns.class_names},
        )


@dataclass(frozen=True, kw_only=True)
class PublicEdgeOptions:
    """Under ``edge-subset``: which edges are public, and who may have private ones."""

    public_edges: options.PublicEdges = None
    private_nodes: options.PrivateNodes = None
    private_fraction: options.PrivateFraction = None
    private_where: options.PrivateWhere = None

    def flags(self) -> "PublicFlags":
        """Return them, checked against each other."""
        from graphveil.runs.source import PublicFlags

        return PublicFlags(**{part.name: getattr(self, part.name) for part in fields(self)})


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """What is protected and how, but for the budget, which a sweep has several of."""

    unit: options.Unit = None
    delta: options.Delta = None
    mode: options.Mode = None
    max_units: options.MaxUnits = None
    out_degree_bound: options.OutDegreeBound = None
    max_degree: options.MaxDegree = None
    replace_one: options.ReplaceOne = False
    private_metrics: options.PrivateMetrics = False
    theta: options.Theta = None
    unsafe_noise_seed: options.UnsafeNoiseSeed = None
    perturb: options.Perturb = None
    max_edges: options.MaxEdges = None

    def keywords(self) -> dict[str, Any]:
        """Return as keywords what was given, all but theta, which is a file; a flag left out is no choice."""
        named = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "theta"}
        return {name: value for name, value in named.items() if value is not None and value is not False}


def grouped(command: Callable[..., Result]) -> Callable[..., Result]:
    """Return a command that takes each group's flags one by one, as its signature then says.

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
