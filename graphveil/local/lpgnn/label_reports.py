"""Which mechanism randomizes labels, by the name that a configuration gives it."""

import math
from typing import Literal

from graphveil.artifacts.rows import ReleaseRow
from graphveil.local.lpgnn.feature_reports import IDENTITY_MECHANISM
from graphveil.mechanisms import LabelMechanism, LabelRR, LocalHashing, SubsetSelection

Labels = Literal["rr", "subset", "hashing"]
LABELS: dict[Labels, type[LabelRR | SubsetSelection | LocalHashing]] = {
    "rr": LabelRR,
    "subset": SubsetSelection,
    "hashing": LocalHashing,
}


def label_mechanism(name: Labels, epsilon: float, classes: int) -> LabelMechanism:
    """Return the mechanism for a label of so many classes.

    >>> label_mechanism("subset", 1.0, 7).size
    2
    """
    return LABELS[name](epsilon=epsilon, classes=classes)


def label_mechanism_name(label: LabelMechanism) -> Labels:
    """Return the name of a mechanism."""
    return next(name for name, kind in LABELS.items() if isinstance(label, kind))


def label_row(label: LabelMechanism) -> ReleaseRow:
    """Return what leaves each node of its label, as a line of a table."""
    values = 1 if isinstance(label, LocalHashing) else label.size  # its hash is public, and is not told
    return ReleaseRow(
        kind="label",
        sensitivity=1.0,
        noise_std=[],
        values_per_node=values,
        words=label_mechanism_summary(label),
    )


def label_mechanism_summary(label: LabelMechanism) -> str:
    """Return what each node does to its label.

    >>> label_mechanism_summary(SubsetSelection(epsilon=1.0, classes=7))
    '2 of 7 classes said, its own among them with probability 0.5209'
    """
    if math.isinf(label.epsilon):
        return IDENTITY_MECHANISM
    if isinstance(label, LocalHashing):
        return f"one of {label.groups} public groups of {label.classes} classes said, its own with " + (
            f"probability {label.keep:.4g}"
        )
    if label.size > 1:
        among = f"its own among them with probability {label.keep:.4g}"
        return f"{label.size} of {label.classes} classes said, {among}"
    return f"kept with probability {label.keep:.4g}, else another of {label.classes}"
