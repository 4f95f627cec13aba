"""ROC curves against counts of pairs, and attack bounds against mechanisms that reach them."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from graphveil.attacks import (
    RocCurve,
    pure_advantage,
    pure_auc,
    roc_auc,
    theoretical_bound_of,
)
from graphveil.core.events import Gaussian, PureDP
from graphveil.core.unit import LocalAttributes, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ConfigError
from graphveil.privacy import Guarantee

RNG = np.random.default_rng(0)
SCORES, THERE = RNG.integers(6, size=60).astype(float), RNG.random(60) < 0.4


def test_auc_is_the_share_of_pairs_in_order() -> None:
    pairs = list(itertools.product(SCORES[THERE], SCORES[~THERE]))
    wins = np.mean([(one > other) + (one == other) / 2 for one, other in pairs])
    assert roc_auc(SCORES, THERE) == pytest.approx(wins, abs=1e-12)


def test_scores_are_of_both_kinds() -> None:
    with pytest.raises(ConfigError, match="both members and nonmembers"):
        RocCurve.from_scores([1.0, 2.0], [True, True])


def test_curve_of_equal_scores_is_chance() -> None:
    flat = RocCurve.from_scores(np.zeros(60), THERE)
    assert flat.auc == 0.5
    assert flat.tpr(0.01) == pytest.approx(0.01)
    assert flat.average_precision == pytest.approx(THERE.mean())
    precision, recall, _ = flat.at_top(6)
    assert (precision, recall) == (pytest.approx(THERE.mean()), pytest.approx(0.1))


def test_precision_and_recall_of_the_top_candidates() -> None:
    roc = RocCurve.from_scores([5, 4, 3, 2, 1], [True, False, True, False, False])
    assert roc.at_top(2) == (0.5, 0.5, 0.5)
    assert roc.at_top(4) == (0.5, 1.0, pytest.approx(2 / 3))
    assert roc.at_top(1) == (1.0, 0.5, pytest.approx(2 / 3))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_one_randomized_bit_reaches_the_bounds_of_pure_dp(epsilon: float) -> None:
    kept = math.exp(epsilon) / (1 + math.exp(epsilon))
    released = RocCurve(np.array([0.0, kept, 1.0]), np.array([0.0, 1 - kept, 1.0]))
    assert released.auc == pytest.approx(pure_auc(epsilon))
    false, true = released.rates
    assert (true - false).max() == pytest.approx(pure_advantage(epsilon))
    release = Guarantee.from_event(UndirectedEdge(), PureDP(epsilon), delta=0.0, releases=1)
    theoretical_bound = theoretical_bound_of(release)
    assert pure_auc(epsilon) <= theoretical_bound["auc"] <= pure_auc(epsilon) + 0.002
    assert theoretical_bound["advantage"] == pytest.approx(pure_advantage(epsilon), abs=1e-6)


def test_bound_of_a_gaussian_release_is_the_closed_form() -> None:
    release = Guarantee.from_event(UndirectedEdge(), Gaussian(0.8), delta=1e-6, releases=1)
    exact = norm.cdf(0.8 / math.sqrt(2))
    assert exact <= theoretical_bound_of(release)["auc"] <= exact + 0.003
    assert theoretical_bound_of(release)["max_tpr_at_1pct_fpr"] == pytest.approx(
        norm.cdf(norm.ppf(0.01) + 0.8)
    )


def test_invalid_guarantee_has_no_bound() -> None:
    void = Guarantee.from_event(
        UndirectedEdge(), Gaussian(0.8), delta=1e-6, releases=1, deviations=("seeded",)
    )
    assert theoretical_bound_of(void) == {
        "auc": 1.0,
        "advantage": 1.0,
        "tpr_at_01pct_fpr": 1.0,
        "max_tpr_at_1pct_fpr": 1.0,
        "valid": False,
    }


@pytest.mark.parametrize(
    ("unit", "edges", "records"),
    [(UndirectedEdge(), True, False), (LocalAttributes(), False, False), (NodeRecord(), True, True)],
    ids=lambda value: value.name if isinstance(value, Unit) else "",
)
def test_bound_is_valid_for_protected_objects_only(unit: Unit, edges: bool, records: bool) -> None:
    release = Guarantee.from_event(unit, PureDP(1.0), delta=0.0, releases=1)
    assert (
        theoretical_bound_of(release, "edge")["valid"],
        theoretical_bound_of(release, "record")["valid"],
    ) == (edges, records)
    assert theoretical_bound_of(release)["valid"]
