"""Unit local-attributes: cost and curve of LDP reports, the statement, and serialization."""

import json
import math

import numpy as np
import pytest

from graphveil.core.accounting.accountant import LocalCurve, privacy_curve
from graphveil.core.events import Gaussian, LocalReport, compose
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.core.unit import LocalAttributes, NodeRecord, parse_unit
from graphveil.errors import ArtifactError, ConfigError, PrivacyError, UnitError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import events_from_plain, guarantee_from_plain, guarantee_to_plain


def guarantee_of(*reports: LocalReport) -> Guarantee:
    delta = sum(report.delta for report in reports)
    return Guarantee.from_event(LocalAttributes(), compose(*reports), delta=delta, releases=len(reports))


ONE = guarantee_of(LocalReport("features", 0.1), LocalReport("label", 0.2))
GAUSSIAN = guarantee_of(LocalReport("features", 1.0, 1e-10), LocalReport("label", 1.0))
OPEN = guarantee_of(LocalReport("features", 1.0), LocalReport("label", math.inf))


def test_budgets_and_deltas_add_up_exactly() -> None:
    assert (ONE.epsilon, ONE.delta, ONE.local_budgets) == (0.3, 0.0, (0.1, 0.2))
    assert (GAUSSIAN.epsilon, GAUSSIAN.delta) == (2.0, 1e-10)
    assert OPEN.epsilon == math.inf
    three = ONE.repeated(3)
    assert (three.epsilon, three.local_budgets, three.releases) == (0.9, (0.3, 0.6), 6)
    assert GAUSSIAN.repeated(2).delta == 2e-10


def test_randomized_response_attains_the_curve() -> None:
    """Two reports of a fair bit at 0.4 and 0.6: both right against both wrong is the whole budget."""
    curve = privacy_curve(compose(LocalReport("features", 0.4), LocalReport("label", 0.6)))
    p = [1 / (1 + math.exp(-epsilon)) for epsilon in (0.4, 0.6)]
    ones = [np.outer([q, 1 - q], [r, 1 - r]).ravel() for q, r in ([p[0], p[1]], [1 - p[0], 1 - p[1]])]
    order = np.argsort(-ones[0] / ones[1])
    caught, alarms = np.cumsum(ones[0][order]), np.cumsum(ones[1][order])
    for true, false in zip(caught, alarms, strict=True):
        assert true <= curve.tpr(float(false)) + 1e-12
    assert caught[0] == pytest.approx(curve.tpr(float(alarms[0])))
    for epsilon in (0.0, 0.3, 0.9, 1.0):
        assert np.maximum(ones[0] - math.exp(epsilon) * ones[1], 0).sum() <= curve.delta(epsilon) + 1e-12


def test_reports_have_no_epsilon_below_their_delta() -> None:
    curve = LocalCurve(1.0, 1e-10)
    assert (curve.epsilon(1e-10), curve.epsilon(0.0)) == (1.0, math.inf)
    assert LocalCurve(math.inf).tpr(0.01) == 1.0
    assert LocalCurve(0.0).tpr(0.01) == pytest.approx(0.01)


def test_the_statement_has_both_budgets() -> None:
    assert (
        "eps_x = 0.1 and its label at eps_y = 0.2 (total 0.3; inf = not protected)" in ONE.formal_statement()
    )
    assert "with delta = 1e-10, which is weaker" in GAUSSIAN.formal_statement()
    assert "eps_y = inf (total inf" in OPEN.formal_statement()
    assert ONE.formal_statement().endswith("r of them have r times the budgets.")
    assert "mu" not in ONE.formal_statement().split()


def test_edges_are_not_covered() -> None:
    assert ONE.as_dict()["eps_x"] == 0.1
    assert "edges" in ONE.not_covered
    with pytest.raises(UnitError, match="before any aggregation"):
        LocalAttributes().pair_sensitivity(1.0, 1.0)
    assert parse_unit("local-attributes") == LocalAttributes()


def test_parallel_composition_is_the_maximum_of_each_part() -> None:
    larger = guarantee_of(
        LocalReport("features", 0.3), LocalReport("features", 0.4), LocalReport("label", 0.1)
    )
    whole = Guarantee.compose_parallel([ONE, larger])  # 0.1 and 0.2, 0.7 and 0.1
    assert whole.local_budgets == (0.7, 0.2)
    assert whole.epsilon == pytest.approx(0.9)
    assert (whole.releases, whole.valid, whole.delta) == (ONE.releases + larger.releases, True, 0.0)
    only = guarantee_of(LocalReport("features", 0.05))
    assert Guarantee.compose_parallel([ONE, only]).local_budgets == ONE.local_budgets
    assert Guarantee.compose_parallel([only, only]).local_budgets == (0.05, 0.0)
    mixed = Guarantee.compose_parallel([GAUSSIAN, ONE])
    assert mixed.delta == GAUSSIAN.delta and mixed.epsilon < float("inf")
    invalid = Guarantee.compose_parallel([ONE, larger.with_deviations("a flaw")])
    assert (invalid.valid, invalid.deviations) == (False, ("a flaw",))


def test_rejects_parallel_composition_of_records() -> None:
    owner = Guarantee.from_event(NodeRecord(), Gaussian(1.0), delta=1e-5, releases=1)
    with pytest.raises(PrivacyError, match="Releases on disjoint edges"):
        Guarantee.compose_parallel([owner, owner])
    with pytest.raises(PrivacyError, match="same edge-level unit"):
        Guarantee.compose_parallel([ONE, owner])


@pytest.mark.parametrize("guarantee", [ONE, GAUSSIAN, OPEN], ids=["pure", "delta", "open"])
def test_guarantees_of_reports_survive_json(guarantee: Guarantee) -> None:
    text = json.dumps(guarantee_to_plain(guarantee), allow_nan=False)
    assert guarantee_from_plain(json.loads(text)) == guarantee


@pytest.mark.parametrize(
    "wrong", [{"part": "edges"}, {"epsilon": -1.0}, {"epsilon": "1"}, {"delta": 2.0}, {"sigma": 1.0}]
)
def test_rejects_hostile_reports(wrong: dict[str, object]) -> None:
    record = {"kind": "local_report", "part": "label", "epsilon": 1.0, "delta": 0.0}
    with pytest.raises((ArtifactError, ConfigError)):
        events_from_plain([{**record, **wrong}])


def test_a_ledger_adds_reports_and_mixes_them_with_no_other_event() -> None:
    ledger = MemoryLedger(epsilon=0.5, delta=1e-9)
    ledger.record(Entry("a", "lpgnn", ONE.event, unit=LocalAttributes()))
    assert ledger.curve().epsilon(0.0) == 0.3
    with pytest.raises(PrivacyError, match="would bring the total to epsilon"):
        ledger.record(Entry("b", "lpgnn", ONE.event, unit=LocalAttributes()))
    with pytest.raises(PrivacyError, match="the accountant does not"):
        privacy_curve(compose(ONE.event, Gaussian(1.0))).epsilon(1e-5)
