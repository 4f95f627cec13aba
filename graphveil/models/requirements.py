"""What a unit demands of a configuration and of a graph: refused here, before anything is spent."""

from typing import TYPE_CHECKING

import torch

from graphveil.errors import ConfigError, GraphError, NotYetError, UnitError
from graphveil.graph import Graph
from graphveil.privacy import NodeFeatures, NodeOwner, NodePromise, NodeUnit, NoUnit, Unit

if TYPE_CHECKING:
    from graphveil.models.base import Estimator


def check_parameters(model: "Estimator", unit: Unit) -> None:
    """Refuse a unit that the method cannot protect, and a parameter that the unit has no use for.

    A parameter without effect would be believed to protect something.

    Raises:
        NotYetError: the method does not protect this unit.
        UnitError: a parameter belongs to another unit, or one that the unit needs is missing.
        ConfigError: private metrics are asked for where accuracies need none.
    """
    check_local(model, unit)
    if isinstance(unit, NodeUnit) and unit.name not in model.node_units:
        raise NotYetError(
            f"{model.method} does not yet protect {unit.name!r}: it would train on records in the clear; "
            "use an edge unit, or another method"
        )
    if model.degree_budget is not None and not isinstance(unit, NodeOwner):
        raise UnitError(
            f"degree_budget={model.degree_budget} divides one record among the edges that it declares, and "
            f"unit {unit.name!r} protects no such record; drop it (--degree-budget), or use unit 'node-owner'"
        )
    if model.assured_max_degree is not None and not isinstance(unit, NodePromise):
        raise UnitError(
            f"assured_max_degree={model.assured_max_degree} is a promise that unit {unit.name!r} does not "
            "rest on; drop it (--assured-max-degree), or use unit 'node-promise'"
        )
    if model.private_metrics and not isinstance(unit, NodeUnit):
        why = "test labels" if isinstance(unit, NodeFeatures) else "labels"
        raise ConfigError(
            f"private_metrics makes noisy counts of correct predictions, and unit {unit.name!r} does not "
            f"protect {why}, so exact accuracies cost nothing; drop it (--private-metrics)"
        )
    if model.needs_degree_budget and isinstance(unit, NodeOwner) and model.degree_budget is None:
        raise UnitError(
            f"{model.method} with unit 'node-owner' needs a degree budget D, which a node of more than D "
            "edges shares among them: pass degree_budget= (--degree-budget). Any D keeps the guarantee; "
            "about half of the expected degree serves accuracy"
        )


def check_local(model: "Estimator", unit: Unit) -> None:
    """Refuse randomised records for a method that reads raw ones, and other units for one that does not.

    Raises:
        UnitError: the two do not fit.
    """
    if isinstance(unit, NodeFeatures) and not model.local:
        raise UnitError(
            f"{model.method} reads everybody's features and labels in one place, and under {unit.name!r} "
            "they are randomised before anybody sees them: use 'lpgnn' or 'simgat', which learn from such "
            "records, or another unit"
        )
    if model.local and not isinstance(unit, NodeFeatures | NoUnit):
        raise UnitError(
            f"{model.method} learns from records that each node randomises, over public edges, so it "
            f"protects 'node-features' and not {unit.name!r}: pass unit='node-features' with eps_x and "
            "eps_y, or use 'classcode' or 'gap'"
        )


def check_kind(graph: object) -> None:
    """Refuse anything but a graph, such as another library's.

    >>> check_kind("karate")
    Traceback (most recent call last):
    graphveil.errors.GraphError: a graph is needed, not a str; load_dataset, read_graph or from_pyg makes one
    """
    if not isinstance(graph, Graph):
        raise GraphError(
            f"a graph is needed, not a {type(graph).__name__}; load_dataset, read_graph or from_pyg makes one"
        )


def check_promise(graph: Graph, unit: Unit) -> None:
    """Refuse a graph in which some node has more edges than the data owner promised.

    The refusal names no number and no node. That there is one is itself something about the graph, which is
    why the guarantee is conditional on the promise.

    >>> path = Graph.from_edges(torch.eye(3), [0, 1, 0], [0, 1], [1, 2], directed=False)
    >>> check_promise(path, NodePromise(max_degree=2))
    """
    if isinstance(unit, NodePromise) and bool((_degrees(graph) > unit.max_degree).any()):
        raise UnitError(
            f"the graph breaks the promise that no node has a degree above {unit.max_degree}, so there is no "
            "guarantee to give: correct assured_max_degree (--assured-max-degree) from what is known about "
            "the data, or use unit 'node-owner', which needs no promise"
        )


def _degrees(graph: Graph) -> torch.Tensor:
    """Return each node's number of edges; directed ones count at both of their ends."""
    degrees = graph.adjacency.indptr.diff()
    if not graph.directed:
        return degrees
    return degrees + torch.bincount(graph.adjacency.indices, minlength=graph.num_nodes)
