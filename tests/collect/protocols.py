"""Surveys of each kind, small enough to look at."""

import math
from typing import Any

from graphveil.local.collect import CollectionProtocol
from graphveil.mechanisms import (
    Bounds,
    FeatureRR,
    LabelRR,
    LocalHashing,
    MultiBit,
    SubsetSelection,
    WeightedAllocation,
)

LABEL = LabelRR(epsilon=1.0, classes=5)
SURVEYS = {
    "multi-bit": CollectionProtocol(features=MultiBit(epsilon=6.0, dim=11), label=LABEL),
    "one bit": CollectionProtocol(features=MultiBit(epsilon=6.0, dim=11, m="all")),
    "all sampled": CollectionProtocol(features=MultiBit(epsilon=2.0, dim=1)),
    "feature-rr": CollectionProtocol(features=FeatureRR(epsilon=6.0, dim=3), label=LABEL, purpose="pilot"),
    "weights": CollectionProtocol(
        features=FeatureRR(
            epsilon=9.0, dim=3, allocation=WeightedAllocation([0.7, 0.2, 0.1]), bounds=Bounds(-1.0, 2.5)
        ),
        label=LabelRR(epsilon=math.inf, classes=2),
    ),
    "paper": CollectionProtocol(features=FeatureRR(epsilon=3.0, dim=4, k=10, mode="ceil", decode="naive")),
    "label": CollectionProtocol(label=LabelRR(epsilon=0.5, classes=300)),
    "subset": CollectionProtocol(label=SubsetSelection(epsilon=0.5, classes=30)),
    "hashing": CollectionProtocol(label=LocalHashing(epsilon=1.0, classes=7)),
    "hashing and bits": CollectionProtocol(
        features=MultiBit(epsilon=6.0, dim=11), label=LocalHashing(epsilon=0.5, classes=30)
    ),
    "subset and bits": CollectionProtocol(
        features=MultiBit(epsilon=6.0, dim=11),
        label=SubsetSelection(epsilon=1.0, classes=7),
        class_names=tuple("abcdefg"),
    ),
}


SECRET = bytes(range(32))


def record(protocol: CollectionProtocol, node: int | str = "ann") -> dict[str, Any]:
    """An answer's input, with values inside, at and outside the bounds; the answer agrees to all of it."""
    given: dict[str, Any] = {
        "node": node,
        "secret": SECRET,
        "max_eps": math.inf,
        "allow_unprotected_label": True,
    }
    if protocol.features is not None:
        given["features"] = [0.3 + 0.4 * i for i in range(protocol.features.dim)]
    if protocol.label is not None:
        given["label"] = 1
    return given
