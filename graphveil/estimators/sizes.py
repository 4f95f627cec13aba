"""Public sizes: everything public that the noise of a release depends on, beside the configuration."""

from dataclasses import dataclass, field, fields, replace

from graphveil.data import Graph
from graphveil.data.domain import Domain
from graphveil.estimators.membership import members

TRAIN_SHARE = 0.75  # of the nodes, where no split is known: that of recipe gap
TYPICAL_NODES, TYPICAL_CLASSES, TYPICAL_FEATURES = 10_000, 10, 500


@dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """What a plan may depend on besides the configuration; none of it is protected.

    Sizes that are not known are None. :meth:`completed` puts typical ones in their place, and
    :attr:`missing` names them, so that whoever shows a plan can say what it assumed.

    Args:
        nodes: N.
        classes: C.
        features: d.
        train_records: the public number of training nodes, with or without a label.
        labeled: how many nodes have a public label; at edge level only, where labels are public.
        domain: which slots a released graph is about; None for all, or where no graph is released.

    >>> sizes = PublicSizes(nodes=100, classes=3)
    >>> sizes.completed().train_records, sizes.missing
    (75, ('features', 'train_records'))
    """

    nodes: int
    classes: int
    features: int | None = None
    train_records: int | None = None
    labeled: int | None = None
    domain: Domain | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_graph(cls, graph: Graph) -> "PublicSizes":
        """Return the sizes of a graph with a split; no label is read."""
        return cls(
            nodes=graph.num_nodes,
            classes=graph.num_classes,
            features=graph.num_features,
            train_records=len(members(graph, "train")),
        )

    def for_graph(self, graph: Graph) -> "PublicSizes":
        """Return what a plan for predicting another graph depends on: its nodes, and the fitted sizes."""
        return replace(self, nodes=graph.num_nodes, labeled=None, domain=None)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of sizes that :meth:`completed` has to assume."""
        names = [part.name for part in fields(self) if part.name not in ("labeled", "domain")]
        return tuple(name for name in names if getattr(self, name) is None)

    def completed(self) -> "PublicSizes":
        """Return the sizes with typical ones where they are not known."""
        return replace(self, features=self.width, train_records=self.records)

    @property
    def width(self) -> int:
        """The number of features: known, or typical."""
        return self.features or TYPICAL_FEATURES

    @property
    def records(self) -> int:
        """The number of training nodes: known, or the typical share."""
        return self.train_records or max(1, round(TRAIN_SHARE * self.nodes))
