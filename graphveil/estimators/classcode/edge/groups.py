"""Who has a public label: the groups by which ClassCode weighs and prices messages at edge level."""

import torch
from torch import Tensor

from graphveil.data import Graph

TRAIN, VAL, TARGET = 0, 1, 2
GROUPS = 3
PARTITION = "train/val/target"
RANKS = (0, 1, 2)  # of the groups: between two an edge counts at the end of the higher rank


def groups_of(graph: Graph) -> Tensor:
    """Return each node's public group: train, validation, or target, as all are without a split."""
    groups = torch.full((graph.num_nodes,), TARGET)
    if not graph.has_split:
        return groups
    groups[graph.mask("train")] = TRAIN
    groups[graph.mask("val")] = VAL
    return groups


def prediction_groups(graph: Graph, first: int) -> Tensor:
    """Return each node's group in a graph to predict.

    Nodes before ``first`` speak, and have no row: the whole budget of an edge to them goes to the other end,
    as if they were labeled.
    """
    groups = groups_of(graph)
    groups[:first] = TRAIN
    return groups


def public_labels(graph: Graph, groups: Tensor) -> Tensor:
    """Return the classes of the nodes in labeled groups, and -1 for targets."""
    return torch.where(groups != TARGET, graph.y, -1)


def labeled_count(graph: Graph) -> int:
    """Return how many nodes have a public label."""
    return int((groups_of(graph) != TARGET).sum())
