"""Public weights: the scores of HeteroRR, rejections, and importance from two sources."""

import math
import subprocess
import sys

import numpy as np
import pytest

from graphveil.errors import ConfigError, UnsupportedGuaranteeError
from graphveil.mechanisms import (
    FeatureRR,
    WeightedAllocation,
    permutation_importance,
    public_weights,
    shap_importance,
)
from graphveil.papers.feature_weights import combined, shares

W = np.array([[1.0, 0.0], [-2.0, 1.0], [0.0, 0.0], [0.5, -3.0]])  # the third feature does nothing


def logistic(x: np.ndarray) -> np.ndarray:
    odds = np.exp(4 * x @ W)
    return odds / odds.sum(axis=1, keepdims=True)


def test_shares_are_of_size_and_a_row_of_zeros_is_even() -> None:
    assert shares([[3.0, -1.0], [0.0, 0.0]]).tolist() == [[0.75, 0.25], [0.5, 0.5]]
    assert shares([2.0, 6.0]).tolist() == [[0.25, 0.75]]


def test_combined_scores_are_equation_7_and_do_not_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    alpha, beta = rng.dirichlet(np.ones(16), size=2)
    raw = combined(alpha, beta, 0.5)[0]
    assert raw == pytest.approx(0.5 * alpha + 0.5 * (beta.min() + beta.max() - beta))
    assert raw.sum() == pytest.approx(0.5 + 0.5 * (16 * (beta.min() + beta.max()) - 1))
    assert abs(raw.sum() - 1) > 0.1
    with pytest.raises(ConfigError, match="theta sums to"):
        WeightedAllocation(raw)
    assert math.fsum(public_weights(alpha, beta, public_records=True).theta) == pytest.approx(1)


def test_the_size_of_the_sum_is_that_of_the_specification() -> None:
    # At gamma = 1/2, with flat shares of 16, 50 and 500 features, and with one sensitive feature of 50.
    rng = np.random.default_rng(1)
    for dim, wanted in ((16, 1.70), (50, 2.26), (500, 3.36)):
        draws = rng.dirichlet(np.ones(dim), size=4000)
        assert combined(draws, draws, 0.5).sum(axis=1).mean() == pytest.approx(wanted, abs=0.05)
    assert combined(np.ones(50), np.eye(50)[0], 0.5).sum() == pytest.approx(25)


def test_important_insensitive_features_have_the_largest_weight() -> None:
    theta = public_weights([[9.0, 1, 1]], [[0.0, 0, 5]], public_records=True).theta
    assert theta[0] > theta[1] > theta[2]
    alone = public_weights([[9.0, 1, 0], [3.0, 1, 0]], public_records=True).theta
    assert alone == pytest.approx([(0.9 + 0.75) / 2, (0.1 + 0.25) / 2, 0])
    assert public_weights([9.0, 1], [0.0, 1], public_records=True, gamma=0).theta == (1.0, 0.0)


def test_scores_are_averaged_over_the_public_records_before_they_are_normalized() -> None:
    rng = np.random.default_rng(2)
    importance, sensitivity = rng.normal(size=(2, 30, 5))
    alpha, beta = shares(importance).mean(axis=0), shares(sensitivity).mean(axis=0)
    raw = 0.3 * alpha + 0.7 * (beta.min() + beta.max() - beta)
    theta = public_weights(importance, sensitivity, gamma=0.3, public_records=True).theta
    assert theta == pytest.approx(raw / raw.sum())
    roots = public_weights(importance, sensitivity, gamma=0.3, public_records=True, allocation="cube_root")
    assert roots.theta == pytest.approx(np.cbrt(raw) / np.cbrt(raw).sum())


def test_masking_that_changes_nothing_weighs_by_importance_alone() -> None:
    theta = public_weights([[0.6, 0.4]], np.zeros((7, 2)), public_records=True).theta
    assert theta == pytest.approx((0.55, 0.45))  # the shares of zeros are even


