"""Totals are exact, cost what the book in memory says, and are compared with limits without any rounding."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from graphveil.ledger import Limit, Total, totals
from graphveil.ledger.totals import total_of
from graphveil.privacy import Entry, MemoryLedger, UndirectedEdge, compose
from graphveil.privacy.events import (
    ApproximateDP,
    ByGroup,
    Event,
    Gaussian,
    NonPrivate,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
)
from graphveil.privacy.gaussian import mu_of

UNIT = UndirectedEdge()
MIXTURES: dict[str, list[Event]] = {
    "gaussians": [Gaussian(0.1), Gaussian(0.3), Gaussian(0.1)],
    "pure": [PureDP(0.1), PureDP(0.2), PureDP(0.1)],
    "approximate": [ApproximateDP(0.1), ApproximateDP(0.5, 1e-9), ApproximateDP(0.1)],
    "both": [Gaussian(0.2), PureDP(0.3), PureDP(0.3)],
    "tables": [PairwiseGaussian("a", ((0.1, 0.2), (0.2, 0.0)))] * 2 + [PairwiseGaussian("b", ((0.3,),))],
    "training": [PoissonGaussian(2.0, 0.1, 50), PoissonGaussian(2.0, 0.1, 50), Gaussian(0.1)],
    "roots": [PoissonRoots(9.0, 0.1, 5, 3), PoissonRoots(9.0, 0.1, 5, 3), Gaussian(0.1)],
    "groups": [ByGroup("t", (Gaussian(0.2), PoissonGaussian(2.0, 0.1, 20)))] * 2,
    "none": [NonPrivate(), Gaussian(0.1)],
}


def entry(event: Event, name: str = "a", slack: float = 0.0) -> Entry:
    return Entry(name, "rows", event, slack, UNIT)


@pytest.mark.parametrize("name", MIXTURES)
def test_totals_cost_what_the_book_in_memory_says(name: str) -> None:
    events = MIXTURES[name]
    total, book = total_of(map(entry, events)), MemoryLedger()
    for number, event in enumerate(events):
        book.record(entry(event, str(number)))
    there, here = book.curve().epsilon(1e-6), total.epsilon(1e-6)
    assert here == pytest.approx(there, rel=1e-9) or here < there  # adding up is a bound too
    assert Total.from_plain(total.as_plain()) == total
    assert total.minus(Total.of(entry(events[0]))) == total_of(map(entry, events[1:]))


def test_sums_are_exact() -> None:
    one = Total.of(entry(Gaussian(0.1)))
    assert Total().plus(one, 100_000).mu_squared == 100_000 * Fraction(0.1) ** 2
    assert Total().plus(Total.of(entry(PureDP(0.1), slack=1e-9)), 7).slack == 7 * Fraction(Decimal("1e-9"))


@pytest.mark.parametrize(
    ("single", "copies", "limit"),
    [("0.0245", 1, "0.0245"), ("0.1", 3, "0.3"), ("0.7", 10, "7"), ("1e-3", 1000, "1")],
)
def test_a_budget_is_never_refused_or_passed_by_a_rounding(single: str, copies: int, limit: str) -> None:
    one = Total.of(entry(ApproximateDP(float(single))))
    allowed = Limit(Decimal(limit), Decimal("1e-7"))
    assert Total().plus(one, copies).fits(allowed)
    assert not Total().plus(one, copies + 1).fits(allowed)
    assert Total().left_for(entry(ApproximateDP(float(single))), allowed) == copies


@pytest.mark.parametrize("epsilon", [0.0245, 0.1, 0.5, 1.0, 4.0, 8.0])
def test_what_is_calibrated_to_a_budget_fits_it(epsilon: float) -> None:
    calibrated, allowed = entry(Gaussian(mu_of(epsilon, 1e-7))), Limit(Decimal(str(epsilon)), Decimal("1e-7"))
    assert Total.of(calibrated).fits(allowed)
    assert Total().left_for(calibrated, allowed) == 1


@pytest.mark.parametrize(
    "event",
    [Gaussian(0.05), PureDP(0.05), pytest.param(PoissonGaussian(3.0, 0.05, 10), marks=pytest.mark.slow)],
)
def test_what_would_still_fit_does(event: Event) -> None:
    spent, allowed = total_of([entry(event, str(n)) for n in range(3)]), Limit(Decimal(1), Decimal("1e-6"))
    left = spent.left_for(entry(event), allowed)
    assert spent.plus(Total.of(entry(event)), left).fits(allowed)
    assert not spent.plus(Total.of(entry(event)), left + 1).fits(allowed)
    room = spent.room(allowed, entry(event))
    assert 0 < room < 1
    more = PureDP(room) if isinstance(event, PureDP) else Gaussian(mu_of(room, 1e-6) * (1 - 1e-9))
    assert spent.plus(Total.of(entry(more))).fits(allowed)


def test_the_resolution_of_noise_uses_up_delta() -> None:
    allowed = Limit(Decimal(10), Decimal("1e-7"))
    assert Total.of(entry(Gaussian(0.1), slack=5e-8)).fits(allowed)
    assert not Total.of(entry(Gaussian(0.1), slack=1e-7)).fits(allowed)
    assert math.isinf(Total.of(entry(Gaussian(0.1), slack=2e-7)).epsilon(1e-7))


def test_a_total_without_a_finite_epsilon_fits_no_limit() -> None:
    total = Total(Fraction(10) ** 14)
    assert math.isinf(total.epsilon(1e-7))
    assert not total.fits(Limit(Decimal(10**8), Decimal("1e-7")))


def test_a_limit_at_delta_zero_takes_pure_releases_alone() -> None:
    allowed = Limit(Decimal(1), Decimal(0))
    assert Total.of(entry(compose(PureDP(0.5), PureDP(0.5)))).fits(allowed)
    assert not Total.of(entry(Gaussian(1e-6))).fits(allowed)


@pytest.mark.parametrize(
    "value", [Fraction(1), Fraction(17), Fraction(1, 3), Fraction(10**9 + 1, 7), Fraction("1e-7")]
)
def test_what_is_rounded_for_keeping_errs_on_the_safe_side(value: Fraction) -> None:
    below, above = (totals._rounded(value, up=up) for up in (False, True))
    assert below <= value <= above <= value * Fraction(9, 8) and below >= value * Fraction(7, 8)


def test_training_steps_are_composed_anew_only_near_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = list[Total]()
    real = Total._composed
    monkeypatch.setattr(Total, "_composed", lambda self, delta: (composed.append(self), real(self, delta))[1])
    totals._epsilon_of_larger.cache_clear()
    one, allowed = Total.of(entry(PoissonGaussian(4.0, 0.01, 10))), Limit(Decimal(3), Decimal("1e-6"))
    assert all(Total().plus(one, copies).fits(allowed) for copies in range(1, 400))
    assert len(composed) < 60  # a few in the beginning, then eight in a doubling
    most = max(copies for copies in range(1, 20_000, 500) if Total().plus(one, copies).fits(allowed))
    assert (
        real(Total().plus(one, most), Fraction("1e-6"))
        <= 3
        < real(Total().plus(one, most + 500), Fraction("1e-6"))
    )


NEAR = (25, 28, 29)  # times ten steps: a limit ends at the second, which has four bits


def test_what_is_kept_grants_as_much_as_all_of_it_composed_anew() -> None:
    totals._epsilon_of_larger.cache_clear()
    one = Total.of(entry(PoissonGaussian(2.0, 0.05, 10)))
    for delta in ("1e-3", "1e-8"):
        spent = [Total().plus(one, copies)._composed(Fraction(delta)) for copies in NEAR]
        for copies, epsilon in zip(NEAR, spent, strict=True):
            allowed = Limit(Decimal(repr(float(spent[1]))), Decimal(delta))
            granted = Total().plus(one, copies).fits(allowed)
            assert granted == (epsilon <= spent[1]), f"{copies} at {delta}: granted is {granted}"
