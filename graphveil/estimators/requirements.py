"""Requirements of a unit on a configuration and a graph, checked before anything is spent."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch

from graphveil._util import checks
from graphveil._util.figures import counted, format_delta, format_upper_bound
from graphveil.core.accounting.gaussian import auto_delta, epsilon_of, mu_of
from graphveil.core.unit import (
    UNITS,
    DirectedEdge,
    EdgeSubset,
    Level,
    LocalAttributes,
    NodeUnit,
    Person,
    Row,
    UndirectedEdge,
    Unit,
)
from graphveil.data import Graph
from graphveil.data.graph import check_kind
from graphveil.data.recipes import columns_beyond, split
from graphveil.data.relational import Tables, check_tables, reject_tables
from graphveil.data.tables.encoding import (
    REGRESSION,
    SINGLE_TRAIN_NODE_MESSAGE,
    empty_part_message,
)
from graphveil.errors import ConfigError, GraphError, GraphveilError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.features.scaling import check_scaling
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import check_members
from graphveil.training.heads import RegressionHead, TaskHead

REGRESSION_METHODS = "gap, mlp, module, and gnn with neighborhood='neighbors'"
MAX_MAGNITUDE = 2.0**63  # of public features: 64-bit integers are at most that
_SHOWN = 5  # maximum number of columns in an error message


@dataclass(frozen=True)
class Rejection:
    """The reason why a method does not support a unit, in which keywords of the model are replaced."""

    reason: str
    error: type[GraphveilError] = UnitError

    def of(self, model: Any, **values: str) -> GraphveilError:
        return self.error(self.reason.format_map({"method": model.method, **model.get_params(), **values}))


Rejections = dict[str, Rejection]  # by name of a unit


def rejected(reason: str, *units: str, error: type[GraphveilError] = UnitError) -> Rejections:
    return dict.fromkeys(units, Rejection(reason, error))


EDGE_LEVEL, NODE_LEVEL = (
    tuple(name for name, unit in UNITS.items() if unit.level == level) for level in ("edge", "node")
)
EXACT_RECORDS = rejected(
    "{method} needs the exact features and labels, but under unit {unit!r} each node randomizes them first. "
    "Use method 'auto', 'lpgnn' or 'simgat', or 'label-posterior' for labels alone, or another unit.",
    LocalAttributes.name,
)
MIXED_EDGES = rejected(
    "{method} cannot separate private edges from public edges, so it does not support unit {unit!r}. Train "
    "'gcn', 'sage' or 'gat' on a perturbed graph (perturb='edge-rr', --perturb edge-rr), or use unit "
    "'undirected-edge'.",
    EdgeSubset.name,
    error=NotImplementedGuaranteeError,
)
RECORDS_WITHOUT_NOISE = rejected(
    "{method} would train on node records without noise, so it does not support unit {unit!r}. Use an "
    "edge-level unit, or method 'classcode' or 'gap'.",
    *NODE_LEVEL,
    error=NotImplementedGuaranteeError,
)
REPORTS_ONLY = rejected(
    "{method} learns from LDP reports and public edges, so it supports unit 'local-attributes' and not "
    "{unit!r}. Pass unit='local-attributes' with eps_x and eps_y, or use method 'classcode' or 'gap'.",
    *EDGE_LEVEL,
    *NODE_LEVEL,
)

TABLES_ONLY = rejected(
    "{method} learns from one graph, but unit {unit!r} is for several tables. Use method 'relational', or "
    "another unit.",
    Row.name,
    Person.name,
)


def check_config(model: Any, unit: Unit) -> None:
    check_keywords(model, unit)
    check_task(model, unit)
    check_scaling(model.feature_scaling, model.feature_range, model.method, scales=model.scales_features)
    # Locally randomized records are charged when they are reported, not when a model is fitted to them.
    spends = {"edge": model.reads_edges, "node": True, "local": False, "none": False}
    if model.epsilon is None and spends[unit.level]:
        raise ConfigError(
            f"epsilon is missing: {model.method} with unit {unit.name!r} needs a privacy budget. Pass "
            "epsilon=1.0 (--epsilon 1.0), or unit='none' for the non-private reference."
        )
    for name in ("out_degree_bound", "max_degree"):
        if getattr(model, name) is not None:
            checks.integer_at_least(1, **{name: getattr(model, name)})


_WITHOUT_EFFECT = {
    "out_degree_bound": Rejection(
        "out_degree_bound={out_degree_bound} bounds the contribution of a node record, which unit {unit!r} "
        "does not protect. Omit it (--out-degree-bound), or use unit 'node-record'."
    ),
    "max_degree": Rejection(
        "max_degree={max_degree} is an assumption that unit {unit!r} does not need. Omit it (--max-degree), "
        "or use unit 'node-bounded-degree'."
    ),
    "private_metrics": Rejection(
        "private_metrics releases noisy counts of correct predictions, but unit {unit!r} does not protect "
        "{known}, so exact accuracies do not spend budget. Omit it (--private-metrics).",
        ConfigError,
    ),
}

_EXACT_LABELS = dict.fromkeys(get_args(Level), "labels") | {"local": "test labels"}


def check_keywords(model: Any, unit: Unit) -> None:
    """Reject a parameter without effect under the unit, and require one that the method needs.

    A reader would believe that a parameter without effect protects something.
    """
    without_effect = [name for name in _WITHOUT_EFFECT if name not in unit.keywords]
    for name in without_effect:
        if getattr(model, name) not in (None, False):
            raise _WITHOUT_EFFECT[name].of(model, known=_EXACT_LABELS[unit.level])
    needs_bound = model.needs_out_degree_bound and model.out_degree_bound is None
    if needs_bound and "out_degree_bound" in unit.keywords:
        raise UnitError(
            f"{model.method} with unit 'node-record' needs out_degree_bound= (--out-degree-bound); "
            "nodes with more out-edges use smaller edge weights. The guarantee is valid for any "
            "value. About half of the expected out-degree is a good choice."
        )


def check_task(model: Any, unit: Unit) -> None:
    if model.task != REGRESSION:
        if model.target_range is not None:
            raise ConfigError(
                "target_range (--target-range) applies to regression only. Add task='regression' (--task "
                "regression), or omit it."
            )
        return
    if not model.predicts_numbers:
        raise ConfigError(
            f"{model.method} predicts classes only, and does not support task='regression'. Use one "
            f"of {REGRESSION_METHODS}."
        )
    if model.private_metrics:
        raise ConfigError(
            "private_metrics (--private-metrics) counts correct predictions, which task='regression' "
            "does not have. Omit it."
        )
    if model.target_range is not None:
        low, high = model.target_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(
                f"target_range=({low:g}, {high:g}) is not a range. Give two finite numbers, the smaller "
                "one first."
            )
    elif isinstance(unit, NodeUnit):
        raise ConfigError(
            f"target_range is missing: unit {unit.name!r} protects the targets, so their range must "
            "be public. Pass target_range=(low, high) (--target-range LOW HIGH) from public "
            "knowledge. Targets are clipped to it."
        )


def check_head(head: TaskHead, view: Graph) -> None:
    if isinstance(head, RegressionHead):
        head.check(view)
    elif view.targets is not None:
        raise GraphError(
            "The graph has numeric targets and no classes. Use task='regression' (--task "
            f"regression), which is supported by {REGRESSION_METHODS}."
        )


def check_learnable(privacy_config: PrivacyConfig, view: Graph) -> None:
    """Reject a graph that the training cannot use, before anything is spent.

    Under node-level units labels are protected, so only membership in the split is read.
    """
    if privacy_config.on_records:
        check_members(view, "train", *(("val", "test") if privacy_config.private_metrics else ()))
        return
    known = view.y if view.targets is None else view.targets
    if torch.unique(known[view.labeled]).numel() < 2:
        if view.targets is not None:
            raise GraphError(
                "The targets have fewer than two distinct values. Regression needs at least two."
            )
        raise GraphError(
            "The labels have fewer than two classes. Classification needs labeled nodes of at least "
            "two classes."
        )
    for part in ("train", "val"):
        if not bool(view.labeled_in(part).any()):
            raise GraphError(empty_part_message(part))
    if int(view.labeled_in("train").sum()) == 1:  # batch norm needs two nodes
        raise GraphError(SINGLE_TRAIN_NODE_MESSAGE)


def check_unit(privacy_config: PrivacyConfig, view: Graph, *, reads_edges: bool) -> None:
    if reads_edges:
        _EDGE_CHECKS[privacy_config.unit.name](privacy_config, view)


def _check_stored_edges(privacy_config: PrivacyConfig, view: Graph) -> None:
    epsilon = privacy_config.epsilon
    if view.directed or epsilon is None:
        return
    # A delta to compare at; a pure guarantee has none.
    delta = privacy_config.delta_for(view.num_nodes) or auto_delta(privacy_config.unit, view.num_nodes)
    actual = epsilon_of(2**0.5 * mu_of(epsilon, delta), delta)
    raise UnitError(
        "unit='directed-edge' does not protect an undirected graph at epsilon "
        f"{format_upper_bound(epsilon)}: each undirected edge is stored twice, which is epsilon "
        f"{format_upper_bound(actual)} (delta {format_delta(delta)}). If edges have a direction, load "
        "the graph with directed=True (--directed). Otherwise use unit='undirected-edge' (--unit "
        "undirected-edge)."
    )


def _check_undirected(privacy_config: PrivacyConfig, view: Graph) -> None:
    if view.directed:
        raise UnitError(
            "unit='undirected-edge' needs an undirected graph, but this graph is directed. Use "
            "unit='directed-edge', or load the graph with directed=False (without --directed)."
        )


def _check_unweighted(privacy_config: PrivacyConfig, view: Graph) -> None:
    if view.adjacency.max_weight is not None:
        raise NotImplementedGuaranteeError(
            f"Edge weights are not supported under unit {privacy_config.unit.name!r}. Remove them with "
            "adjacency.without_weights() (or without --weight)."
        )


_EDGE_CHECKS: Mapping[str, Callable[[PrivacyConfig, Graph], None]] = {
    **dict.fromkeys(UNITS, _check_unweighted),
    UndirectedEdge.name: _check_undirected,
    DirectedEdge.name: _check_stored_edges,
    EdgeSubset.name: lambda privacy_config, view: None,  # which mechanisms for graphs check
}


def check_features(view: Graph, features: int) -> None:
    if view.num_features != features:
        raise GraphError(
            f"The graph has {counted(view.num_features, 'feature')}, but the model was trained on "
            f"{features}. Use the same feature columns as in training."
        )


def check_magnitudes(view: Graph) -> None:
    beyond = columns_beyond(view.x, MAX_MAGNITUDE)
    if beyond:
        names = column_names(view)
        found = list(dict.fromkeys(repr(names[at]) if names else str(at) for at in beyond))
        more = [f"and {len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else []
        shown = ", ".join(found[:_SHOWN] + more) + ("" if names else " (index from 0)")
        raise GraphError(
            f"The features have values above 2^63 in column {shown}, which overflow float32. Divide "
            "the column by its largest public value, or drop the column (--drop)."
        )


def column_names(graph: Graph) -> tuple[str, ...]:
    rules = () if graph.encoding is None else graph.encoding.rules
    names = tuple(rule.name for rule in rules for _ in range(rule.columns))
    return names if len(names) == graph.num_features else ()


def as_graph(graph: Any, unit: str | None, *, tables: bool = False) -> Graph:
    """Convert a graph, tables or a torch_geometric ``Data`` to a graph that is directed if the unit is.

    Tables without a split get the public one of ``gv.split`` with seed 0, each time the same.

    Args:
        tables: Whether several tables are supported.
    """
    if isinstance(graph, Tables):
        check_tables(graph.graph, unit)
        graph = graph.graph if graph.graph.has_split else split(graph.graph, unit=unit)
    if isinstance(graph, Graph):
        check_tables(graph, unit)
        if not tables:
            reject_tables(graph)
        return graph
    kinds = [kind.__module__ for kind in type(graph).__mro__]  # the class of a Batch is created dynamically
    listed = isinstance(graph, list | tuple) and graph and hasattr(graph[0], "edge_index")
    if listed or any(kind.startswith("torch_geometric.data") for kind in kinds):
        return Graph.from_pyg(graph, directed=unit == DirectedEdge.name)
    check_kind(graph)  # which rejects it
    raise AssertionError


def check_encoding(graph: object, unit: Unit, *, protects_features: bool) -> None:
    """Reject features or nodes that were derived from protected data, before anything is spent.

    Raises:
        UnitError: If categories or medians of a column were computed from protected features, or nodes were
            added because a protected edge contains them.
    """
    encoding = graph.encoding if isinstance(graph, Graph) else None
    if encoding is None:
        return
    if protects_features and encoding.fitted:
        raise UnitError(
            f"The encoding of {', '.join(map(repr, encoding.fitted[:3]))} was computed from all "
            f"records (categories or a median), which unit {unit.name!r} protects. Name the "
            "categories (categories='plan=free|pro'), or hash them ('country=hash:32'), and use "
            "missing='indicator'."
        )
    if encoding.nodes_from_edges and unit.protects_edges:
        raise UnitError(
            "unknown_ids='add' added nodes that only edges name, so a node would reveal an edge, "
            f"which unit {unit.name!r} protects. Read the graph with node_ids= (a public list), or "
            "with unknown_ids='drop'."
        )
