"""One person's answer as bytes, version 2: a fixed header, packed fields, a checksum.

::

    0   4   magic "GVLA"
    4   1   version, 2
    5  16   digest of the survey
    21 16   tag of the node: a hash of the survey and its public id
    37  n   payload: fields of as many bits as they need, the first bit of each the highest
    37+n 4  CRC-32 of all bytes before it, big-endian

The payload has a value per feature (a bit, or a bin in the bits of its k - 1), then the label (in the bits of
classes - 1, of groups - 1 where a group is said, or a bit per class where several are), then zero bits up to
a whole byte. Which features are told about and which classes make a group follow from the survey and the
node's id, and so does the length.
There is exactly one form of every answer of every node.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._util.typed import fitting
from graphveil.errors import ConfigError, LDPReportError
from graphveil.local.collect.nodes import TAG_BYTES, Node, chosen_features, label_hashes, node_tag
from graphveil.local.collect.protocol import DIGEST_BYTES, CollectionProtocol
from graphveil.mechanisms.features import LDPReports
from graphveil.mechanisms.labels import LabelRR, LocalHashing
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import Integers, row_blocks

MAGIC, VERSION, CHECK_BYTES = b"GVLA", 2, 4
_HEADER = len(MAGIC) + 1 + DIGEST_BYTES + TAG_BYTES
_BIT = np.uint64(1)


@dataclass(frozen=True, eq=False)
class LDPReport:
    """What one LDP report says: a report on the features (one row), a label, or both.

    The label is a class, or where the survey's mechanism says several, these in ascending order (of a smaller
    group with -1 after them).
    """

    features: LDPReports | None
    label: int | tuple[int, ...] | None


def encode(protocol: CollectionProtocol, node: Node, answer: LDPReport) -> bytes:
    """Return the LDP report of an answer that a mechanism of the survey made for a node.

    Raises:
        ConfigError: it is about other features than the survey and the node's id choose.
    """
    labels = None if answer.label is None else np.array([answer.label])
    return encode_all(protocol, [node], answer.features, labels)[0]


def encode_all(
    protocol: CollectionProtocol, nodes: Sequence[Node], features: LDPReports | None, labels: Integers | None
) -> list[bytes]:
    """Return the LDP reports of many answers, in order: a row of the reports and a label for each node."""
    head, widths = MAGIC + bytes([VERSION]) + protocol.digest, _widths(protocol)
    if features is not None and not _same(features.indices, chosen_features(protocol, nodes)):
        raise ConfigError("an answer tells about the features that the survey and the node's id choose")
    parts = (None if features is None else features.values, _label_fields(protocol, nodes, labels))
    columns = [part for part in parts if part is not None]
    encoded_reports = []
    for rows in row_blocks(len(nodes), len(widths)):
        fields = np.concatenate([column[rows] for column in columns], axis=1).astype(np.uint64)
        pairs = zip(nodes[rows], _pack(fields, widths), strict=True)
        encoded_reports += [_signed(head + node_tag(protocol, node) + payload) for node, payload in pairs]
    return encoded_reports


def _label_fields(
    protocol: CollectionProtocol, nodes: Sequence[Node], labels: Integers | None
) -> npt.NDArray[Any] | None:
    """Return what is sent of labels: a class, a group of classes, or for each class whether it is said."""
    law = protocol.label
    if labels is None or law is None:
        return None
    if isinstance(law, LabelRR):
        return labels[:, None]
    if isinstance(law, LocalHashing):
        return law.groups_of(label_hashes(protocol, nodes), labels)[:, None]
    return law.members(labels)


def _same(one: npt.NDArray[np.int32] | None, other: npt.NDArray[np.int32] | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def report_bytes(protocol: CollectionProtocol) -> int:
    """Return the length of every LDP report of a survey.

    >>> report_bytes(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)))
    42
    """
    return _HEADER + -(-int(_widths(protocol).sum()) // 8) + CHECK_BYTES


def _signed(body: bytes) -> bytes:
    """Return an LDP report with its checksum."""
    return body + zlib.crc32(body).to_bytes(CHECK_BYTES, "big")


def decode(protocol: CollectionProtocol, node: Node, encoded_report: bytes) -> LDPReport:
    """Return what the LDP report of a node says.

    Raises:
        LDPReportError: it is truncated, damaged, of another version, survey or node, or says what no device
            would.
        ConfigError: the id is neither text nor a whole number.

    >>> decode(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)), "ann", b"no message")
    Traceback (most recent call last):
    graphveil.errors.LDPReportError: an LDP report has 42 bytes, and this one has 10
    """
    fitting("protocol", protocol, CollectionProtocol)
    if not isinstance(encoded_report, bytes | bytearray | memoryview):
        raise LDPReportError("an LDP report is bytes")
    widths = _widths(protocol)
    payload = _payload(protocol, node, bytes(encoded_report))
    fields = _unpack(payload, widths)
    if (fields > _limits(protocol)).any():
        raise LDPReportError("an LDP report names a feature, bin or class that the survey does not have")
    label, reported = _label(protocol, node, fields)
    if protocol.features is None:
        return LDPReport(None, label)
    return LDPReport(LDPReports(reported.astype(np.uint8)[None], chosen_features(protocol, [node])), label)


def _label(
    protocol: CollectionProtocol, node: Node, fields: Integers
) -> tuple[int | tuple[int, ...] | None, Integers]:
    """Return the label of an LDP report, and the fields before it."""
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
        raise LDPReportError(f"an LDP report says another number of classes than the survey's {law.size}")
    return tuple(reported.tolist()), fields[: -law.classes]


def _payload(protocol: CollectionProtocol, node: Node, encoded_report: bytes) -> bytes:
    """Return the payload of an LDP report whose header and checksum are right."""
    whole = report_bytes(protocol)
    if len(encoded_report) != whole:
        raise LDPReportError(f"an LDP report has {whole} bytes, and this one has {len(encoded_report)}")
    if not encoded_report.startswith(MAGIC):
        raise LDPReportError("this is no LDP report of a survey")
    if encoded_report[len(MAGIC)] != VERSION:
        raise LDPReportError(f"this version reads LDP reports of version {VERSION} only; update the device")
    if zlib.crc32(encoded_report[:-CHECK_BYTES]) != int.from_bytes(encoded_report[-CHECK_BYTES:], "big"):
        raise LDPReportError("an LDP report was damaged on its way; send it again")
    if encoded_report[len(MAGIC) + 1 : _HEADER - TAG_BYTES] != protocol.digest:
        raise LDPReportError("an LDP report answers another survey; its randomization has other parameters")
    if encoded_report[_HEADER - TAG_BYTES : _HEADER] != node_tag(protocol, node):
        raise LDPReportError("an LDP report is of another node; a copy of somebody else's is no answer")
    return encoded_report[_HEADER:-CHECK_BYTES]


@lru_cache(maxsize=32)
def _limits(protocol: CollectionProtocol) -> Integers:
    """Return the largest value of each field."""
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
    """Return the bits of each field."""
    return np.array([limit.bit_length() for limit in _limits(protocol).tolist()])


def _pack(fields: npt.NDArray[np.uint64], widths: Integers) -> list[bytes]:
    """Return the payload of each row of fields."""
    shifts, which = _places(widths)
    packed = np.packbits((fields[:, which] >> shifts & _BIT).astype(np.uint8), axis=1)
    return [row.tobytes() for row in packed]


def _unpack(payload: bytes, widths: Integers) -> Integers:
    """Return the fields, refusing padding that is not zero."""
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
    shifts, which = _places(widths)
    if bits[len(shifts) :].any():
        raise LDPReportError("an LDP report does not end with zero bits")
    fields = np.zeros(len(widths), dtype=np.uint64)
    np.add.at(fields, which, bits[: len(shifts)].astype(np.uint64) << shifts)
    return fields.astype(np.int64)


def _places(widths: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
    """Return how far each bit is shifted in its field, and which field it belongs to."""
    which = np.repeat(np.arange(len(widths)), widths)
    ends = np.cumsum(widths)[which]
    return (ends - 1 - np.arange(len(which))).astype(np.uint64), which
