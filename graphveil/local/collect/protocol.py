"""Collection protocols: public parameters of what is collected and how it is randomized; encoded LDP reports.

An LDP report is encoded as bytes, version 2: a fixed header, packed fields, a checksum.

::

    0   4   magic "GVLA"
    4   1   version, 2
    5  16   digest of the protocol
    21 16   tag of the node: a hash of the protocol and its public id
    37  n   payload: fields of as many bits as they need, the first bit of each the highest
    37+n 4  CRC-32 of all bytes before it, big-endian

The payload has one value per reported feature: a bit, or a bin in the bits of k - 1. The label follows,
in the bits of classes - 1, or of groups - 1 for a group, or in one bit per class for several. Zero
bits pad the payload to whole bytes. The protocol and the node id determine which features are reported,
which classes form a group, and the length. Every report of every node has exactly one encoding.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import fitting
from graphveil._util.figures import exact_sum_text
from graphveil.core.noise.sampling import MAX_OUTPUTS, Floats, Integers, row_blocks, subsets
from graphveil.errors import ConfigError, LDPReportError
from graphveil.mechanisms.feature_mechanisms import FeatureRR, MultiBit
from graphveil.mechanisms.features import (
    NOT_COLLECTED,
    Bounds,
    EvenAllocation,
    LDPReports,
    LocalDPClaim,
    Single,
    WeightedAllocation,
    check_budget,
    node_features_statement,
)
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
        most = {"features": features.max(initial=0), "label": label}
        return tuple(part for part, kept in most.items() if kept >= UNPROTECTED_PROBABILITY)

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
        features = None if self.features is None else _plain(self.features, columns=self.columns)
        label = None if self.label is None else _plain(self.label, names=self.class_names)
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
                features=_law(features, FEATURE_KINDS) if features else None,
                label=_law(label, LABEL_KINDS) if label else None,
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


Law = FeatureLaw | LabelLaw
FEATURE_KINDS: dict[str | None, type[Law]] = {"multi-bit": MultiBit, "feature-rr": FeatureRR}
LABEL_KINDS: dict[str | None, type[Law]] = {  # randomized response has no name
    None if kind is LabelRR else name: kind for name, kind in LABELS.items()
}
_NAMES = {kind: name for kinds in (FEATURE_KINDS, LABEL_KINDS) for name, kind in kinds.items()}


def _plain(law: Law, **names: tuple[str, ...]) -> Json:
    """Return the parameters of a mechanism as JSON values, with the names that are given."""
    plain = {part.name: getattr(law, part.name) for part in fields(law)}
    epsilon = "inf" if math.isinf(law.epsilon) else float(law.epsilon)  # JSON has no infinity
    if "bounds" in plain:
        plain |= vars(plain.pop("bounds"))
    if "allocation" in plain:
        plain["theta"] = getattr(plain.pop("allocation"), "theta", None)
    named = {name: list(values) for name, values in names.items() if values}
    mechanism = _NAMES[type(law)]
    return plain | named | {"epsilon": epsilon} | ({"mechanism": mechanism} if mechanism else {})


def _law(given: Json, kinds: Mapping[str | None, type[Law]]) -> Any:
    kind, epsilon = kinds.get(given.pop("mechanism", None)), given["epsilon"]
    if kind is None:
        raise LDPReportError(
            "The protocol uses a mechanism that this version does not support. Update graphveil."
        )
    given["epsilon"] = math.inf if epsilon == "inf" else epsilon
    if kinds is FEATURE_KINDS:
        low, high = (
            tuple(end) if isinstance(end, list) else end for end in (given.pop("low"), given.pop("high"))
        )
        if not isinstance(from_data := given.pop("from_data"), bool):
            raise TypeError
        given["bounds"] = Bounds(low, high, from_data=from_data)
    if kind is FeatureRR:
        theta = given.pop("theta")
        given["allocation"] = EvenAllocation() if theta is None else WeightedAllocation(theta)
        check_budget(epsilon=epsilon)
        _check_tables(epsilon, given["k"], given["allocation"])  # before they are computed
    return kind(**given)


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


# -- overview of a protocol ----


def largest_share(protocol: CollectionProtocol) -> float:
    """Return the largest share of the feature budget of a single feature, max theta; 0 without features.

    >>> from graphveil.mechanisms import FeatureRR, WeightedAllocation
    >>> features = FeatureRR(epsilon=8.0, dim=2, allocation=WeightedAllocation([0.75, 0.25]))
    >>> largest_share(CollectionProtocol(features=features))
    0.75
    """
    law = protocol.features
    return 0.0 if law is None else float(law.budgets.max()) / law.epsilon


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
    law = protocol.features
    if law is None:
        return []
    budgets = law.budgets
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


# -- encoded reports ----
MAGIC, VERSION, CHECK_BYTES = b"GVLA", 2, 4
TAG_BYTES = 16
_HEADER = len(MAGIC) + 1 + DIGEST_BYTES + TAG_BYTES
_BIT = np.uint64(1)
Node = int | str


@dataclass(frozen=True, eq=False)
class LDPReport:
    """A decoded LDP report: a report on the features (one row), a label, or both.

    The label is a class, or several classes in ascending order if the mechanism reports several. A smaller
    group is padded with -1.
    """

    features: LDPReports | None
    label: int | tuple[int, ...] | None


def encode(protocol: CollectionProtocol, node: Node, answer: LDPReport) -> bytes:
    """Encode the LDP report that a mechanism of the protocol made for a node.

    Raises:
        ConfigError: It has other features than the protocol and the node id choose.

    Privacy:
        Reads: a report that is randomized already. Charges: nothing.
    """
    labels = None if answer.label is None else np.array([answer.label])
    return encode_all(protocol, [node], answer.features, labels)[0]


def encode_all(
    protocol: CollectionProtocol, nodes: Sequence[Node], features: LDPReports | None, labels: Integers | None
) -> list[bytes]:
    head, widths = MAGIC + bytes([VERSION]) + protocol.digest, _widths(protocol)
    if features is not None:
        given, chosen = features.indices, chosen_features(protocol, nodes)
        same = given is chosen if given is None or chosen is None else np.array_equal(given, chosen)
        if not same:
            raise ConfigError(
                "The LDP report does not cover the features that the protocol selects for this node id."
            )
    columns = [] if features is None else [features.values]
    if labels is not None and protocol.label is not None:
        columns.append(protocol.label.to_fields(labels, label_hashes(protocol, nodes)))
    shifts, which = _places(widths)
    encoded_reports = []
    for rows in row_blocks(len(nodes), len(widths)):
        numbers = np.concatenate([column[rows] for column in columns], axis=1).astype(np.uint64)
        bits = (numbers[:, which] >> shifts & _BIT).astype(np.uint8)
        for node, payload in zip(nodes[rows], np.packbits(bits, axis=1), strict=True):
            body = head + node_tag(protocol, node) + payload.tobytes()
            encoded_reports.append(body + zlib.crc32(body).to_bytes(CHECK_BYTES, "big"))
    return encoded_reports


def report_bytes(protocol: CollectionProtocol) -> int:
    """Return the length of every LDP report of a protocol.

    >>> report_bytes(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)))
    42
    """
    return _HEADER + -(-int(_widths(protocol).sum()) // 8) + CHECK_BYTES


def decode(protocol: CollectionProtocol, node: Node, encoded_report: bytes) -> LDPReport:
    """Decode the LDP report of a node.

    Raises:
        LDPReportError: It is truncated, damaged, of another version, protocol or node, or has values that no
            client produces.
        ConfigError: The id is neither text nor a whole number.

    Privacy:
        Reads: one LDP report, never a record. Charges: nothing. The result is randomized, and may be
        published.

    >>> decode(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)), "ann", b"no message")
    Traceback (most recent call last):
    graphveil.errors.LDPReportError: The LDP report must have 42 bytes, but it has 10.
    """
    fitting("protocol", protocol, CollectionProtocol)
    if not isinstance(encoded_report, bytes | bytearray | memoryview):
        raise LDPReportError("An LDP report must be of type bytes.")
    payload = _payload(protocol, node, bytes(encoded_report))
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
    shifts, which = _places(_widths(protocol))
    if bits[len(shifts) :].any():
        raise LDPReportError("The LDP report is malformed: its last padding bits are not zero.")
    unpacked = np.zeros(len(_widths(protocol)), dtype=np.uint64)
    np.add.at(unpacked, which, bits[: len(shifts)].astype(np.uint64) << shifts)
    numbers = unpacked.astype(np.int64)
    if (numbers > _limits(protocol)).any():
        raise LDPReportError(
            "The LDP report contains a feature, bin or class that does not exist in the protocol."
        )
    law, label = protocol.label, None
    count = len(numbers) if law is None else len(numbers) - len(law.limits)
    if law is not None:
        reported = law.from_fields(numbers[None, count:], label_hashes(protocol, [node]))[0]
        label = tuple(reported.tolist()) if reported.ndim else int(reported)
    if protocol.features is None:
        return LDPReport(None, label)
    values = numbers[None, :count].astype(np.uint8)
    return LDPReport(LDPReports(values, chosen_features(protocol, [node])), label)


def _payload(protocol: CollectionProtocol, node: Node, encoded_report: bytes) -> bytes:
    """Return the payload of an LDP report after checking its header and checksum."""
    whole = report_bytes(protocol)
    if len(encoded_report) != whole:
        raise LDPReportError(f"The LDP report must have {whole} bytes, but it has {len(encoded_report)}.")
    if not encoded_report.startswith(MAGIC):
        raise LDPReportError("These bytes are not an LDP report of a collection protocol.")
    if encoded_report[len(MAGIC)] != VERSION:
        raise LDPReportError(
            f"This LDP report has another format version; only version {VERSION} is supported. Update "
            "graphveil on the client."
        )
    if zlib.crc32(encoded_report[:-CHECK_BYTES]) != int.from_bytes(encoded_report[-CHECK_BYTES:], "big"):
        raise LDPReportError("The LDP report was damaged during transfer. Send it again.")
    if encoded_report[len(MAGIC) + 1 : _HEADER - TAG_BYTES] != protocol.digest:
        raise LDPReportError(
            "The LDP report belongs to another protocol with other randomization parameters. Use the "
            "protocol that it was made for."
        )
    if encoded_report[_HEADER - TAG_BYTES : _HEADER] != node_tag(protocol, node):
        raise LDPReportError("The LDP report belongs to another node. Do not copy reports between nodes.")
    return encoded_report[_HEADER:-CHECK_BYTES]


@lru_cache(maxsize=32)
def _limits(protocol: CollectionProtocol) -> Integers:
    return np.concatenate([law.limits for law in (protocol.features, protocol.label) if law is not None])


@lru_cache(maxsize=32)
def _widths(protocol: CollectionProtocol) -> Integers:
    return np.array([limit.bit_length() for limit in _limits(protocol).tolist()])


def _places(widths: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
    which = np.repeat(np.arange(len(widths)), widths)
    ends = np.cumsum(widths)[which]
    return (ends - 1 - np.arange(len(which))).astype(np.uint64), which


# -- values derived from the protocol and a node id ----


def node_tag(protocol: CollectionProtocol, node: Node) -> bytes:
    """Return the tag of an LDP report: 16 bytes of a hash of the protocol and the node's public id.

    A number and its digits are the same id, because tables of LDP reports may convert one to the other.

    >>> from graphveil.mechanisms import LabelRR
    >>> protocol = CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3))
    >>> node_tag(protocol, 7) == node_tag(protocol, "7") != node_tag(protocol, "seven")
    True
    """
    return hashlib.sha256(_bound("node", protocol, node)).digest()[:TAG_BYTES]


def chosen_features(protocol: CollectionProtocol, nodes: Sequence[Node]) -> npt.NDArray[np.int32] | None:
    """Return the features that nodes report a bit about, (nodes, m) ascending; None for all features.

    They are a hash of the protocol and the node id, so that a client cannot choose them and need not send
    them. The guarantee requires only that the choice is independent of the record. Over ids the choice is
    uniform, which makes estimates unbiased.

    >>> chosen_features(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)), ["a", "b"]).shape
    (2, 1)
    """
    law = protocol.features
    if not isinstance(law, MultiBit) or law.samples == law.dim:
        return None
    drawn = [hashlib.shake_256(_bound("features", protocol, node)).digest(8 * law.samples) for node in nodes]
    words = np.frombuffer(b"".join(drawn), dtype="<u8").reshape(len(nodes), law.samples)
    parts = [subsets(words[part], law.dim).astype(np.int32) for part in row_blocks(len(nodes), law.dim)]
    return np.concatenate([np.empty((0, law.samples), dtype=np.int32), *parts])


def label_hashes(protocol: CollectionProtocol, nodes: Sequence[Node]) -> Integers | None:
    """Return the group of every class for each node, (nodes, classes), for local hashing; else None.

    They depend only on the protocol and the node id, so that a client cannot choose the groups.

    >>> law = LocalHashing(epsilon=1.0, classes=7)
    >>> label_hashes(CollectionProtocol(label=law), ["a", "b"]).shape
    (2, 7)
    """
    law = protocol.label
    if not isinstance(law, LocalHashing):
        return None
    return law.hashes([_bound("label", protocol, node) for node in nodes])


def node_text(node: Node) -> bytes:
    if isinstance(node, bool) or not isinstance(node, int | str | np.integer):
        raise ConfigError("A node id must be text or an integer.")
    try:
        return str(node).encode()
    except UnicodeEncodeError:
        raise ConfigError("A node id is not valid Unicode text.") from None


def _bound(use: str, protocol: CollectionProtocol, node: Node) -> bytes:
    """Return the hash input; it is different for each use, protocol and node."""
    return f"graphveil-{use}/1\0".encode() + protocol.digest + node_text(node)


# -- the server ----


class Collector:
    """Checks and stores the LDP reports of one protocol, at most one per node.

    Args:
        protocol: Public parameters.
        nodes: Number of nodes; they are numbered from 0.
        ids: Public id of each node on its client; None to use the numbers.

    Raises:
        ConfigError: There is no node, or the ids are not distinct.

    Privacy:
        Reads: LDP reports only. Charges: nothing; clients are charged for their reports. Everything that it
        stores is randomized and may be published.
    """

    def __init__(
        self, protocol: CollectionProtocol, nodes: int, *, ids: Sequence[Node] | None = None
    ) -> None:
        fitting("ids", ids, Sequence | None)
        checks.integer_at_least(1, nodes=nodes)
        if ids is not None and (len(ids) != nodes or len(set(map(node_text, ids))) != nodes):
            raise ConfigError(f"ids must be {nodes} different ids, one per node.")
        self.protocol, self.nodes = protocol, nodes
        self._ids: Sequence[Node] = range(nodes) if ids is None else ids
        self._answers: dict[int, LDPReport] = {}

    def accept(self, encoded_report: bytes, node: int) -> None:
        """Decode and store the LDP report of a node.

        Raises:
            LDPReportError: As for ``decode``, or this node has already reported. The collector is unchanged
                then.

        Privacy:
            Reads: one LDP report, never a record. Charges: nothing; the client was charged.
        """
        if isinstance(node, bool) or not isinstance(node, int | np.integer) or not 0 <= node < self.nodes:
            raise LDPReportError(
                f"The LDP report belongs to a node that is not among the {self.nodes} nodes, which are "
                "numbered from 0."
            )
        answer = decode(self.protocol, self._ids[int(node)], encoded_report)
        if int(node) in self._answers:
            raise LDPReportError(
                "This node has already reported. A second report would double its privacy loss."
            )
        self._answers[int(node)] = answer

    def accept_all(self, encoded_reports: Mapping[int, bytes]) -> dict[int, str]:
        """Store the valid LDP reports, and return why the others were rejected, by node.

        Privacy:
            Reads: LDP reports, never records. Charges: nothing; the clients were charged.
        """
        rejected = {}
        for node, encoded_report in encoded_reports.items():
            try:
                self.accept(encoded_report, node)
            except LDPReportError as error:
                rejected[node] = str(error)
        return rejected

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which nodes have reported, shape (nodes,).

        Privacy:
            Not covered: which nodes have reported, unless a node decides this independently of its record.
        """
        answered = np.zeros(self.nodes, dtype=bool)
        answered[list(self._answers)] = True
        return answered

    def features(self) -> Single:
        """Return the estimated features of the nodes that have reported, in ascending order.

        Raises:
            ConfigError: The protocol does not collect features.

        Privacy:
            Reads: LDP reports only. Charges: nothing (post-processing). Public: the estimates.
        """
        reports, law = self.reports(), self.protocol.features
        assert law is not None  # or there are no reports
        return np.empty((0, law.dim), dtype=np.float32) if reports is None else law.estimate(reports)

    def reports(self) -> LDPReports | None:
        """Return the received feature reports in ascending order of nodes, or None without reports.

        Raises:
            ConfigError: The protocol does not collect features.

        Privacy:
            Reads: LDP reports only. Charges: nothing (post-processing). Public: the result.
        """
        if self.protocol.features is None:
            raise ConfigError("the protocol does not collect features")
        reported = [report for _, answer in sorted(self._answers.items()) if (report := answer.features)]
        if not reported:
            return None
        values = np.concatenate([report.values for report in reported])
        indices = [report.indices for report in reported if report.indices is not None]
        return LDPReports(values, np.concatenate(indices) if indices else None)

    def labels(self) -> Integers:
        """Return the randomized labels of the nodes that have reported, in ascending order.

        Shape (reports,), or (reports, k) if the mechanism reports k classes.

        Raises:
            ConfigError: The protocol does not collect labels.

        Privacy:
            Reads: LDP reports only. Charges: nothing (post-processing). Public: the randomized labels.
        """
        if self.protocol.label is None:
            raise ConfigError("the protocol does not collect labels")
        reported = [answer.label for _, answer in sorted(self._answers.items())]
        several = self.protocol.label.missing_reports(0).shape[1:]
        return np.array(reported, dtype=np.int64).reshape(len(reported), *several)
