"""The server: one message a node, none twice, and estimates of what was said."""

import numpy as np
import pytest
from mechanisms.fits import stream

from graphveil.collect import Collector, Survey, answer
from graphveil.errors import ConfigError, GraphveilError, MessageError
from graphveil.mechanisms import FeatureRR, LabelRR, MultiBit

from .surveys import SURVEYS, record


def message(name: str) -> bytes:
    return answer(SURVEYS[name], **record(SURVEYS[name]))


@pytest.mark.parametrize("name", SURVEYS)
def test_what_was_said_is_estimated_in_the_order_of_the_nodes(name: str) -> None:
    survey = SURVEYS[name]
    collector = Collector(survey, 6)
    for node in (4, 0, 3):
        collector.accept(message(name), node)
    assert np.flatnonzero(collector.answered).tolist() == [0, 3, 4]
    if survey.features is not None:
        estimates = collector.features()
        assert estimates.shape == (3, survey.features.dim)
        first = Collector(survey, 6)
        first.accept(message(name), 5)
        first._answers[5] = collector._answers[3]
        assert (first.features()[0] == estimates[1]).all()
    if survey.label is not None:
        assert collector.labels().tolist() == [collector._answers[node].label for node in (0, 3, 4)]


def test_estimates_average_to_the_truth() -> None:
    survey = Survey(features=MultiBit(epsilon=20.0, dim=2), label=LabelRR(epsilon=5.0, classes=3))
    collector = Collector(survey, 400)
    refused = collector.accept_all(
        {node: answer(survey, features=[0.2, 0.9], label=2) for node in range(400)}
    )
    assert refused == {}
    error = 6 * np.sqrt(survey.features.variance(np.array([[0.2, 0.9]]))[0] / 400)
    assert (np.abs(collector.features().mean(axis=0) - [0.2, 0.9]) < error).all()
    assert survey.label.frequencies(collector.labels())[2] > 0.8


def refuses_copies(collector: Collector) -> None:
    """A message counts once, for one node, and a node answers once."""
    first = message("multi-bit")
    collector.accept(first, 2)
    for node in (2, 3):
        with pytest.raises(MessageError, match="copy of it is no second answer"):
            collector.accept(first, node)
    with pytest.raises(MessageError, match="would double what it tells"):
        collector.accept(message("multi-bit"), 2)
    assert np.flatnonzero(collector.answered).tolist() == [2]
    collector.accept(message("multi-bit"), 3)


def test_a_replayed_message_is_refused() -> None:
    refuses_copies(Collector(SURVEYS["multi-bit"], 5))


def test_a_replayed_message_that_is_accepted_would_be_noticed() -> None:
    class Forgetful(set):
        def __contains__(self, item: object) -> bool:
            return False

    collector = Collector(SURVEYS["multi-bit"], 5)
    collector._seen = Forgetful()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        refuses_copies(collector)


@pytest.mark.parametrize("node", [-1, 5, 1.0, True, "1", None])
def test_a_message_of_a_node_that_is_none_is_refused(node: object) -> None:
    with pytest.raises(MessageError, match="5 nodes"):
        Collector(SURVEYS["label"], 5).accept(message("label"), node)


def test_a_refused_message_changes_nothing() -> None:
    collector = Collector(SURVEYS["multi-bit"], 5)
    good = message("multi-bit")
    broken = {0: good[:-1], 1: message("label"), 2: b"", 3: good, 4: good, 7: message("multi-bit")}
    refused = collector.accept_all(broken)
    assert sorted(refused) == [0, 1, 2, 4, 7]
    assert "copy of it" in refused[4]
    assert np.flatnonzero(collector.answered).tolist() == [3]


def test_no_error_tells_what_a_message_says() -> None:
    secret = 10  # the largest index of eleven features; no error may print it
    good = bytearray(message("multi-bit"))
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
    collector.accept_all({node: answer(survey, features=row) for node, row in enumerate(x)})
    ours, theirs = law.estimate(law.perturb(x, stream=stream())), collector.features()
    assert np.unique(ours).tolist() == np.unique(theirs).tolist()
    spread = 6 * np.sqrt(law.variance(x[:1])[0] * 2 / 300)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < spread).all()
