"""Public properties of a graph under every unit: its sizes, and the nodes of each part of the split."""

from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from graphveil.core.edges.node_pairs import Domain
from graphveil.data import Graph
from graphveil.data.relational import Relation
from graphveil.errors import GraphError

TRAIN, VAL, OTHER = range(3)  # the public groups of records
GROUPS = 3
PARTITION = "train/val/other"


def members(view: Graph, split: str) -> Tensor:
    """Return the nodes of a part of the split, with or without a label, int64."""
    return nodes_of(view.members(split))


def check_members(view: Graph, *splits: str) -> None:
    for split in splits:
        if not len(members(view, split)):
            raise GraphError(f"The split has no {split} nodes. Add some to the split.")


def record_groups(view: Graph) -> Tensor:
    """Return each node's public group, by membership in the split alone, int64 (N).

    Far ends of tables follow, which have no record.

    >>> path = Graph.from_edges(torch.eye(3), [0, -1, 1], [0], [1], directed=False)
    >>> split = path.with_split(*torch.eye(3, dtype=torch.bool))
    >>> record_groups(split).tolist()
    [0, 1, 2]
    """
    groups = torch.full((view.num_nodes + view.num_far_ends,), OTHER)
    groups[members(view, "train")] = TRAIN
    groups[members(view, "val")] = VAL
    return groups


def training_groups(*, metrics: bool) -> tuple[bool, ...]:
    """Return whether the records of each public group are used for training.

    Nothing is selected on validation nodes, so they are training nodes, unless they are counted
    (``metrics``).
    """
    return True, not metrics, False


def charged_members(view: Graph, pays: tuple[bool, ...]) -> Tensor:
    """Return the public members of the groups that a query charges, with or without a label, bool (N)."""
    return torch.tensor(pays)[record_groups(view)]


def nodes_of(mask: Tensor) -> Tensor:
    return mask.nonzero()[:, 0]


def check_classes(view: Graph, names: tuple[str, ...], classes: int) -> None:
    if not view.has_split:
        return
    labeled = view.labeled_in("train", "val")
    if not bool(labeled.any()):
        return
    if int(view.y[labeled].max()) >= classes or (names and view.class_names not in ((), names)):
        raise GraphError(
            f"The graph's public labels are not the {classes} classes that the model was trained on. "
            "Number them as in training (classes= of read_graph), or omit the graph's labels and "
            "split."
        )


TRAIN_SHARE = 0.75  # share of the nodes if no split is known, as in recipe gap
TYPICAL_NODES, TYPICAL_CLASSES, TYPICAL_FEATURES = 10_000, 10, 500


@dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """The public sizes that a query plan may depend on.

    Unknown sizes are None. ``completed`` replaces them by typical ones, and ``missing`` lists their names, so
    that a plan can be shown with its assumptions.

    Args:
        train_records: Public number of training nodes, with or without a label.
        labeled: Number of nodes with a public label; only for edge-level units, where labels are public.
        learned_columns: Number of feature columns whose ranges the first query of the plan is about.
        domain: Node pairs of a released graph; None for all, or if no graph is released.
        relations: Public parts of tables of rows, for tables.

    >>> sizes = PublicSizes(nodes=100, classes=3)
    >>> sizes.completed().train_records, sizes.missing
    (75, ('features', 'train_records'))
    """

    nodes: int
    classes: int
    features: int | None = None
    train_records: int | None = None
    labeled: int | None = None
    learned_columns: int = 0
    domain: Domain | None = field(default=None, compare=False, repr=False)
    relations: tuple[Relation, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def from_graph(cls, view: Graph) -> "PublicSizes":
        """Return the sizes of a graph with a split; no label is read."""
        return cls(
            nodes=view.num_nodes,
            classes=view.num_classes,
            features=view.num_features,
            train_records=len(members(view, "train")),
        )

    @property
    def missing(self) -> tuple[str, ...]:
        names = [part.name for part in fields(self) if part.name not in ("labeled", "domain")]
        return tuple(name for name in names if getattr(self, name) is None)

    def completed(self) -> "PublicSizes":
        return replace(self, features=self.width, train_records=self.records)

    @property
    def width(self) -> int:
        return self.features or TYPICAL_FEATURES

    @property
    def records(self) -> int:
        return self.train_records or max(1, round(TRAIN_SHARE * self.nodes))