def test_weights_from_private_records_are_rejected() -> None:
    for word in (False, None, 1):
        with pytest.raises(UnsupportedGuaranteeError, match="private records reveal them"):
            public_weights([[1.0, 2.0]], public_records=word)
    with pytest.raises(TypeError, match="public_records"):
        public_weights([[1.0, 2.0]])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"importance": [[1.0, 2.0]], "sensitivity": [[1.0]]}, "must have the same number"),
        ({"importance": [[1.0, math.nan]]}, "finite"),
        ({"importance": [[1.0], [1.0, 2.0]]}, "must contain numbers"),
        ({"importance": "ab"}, "must contain numbers"),
        ({"importance": []}, "finite numbers, with shape"),
        ({"importance": [1.0, 2.0], "sensitivity": [1.0, 2.0], "gamma": 1.1}, "gamma=1.1"),
        ({"importance": [1.0, 2.0], "allocation": "square"}, "allocation='square'"),
    ],
)
def test_scores_that_are_none_are_rejected(given: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        public_weights(**given, public_records=True)


def test_a_mechanism_takes_the_weights_and_spends_the_budget() -> None:
    theta = public_weights(np.abs(W).sum(axis=1) + 0.1, public_records=True)
    law = FeatureRR(epsilon=6.0, dim=4, allocation=theta)
    assert math.fsum(feature.epsilon for feature in law.features) <= 6.0 * (1 + 1e-12)
    assert [feature.epsilon for feature in law.features] == pytest.approx(6 * np.array(theta.theta))


# -- where importance comes from ---------------------------------------------------------------------------


def test_shuffling_finds_the_features_that_a_model_uses() -> None:
    rng = np.random.default_rng(3)
    x = rng.random((400, 4))
    labels = (rng.random(400) < logistic(x)[:, 1]).astype(int)
    before = x.copy()
    scores = permutation_importance(logistic, x, labels, rng=np.random.default_rng(4))
    assert scores[2] == 0
    assert np.argsort(scores)[::-1][:2].tolist() in ([3, 1], [1, 3])
    assert (x == before).all()
    again = permutation_importance(logistic, x, labels, rng=np.random.default_rng(4))
    assert (scores == again).all()


def test_shuffling_works_for_a_model_of_the_whole_graph() -> None:
    ring = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
    x = np.random.default_rng(5).random((6, 4))
    labels = logistic(ring @ x).argmax(axis=1)
    scores = permutation_importance(
        lambda z: logistic(ring @ z), x, labels, rng=np.random.default_rng(0), repeats=40
    )
    assert scores[2] == 0
    assert scores[3] > 0


@pytest.mark.parametrize("predict", [lambda x: x[:, 0], lambda x: x[:1]])
def test_rejects_a_model_without_probabilities(predict: object) -> None:
    with pytest.raises(ConfigError, match="must return probabilities"):
        permutation_importance(predict, np.ones((3, 2)), np.zeros(3, int), rng=np.random.default_rng(0))


@pytest.mark.slow  # shap compiles its loops when it is first used
def test_shap_values_of_a_linear_model_are_its_terms() -> None:
    pytest.importorskip("shap")
    rng = np.random.default_rng(6)
    x, background = rng.random((5, 4)), rng.random((30, 4))
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global generator must be left alone
    values = shap_importance(lambda z: z @ W, x, background, seed=1)
    terms = np.abs((x - background.mean(axis=0))[:, :, None] * W).mean(axis=2)
    assert values == pytest.approx(terms, abs=1e-12)
    one = shap_importance(lambda z: (z @ W)[:, 0], x, background)
    assert one == pytest.approx(np.abs((x - background.mean(axis=0)) * W[:, 0]), abs=1e-12)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002 - as above
    assert public_weights(values, public_records=True).theta[2] == 0


def test_a_missing_shap_is_a_clear_error() -> None:
    code = "import sys; sys.modules['shap'] = None; from graphveil.mechanisms import shap_importance; "
    code += "shap_importance(lambda x: x, [[1.0]], [[1.0]])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingDependencyError" in done.stderr
    assert "graphveil[shap]" in done.stderr and "permutation_importance" in done.stderr
