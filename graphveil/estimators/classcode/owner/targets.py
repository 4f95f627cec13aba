"""Whose rows are released under unit ``node-record``: all, or those that somebody asked for."""

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.public_sizes import members, record_groups
from graphveil.release import DPSGDQuery, ReleasePlan

Targets = str | tuple[int | str, ...] | None


def released_rows(graph: Graph, plan: ReleasePlan, targets: Targets) -> Tensor:
    """Return the public set of nodes whose rows are released, bool (N); ``"unlabeled"`` ones do not teach.

    Raises:
        ConfigError: an id is no node of the graph, or nothing is left.
    """
    if targets is None:
        return torch.ones(graph.num_nodes, dtype=torch.bool)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if targets == "test":
        chosen[members(graph, "test")] = True
    elif targets == "unlabeled":
        chosen = ~training_members(graph, plan)
    else:
        chosen[_positions(graph, targets)] = True
    if not bool(chosen.any()):
        raise ConfigError(f"targets={targets!r} leaves no row to release; name some nodes, or drop it")
    return chosen


def _positions(graph: Graph, targets: Targets) -> list[int]:
    """Return the places of nodes that are given by their ids, or by row numbers in a graph without ids."""
    ids = range(graph.num_nodes) if graph.ids is None else graph.ids.tolist()
    places = {str(name): place for place, name in enumerate(ids)}
    wanted = [str(name) for name in targets or ()]
    if not all(name in places for name in wanted):
        raise ConfigError(
            "targets names a node that the graph does not have; give ids of its nodes, or 'unlabeled' or "
            "'test'"
        )
    return [places[name] for name in wanted]


def training_members(graph: Graph, plan: ReleasePlan) -> Tensor:
    """Return the public members of the groups that teach, with or without a label, bool (N)."""
    pays = next(query.pays for query in plan.queries if isinstance(query, DPSGDQuery))
    return torch.tensor(pays)[record_groups(graph)]
