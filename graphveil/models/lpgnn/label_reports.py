"""Which mechanism randomises labels, by the name that a configuration gives it."""

import math
from typing import Literal

from graphveil.artifacts.rows import ReleaseRow
from graphveil.mechanisms import LabelMechanism, LabelRR, SubsetSelection
from graphveil.models.lpgnn.feature_reports import AS_IT_IS

Labels = Literal["rr", "subset"]
LABELS: dict[Labels, type[LabelRR | SubsetSelection]] = {"rr": LabelRR, "subset": SubsetSelection}


def label_mechanism(name: Labels, epsilon: float, classes: int) -> LabelMechanism:
    """Return the mechanism for a label of so many classes.

    >>> label_mechanism("subset", 1.0, 7).size
    2
    """
    return LABELS[name](epsilon=epsilon, classes=classes)


def name_of(label: LabelRR | SubsetSelection) -> Labels:
    """Return the name of a mechanism."""
    return "rr" if isinstance(label, LabelRR) else "subset"


def label_row(label: LabelMechanism) -> ReleaseRow:
    """Return what leaves each node of its label, as a line of a table."""
    return ReleaseRow(
        kind="label", sensitivity=1.0, noise_std=[], values_per_node=label.size, words=label_words(label)
    )


def label_words(label: LabelMechanism) -> str:
    """Return what each node does to its label.

    >>> label_words(SubsetSelection(epsilon=1.0, classes=7))
    '2 of 7 classes said, its own among them with probability 0.5209'
    """
    if math.isinf(label.epsilon):
        return AS_IT_IS
    if label.size > 1:
        among = f"its own among them with probability {label.keep:.4g}"
        return f"{label.size} of {label.classes} classes said, {among}"
    return f"kept with probability {label.keep:.4g}, else another of {label.classes}"
