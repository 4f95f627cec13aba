"""One person's answer as bytes, version 1: a fixed header, packed fields, a checksum.

::

    0   4   magic "GVLA"
    4   1   version, 1
    5  16   digest of the survey
    21 16   message id, random
    37  n   payload: fields of as many bits as they need, the first bit of each the highest
    37+n 4  CRC-32 of all bytes before it, big-endian

The payload has the indices of sampled features (ascending, each in the bits of dim - 1), then a value a
feature (a bit, or a bin in the bits of its k - 1), then the label (in the bits of classes - 1), then zero
bits up to a whole byte. Its length follows from the survey. There is exactly one form of every answer.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from graphveil.collect.survey import DIGEST_BYTES, Survey
from graphveil.errors import MessageError
from graphveil.mechanisms._draws import Integers, row_blocks
from graphveil.mechanisms.local.features import Reports
from graphveil.mechanisms.local.multibit import MultiBit

MAGIC, VERSION, ID_BYTES, CHECK_BYTES = b"GVLA", 1, 16, 4
_HEADER = len(MAGIC) + 1 + DIGEST_BYTES + ID_BYTES
_BIT = np.uint64(1)


@dataclass(frozen=True, eq=False)
class Answer:
    """What one message says: a report on the features (one row), a label, or both."""

    message_id: bytes
    features: Reports | None
    label: int | None


def encode(survey: Survey, answer: Answer) -> bytes:
    """Return the message of an answer that a mechanism of the survey made."""
    labels = None if answer.label is None else np.array([answer.label])
    return encode_all(survey, [answer.message_id], answer.features, labels)[0]


def encode_all(
    survey: Survey, message_ids: Sequence[bytes], features: Reports | None, labels: Integers | None
) -> list[bytes]:
    """Return the messages of many answers, in order: an id, a row of the reports and a label each."""
    head, widths = MAGIC + bytes([VERSION]) + survey.digest, _widths(survey)
    parts = [] if features is None else [features.indices, features.values]
    parts.append(None if labels is None else labels[:, None])
    columns = [part for part in parts if part is not None]
    messages = []
    for rows in row_blocks(len(message_ids), len(widths)):
        fields = np.concatenate([column[rows] for column in columns], axis=1).astype(np.uint64)
        pairs = zip(message_ids[rows], _pack(fields, widths), strict=True)
        messages += [_signed(head + message_id + payload) for message_id, payload in pairs]
    return messages


def message_bytes(survey: Survey) -> int:
    """Return the length of every message of a survey.

    >>> message_bytes(Survey(features=MultiBit(epsilon=1.0, dim=8)))
    42
    """
    return _HEADER + -(-int(_widths(survey).sum()) // 8) + CHECK_BYTES


def _signed(body: bytes) -> bytes:
    """Return a message with its checksum."""
    return body + zlib.crc32(body).to_bytes(CHECK_BYTES, "big")


def decode(survey: Survey, message: bytes) -> Answer:
    """Return what a message says.

    Raises:
        MessageError: it is truncated, damaged, of another version or survey, or says what no device would.

    >>> decode(Survey(features=MultiBit(epsilon=1.0, dim=8)), b"no message")
    Traceback (most recent call last):
    graphveil.errors.MessageError: a message has 42 bytes, and this one has 10
    """
    if not isinstance(message, bytes | bytearray | memoryview):
        raise MessageError("a message is bytes")
    widths = _widths(survey)
    payload = _payload(survey, bytes(message))
    fields = _unpack(payload, widths)
    if (fields > _limits(survey)).any():
        raise MessageError("a message names a feature, bin or class that the survey does not have")
    label = None if survey.label is None else int(fields[-1])
    said = fields if label is None else fields[:-1]
    message_id = bytes(message[_HEADER - ID_BYTES : _HEADER])
    return Answer(message_id, None if survey.features is None else _reports(survey.features, said), label)


def _payload(survey: Survey, message: bytes) -> bytes:
    """Return the payload of a message whose header and checksum are right."""
    whole = message_bytes(survey)
    if len(message) != whole:
        raise MessageError(f"a message has {whole} bytes, and this one has {len(message)}")
    if not message.startswith(MAGIC):
        raise MessageError("this is no message of a survey")
    if message[len(MAGIC)] != VERSION:
        raise MessageError(f"this version reads messages of version {VERSION} only; update the device")
    if zlib.crc32(message[:-CHECK_BYTES]) != int.from_bytes(message[-CHECK_BYTES:], "big"):
        raise MessageError("a message was damaged on its way; send it again")
    if message[len(MAGIC) + 1 : _HEADER - ID_BYTES] != survey.digest:
        raise MessageError("a message answers another survey; its randomisation has other parameters")
    return message[_HEADER:-CHECK_BYTES]


def _reports(law: object, fields: Integers) -> Reports:
    """Return the report of one record."""
    if not isinstance(law, MultiBit) or law.samples == law.dim:
        return Reports(fields.astype(np.uint8)[None])
    indices, bits = fields[: law.samples], fields[law.samples :]
    if (np.diff(indices) <= 0).any():
        raise MessageError("a message names its features out of order or twice")
    return Reports(bits.astype(np.uint8)[None], indices.astype(np.int32)[None])


@lru_cache(maxsize=32)
def _limits(survey: Survey) -> Integers:
    """Return the largest value of each field."""
    limits: list[Integers] = []
    law = survey.features
    if isinstance(law, MultiBit):
        if law.samples < law.dim:
            limits.append(np.full(law.samples, law.dim - 1))
        limits.append(np.ones(law.samples, dtype=np.int64))
    elif law is not None:
        limits.append(np.array([feature.k - 1 for feature in law.features]))
    if survey.label is not None:
        limits.append(np.array([survey.label.classes - 1]))
    return np.concatenate(limits)


@lru_cache(maxsize=32)
def _widths(survey: Survey) -> Integers:
    """Return the bits of each field."""
    return np.array([limit.bit_length() for limit in _limits(survey).tolist()])


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
        raise MessageError("a message does not end with zero bits")
    fields = np.zeros(len(widths), dtype=np.uint64)
    np.add.at(fields, which, bits[: len(shifts)].astype(np.uint64) << shifts)
    return fields.astype(np.int64)


def _places(widths: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
    """Return how far each bit is shifted in its field, and which field it belongs to."""
    which = np.repeat(np.arange(len(widths)), widths)
    ends = np.cumsum(widths)[which]
    return (ends - 1 - np.arange(len(which))).astype(np.uint64), which
