"""Encoding of LDP reports as bytes, version 2: a fixed header, packed fields, a checksum.

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
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import fitting
from graphveil.core.noise.sampling import Integers, row_blocks, subsets
from graphveil.errors import ConfigError, LDPReportError
from graphveil.local.collect.protocol import DIGEST_BYTES, CollectionProtocol
from graphveil.mechanisms.feature_mechanisms import MultiBit
from graphveil.mechanisms.features import LDPReports, Single
from graphveil.mechanisms.labels import LabelRR, LocalHashing

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
    law = protocol.label
    if labels is not None and law is not None:  # a class, a group of classes, or one bit for each class
        if isinstance(law, LabelRR):
            columns.append(labels[:, None])
        elif isinstance(law, LocalHashing):
            columns.append(law.groups_of(label_hashes(protocol, nodes), labels)[:, None])
        else:
            columns.append(law.members(labels))
    shifts, which = _places(widths)
    encoded_reports = []
    for rows in row_blocks(len(nodes), len(widths)):
        fields = np.concatenate([column[rows] for column in columns], axis=1).astype(np.uint64)
        bits = (fields[:, which] >> shifts & _BIT).astype(np.uint8)
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
    fields = unpacked.astype(np.int64)
    if (fields > _limits(protocol)).any():
        raise LDPReportError(
            "The LDP report contains a feature, bin or class that does not exist in the protocol."
        )
    label, reported = _label(protocol, node, fields)
    if protocol.features is None:
        return LDPReport(None, label)
    return LDPReport(LDPReports(reported.astype(np.uint8)[None], chosen_features(protocol, [node])), label)


def _label(
    protocol: CollectionProtocol, node: Node, fields: Integers
) -> tuple[int | tuple[int, ...] | None, Integers]:
    law = protocol.label
    if law is None:
        return None, fields
    if isinstance(law, LabelRR):
        return int(fields[-1]), fields[:-1]
    if isinstance(law, LocalHashing):
        (group,) = law.classes_of_groups(label_hashes(protocol, [node]), fields[-1:])
        return tuple(group.tolist()), fields[:-1]
    reported = np.flatnonzero(fields[-law.classes :])
    if len(reported) != law.size:
        raise LDPReportError(f"The LDP report does not have the {law.size} classes of the protocol.")
    return tuple(reported.tolist()), fields[: -law.classes]


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
    law, limits = protocol.features, list[Integers]()
    if isinstance(law, MultiBit):
        limits.append(np.ones(law.samples, dtype=np.int64))
    elif law is not None:
        limits.append(law.sizes - 1)
    if isinstance(protocol.label, LabelRR):
        limits.append(np.array([protocol.label.classes - 1]))
    elif isinstance(protocol.label, LocalHashing):
        limits.append(np.array([protocol.label.groups - 1]))
    elif protocol.label is not None:
        limits.append(np.ones(protocol.label.classes, dtype=np.int64))
    return np.concatenate(limits)


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


def label_hashes(protocol: CollectionProtocol, nodes: Sequence[Node]) -> Integers:
    """Return the group of every class for each node, (nodes, classes), for local hashing.

    They depend only on the protocol and the node id, so that a client cannot choose the groups.

    >>> law = LocalHashing(epsilon=1.0, classes=7)
    >>> label_hashes(CollectionProtocol(label=law), ["a", "b"]).shape
    (2, 7)
    """
    assert isinstance(protocol.label, LocalHashing)
    return protocol.label.hashes([_bound("label", protocol, node) for node in nodes])


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
        several = () if isinstance(self.protocol.label, LabelRR) else (self.protocol.label.size,)
        return np.array(reported, dtype=np.int64).reshape(len(reported), *several)
