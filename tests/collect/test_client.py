"""The device: NumPy and the operating system only, fresh randomness, the law of the survey."""

import subprocess
import sys

import numpy as np
import pytest
from mechanisms.fits import fits

from graphveil.collect import Survey, answer, answer_all, client, decode, encode
from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms import FeatureRR, LabelRR, MultiBit

from .surveys import LABEL, SURVEYS, record

PROBE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "scipy", "cryptography", "pyarrow", "dp_accounting", "pydantic"}:
            raise ImportError(f"{name} is not on a device")
sys.meta_path.insert(0, Block())
from graphveil.collect import Collector, Survey, answer
survey = Survey.from_json(sys.argv[1])
collector = Collector(survey, 1)
collector.accept(answer(survey, features=[0.5] * survey.features.dim, label=1), 0)
print(collector.features().shape, survey.statement()[:20])
"""


@pytest.mark.parametrize("name", ["multi-bit", "feature-rr", "weights"])
def test_both_sides_run_without_torch(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, SURVEYS[name].to_json()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"(1, {SURVEYS[name].features.dim}) Each node's features")


@pytest.mark.parametrize("name", SURVEYS)
def test_no_two_answers_share_an_id(name: str) -> None:
    survey = SURVEYS[name]
    ids = {decode(survey, answer(survey, **record(survey))).message_id for _ in range(50)}
    assert len(ids) == 50


def test_answers_are_random_beyond_their_ids() -> None:
    survey = SURVEYS["one bit"]
    payloads = {answer(survey, **record(survey))[37:-4] for _ in range(60)}
    assert len(payloads) > 10


def test_a_device_s_words_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    monkeypatch.setattr("os.urandom", urandom)
    message = answer(SURVEYS["multi-bit"], **record(SURVEYS["multi-bit"]))
    assert asked[0] == 16
    assert sum(asked[1:]) >= 8 * 6 + 8
    assert message[21:37] == bytes(16)


def test_answers_follow_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", np.random.default_rng(5).bytes)
    survey = Survey(features=MultiBit(epsilon=1.0, dim=3, m=1), label=LabelRR(epsilon=1.0, classes=3))
    answers = [decode(survey, answer(survey, features=[0.0, 0.3, 1.0], label=1)) for _ in range(6000)]
    cells = [2 * int(one.features.indices[0, 0]) + int(one.features.values[0, 0]) for one in answers]
    bit = survey.features.bit_probability(np.array([0.0, 0.3, 1.0])) / 3
    fits(np.bincount(cells, minlength=6), np.stack([1 / 3 - bit, bit], axis=1).reshape(-1), seen=2)
    fits(np.bincount([one.label for one in answers], minlength=3), survey.label.transition[1], seen=2)


def test_a_device_and_a_server_perturb_with_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    law = FeatureRR(epsilon=4.0, dim=6)
    words = np.random.default_rng(0).integers(2**64, size=6, dtype=np.uint64)
    monkeypatch.setattr("os.urandom", lambda size: words.tobytes()[:size] if size != 16 else bytes(16))

    class Same(client.Entropy):
        def words(self, rows: np.ndarray, *, words_per_row: int) -> np.ndarray:
            return np.tile(words, (len(rows), 1))

    x = np.linspace(0, 1, 6)
    survey = Survey(features=law)
    said = decode(survey, answer(survey, features=x)).features.values
    assert (said == law.perturb(x[None], stream=Same()).values).all()


@pytest.mark.parametrize(
    "given",
    [{}, {"features": [0.0] * 11}, {"label": 1}, {"features": None, "label": None}],
)
def test_an_answer_has_what_the_survey_asks_for(given: dict) -> None:
    with pytest.raises(ConfigError, match="exactly where the survey asks"):
        answer(SURVEYS["multi-bit"], **given)
    if "label" in given and given["label"] is not None:
        with pytest.raises(ConfigError, match="exactly where the survey asks"):
            answer(SURVEYS["one bit"], **given)


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
        answer(SURVEYS["multi-bit"], features=features, label=1)


@pytest.mark.parametrize("label", [-1, 5, 1.0, "1", True, [0, 1]])
def test_a_label_that_is_none_is_refused(label: object) -> None:
    with pytest.raises(GraphError, match=r"classes from 0 to 4|whole number"):
        answer(Survey(label=LABEL), label=label)


@pytest.mark.parametrize("name", SURVEYS)
def test_many_answers_are_answers_of_their_own(name: str) -> None:
    survey = SURVEYS[name]
    given = record(survey)
    features = np.tile(given["features"], (40, 1)) if "features" in given else None
    labels = np.full(40, given["label"]) if "label" in given else None
    messages = answer_all(survey, features=features, labels=labels)
    said = [decode(survey, message) for message in messages]
    assert len({one.message_id for one in said}) == 40
    assert [encode(survey, one) for one in said] == messages


def test_many_answers_follow_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", np.random.default_rng(6).bytes)
    survey = Survey(features=MultiBit(epsilon=1.0, dim=3, m=1), label=LabelRR(epsilon=1.0, classes=3))
    x = np.tile([0.0, 0.3, 1.0], (30_000, 1))
    answers = [decode(survey, one) for one in answer_all(survey, features=x, labels=np.ones(30_000, int))]
    cells = [2 * int(one.features.indices[0, 0]) + int(one.features.values[0, 0]) for one in answers]
    bit = survey.features.bit_probability(np.array([0.0, 0.3, 1.0])) / 3
    fits(np.bincount(cells, minlength=6), np.stack([1 / 3 - bit, bit], axis=1).reshape(-1), seen=2)
    fits(np.bincount([one.label for one in answers], minlength=3), survey.label.transition[1], seen=2)


def test_features_and_labels_of_many_are_of_the_same_records() -> None:
    with pytest.raises(GraphError, match="same records"):
        answer_all(SURVEYS["multi-bit"], features=np.zeros((3, 11)), labels=np.ones(2, int))
    with pytest.raises(ConfigError, match="exactly where the survey asks"):
        answer_all(SURVEYS["multi-bit"], features=np.zeros((3, 11)))
