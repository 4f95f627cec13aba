"""The format of messages: frozen, one form an answer, and nothing but typed errors for anything else."""

import hashlib
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanisms.fits import fits

from graphveil.errors import ConfigError, GraphError, LDPReportError
from graphveil.local.collect import CollectionProtocol, LDPReport, decode, encode, randomize_record
from graphveil.local.collect.protocol import chosen_features, label_hashes, node_tag
from graphveil.mechanisms import FeatureRR, LabelRR, LDPReports, LocalHashing, MultiBit, SubsetSelection

from .protocols import SECRET, SURVEYS, record

HEADER = 37
SMALL = CollectionProtocol(features=MultiBit(epsilon=6.0, dim=11), label=LabelRR(epsilon=1.0, classes=5))


def signed(body: bytes) -> bytes:
    """A message with a right checksum, whatever is in it."""
    return body + zlib.crc32(body).to_bytes(4, "big")


def parts(one: LDPReport) -> tuple:
    report = one.features
    if report is None:
        return (one.label,)
    indices = None if report.indices is None else report.indices.tolist()
    return one.label, report.values.tolist(), indices


def test_the_format_is_frozen() -> None:
    # Three of eleven features, which the id chooses, say 1, 0 and 1; the class 4 of five (3 bits).
    assert SMALL.digest.hex() == "f17a818bdce6f4070bbef4128d24b079"
    chosen = chosen_features(SMALL, ["ann"])
    assert chosen.tolist() == [[2, 3, 8]]
    encoded_report = encode(SMALL, "ann", LDPReport(LDPReports(np.array([[1, 0, 1]], np.uint8), chosen), 4))
    assert encoded_report[:5] == b"GVLA\x02"
    assert encoded_report[5:21] == SMALL.digest
    assert (
        encoded_report[21:37] == hashlib.sha256(b"graphveil-node/1\0" + SMALL.digest + b"ann").digest()[:16]
    )
    assert [f"{byte:08b}" for byte in encoded_report[37:-4]] == ["10110000"]
    assert encoded_report[-4:] == zlib.crc32(encoded_report[:-4]).to_bytes(4, "big")
    assert randomize_record(SMALL, **record(SMALL)).hex() == (
        "47564c4102f17a818bdce6f4070bbef4128d24b079284108faa92d17e66c457d242beca1fef0a53c21eb"
    )


@pytest.mark.parametrize("name", SURVEYS)
def test_decoding_inverts_encoding(name: str) -> None:
    protocol = SURVEYS[name]
    for node in range(20):
        encoded_report = randomize_record(protocol, **record(protocol, node))
        back = decode(protocol, node, encoded_report)
        assert encode(protocol, str(node), back) == encoded_report
        assert parts(decode(protocol, node, bytearray(encoded_report))) == parts(back)


# -- whose it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(5, 37))
def test_rejects_reports_of_other_protocols_or_nodes(place: int) -> None:
    body = bytearray(randomize_record(SMALL, **record(SMALL))[:-4])
    body[place] ^= 1
    with pytest.raises(
        LDPReportError, match="belongs to another protocol" if place < 21 else "to another node"
    ):
        decode(SMALL, "ann", signed(bytes(body)))


def test_protocol_and_node_choose_the_reported_features() -> None:
    law = MultiBit(epsilon=1.0, dim=3, m=1)
    protocol = CollectionProtocol(features=law, purpose="who")
    chosen = chosen_features(protocol, range(3000))
    again = chosen_features(CollectionProtocol(features=law, purpose="why"), range(3000))
    assert abs((chosen == again).mean() - 1 / 3) < 0.05
    fits(np.bincount(chosen[:, 0]), np.full(3, 1 / 3), seen=2)
    sent = decode(protocol, 5, randomize_record(protocol, node=5, secret=SECRET, features=[0.0, 0.5, 1.0]))
    assert sent.features.indices.tolist() == [chosen[5].tolist()]
    other = LDPReports(sent.features.values, (sent.features.indices + 1) % 3)
    with pytest.raises(ConfigError, match="that the protocol selects for this node id"):
        encode(protocol, 5, LDPReport(other, None))


def test_all_subsets_of_features_are_equally_likely() -> None:
    protocol = CollectionProtocol(features=MultiBit(epsilon=6.0, dim=5, m=2))
    pairs = chosen_features(protocol, range(20_000))
    fits(np.bincount(5 * pairs[:, 0] + pairs[:, 1], minlength=25), _upper(5).ravel() / 10, seen=2)


def _upper(size: int) -> np.ndarray:
    return np.triu(np.ones((size, size)), k=1)


# -- what no device sends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SURVEYS)
def test_rejects_reports_of_another_length(name: str) -> None:
    protocol = SURVEYS[name]
    encoded_report = randomize_record(protocol, **record(protocol))
    for wrong in [encoded_report[:end] for end in range(len(encoded_report))] + [
        encoded_report + b"\0",
        b"\0" + encoded_report,
    ]:
        with pytest.raises(LDPReportError, match="bytes, but it has"):
            decode(protocol, "ann", wrong)


