"""The device: NumPy only, a limit of its own, the law of the survey, one answer to one question."""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mechanisms.fits import fits
from mechanisms.sources import BAD_KEYS, keys_are_fresh

from graphveil.collect import (
    Answer,
    Survey,
    answer,
    answer_all,
    check_limits,
    decode,
    device,
    device_secret,
    encode,
)
from graphveil.collect.nodes import label_hashes
from graphveil.collect.summary import feature_rows, largest_share, overview
from graphveil.errors import BudgetError, ConfigError, GraphError
from graphveil.mechanisms import Bounds, FeatureRR, LabelRR, MultiBit, Weights

from .surveys import LABEL, SECRET, SURVEYS, record

PROBE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "scipy", "cryptography", "pyarrow", "dp_accounting", "pydantic"}:
            raise ImportError(f"{name} is not on a device")
sys.meta_path.insert(0, Block())
from pathlib import Path
from graphveil.collect import Collector, Survey, answer, device_secret
survey = Survey.from_json(sys.argv[1])
collector = Collector(survey, 1)
agreed = {"max_eps": 20.0, "open_label": True}
secret = device_secret(Path(sys.argv[2]))
message = answer(survey, node=0, secret=secret, features=[0.5] * survey.features.dim, label=1, **agreed)
collector.accept(message, 0)
print(collector.features().shape, survey.statement()[:24])
"""


@pytest.mark.parametrize("name", ["multi-bit", "feature-rr", "weights"])
def test_both_sides_run_without_torch(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, SURVEYS[name].to_json(), tmp_path / "secret"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shape, words = f"(1, {SURVEYS[name].features.dim}) ", "NOT PROTECTED: the label"
    assert done.stdout.startswith(shape + (words if name == "weights" else "Each node's features"))


def drawn(survey: Survey, count: int, record: dict[str, Any]) -> list[Answer]:
    """What so many nodes of one record say."""
    given = {name: np.tile(value, (count, *[1] * np.ndim(value))) for name, value in record.items()}
    messages = answer_all(survey, nodes=range(count), secret=SECRET, max_eps=math.inf, **given)
    return [decode(survey, node, message) for node, message in enumerate(messages)]


def test_answers_follow_the_law() -> None:
    survey = Survey(features=MultiBit(epsilon=1.0, dim=3, m=1), label=LabelRR(epsilon=1.0, classes=3))
    answers = drawn(survey, 12_000, {"features": [0.0, 0.3, 1.0], "labels": 1})
    cells = [2 * int(one.features.indices[0, 0]) + int(one.features.values[0, 0]) for one in answers]
    bit = survey.features.bit_probability(np.array([0.0, 0.3, 1.0])) / 3
    fits(np.bincount(cells, minlength=6), np.stack([1 / 3 - bit, bit], axis=1).reshape(-1), seen=2)
    fits(np.bincount([one.label for one in answers], minlength=3), survey.label.transition[1], seen=2)


def test_groups_that_devices_say_follow_the_law_of_their_own_hash() -> None:
    survey, count = SURVEYS["hashing"], 60_000
    nodes = [f"n{number}" for number in range(count)]
    hashes = label_hashes(survey, nodes)
    messages = answer_all(survey, nodes=nodes, secret=SECRET, labels=np.full(count, 4))
    said = np.array([message[37] >> 6 for message in messages])
    among = survey.label.among_groups
    law = np.array([among.keep, among.change, among.change])
    fits(np.bincount((said - hashes[:, 4]) % 3, minlength=3), law, seen=0.5)


def test_words_beyond_a_share_follow_the_law() -> None:
    # channels read 32 bits, and go on in a block of their own where these do not decide
    law = FeatureRR(epsilon=4.0, dim=2, allocation=Weights([0.75, 0.25]))
    answers = drawn(Survey(features=law), 12_000, {"features": [0.2, 0.9]})
    for column, z in enumerate((0.2, 0.9)):
        said = np.array([one.features.values[0, column] for one in answers])
        bins = law.features[column]
        fits(np.bincount(said, minlength=bins.k), bins.distribution(z).masses, seen=2)


@pytest.mark.parametrize("name", SURVEYS)
def test_one_answer_is_one_of_many(name: str) -> None:
    survey = SURVEYS[name]
    given = record(survey)
    many = {part: given.pop(part) for part in ("secret", "max_eps", "open_label")}
    if "features" in given:
        many["features"] = np.tile(given["features"], (9, 1))
    if "label" in given:
        many["labels"] = np.full(9, given["label"])
    messages = answer_all(survey, nodes=[*"abcdefgh", "ann"], **many)
    assert messages[-1] == answer(survey, **record(survey))
    assert len(set(messages)) == 9
    backs = [decode(survey, node, message) for node, message in zip("abcdefgh", messages, strict=False)]
    assert [encode(survey, node, back) for node, back in zip("abcdefgh", backs, strict=True)] == messages[:-1]


# -- the same question, the same answer --------------------------------------------------------------------


@pytest.mark.parametrize("name", SURVEYS)
def test_a_survey_that_is_answered_again_is_told_nothing_new(name: str) -> None:
    survey = SURVEYS[name]
    assert {answer(survey, **record(survey)) for _ in range(20)} == {answer(survey, **record(survey))}


BITS = Survey(features=MultiBit(epsilon=6.0, dim=64, m="all"), label=LabelRR(epsilon=1.0, classes=2**16))
HALF = {"features": [0.5] * 64, "label": 7, "node": "ann", "secret": SECRET}


def told(survey: Survey = BITS, **changes: Any) -> tuple[tuple[int, ...], int]:
    given = HALF | changes
    back = decode(survey, given["node"], answer(survey, **given))
    return tuple(back.features.values[0].tolist()), back.label


def test_no_two_words_of_an_answer_are_the_same() -> None:
    words = device.DeviceWords(SECRET, "features", BITS, ["ann", "bob"], [b"a", b"b"])
    rows = np.array([0, 0, 0, 1])
    drawn = [words.words(np.array([0, 1]), words_per_row=4), words.blocks(rows, np.array([0, 1, 256, 0]))]
    assert len({word for part in drawn for word in part.reshape(-1).tolist()}) == 16


def test_noise_is_another_for_another_question_record_node_or_device() -> None:
    # equal noise on two records would tell their difference; it depends on all that an answer is about
    again = replace(BITS, purpose="again")
    others = [told(secret=SECRET[::-1]), told(node="bob"), told(again), told(features=[0.5] * 63 + [0.6])]
    assert len({bits for bits, _ in [told(), *others]}) == 5
    assert told(features=[0.5] * 63 + [0.6])[1] == told()[1]  # the label did not change, and says the same
    assert told(label=8)[0] == told()[0]
    shifts = {(told(label=label)[1] - label) % 2**16 for label in range(20)}
    assert len(shifts) > 15, "the noise of a label must not be the same for all labels"


def test_what_is_clipped_alike_answers_alike() -> None:
    assert told(features=[-0.0] * 64) == told(features=[0.0] * 64) == told(features=[-3] * 64)


@pytest.mark.parametrize("bounds", [Bounds(0.0, 1.0), Bounds(-0.3, 0.7)])
def test_a_record_answers_alike_however_its_numbers_are_held(bounds: Bounds) -> None:
    """A table has 32 bits of a number and a program 64: two answers would tell twice as much."""
    survey = Survey(features=MultiBit(epsilon=6.0, dim=64, m="all", bounds=bounds))
    record = np.append(np.random.default_rng(0).normal(0.5, 0.5, size=62), [1e300, -1e300])
    with np.errstate(over="ignore"):
        single = np.nan_to_num(record.astype(np.float32))
    forms = (record, record.tolist(), single, single.astype(np.float64), np.clip(record, -9, 9))
    assert len({answer(survey, node="ann", secret=SECRET, features=form) for form in forms}) == 1


def test_two_records_of_one_id_are_refused() -> None:
    survey = Survey(label=LABEL)
    for nodes in (["a", "a"], [7, "7"]):
        with pytest.raises(GraphError, match="two records have one id"):
            answer_all(survey, nodes=nodes, secret=SECRET, labels=np.array([1, 2]))


@pytest.mark.parametrize("node", [None, 1.0, True, b"ann", "\ud800", ("a",)])
def test_an_id_that_is_none_is_refused(node: object) -> None:
    with pytest.raises(ConfigError, match="a node's id is"):
        answer(Survey(label=LABEL), node=node, secret=SECRET, label=1)


def test_a_record_without_a_label_answers_like_any_other() -> None:
    survey = Survey(label=LabelRR(epsilon=6.0, classes=4))
    given = {"secret": SECRET, "label": -1}
    said = [decode(survey, node, answer(survey, node=node, **given)).label for node in range(2000)]
    fits(np.bincount(said, minlength=4), np.full(4, 0.25), seen=2)
    survey = Survey(features=MultiBit(epsilon=1.0, dim=1), label=LabelRR(epsilon=math.inf, classes=4))
    with pytest.raises(GraphError, match="asks for labels as they are"):
        answer(survey, node=1, features=[1.0], open_label=True, **given)


# -- the device's secret -----------------------------------------------------------------------------------


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    secret = device_secret()
    path = tmp_path / "state" / "graphveil" / "device-secret"
    assert (device_secret(), path.read_bytes(), len(secret)) == (secret, secret, 32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len({device_secret(tmp_path / str(i)) for i in range(50)}) == 50
    assert [file.name for file in path.parent.iterdir()] == ["device-secret"]


def test_of_two_processes_that_make_a_secret_both_have_the_same(tmp_path: Path) -> None:
    for round in range(10):
        gate, found = threading.Barrier(4), set[bytes]()

        def make(path: Path = tmp_path / str(round), gate=gate, found=found) -> None:
            gate.wait()
            found.add(device_secret(path))

        threads = [threading.Thread(target=make) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(found) == 1


def test_a_secret_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short").write_bytes(bytes(31))
    with pytest.raises(ConfigError, match="32 random bytes"):
        device_secret(tmp_path / "short")
    with pytest.raises(ConfigError, match="cannot keep the device's secret"):
        device_secret(tmp_path / "short" / "below")
    for secret in (b"", bytes(31), "x" * 32, None):
        with pytest.raises(ConfigError, match="32 random bytes"):
            answer(Survey(label=LABEL), node=1, secret=secret, label=1)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(ConfigError, match="no home directory"):
        device_secret()


def secret_of(folder: Path) -> Callable[[], bytes]:
    count = iter(range(10**6))
    return lambda: device_secret(folder / f"{os.getpid()}-{next(count)}")


def test_secrets_are_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    keys_are_fresh(secret_of(tmp_path), monkeypatch)


@pytest.mark.parametrize("source", BAD_KEYS)
def test_secrets_from_a_bad_source_would_be_noticed(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(device.secrets, "token_bytes", BAD_KEYS[source])
    with pytest.raises(AssertionError):
        keys_are_fresh(secret_of(tmp_path), monkeypatch)


# -- a survey that asks for too much -----------------------------------------------------------------------

GREEDY = {
    "features": Survey(features=FeatureRR(epsilon=1e5, dim=3, k=256)),
    "label": Survey(label=LabelRR(epsilon=1000.0, classes=3)),
    "both": Survey(features=MultiBit(epsilon=4.1, dim=3), label=LabelRR(epsilon=4.0, classes=3)),
}


@pytest.mark.parametrize("name", GREEDY)
def test_no_more_is_told_than_the_device_s_own_limit(name: str) -> None:
    survey, given = GREEDY[name], record(GREEDY[name])
    del given["max_eps"]
    with pytest.raises(BudgetError, match="tells up to 8: nothing was sent"):
        answer(survey, **given)
    many = {"features": np.ones((1, 3))} if name != "label" else {}
    many |= {"labels": np.ones(1, int)} if name != "features" else {}
    with pytest.raises(BudgetError, match="tells up to 8: nothing was sent"):
        answer_all(survey, nodes=[1], secret=SECRET, **many)
    assert answer(survey, **given, max_eps=survey.claim.epsilon)
    with pytest.raises(ConfigError, match="max_eps"):
        answer(survey, **given, max_eps=math.nan)


@pytest.mark.parametrize(
    ("features", "label", "most"), [(0.1, 0.2, 0.3), (0.1, 0.7, 0.1 + 0.7), (8.0, 1e-8, 8.1)]
)
def test_budgets_add_up_to_a_limit_as_they_are_written(features: float, label: float, most: float) -> None:
    law = LabelRR(epsilon=label, classes=3)
    check_limits(Survey(features=MultiBit(epsilon=features, dim=3), label=law), max_eps=most)
    with pytest.raises(
        BudgetError, match=r"asks for epsilon (0\.3|0\.8|8\.00000001) of .* tells up to .*: nothing"
    ):
        check_limits(Survey(features=MultiBit(epsilon=features, dim=3), label=law), max_eps=most - 0.1)


def test_an_open_label_is_sent_only_by_name() -> None:
    survey = Survey(features=MultiBit(epsilon=1.0, dim=2), label=LabelRR(epsilon=math.inf, classes=3))
    given = {"node": 1, "secret": SECRET, "features": [0.5, 0.5], "label": 2}
    for more in ({}, {"max_eps": math.inf}):
        with pytest.raises(BudgetError, match="open_label=True"):
            answer(survey, **given, **more)
    assert decode(survey, 1, answer(survey, **given, open_label=True)).label == 2
    with pytest.raises(BudgetError, match="epsilon 1 of a record"):
        answer(survey, **given, open_label=True, max_eps=0.5)


def test_not_protected_is_told_by_what_is_kept_and_not_by_the_sign_of_infinity() -> None:
    assert GREEDY["features"].open_parts == ("features",)
    assert (
        GREEDY["features"]
        .statement()
        .startswith("NOT PROTECTED: of 3 features 3 leave each node as they are")
    )
    assert GREEDY["label"].statement().startswith("NOT PROTECTED: the label leaves each node as it is")
    assert GREEDY["both"].open_parts == ()
    near = Survey(features=FeatureRR(epsilon=3 * 110.0, dim=3, k=256))  # within some bins, never the same one
    assert (near.features.features[0].table.max() < 0.5, near.open_parts) == (True, ("features",))


def test_a_single_feature_that_has_it_all_is_seen() -> None:
    law = FeatureRR(epsilon=8.0, dim=100, k=2, decode="unbiased", allocation=Weights([0.901] + [0.001] * 99))
    survey = Survey(features=law)
    assert largest_share(survey) == pytest.approx(0.901)
    assert survey.open_parts == ("features",)
    assert "0.901 of that budget is for a single feature" in dict(overview(survey))["largest share"]
    assert feature_rows(survey)[0] == ("feature 0", "0", "1", "7.208", "0.9993")


@pytest.mark.parametrize(
    "given",
    [{}, {"features": [0.0] * 11}, {"label": 1}, {"features": None, "label": None}],
)
def test_an_answer_has_what_the_survey_asks_for(given: dict) -> None:
    whose = {"node": "ann", "secret": SECRET}
    with pytest.raises(ConfigError, match="exactly where the survey asks"):
        answer(SURVEYS["multi-bit"], **given, **whose)
    if "label" in given and given["label"] is not None:
        with pytest.raises(ConfigError, match="exactly where the survey asks"):
            answer(SURVEYS["one bit"], **given, **whose)


@pytest.mark.parametrize(
    "features",
    [
        [0.0] * 10,
        [[0.0] * 11],
        [float("nan")] * 11,
        [1.0] * 10 + [float("-inf")],
        "x" * 11,
        [[1.0], [1.0, 2.0]],
        5,
    ],
)
def test_features_that_do_not_fit_are_refused(features: object) -> None:
    with pytest.raises(GraphError, match=r"must be 11 numbers|do not fit|NaN or infinite"):
        answer(SURVEYS["multi-bit"], node="ann", secret=SECRET, features=features, label=1)


@pytest.mark.parametrize("label", [-2, 5, 1.0, "1", True, [0, 1]])
def test_a_label_that_is_none_is_refused(label: object) -> None:
    with pytest.raises(GraphError, match=r"classes from 0 to 4|whole number"):
        answer(Survey(label=LABEL), node="ann", secret=SECRET, label=label)


def test_features_and_labels_of_many_are_of_the_same_records() -> None:
    whose = {"nodes": range(3), "secret": SECRET}
    with pytest.raises(GraphError, match="same records"):
        answer_all(SURVEYS["multi-bit"], features=np.zeros((3, 11)), labels=np.ones(2, int), **whose)
    with pytest.raises(ConfigError, match="exactly where the survey asks"):
        answer_all(SURVEYS["multi-bit"], features=np.zeros((3, 11)), **whose)
