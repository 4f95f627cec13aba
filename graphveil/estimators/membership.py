"""Who is in which part of the split: public under every unit, whether or not a node has a label."""

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import GraphError

TRAIN, VAL, OTHER = range(3)  # the public groups of records
GROUPS = 3
PARTITION = "train/val/other"


def members(graph: Graph, split: str) -> Tensor:
    """Return the nodes of a part of the split, with or without a label, int64.

    Raises:
        GraphError: there is no split.
    """
    graph.mask(split)  # says what is missing
    mask: Tensor = getattr(graph, f"{split}_mask")
    return mask.nonzero()[:, 0]


def check_members(graph: Graph, *splits: str) -> None:
    """Refuse a graph without public members in these parts of its split."""
    for split in splits:
        if not len(members(graph, split)):
            raise GraphError(f"the split has no {split} nodes; give it some")


def record_groups(graph: Graph) -> Tensor:
    """Return each node's public group, by membership in the split alone, int64 (N).

    >>> path = Graph.from_edges(torch.eye(3), [0, -1, 1], [0], [1], directed=False)
    >>> split = path.with_split(*torch.eye(3, dtype=torch.bool))
    >>> record_groups(split).tolist()
    [0, 1, 2]
    """
    groups = torch.full((graph.num_nodes,), OTHER)
    groups[members(graph, "train")] = TRAIN
    groups[members(graph, "val")] = VAL
    return groups


def nodes_of(mask: Tensor) -> Tensor:
    """Return the node indices of a mask."""
    return mask.nonzero()[:, 0]


def check_classes(graph: Graph, names: tuple[str, ...], classes: int) -> None:
    """Refuse public labels that do not mean what they meant in training.

    Raises:
        GraphError: a class is unknown, or its name is another's.
    """
    if not graph.has_split:
        return
    labeled = graph.mask("train") | graph.mask("val")
    if not bool(labeled.any()):
        return
    if int(graph.y[labeled].max()) >= classes or (names and graph.class_names not in ((), names)):
        raise GraphError(
            f"the graph's public labels are of other classes than the {classes} that the model was trained "
            "on; number them as in training (read_graph has classes=), or leave its split out, and with it "
            "its labels"
        )
