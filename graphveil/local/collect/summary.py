"""What a survey asks, in names and numbers: for the person who is asked, before anything is answered."""

from collections.abc import Iterator

import numpy as np

from graphveil._util.ldp_statements import exact_sum_text
from graphveil.local.collect.protocol import CollectionProtocol, LabelLaw
from graphveil.mechanisms.labels import LocalHashing
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import Floats

SHOWN = 20  # features that are listed one by one

Row = tuple[str, str]


def feature_budgets(protocol: CollectionProtocol) -> Floats:
    """Return how much each feature may tell, (dim,): of a mechanism that samples, if it is told about.

    >>> from graphveil.mechanisms import FeatureRR, WeightedAllocation
    >>> law = FeatureRR(epsilon=8.0, dim=2, allocation=WeightedAllocation([0.75, 0.25]))
    >>> feature_budgets(CollectionProtocol(features=law)).tolist()
    [6.0, 2.0]
    """
    law = protocol.features
    if law is None:
        return np.empty(0)
    if isinstance(law, MultiBit):
        return np.full(law.dim, law.epsilon / law.samples)
    return law.allocation.budgets(law.epsilon, law.dim)


def largest_share(protocol: CollectionProtocol) -> float:
    """Return the most that one feature has of the budget of all, theta's largest; 0 without features.

    >>> from graphveil.mechanisms import FeatureRR, WeightedAllocation
    >>> features = FeatureRR(epsilon=8.0, dim=2, allocation=WeightedAllocation([0.75, 0.25]))
    >>> largest_share(CollectionProtocol(features=features))
    0.75
    """
    budgets = feature_budgets(protocol)
    return 0.0 if protocol.features is None else float(budgets.max()) / protocol.features.epsilon


def overview(protocol: CollectionProtocol) -> list[Row]:
    """Return what a survey asks as lines of a name and a value.

    >>> from graphveil.mechanisms import LabelRR
    >>> overview(CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3), purpose="pilot"))[0]
    ('purpose', 'pilot')
    """
    return [
        ("purpose", protocol.purpose or "none is given"),
        *_features(protocol),
        *_label(protocol),
        _total(protocol),
    ]


def feature_rows(protocol: CollectionProtocol) -> list[tuple[str, str, str, str, str]]:
    """Return name, lower and upper bound, budget and probability to be kept, of what tells most."""
    law, budgets = protocol.features, feature_budgets(protocol)
    if law is None:
        return []
    low, high = (np.broadcast_to(end, law.dim) for end in (law.bounds.low, law.bounds.high))
    most = np.argsort(-budgets, kind="stable")[:SHOWN]
    return [
        (
            protocol.columns[i] if protocol.columns else f"feature {i}",
            f"{low[i]:g}",
            f"{high[i]:g}",
            f"{budgets[i]:.4g}",
            f"{protocol.kept[0][i]:.4g}",
        )
        for i in most.tolist()
    ]


def _features(protocol: CollectionProtocol) -> Iterator[Row]:
    law = protocol.features
    if law is None:
        yield "features", "not asked for"
        return
    yield "features", f"{law.dim}, randomized by {type(law).__name__} at epsilon {law.epsilon:g} together"
    if isinstance(law, MultiBit) and law.samples < law.dim:
        yield "told about", f"{law.samples} of them, which the survey and your id choose, not the answer"
    yield "largest share", f"{largest_share(protocol):.4g} of that budget is for a single feature"
    yield (
        "bounds",
        f"from {np.min(law.bounds.low):g} to {np.max(law.bounds.high):g}; what lies outside is cut",
    )
    yield "kept", f"a feature's value with probability up to {protocol.kept[0].max():.4g}"


def _label(protocol: CollectionProtocol) -> Iterator[Row]:
    law = protocol.label
    if law is None:
        yield "label", "not asked for"
        return
    names = ", ".join(protocol.class_names[:SHOWN]) + (", ..." if law.classes > SHOWN else "")
    yield "label", f"one of {law.classes} classes" + (f": {names}" if protocol.class_names else "")
    if isinstance(law, LocalHashing):
        yield (
            "told",
            f"one of {law.groups} groups of classes, which the survey and your id make, not the answer",
        )
    yield "kept", f"{_kept(law)} with probability {law.keep:.4g} (epsilon {law.epsilon:g})"


def _kept(law: LabelLaw) -> str:
    if isinstance(law, LocalHashing):
        return "the label's own group"
    return "the label" if law.size == 1 else f"{law.size} classes are told, the label among them"


def _total(protocol: CollectionProtocol) -> Row:
    return (
        "together",
        f"epsilon {exact_sum_text(*(claim.epsilon for claim in protocol.claims))} of a whole record",
    )
