"""Collection protocols: public parameters of what is collected and how it is randomized."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphveil._util.figures import exact_sum_text
from graphveil.core.noise.sampling import MAX_OUTPUTS, Floats
from graphveil.errors import ConfigError, LDPReportError
from graphveil.mechanisms.claim import NOT_COLLECTED, LocalDPClaim, check_budget, node_features_statement
from graphveil.mechanisms.feature_mechanisms import FeatureRR, MultiBit
from graphveil.mechanisms.features import Bounds, EvenAllocation, WeightedAllocation
from graphveil.mechanisms.labels import LABELS, LabelLaw, LabelRR, LocalHashing

if TYPE_CHECKING:
    from graphveil.privacy import Guarantee

FORMAT = "graphveil-survey/2"
DIGEST_BYTES = 16
MAX_TEXT = 1 << 20  # characters of a protocol's JSON: about forty thousand weights or names
FeatureLaw = MultiBit | FeatureRR
Part = Literal["features", "label"]
UNPROTECTED_PROBABILITY = 0.99  # unchanged with this probability is unprotected, for any epsilon
SHOWN = 20  # maximum number of listed features
_MAX_TABLES = 1 << 20  # probabilities that a client computes before it can report
Json = dict[str, Any]
Row = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class CollectionProtocol:
    """Public parameters of one collection. Each client reports at most once.

    Args:
        features: Mechanism for features, None if they are not collected.
        label: Mechanism for the label, None if it is not collected.
        purpose: Purpose of the collection; distinguishes two collections with equal parameters.
        columns: Name of each feature, in order; empty if clients know them.
        class_names: Name of each class, in order; empty if clients know them.

    Raises:
        ConfigError: Nothing is collected or randomized, features are not protected, names do not fit, or a
            client would have to compute too much.

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
        if not isinstance(self.purpose, str):
            raise ConfigError("The purpose of a collection protocol must be text.")
        if self.features is None and self.label is None:
            raise ConfigError("A collection protocol must collect features, a label, or both.")
        if not isinstance(self.features, MultiBit | FeatureRR | None):
            raise ConfigError(
                "A collection protocol randomizes features with MultiBit or FeatureRR only. Choose one "
                "of them."
            )
        if not isinstance(self.label, LabelLaw | None):
            raise ConfigError(
                "A collection protocol randomizes a label with LabelRR, SubsetSelection or LocalHashing "
                "only. Choose one of them."
            )
        if self.features is not None and math.isinf(self.features.epsilon):
            raise ConfigError(
                "Features with epsilon=inf are not randomized, and a collection protocol cannot collect "
                "them. Use a finite epsilon, or collect only labels."
            )
        if self.features is None and self.label is not None and math.isinf(self.label.epsilon):
            raise ConfigError(
                "A label with epsilon=inf is not randomized, and the protocol collects nothing else, so "
                "it would protect nothing. Use a finite epsilon for the label."
            )
        if isinstance(self.features, FeatureRR):
            _check_tables(self.features.epsilon, self.features.k, self.features.allocation)
        _check_names("columns", self.columns, 0 if self.features is None else self.features.dim)
        _check_names("class_names", self.class_names, 0 if self.label is None else self.label.classes)

    @property
    def claims(self) -> tuple[LocalDPClaim, LocalDPClaim]:
        """The guarantees of a report about the features and about the label."""
        features = NOT_COLLECTED if self.features is None else self.features.claim
        return features, NOT_COLLECTED if self.label is None else self.label.claim

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a whole report: the two budgets are added."""
        features, label = self.claims
        return features + label

    @property
    def guarantee(self) -> "Guarantee":
        """The guarantee of a whole report, for a privacy ledger.

        >>> CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3)).guarantee.epsilon
        1.0
        """
        parts: dict[Part, FeatureLaw | LabelLaw | None] = {"features": self.features, "label": self.label}
        return report_guarantee({part: law.claim for part, law in parts.items() if law is not None})

    @property
    def kept(self) -> tuple[Floats, float]:
        """Probabilities that each feature (dim,) and the label are reported unchanged; 0 if not collected.

        For several reported classes, it is the probability that the label is among them. For a feature, it is
        the largest over all values, given that the feature is reported. A bin counts as unchanged if the
        reported value is within a twentieth of the range.

        >>> features, label = CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3)).kept
        >>> features.size, round(label, 4)
        (0, 0.5761)
        """
        features = np.empty(0) if self.features is None else self.features.kept
        return features, 0.0 if self.label is None else self.label.keep

    @property
    def unprotected_parts(self) -> tuple[str, ...]:
        """Parts of a report in which some value is unchanged with probability 0.99 or more.

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
        """Warnings about parts of a report that are not protected."""
        features, label = self.kept
        count, most = int((features >= UNPROTECTED_PROBABILITY).sum()), features.max(initial=0)
        words = {
            "features": f"of {features.size} features {count} leave each node as they are with probability "
            f"{most:.4g}",
            "label": f"the label leaves each node as it is with probability {label:.4g}",
        }
        return tuple(f"NOT PROTECTED: {words[part]}, in every LDP report." for part in self.unprotected_parts)

    def formal_statement(self, *, on_clients: bool | None = True) -> str:
        """Return the privacy guarantee as text; the default describes reports that are made on clients.

        Warnings about unprotected parts are first. They depend on the probability of an unchanged value, not
        on epsilon.
        """
        return " ".join([*self.warnings, node_features_statement(*self.claims, on_clients=on_clients)])

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that identify all parameters; every LDP report contains them."""
        return hashlib.sha256(self.to_json().encode()).digest()[:DIGEST_BYTES]

    def to_json(self) -> str:
        """Return the protocol as canonical JSON, for clients.

        Raises:
            ConfigError: It is longer than clients accept.
        """
        features: Json | None = None
        if self.features is not None:
            law = self.features
            features = {
                "epsilon": float(law.epsilon),
                "dim": law.dim,
                "low": law.bounds.low,
                "high": law.bounds.high,
                "from_data": law.bounds.from_data,
                **({"columns": list(self.columns)} if self.columns else {}),
            }
            if isinstance(law, MultiBit):
                features |= {"mechanism": "multi-bit", "m": law.m}
            else:
                theta = law.allocation.theta if isinstance(law.allocation, WeightedAllocation) else None
                features |= {"mechanism": "feature-rr", "theta": theta}
                features |= {"k": law.k, "mode": law.mode, "decode": law.decode}
        label: Json | None = None
        if self.label is not None:
            epsilon = self.label.epsilon
            label = {
                "epsilon": "inf" if math.isinf(epsilon) else float(epsilon),  # JSON has no infinity
                "classes": self.label.classes,
                **({"names": list(self.class_names)} if self.class_names else {}),
            }
            if not isinstance(self.label, LabelRR):  # randomized response has no name
                label["mechanism"] = self.label.name
        parts = {"format": FORMAT, "purpose": self.purpose, "features": features, "label": label}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        if len(text) > MAX_TEXT:
            raise ConfigError(
                f"The text of the protocol has {len(text):,} characters, but clients read at most "
                f"{MAX_TEXT:,}. Collect fewer features, or leave out the names."
            )
        return text

    @classmethod
    def from_json(cls, text: str) -> "CollectionProtocol":
        """Return the protocol of a JSON text.

        Raises:
            LDPReportError: It is not a protocol, or of another version.
            ConfigError: A parameter is outside its range.
        """
        if isinstance(text, str) and len(text) > MAX_TEXT:
            raise LDPReportError(
                f"The text of the protocol has {len(text):,} characters, but at most {MAX_TEXT:,} are "
                "read. Request a smaller protocol."
            )
        try:
            parts = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise LDPReportError("The protocol is not valid JSON.") from error
        if not isinstance(parts, dict):
            raise LDPReportError("The protocol is not a JSON object.")
        if parts.get("format") != FORMAT:
            raise LDPReportError(f"The file is not a collection protocol of format {FORMAT}.")
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
                "A parameter of the protocol is missing, unknown or of the wrong type. Use the original file."
            ) from error
        if protocol.to_json() != text:
            raise LDPReportError(
                "The protocol is not in canonical form, so its text was changed. Use the original file."
            )
        return protocol


def report_guarantee(claims: Mapping[Part, LocalDPClaim], **given: Any) -> "Guarantee":
    """Return the guarantee of one LDP report with these parts; ``given`` is for ``Guarantee.from_event``."""
    from graphveil.core.events import LocalReport, compose  # no client needs it
    from graphveil.core.unit import LocalAttributes
    from graphveil.privacy import Guarantee

    reports = [LocalReport(part, claim.epsilon, claim.delta) for part, claim in claims.items()]
    delta = sum(claim.delta for claim in claims.values())
    return Guarantee.from_event(LocalAttributes(), compose(*reports), delta=delta, releases=1, **given)


def _check_names(what: str, names: tuple[str, ...], count: int) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{what} must be a list of text.")
    if names and (len(names) != count or len(set(names)) != count):
        raise ConfigError(f"{what} must be {count} different names, or no names at all.")


def _section(part: object) -> Json:
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
        raise LDPReportError(
            "The protocol uses a mechanism that this version does not support. Update graphveil."
        )
    theta = given.pop("theta")
    allocation = EvenAllocation() if theta is None else WeightedAllocation(theta)
    check_budget(epsilon=given["epsilon"])
    _check_tables(given["epsilon"], given["k"], allocation)  # before they are computed
    return FeatureRR(**given, allocation=allocation)


def _check_tables(epsilon: float, k: object, allocation: EvenAllocation | WeightedAllocation) -> None:
    """Bound the work of a client: a table of k by k per distinct weight, and no k above 2 epsilon + 2.

    The latter applies if k is chosen for the budget (``"auto"``).
    """
    weights = {0.0} if isinstance(allocation, EvenAllocation) else set(allocation.theta)
    if isinstance(k, int):
        sizes = [float(min(k, MAX_OUTPUTS))] * len(weights)
    else:
        sizes = [min(2 * epsilon * weight + 2, MAX_OUTPUTS) for weight in weights]
    if sum(size**2 for size in sizes) > _MAX_TABLES:
        raise ConfigError(
            f"{len(weights)} different weights with this number of bins need more than "
            f"{_MAX_TABLES:,} stored probabilities. Round the weights so that fewer differ, or use "
            "fewer bins."
        )


def _label(given: Json) -> LabelLaw:
    epsilon, mechanism = given.pop("epsilon"), given.pop("mechanism", None)  # None: randomized response
    if mechanism == LabelRR.name or mechanism not in {None, *LABELS}:
        raise LDPReportError(
            "The protocol uses a mechanism that this version does not support. Update graphveil."
        )
    given["epsilon"] = math.inf if epsilon == "inf" else epsilon
    return LABELS[mechanism or LabelRR.name](**given)


# -- overview of a protocol ----


def feature_budgets(protocol: CollectionProtocol) -> Floats:
    """Return the budget of each feature, (dim,); for a mechanism that samples, given that it is reported.

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
    """Return the largest share of the feature budget of a single feature, max theta; 0 without features.

    >>> from graphveil.mechanisms import FeatureRR, WeightedAllocation
    >>> features = FeatureRR(epsilon=8.0, dim=2, allocation=WeightedAllocation([0.75, 0.25]))
    >>> largest_share(CollectionProtocol(features=features))
    0.75
    """
    budgets = feature_budgets(protocol)
    return 0.0 if protocol.features is None else float(budgets.max()) / protocol.features.epsilon


