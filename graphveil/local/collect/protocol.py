"""What is collected, and how answers are randomized: public parameters, the same for client and server."""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil._util.ldp_statements import exact_sum_text
from graphveil.errors import ConfigError, LDPReportError
from graphveil.mechanisms.claim import NOT_COLLECTED, LocalDPClaim, check_budget, node_features_statement
from graphveil.mechanisms.feature_rr import FeatureRR
from graphveil.mechanisms.features import Bounds, EvenAllocation, WeightedAllocation
from graphveil.mechanisms.labels import LabelRR, LocalHashing, SubsetSelection
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import MAX_OUTPUTS, Floats

if TYPE_CHECKING:
    from graphveil.privacy import Guarantee

FORMAT = "graphveil-survey/2"
DIGEST_BYTES = 16
MAX_TEXT = 1 << 20  # characters of a survey's text: some forty thousand weights or names
LabelLaw = LabelRR | SubsetSelection | LocalHashing
LABELS: dict[str | None, type[LabelLaw]] = {  # by what the JSON calls them; randomized response has no name
    None: LabelRR,
    "subset": SubsetSelection,
    "hashing": LocalHashing,
}
UNPROTECTED_PROBABILITY = 0.99  # what is kept with this probability is told, whatever its epsilon is
SHOWN = 20  # features that are listed one by one
_MAX_TABLES = 1 << 20  # probabilities that a device has to compute before it can answer
Json = dict[str, Any]
Row = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class CollectionProtocol:
    """The public parameters of one collection. A person answers it at most once.

    Args:
        features: how features are randomized, None if they are not collected.
        label: how the label is randomized, None if it is not collected.
        purpose: what the collection is for; it makes two collections of equal parameters differ.
        columns: what each feature is, in their order; empty if devices know it.
        class_names: what each class is, in their order; empty if devices know it.

    Raises:
        ConfigError: nothing is collected, or nothing is randomized; features would leave as they are, names
            do not fit, or a device would have to compute too much.

    >>> protocol = CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3), purpose="pilot")
    >>> CollectionProtocol.from_json(protocol.to_json()) == protocol
    True
    >>> protocol.claim.epsilon
    1.0
    """

    features: MultiBit | FeatureRR | None = None
    label: LabelLaw | None = None
    purpose: str = ""
    columns: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something to collect, and that it is randomized."""
        if not isinstance(self.purpose, str):
            raise ConfigError("a survey's purpose is a text")
        if self.features is None and self.label is None:
            raise ConfigError("a survey collects features, a label or both")
        if not isinstance(self.features, MultiBit | FeatureRR | None):
            raise ConfigError("a survey collects features with MultiBit or FeatureRR")
        if not isinstance(self.label, LabelLaw | None):
            raise ConfigError("a survey collects a label with LabelRR, SubsetSelection or LocalHashing")
        if self.features is not None and math.isinf(self.features.epsilon):
            raise ConfigError("features at epsilon=inf are not randomized; a survey does not collect them")
        if self.features is None and self.label is not None and math.isinf(self.label.epsilon):
            raise ConfigError(
                "a label at epsilon=inf is not randomized, and the survey asks for nothing else: it would "
                "protect nobody; give the label a budget"
            )
        if isinstance(self.features, FeatureRR):
            _check_tables(self.features.epsilon, self.features.k, self.features.allocation)
        _check_names("columns", self.columns, 0 if self.features is None else self.features.dim)
        _check_names("class_names", self.class_names, 0 if self.label is None else self.label.classes)

    @property
    def claims(self) -> tuple[LocalDPClaim, LocalDPClaim]:
        """The guarantee of an answer about the features and about the label."""
        features = NOT_COLLECTED if self.features is None else self.features.claim
        return features, NOT_COLLECTED if self.label is None else self.label.claim

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a whole answer: the two budgets add up."""
        features, label = self.claims
        return features + label

    @property
    def guarantee(self) -> "Guarantee":
        """The guarantee of a whole answer, for a privacy ledger.

        >>> CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3)).guarantee.epsilon
        1.0
        """
        from graphveil.privacy import Guarantee, LocalAttributes, LocalReport, compose  # no client needs it

        features, label = self.claims
        parts = []
        if self.features is not None:
            parts.append(LocalReport("features", features.epsilon, features.delta))
        if self.label is not None:
            parts.append(LocalReport("label", label.epsilon, label.delta))
        delta = features.delta + label.delta
        return Guarantee.from_event(LocalAttributes(), compose(*parts), delta=delta, releases=1)

    @property
    def kept(self) -> tuple[Floats, float]:
        """The probability that each feature (dim,), and that the label is told as it is; 0 if not asked for.

        Of a label that is told among several classes it is the probability that it is one of them, of a
        feature the largest for any value. A feature that only some tell about is meant where it is told, and
        a bin as kept if what is said lies within a twentieth of the range.

        >>> features, label = CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3)).kept
        >>> features.size, round(label, 4)
        (0, 0.5761)
        """
        features = np.empty(0) if self.features is None else self.features.kept
        return features, 0.0 if self.label is None else self.label.keep

    @property
    def unprotected_parts(self) -> tuple[str, ...]:
        """What of an answer is not protected: parts of which a value is kept with probability 0.99 or more.

        >>> from graphveil.mechanisms import MultiBit
        >>> label = LabelRR(epsilon=12.0, classes=3)
        >>> CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=label).unprotected_parts
        ('label',)
        """
        features, label = self.kept
        is_unprotected = {
            "features": bool((features >= UNPROTECTED_PROBABILITY).any()),
            "label": label >= UNPROTECTED_PROBABILITY,
        }
        return tuple(part for part, is_open in is_unprotected.items() if is_open)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before anything else: parts of an answer that nothing protects."""
        features, label = self.kept
        count, most = int((features >= UNPROTECTED_PROBABILITY).sum()), features.max(initial=0)
        words = {
            "features": f"of {features.size} features {count} leave each node as they are with probability "
            f"{most:.4g}",
            "label": f"the label leaves each node as it is with probability {label:.4g}",
        }
        return tuple(f"NOT PROTECTED: {words[part]}, in every LDP report." for part in self.unprotected_parts)

    def formal_statement(self, *, on_clients: bool | None = True) -> str:
        """Return the guarantee in words, of answers given on devices unless said otherwise.

        Parts that are not protected come first, by what happens to their values and not by their epsilon.
        """
        return " ".join([*self.warnings, node_features_statement(*self.claims, on_clients=on_clients)])

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that stand for every parameter; an LDP report carries them."""
        return hashlib.sha256(self.to_json().encode()).digest()[:DIGEST_BYTES]

    def to_json(self) -> str:
        """Return the survey as canonical JSON, to be handed to devices.

        Raises:
            ConfigError: it is longer than any device reads.
        """
        parts = {
            "format": FORMAT,
            "purpose": self.purpose,
            "features": None
            if self.features is None
            else _features_json(self.features) | _names("columns", self.columns),
            "label": None
            if self.label is None
            else _label_json(self.label) | _names("names", self.class_names),
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        if len(text) > MAX_TEXT:
            raise ConfigError(
                f"the survey's text has {len(text):,} characters, and devices read up to {MAX_TEXT:,}; ask "
                "for fewer features, or leave out names"
            )
        return text

    @classmethod
    def from_json(cls, text: str) -> "CollectionProtocol":
        """Return the survey of a JSON text.

        Raises:
            LDPReportError: it is not one, or of another version.
            ConfigError: a parameter is outside its range.
        """
        parts = _object(text)
        if parts.get("format") != FORMAT:
            raise LDPReportError(f"this is no survey of format {FORMAT}")
        try:
            features, label = _section(parts["features"]), _section(parts["label"])
            columns, names = features.pop("columns", ()), label.pop("names", ())
            protocol = cls(
                features=_features(features) if features else None,
                label=_label(label) if label else None,
                purpose=parts["purpose"],
                columns=tuple(columns),
                class_names=tuple(names),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise LDPReportError(
                "a parameter of the survey is missing, unknown or of the wrong type"
            ) from error
        if protocol.to_json() != text:
            raise LDPReportError("the survey is not in canonical form; take it as its author wrote it")
        return protocol


def _features_json(law: MultiBit | FeatureRR) -> Json:
    common = {
        "epsilon": float(law.epsilon),
        "dim": law.dim,
        "low": law.bounds.low,
        "high": law.bounds.high,
        "from_data": law.bounds.from_data,
    }
    if isinstance(law, MultiBit):
        return common | {"mechanism": "multi-bit", "m": law.m}
    theta = law.allocation.theta if isinstance(law.allocation, WeightedAllocation) else None
    return common | {
        "mechanism": "feature-rr",
        "k": law.k,
        "mode": law.mode,
        "decode": law.decode,
        "theta": theta,
    }


def _label_json(law: LabelLaw) -> Json:
    epsilon = "inf" if math.isinf(law.epsilon) else float(law.epsilon)  # JSON has no infinity
    common: Json = {"epsilon": epsilon, "classes": law.classes}
    name = next(name for name, kind in LABELS.items() if isinstance(law, kind))
    return common if name is None else common | {"mechanism": name}


def _names(key: str, names: tuple[str, ...]) -> Json:
    """Return names as a part of the JSON, which has none where there are none."""
    return {key: list(names)} if names else {}


def _check_names(what: str, names: tuple[str, ...], count: int) -> None:
    """Require as many different texts as there are features or classes, or none."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{what} must be texts")
    if names and (len(names) != count or len(set(names)) != count):
        raise ConfigError(f"{what} must be {count} different names, or none")


def _section(part: object) -> Json:
    """Return a copy of a part of the survey, to take its parameters from; empty if there is none."""
    if part is not None and not isinstance(part, dict):
        raise TypeError
    return dict(part or {})


def _features(given: Json) -> MultiBit | FeatureRR:
    mechanism = given.pop("mechanism")
    low, high = (
        tuple(end) if isinstance(end, list) else end for end in (given.pop("low"), given.pop("high"))
    )
    if not isinstance(from_data := given.pop("from_data"), bool):
        raise TypeError
    given["bounds"] = Bounds(low, high, from_data=from_data)
    if mechanism == "multi-bit":
        return MultiBit(**given)
    if mechanism != "feature-rr":
        raise LDPReportError("the survey names a mechanism that this version does not know")
    theta = given.pop("theta")
    allocation = EvenAllocation() if theta is None else WeightedAllocation(theta)
    check_budget(epsilon=given["epsilon"])
    _check_tables(given["epsilon"], given["k"], allocation)  # before they are computed
    return FeatureRR(**given, allocation=allocation)


def _check_tables(epsilon: float, k: object, allocation: EvenAllocation | WeightedAllocation) -> None:
    """Bound the work of a device: a table of k by k for each different weight, and no k above 2 epsilon + 2.

    The latter holds where k is chosen for the budget (``"auto"``).
    """
    weights = {0.0} if isinstance(allocation, EvenAllocation) else set(allocation.theta)
    if isinstance(k, int):
        sizes = [float(min(k, MAX_OUTPUTS))] * len(weights)
    else:
        sizes = [min(2 * epsilon * weight + 2, MAX_OUTPUTS) for weight in weights]
    if sum(size**2 for size in sizes) > _MAX_TABLES:
        raise ConfigError(
            f"{len(weights)} different weights with so many bins take more than {_MAX_TABLES:,} "
            "probabilities; round the weights so that fewer differ, or take fewer bins"
        )


def _label(given: Json) -> LabelLaw:
    epsilon, mechanism = given.pop("epsilon"), given.pop("mechanism", None)
    if mechanism not in LABELS:
        raise LDPReportError("the survey names a mechanism that this version does not know")
    given["epsilon"] = math.inf if epsilon == "inf" else epsilon
    return LABELS[mechanism](**given)


def _object(text: str) -> Json:
    if isinstance(text, str) and len(text) > MAX_TEXT:
        raise LDPReportError(f"a survey has at most {MAX_TEXT:,} characters, and this text has {len(text):,}")
    try:
        parts = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise LDPReportError("the survey is no JSON text") from error
    if not isinstance(parts, dict):
        raise LDPReportError("the survey is no JSON object")
    return parts


# -- what a survey asks, in names and numbers ----


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
    total = exact_sum_text(*(claim.epsilon for claim in protocol.claims))
    return [
        ("purpose", protocol.purpose or "none is given"),
        *_feature_lines(protocol),
        *_label_lines(protocol),
        ("together", f"epsilon {total} of a whole record"),
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


def _feature_lines(protocol: CollectionProtocol) -> Iterator[Row]:
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


def _label_lines(protocol: CollectionProtocol) -> Iterator[Row]:
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
    kept = "the label" if law.size == 1 else f"{law.size} classes are told, the label among them"
    if isinstance(law, LocalHashing):
        kept = "the label's own group"
    yield "kept", f"{kept} with probability {law.keep:.4g} (epsilon {law.epsilon:g})"
