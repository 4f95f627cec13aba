"""FeatureRR with weights of each record: its actual loss, its law, and its rejection in strict mode."""

import math
from itertools import product

import numpy as np
import pytest

from graphveil.errors import ConfigError, GraphError, UnsupportedGuaranteeError
from graphveil.mechanisms import (
    Bins,
    Bounds,
    LabelRR,
    RecordFeatureRR,
    node_features_statement,
    record_loss,
    record_weights,
)

from .fits import fits, stream


def paper(**given: object) -> RecordFeatureRR:
    return RecordFeatureRR(**({"epsilon": 3.0, "dim": 3, "k": 4, "mode": "paper"} | given))


def law(theta: np.ndarray, epsilon: float, k: int) -> np.ndarray:
    """Pr(u|t) of a vector under one theta, for all t (rows) and u (columns)."""
    table = np.ones((1, 1))
    for share in theta:
        table = np.kron(table, Bins(epsilon * share, k, "ceil", "naive").table)
    return table


def test_golden_losses() -> None:
    assert record_loss(2.0, 2, 3) == pytest.approx(2.14567891, abs=5e-9)
    for epsilon, wanted in ((1.0, 1.0494), (3.0, 3.4126), (9.0, 11.5736)):
        assert record_loss(epsilon, 50, 10) == pytest.approx(wanted, abs=5e-5)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_loss_is_the_largest_ratio_over_all_weights_and_is_attained(epsilon: float) -> None:
    shares = np.linspace(0, 1, 21)
    tables = np.stack([law(np.array([share, 1 - share]), epsilon, 3) for share in shares])
    logs = np.log(tables).reshape(-1, 9)  # any theta with any input
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst == pytest.approx(record_loss(epsilon, 2, 3), abs=1e-9)
    assert worst > epsilon + 1e-3
    alike = [logs[rows] for rows in np.arange(len(logs)).reshape(len(shares), -1)]  # one theta for all
    assert max(float((part.max(axis=0) - part.min(axis=0)).max()) for part in alike) <= epsilon + 1e-9


def test_reports_follow_the_law_of_their_own_weights() -> None:
    made, count = paper(epsilon=4.0), 300_000
    for theta, z in (([0.6, 0.4, 0.0], [0.1, 0.5, 1.0]), ([0.05, 0.0, 0.95], [1.0, 0.0, 0.7])):
        reports = made.perturb(
            np.tile(z, (count, 1)), np.tile(theta, (count, 1)), stream=stream(len(theta) + int(10 * theta[0]))
        )
        for column in range(3):
            bins = Bins(4.0 * theta[column], 4, "ceil", "naive")
            fits(
                np.bincount(reports.values[:, column], minlength=4),
                bins.probabilities(np.array([z[column]]))[0],
                seen=0.2,
            )


@pytest.mark.parametrize(("k", "budget"), list(product([2, 3, 10, 50], [0.0, 0.01, 1.0, 30.0])))
def test_the_sampler_of_tails_covers_every_bin_with_its_probability(k: int, budget: float) -> None:
    # Uniforms on a fine grid instead of random ones: the shares of the grid are the probabilities.
    from graphveil.papers.as_published.record_feature_rr import _outputs

    fine = (np.arange(2000) + 0.5) / 2000
    uniform = np.stack(np.meshgrid(fine, fine[::20]), axis=-1).reshape(-1, 2, 1)
    table = Bins(budget, k, "ceil", "naive").table
    for t in {1, k // 2 + 1, k}:
        cells = np.full((len(uniform), 1), float(t))
        out = _outputs(cells, np.full_like(cells, budget), uniform, k)
        assert out.min() >= 1 and out.max() <= k
        found = np.bincount(out[:, 0].astype(int) - 1, minlength=k) / len(uniform)
        assert found == pytest.approx(table[t - 1], abs=0.012)


def test_strict_mode_rejects_record_weights_and_states_the_loss() -> None:
    with pytest.raises(
        UnsupportedGuaranteeError,
        match=r"loses up to 11\.5736 of a budget of 9, .*public_weights. mode='paper'",
    ):
        RecordFeatureRR(epsilon=9.0, dim=50)
    with pytest.raises(UnsupportedGuaranteeError, match="mode='paper'"):
        RecordFeatureRR(epsilon=9.0, dim=50, mode="strict")


def test_the_claim_is_invalid_and_states_the_actual_loss() -> None:
    claim = paper(epsilon=9.0, dim=50, k=10).claim
    assert (claim.certified, claim.epsilon) == (False, 9.0)
    text = node_features_statement(claim, LabelRR(epsilon=1.0, classes=2).claim)
    assert text.startswith("No valid guarantee. Known deviations: weights computed from the record")
    assert "loses up to 11.5736 of a budget of 9; real-valued sampler." in text
    seen = paper(bounds=Bounds(0.0, 1.0, from_data=True)).claim
    assert "bounds taken from the data" in seen.deviations


def test_weights_of_records_add_up_to_one_and_are_even_where_masking_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    importance, sensitivity = rng.normal(size=(2, 6, 3))
    sensitivity[2] = 0
    theta = record_weights(importance, sensitivity, gamma=0.4)
    assert theta.sum(axis=1) == pytest.approx(np.ones(6))
    alpha = np.abs(importance) / np.abs(importance).sum(axis=1, keepdims=True)
    beta = np.abs(sensitivity[0]) / np.abs(sensitivity[0]).sum()
    raw = 0.4 * alpha[0] + 0.6 * (beta.min() + beta.max() - beta)
    assert theta[0] == pytest.approx(raw / raw.sum())
    even = 0.4 * alpha[2] + 0.6 / 3
    assert theta[2] == pytest.approx(even / even.sum())


def test_a_bin_is_read_as_its_upper_end_inside_the_bounds() -> None:
    rng = np.random.default_rng(1)
    x, theta = rng.random((40, 3)) * 4 - 1, rng.dirichlet(np.ones(3), size=40)
    mechanism = paper(bounds=Bounds(-1.0, 3.0))
    reports = mechanism.perturb(x, theta, stream=stream())
    assert mechanism.estimate(reports) == pytest.approx(-1 + (reports.values + 1.0))
    assert mechanism.estimate(reports).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "theta", "why"),
    [
        ([[0.5] * 3], [[0.5, 0.6, 0.2]], "does not sum to"),
        ([[0.5] * 3], [[-0.5, 1.0, 0.5]], "finite numbers of at least 0"),
        ([[0.5] * 3], [[math.nan, 0.5, 0.5]], "finite numbers of at least 0"),
        ([[0.5] * 3], [0.5, 0.3, 0.2], "finite numbers of at least 0"),
        ([[0.5] * 3] * 2, [[0.5, 0.3, 0.2]], "do not match weights"),
    ],
)
def test_weights_that_do_not_fit_are_rejected(x: list, theta: list, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        paper().perturb(np.array(x), np.array(theta), stream=stream())


def test_rejects_invalid_features_and_parameters() -> None:
    theta = np.array([[0.5, 0.3, 0.2]])
    with pytest.raises(GraphError, match="NaN or infinite"):
        paper().perturb(np.array([[0.5, math.nan, 0.1]]), theta, stream=stream())
    for wrong in ({"epsilon": math.inf}, {"dim": 0}, {"k": 1}, {"k": 999}, {"mode": "loose"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            paper(**wrong)
