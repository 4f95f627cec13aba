"""The server: one message a node, none twice, and estimates of what was said."""

import numpy as np
import pytest

from graphveil.errors import ConfigError, GraphveilError, LDPReportError
from graphveil.local.collect import (
    CollectionProtocol,
    Collector,
    decode,
    randomize_record,
    randomize_records,
)
from graphveil.mechanisms import LabelRR, MultiBit

from .protocols import SECRET, SURVEYS, record


def encoded_report(name: str, node: int) -> bytes:
    return randomize_record(SURVEYS[name], **record(SURVEYS[name], node))


@pytest.mark.parametrize("name", SURVEYS)
def test_estimates_are_in_the_order_of_the_nodes(name: str) -> None:
    protocol = SURVEYS[name]
    collector, nodes = Collector(protocol, 6), (4, 0, 3)
    for node in nodes:
        collector.accept(encoded_report(name, node), node)
    assert np.flatnonzero(collector.answered).tolist() == sorted(nodes)
    answers = [decode(protocol, node, encoded_report(name, node)) for node in sorted(nodes)]
    if protocol.features is not None:
        expected = [protocol.features.estimate(answer.features)[0] for answer in answers]
        assert (collector.features() == np.array(expected)).all()
    if protocol.label is not None:
        assert collector.labels().tolist() == np.array([answer.label for answer in answers]).tolist()


def test_estimates_average_to_the_truth() -> None:
    protocol = CollectionProtocol(
        features=MultiBit(epsilon=20.0, dim=2), label=LabelRR(epsilon=5.0, classes=3)
    )
    collector = Collector(protocol, 400)
    rejected = collector.accept_all(
        dict(
            enumerate(
                randomize_records(
                    protocol,
                    nodes=range(400),
                    secret=SECRET,
                    features=np.tile([0.2, 0.9], (400, 1)),
                    labels=np.full(400, 2),
                    max_eps=25.0,
                )
            )
        )
    )
    assert rejected == {}
    error = 6 * np.sqrt(protocol.features.variance(np.array([[0.2, 0.9]]))[0] / 400)
    assert (np.abs(collector.features().mean(axis=0) - [0.2, 0.9]) < error).all()
    assert protocol.label.frequencies(collector.labels())[2] > 0.8


def test_rejects_replayed_reports() -> None:
    """A message counts once, for its node, and a node answers once."""
    collector = Collector(SURVEYS["multi-bit"], 5)
    first = encoded_report("multi-bit", 2)
    collector.accept(first, 2)
    with pytest.raises(LDPReportError, match="LDP report belongs to another node"):
        collector.accept(first, 3)
    again = randomize_record(SURVEYS["multi-bit"], **record(SURVEYS["multi-bit"], 2) | {"label": 3})
    for second in (first, again):
        with pytest.raises(LDPReportError, match="would double its privacy loss"):
            collector.accept(second, 2)
    assert np.flatnonzero(collector.answered).tolist() == [2]
    collector.accept(encoded_report("multi-bit", 3), 3)


def test_identifies_nodes_by_their_ids() -> None:
    protocol = SURVEYS["label"]
    collector = Collector(protocol, 3, ids=["ann", 17, "bob"])
    collector.accept(randomize_record(protocol, **record(protocol, "17")), 1)
    collector.accept(randomize_record(protocol, **record(protocol, "bob")), 2)
    with pytest.raises(LDPReportError, match="to another node"):
        collector.accept(encoded_report("label", 0), 0)
    assert np.flatnonzero(collector.answered).tolist() == [1, 2]
    for ids in (["ann", "bob"], ["ann", "bob", "ann"], [1, "1", 2]):
        with pytest.raises(ConfigError, match="3 different"):
            Collector(protocol, 3, ids=ids)


@pytest.mark.parametrize("node", [-1, 5, 1.0, True, "1", None])
def test_rejects_invalid_node_numbers(node: object) -> None:
    with pytest.raises(LDPReportError, match="5 nodes"):
        Collector(SURVEYS["label"], 5).accept(encoded_report("label", 0), node)


def test_a_rejected_report_leaves_the_collector_unchanged() -> None:
    collector = Collector(SURVEYS["multi-bit"], 5)
    good = encoded_report("multi-bit", 3)
    broken = {
        0: good[:-1],
        1: encoded_report("label", 1),
        2: b"",
        3: good,
        4: good,
        7: encoded_report("multi-bit", 7),
    }
    rejected = collector.accept_all(broken)
    assert sorted(rejected) == [0, 1, 2, 4, 7]
    assert "LDP report belongs to another node" in rejected[4]
    assert np.flatnonzero(collector.answered).tolist() == [3]


def test_errors_contain_no_reported_value() -> None:
    secret = 10  # the largest index of eleven features; no error may print it
    good = bytearray(encoded_report("multi-bit", 0))
    for at in range(37, len(good) - 4):
        bad = good.copy()
        bad[at] ^= 0xFF
        with pytest.raises(GraphveilError) as caught:
            Collector(SURVEYS["multi-bit"], 1).accept(bytes(bad), 0)
        assert str(secret) not in str(caught.value)


def test_rejects_parts_that_were_not_collected() -> None:
    with pytest.raises(ConfigError, match="does not collect features"):
        Collector(SURVEYS["label"], 2).features()
    with pytest.raises(ConfigError, match="does not collect labels"):
        Collector(SURVEYS["one bit"], 2).labels()
    empty = Collector(SURVEYS["feature-rr"], 2)
    assert empty.features().shape == (0, 3)
    assert empty.labels().shape == (0,)
    with pytest.raises(ConfigError, match="nodes="):
        Collector(SURVEYS["label"], 0)
