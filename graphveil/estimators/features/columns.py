"""Columns of another graph by their names: in the order of training, without those that training lacked."""

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.data.tables.encoding import ColumnRule, Encoding
from graphveil.errors import GraphError


def aligned(graph: Graph, trained: Encoding | None) -> Graph:
    """Return a graph with the feature columns of training, matched by name.

    Columns that training lacked are dropped. A graph without column names is returned as it is.

    Raises:
        GraphError: a column is missing, or became other features than in training.
    """
    own = graph.encoding
    if own is not None and own.constant and (trained is None or not trained.constant):
        columns = "" if trained is None else f" ({trained.words()})"
        raise GraphError(
            f"the graph has no features, and the model was trained on features{columns}. Give the nodes the "
            "same columns as in training. No privacy budget was spent."
        )
    if trained is not None and trained.constant and own is not None:
        return graph.replace(x=torch.ones(graph.num_nodes, 1), encoding=trained)
    if own is None or trained is None or _shapes(own) == _shapes(trained):
        return graph
    places, start = dict[str, range](), 0
    for rule in own.rules:
        places[rule.name] = range(start, start + rule.columns)
        start += rule.columns
    if start != graph.num_features:
        return graph
    missing = [rule.name for rule in trained.rules if rule.name not in places]
    if missing:
        raise GraphError(
            f"the graph lacks the feature column {missing[0]!r}, which the model was trained on. Add the "
            "column under this name. No privacy budget was spent."
        )
    rules = {rule.name: rule for rule in own.rules}
    changed = [rule.name for rule in trained.rules if _shape(rules[rule.name]) != _shape(rule)]
    if changed:
        raise GraphError(
            f"the column {changed[0]!r} became other features than in training. Read the tables with "
            "encoding=model.encoding_. No privacy budget was spent."
        )
    order = [place for rule in trained.rules for place in places[rule.name]]
    x = graph.x[:, torch.tensor(order)] if isinstance(graph.x, Tensor) else graph.x[:, order]
    return graph.replace(x=x, encoding=trained)


def _shapes(encoding: Encoding) -> list[tuple[object, ...]]:
    return [_shape(rule) for rule in encoding.rules]


def _shape(rule: ColumnRule) -> tuple[object, ...]:
    kind = "number" if rule.kind in ("number", "bool") else rule.kind
    return rule.name, kind, rule.width, rule.values, rule.places, rule.indicator