@pytest.mark.parametrize("name", SURVEYS)
def test_rejects_reports_with_a_flipped_bit(name: str) -> None:
    protocol = SURVEYS[name]
    encoded_report = randomize_record(protocol, **record(protocol))
    for bit in range(8 * len(encoded_report)):
        wrong = bytearray(encoded_report)
        wrong[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(LDPReportError, match=r"not an LDP report|version|damaged"):
            decode(protocol, "ann", bytes(wrong))


def test_rejects_reports_of_other_versions() -> None:
    encoded_report = randomize_record(SMALL, **record(SMALL))
    for version in (0, 1, 255):
        with pytest.raises(LDPReportError, match="only version 2 is supported"):
            decode(SMALL, "ann", signed(encoded_report[:4] + bytes([version]) + encoded_report[5:-4]))


def body(protocol: CollectionProtocol, payload: str) -> bytes:
    """A message of ann's before its checksum."""
    packed = bytes(int(byte, 2) for byte in payload.split())
    return b"GVLA\x02" + protocol.digest + node_tag(protocol, "ann") + packed


def test_rejects_invalid_payloads() -> None:
    for payload, why in (
        ("10110100", "does not exist in the protocol"),
        ("10110001", "padding bits"),
    ):  # class 5 of five; padding
        with pytest.raises(LDPReportError, match=why):
            decode(SMALL, "ann", signed(body(SMALL, payload)))


def test_rejects_bins_outside_the_range() -> None:
    protocol = CollectionProtocol(features=FeatureRR(epsilon=3.0, dim=2, k=5))
    found = decode(protocol, "ann", signed(body(protocol, "10000000")))
    assert found.features.values.tolist() == [[4, 0]]
    with pytest.raises(LDPReportError, match="does not exist in the protocol"):
        decode(protocol, "ann", signed(body(protocol, "10100000")))


@pytest.mark.parametrize("wrong", ["text", None, 41, [1, 2]])
def test_rejects_values_that_are_not_bytes(wrong: object) -> None:
    with pytest.raises(LDPReportError, match="of type bytes"):
        decode(SMALL, "ann", wrong)


@given(st.sampled_from(list(SURVEYS)), st.data())
@settings(max_examples=200)
def test_random_payloads_decode_to_one_form_or_give_typed_errors(name: str, data: st.DataObject) -> None:
    protocol = SURVEYS[name]
    size = len(randomize_record(protocol, **record(protocol))) - HEADER - 4
    payload = data.draw(st.binary(min_size=size, max_size=size))
    encoded_report = signed(b"GVLA\x02" + protocol.digest + node_tag(protocol, "ann") + payload)
    try:
        back = decode(protocol, "ann", encoded_report)
    except LDPReportError:
        return
    assert encode(protocol, "ann", back) == encoded_report
    if protocol.features is not None:
        assert np.isfinite(protocol.features.estimate(back.features)).all()


# -- several classes of a label ----------------------------------------------------------------------------

SEVERAL = CollectionProtocol(label=SubsetSelection(epsilon=1.0, classes=7))


def test_the_format_of_several_classes_is_frozen() -> None:
    assert SEVERAL.digest == hashlib.sha256(SEVERAL.to_json().encode()).digest()[:16]
    assert '"label":{"classes":7,"epsilon":1.0,"mechanism":"subset"}' in SEVERAL.to_json()
    encoded_report = encode(SEVERAL, "ann", LDPReport(None, (1, 4)))
    assert [f"{byte:08b}" for byte in encoded_report[HEADER:-4]] == ["01001000"]
    assert decode(SEVERAL, "ann", encoded_report).label == (1, 4)


@pytest.mark.parametrize("parts", [(), (3,), (0, 1, 2), tuple(range(7))])
def test_rejects_another_number_of_classes(parts: tuple[int, ...]) -> None:
    body = encode(SEVERAL, "ann", LDPReport(None, (1, 4)))[:HEADER]
    bits = sum(1 << (7 - one) for one in parts)
    with pytest.raises(LDPReportError, match="does not have the 2 classes of the protocol"):
        decode(SEVERAL, "ann", signed(body + bytes([bits])))


# -- a group of classes ------------------------------------------------------------------------------------

HASHED = CollectionProtocol(label=LocalHashing(epsilon=1.0, classes=7))
OF_ANN = [2, 1, 0, 0, 1, 0, 2]  # which group each class is in


def test_the_format_of_a_group_is_frozen() -> None:
    assert '"label":{"classes":7,"epsilon":1.0,"mechanism":"hashing"}' in HASHED.to_json()
    assert label_hashes(HASHED, ["ann"]).tolist() == [OF_ANN]
    for group in range(3):
        classes = tuple(number for number in range(7) if OF_ANN[number] == group)
        parts = classes + (-1,) * (3 - len(classes))
        encoded_report = encode(HASHED, "ann", LDPReport(None, parts))
        assert encoded_report[HEADER:-4] == bytes([group << 6])
        assert decode(HASHED, "ann", encoded_report).label == parts


def test_rejects_groups_outside_the_range() -> None:
    body = encode(HASHED, "ann", decode(HASHED, "ann", randomize_record(HASHED, **record(HASHED))))[:HEADER]
    with pytest.raises(LDPReportError, match="class that does not exist in the protocol"):
        decode(HASHED, "ann", signed(body + bytes([3 << 6])))


def test_protocol_and_node_choose_the_groups_of_classes() -> None:
    other = CollectionProtocol(label=HASHED.label, purpose="another")
    assert (label_hashes(HASHED, ["ann"]) != label_hashes(HASHED, ["bob"])).any()
    assert (label_hashes(HASHED, ["ann"]) != label_hashes(other, ["ann"])).any()
    parts = decode(HASHED, "ann", randomize_record(HASHED, **record(HASHED))).label
    with pytest.raises(GraphError, match="one group of its hash"):
        encode(HASHED, "bob", LDPReport(None, parts))
