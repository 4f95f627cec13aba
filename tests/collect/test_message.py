"""The format of messages: frozen, one form an answer, and nothing but typed errors for anything else."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.collect import Answer, Survey, answer, decode, encode
from graphveil.errors import MessageError
from graphveil.mechanisms import FeatureRR, LabelRR, MultiBit, Reports

from .surveys import SURVEYS, record

HEADER = 37
SMALL = Survey(features=MultiBit(epsilon=6.0, dim=11), label=LabelRR(epsilon=1.0, classes=5))


def signed(body: bytes) -> bytes:
    """A message with a right checksum, whatever is in it."""
    return body + zlib.crc32(body).to_bytes(4, "big")


def said(one: Answer) -> tuple:
    report = one.features
    if report is None:
        return one.message_id, one.label
    indices = None if report.indices is None else report.indices.tolist()
    return one.message_id, one.label, report.values.tolist(), indices


def test_the_format_is_frozen() -> None:
    # Three of eleven features (4 bits each): 2, 5 and 10 say 1, 0 and 1; the class 4 of five (3 bits).
    reports = Reports(np.array([[1, 0, 1]], np.uint8), np.array([[2, 5, 10]], np.int32))
    message = encode(SMALL, Answer(bytes(range(16)), reports, 4))
    assert message[:5] == b"GVLA\x01"
    assert message[5:21] == SMALL.digest
    assert message[21:37] == bytes(range(16))
    assert [f"{byte:08b}" for byte in message[37:-4]] == ["00100101", "10101011", "00000000"]
    assert message[-4:] == zlib.crc32(message[:-4]).to_bytes(4, "big")
    assert SMALL.digest.hex() == "5ecc0d1b7234398ea5249180621e9d04"


@pytest.mark.parametrize("name", SURVEYS)
def test_a_message_and_back(name: str) -> None:
    survey = SURVEYS[name]
    for _ in range(20):
        message = answer(survey, **record(survey))
        back = decode(survey, message)
        assert encode(survey, back) == message
        assert said(decode(survey, bytearray(message))) == said(back)


@pytest.mark.parametrize("name", SURVEYS)
def test_a_message_cut_or_grown_is_refused(name: str) -> None:
    survey = SURVEYS[name]
    message = answer(survey, **record(survey))
    for wrong in [message[:end] for end in range(len(message))] + [message + b"\0", b"\0" + message]:
        with pytest.raises(MessageError, match="bytes, and this one has"):
            decode(survey, wrong)


@pytest.mark.parametrize("name", SURVEYS)
def test_a_message_with_any_bit_changed_is_refused(name: str) -> None:
    survey = SURVEYS[name]
    message = answer(survey, **record(survey))
    for bit in range(8 * len(message)):
        wrong = bytearray(message)
        wrong[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(MessageError, match=r"no message|version|damaged"):
            decode(survey, bytes(wrong))


def test_a_message_of_other_parameters_is_refused() -> None:
    for name, survey in SURVEYS.items():
        message = answer(survey, **record(survey))
        for other_name, other in SURVEYS.items():
            if name != other_name:
                with pytest.raises(MessageError, match=r"another survey|bytes, and this one has"):
                    decode(other, message)
    again = Survey(features=SMALL.features, label=SMALL.label, purpose="again")
    with pytest.raises(MessageError, match="answers another survey"):
        decode(again, answer(SMALL, **record(SMALL)))


def test_a_message_of_another_version_is_refused_by_its_version() -> None:
    message = answer(SMALL, **record(SMALL))
    for version in (0, 2, 255):
        with pytest.raises(MessageError, match="of version 1 only"):
            decode(SMALL, signed(message[:4] + bytes([version]) + message[5:-4]))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("00100101 10111011 00000000", "does not have"),  # feature 11 of eleven
        ("00100101 10101011 01000000", "does not have"),  # class 5 of five
        ("01010101 10101011 00000000", "out of order or twice"),  # 5, 5, 10
        ("01010010 10101011 00000000", "out of order or twice"),  # 5, 2, 10
        ("00100101 10101011 00000001", "zero bits"),
    ],
)
def test_a_payload_that_no_device_makes_is_refused(payload: str, why: str) -> None:
    body = b"GVLA\x01" + SMALL.digest + bytes(16) + bytes(int(byte, 2) for byte in payload.split())
    with pytest.raises(MessageError, match=why):
        decode(SMALL, signed(body))


def test_a_bin_out_of_range_is_refused() -> None:
    survey = Survey(features=FeatureRR(epsilon=3.0, dim=2, k=5))
    body = b"GVLA\x01" + survey.digest + bytes(16)
    assert decode(survey, signed(body + bytes([0b10000000]))).features.values.tolist() == [[4, 0]]
    with pytest.raises(MessageError, match="does not have"):
        decode(survey, signed(body + bytes([0b10100000])))


@pytest.mark.parametrize("wrong", ["text", None, 41, [1, 2]])
def test_what_is_no_bytes_is_refused(wrong: object) -> None:
    with pytest.raises(MessageError, match="is bytes"):
        decode(SMALL, wrong)


@given(st.sampled_from(list(SURVEYS)), st.binary(max_size=80))
def test_random_bytes_give_typed_errors_only(name: str, message: bytes) -> None:
    with pytest.raises(MessageError):
        decode(SURVEYS[name], message)


@given(st.sampled_from(list(SURVEYS)), st.data())
@settings(max_examples=200)
def test_random_payloads_decode_to_one_form_or_give_typed_errors(name: str, data: st.DataObject) -> None:
    survey = SURVEYS[name]
    size = len(answer(survey, **record(survey))) - HEADER - 4
    payload = data.draw(st.binary(min_size=size, max_size=size))
    message = signed(b"GVLA\x01" + survey.digest + bytes(16) + payload)
    try:
        back = decode(survey, message)
    except MessageError:
        return
    assert encode(survey, back) == message
    if survey.features is not None:
        assert np.isfinite(survey.features.estimate(back.features)).all()
