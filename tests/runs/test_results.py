import pytest
from scipy import stats

from graphveil.publish.results import Summary


def test_the_interval_is_students() -> None:
    values = [0.71, 0.74, 0.69, 0.73]
    low, high = stats.t.interval(0.95, 3, loc=stats.tmean(values), scale=stats.sem(values))
    summary = Summary.from_values(values)
    assert summary.ci95 == pytest.approx((low, high), abs=1e-6)
    assert summary.std == pytest.approx(stats.tstd(values), abs=1e-6)


def test_the_interval_stays_inside_what_an_accuracy_can_be() -> None:
    assert Summary.from_values([1.0, 0.9]).ci95 == (pytest.approx(0.31469, abs=1e-5), 1.0)


def test_one_run_has_no_interval() -> None:
    record = Summary.from_values([0.5]).as_dict()
    assert record == {"mean": 0.5, "std": None, "ci95": None, "values": [0.5]}
