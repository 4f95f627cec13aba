"""The server: one message a node, none twice, and estimates of what was said."""

import numpy as np
import pytest
from mechanisms.fits import stream

from graphveil.collect import Collector, Survey, answer, answer_all
from graphveil.errors import ConfigError, GraphveilError, MessageError
from graphveil.mechanisms import FeatureRR, LabelRR, MultiBit

from .surveys import SECRET, SURVEYS, record


def message(name: str, node: int) -> bytes:
    return answer(SURVEYS[name], **record(SURVEYS[name], node))


@pytest.mark.parametrize("name", SURVEYS)
def test_what_was_said_is_estimated_in_the_order_of_the_nodes(name: str) -> None:
    survey = SURVEYS[name]
    collector = Collector(survey, 6)
    for node in (4, 0, 3):
        collector.accept(message(name, node), node)
    assert np.flatnonzero(collector.answered).tolist() == [0, 3, 4]
    if survey.features is not None:
        estimates = collector.features()
        assert estimates.shape == (3, survey.features.dim)
        first = Collector(survey, 6)
        first.accept(message(name, 5), 5)
        first._answers[5] = collector._answers[3]
        assert (first.features()[0] == estimates[1]).all()
    if survey.label is not None:
        said = [collector._answers[node].label for node in (0, 3, 4)]
        assert collector.labels().tolist() == np.array(said).tolist()


def test_estimates_average_to_the_truth() -> None:
    survey = Survey(features=MultiBit(epsilon=20.0, dim=2), label=LabelRR(epsilon=5.0, classes=3))
    collector = Collector(survey, 400)
    refused = collector.accept_all(
        dict(
            enumerate(
                answer_all(
                    survey,
                    nodes=range(400),
                    secret=SECRET,
                    features=np.tile([0.2, 0.9], (400, 1)),
                    labels=np.full(400, 2),
                    max_eps=25.0,
                )
            )
        )
    )
    assert refused == {}
    error = 6 * np.sqrt(survey.features.variance(np.array([[0.2, 0.9]]))[0] / 400)
    assert (np.abs(collector.features().mean(axis=0) - [0.2, 0.9]) < error).all()
    assert survey.label.frequencies(collector.labels())[2] > 0.8


def refuses_copies(collector: Collector) -> None:
    """A message counts once, for its node, and a node answers once."""
    first = message("multi-bit", 2)
    collector.accept(first, 2)
    with pytest.raises(MessageError, match="copy of somebody else's is no answer"):
        collector.accept(first, 3)
    again = answer(SURVEYS["multi-bit"], **record(SURVEYS["multi-bit"], 2) | {"label": 3})
    for second in (first, again):
        with pytest.raises(MessageError, match="would double what it tells"):
            collector.accept(second, 2)
    assert np.flatnonzero(collector.answered).tolist() == [2]
    collector.accept(message("multi-bit", 3), 3)


def test_a_replayed_message_is_refused() -> None:
    refuses_copies(Collector(SURVEYS["multi-bit"], 5))


def test_a_replayed_message_that_is_accepted_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphveil.collect.message.node_tag", lambda survey, node: bytes(16))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        refuses_copies(Collector(SURVEYS["multi-bit"], 5))


def test_nodes_are_known_by_their_ids() -> None:
    survey = SURVEYS["label"]
    collector = Collector(survey, 3, ids=["ann", 17, "bob"])
    collector.accept(answer(survey, **record(survey, "17")), 1)
    collector.accept(answer(survey, **record(survey, "bob")), 2)
    with pytest.raises(MessageError, match="of another node"):
        collector.accept(message("label", 0), 0)
    assert np.flatnonzero(collector.answered).tolist() == [1, 2]
    for ids in (["ann", "bob"], ["ann", "bob", "ann"], [1, "1", 2]):
        with pytest.raises(ConfigError, match="3 different"):
            Collector(survey, 3, ids=ids)


@pytest.mark.parametrize("node", [-1, 5, 1.0, True, "1", None])
def test_a_message_of_a_node_that_is_none_is_refused(node: object) -> None:
    with pytest.raises(MessageError, match="5 nodes"):
        Collector(SURVEYS["label"], 5).accept(message("label", 0), node)


def test_a_refused_message_changes_nothing() -> None:
    collector = Collector(SURVEYS["multi-bit"], 5)
    good = message("multi-bit", 3)
    broken = {0: good[:-1], 1: message("label", 1), 2: b"", 3: good, 4: good, 7: message("multi-bit", 7)}
    refused = collector.accept_all(broken)
    assert sorted(refused) == [0, 1, 2, 4, 7]
    assert "copy of somebody else" in refused[4]
    assert np.flatnonzero(collector.answered).tolist() == [3]


def test_no_error_tells_what_a_message_says() -> None:
    secret = 10  # the largest index of eleven features; no error may print it
    good = bytearray(message("multi-bit", 0))
    for at in range(37, len(good) - 4):
        bad = good.copy()
        bad[at] ^= 0xFF
        with pytest.raises(GraphveilError) as caught:
            Collector(SURVEYS["multi-bit"], 1).accept(bytes(bad), 0)
        assert str(secret) not in str(caught.value)


def test_what_was_not_asked_for_is_not_there() -> None:
    with pytest.raises(ConfigError, match="does not ask for features"):
        Collector(SURVEYS["label"], 2).features()
    with pytest.raises(ConfigError, match="does not ask for labels"):
        Collector(SURVEYS["one bit"], 2).labels()
    empty = Collector(SURVEYS["feature-rr"], 2)
    assert empty.features().shape == (0, 3)
    assert empty.labels().shape == (0,)
    with pytest.raises(ConfigError, match="nodes="):
        Collector(SURVEYS["label"], 0)


def test_messages_and_matrices_estimate_alike() -> None:
    law = FeatureRR(epsilon=8.0, dim=5)
    survey, x = Survey(features=law), np.full((300, 5), 0.4)
    collector = Collector(survey, 300)
    collector.accept_all(dict(enumerate(answer_all(survey, nodes=range(300), secret=SECRET, features=x))))
    ours, theirs = law.estimate(law.perturb(x, stream=stream())), collector.features()
    assert np.unique(ours).tolist() == np.unique(theirs).tolist()
    spread = 6 * np.sqrt(law.variance(x[:1])[0] * 2 / 300)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < spread).all()