def overview(protocol: CollectionProtocol) -> list[Row]:
    """Return an overview of a protocol as pairs of a name and a value.

    >>> from graphveil.mechanisms import LabelRR
    >>> overview(CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3), purpose="pilot"))[0]
    ('purpose', 'pilot')
    """
    law, label = protocol.features, protocol.label
    lines = [("purpose", protocol.purpose or "none is given")]
    if law is None:
        lines += [("features", "not collected")]
    else:
        name = type(law).__name__
        lines += [("features", f"{law.dim}, randomized by {name} at epsilon {law.epsilon:g} together")]
        if isinstance(law, MultiBit) and law.samples < law.dim:
            chosen = f"{law.samples} of them, which the protocol and your id determine"
            lines += [("reported", chosen)]
        low, high = np.min(law.bounds.low), np.max(law.bounds.high)
        share = f"{largest_share(protocol):.4g} of that budget is for a single feature"
        kept = f"a feature's value with probability up to {protocol.kept[0].max():.4g}"
        lines += [
            ("largest share", share),
            ("bounds", f"from {low:g} to {high:g}; values outside become the nearest bound"),
            ("kept", kept),
        ]
    if label is None:
        lines += [("label", "not collected")]
    else:
        names = ", ".join(protocol.class_names[:SHOWN]) + (", ..." if label.classes > SHOWN else "")
        lines += [
            ("label", f"one of {label.classes} classes" + (f": {names}" if protocol.class_names else ""))
        ]
        kept = "the label" if label.size == 1 else f"{label.size} classes are reported, the label among them"
        if isinstance(label, LocalHashing):
            groups = f"one of {label.groups} groups of classes"
            lines += [("reported", f"{groups}, which the protocol and your id determine")]
            kept = "the label's own group"
        lines += [("kept", f"{kept} with probability {label.keep:.4g} (epsilon {label.epsilon:g})")]
    total = exact_sum_text(*(claim.epsilon for claim in protocol.claims))
    return [*lines, ("together", f"epsilon {total} of a whole record")]


def feature_rows(protocol: CollectionProtocol) -> list[tuple[str, str, str, str, str]]:
    """Return name, lower and upper bound, budget and ``kept`` of the features with the largest budgets."""
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
