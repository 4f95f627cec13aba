"""Totals are exact, cost what the book in memory says, and are compared with limits without any rounding."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from graphveil.ledger import Entry, Limit, MemoryLedger, PrivacyCost, costs
from graphveil.ledger.costs import total_of
from graphveil.privacy import UndirectedEdge, compose
from graphveil.privacy.events import (
    ApproximateDP,
    ByGroup,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    OneOf,
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
    assert PrivacyCost.from_plain(total.as_plain()) == total
    assert total.minus(PrivacyCost.from_entry(entry(events[0]))) == total_of(map(entry, events[1:]))


def test_sums_are_exact() -> None:
    one = PrivacyCost.from_entry(entry(Gaussian(0.1)))
    assert PrivacyCost().plus(one, 100_000).mu_squared == 100_000 * Fraction(0.1) ** 2
    assert PrivacyCost().plus(
        PrivacyCost.from_entry(entry(PureDP(0.1), slack=1e-9)), 7
    ).slack == 7 * Fraction(Decimal("1e-9"))


@pytest.mark.parametrize(
    ("single", "copies", "limit"),
    [("0.0245", 1, "0.0245"), ("0.1", 3, "0.3"), ("0.7", 10, "7"), ("1e-3", 1000, "1")],
)
def test_a_budget_is_never_refused_or_passed_by_a_rounding(single: str, copies: int, limit: str) -> None:
    one = PrivacyCost.from_entry(entry(ApproximateDP(float(single))))
    allowed = Limit(Decimal(limit), Decimal("1e-7"))
    assert PrivacyCost().plus(one, copies).fits(allowed)
    assert not PrivacyCost().plus(one, copies + 1).fits(allowed)


@pytest.mark.parametrize("epsilon", [0.0245, 0.1, 0.5, 1.0, 4.0, 8.0])
def test_what_is_calibrated_to_a_budget_fits_it(epsilon: float) -> None:
    calibrated, allowed = entry(Gaussian(mu_of(epsilon, 1e-7))), Limit(Decimal(str(epsilon)), Decimal("1e-7"))
    assert PrivacyCost.from_entry(calibrated).fits(allowed)
    assert not PrivacyCost.from_entry(calibrated).plus(PrivacyCost.from_entry(calibrated)).fits(allowed)


ONE_OF_EACH: dict[str, Event] = {
    "gaussian": Gaussian(0.4),
    "pure": PureDP(0.5),
    "approximate": ApproximateDP(0.5, 1e-8),
    "report": LocalReport("label", 0.5),
    "report with delta": LocalReport("features", 0.5, 1e-8),
    "hop": PairwiseGaussian("all", ((0.08,),)),
    "hop of two groups": PairwiseGaussian("two", ((0.08, 0.02), (0.02, 0.0))),
    "one of two": OneOf((Gaussian(0.3), PureDP(0.4))),
    "mixture": compose(Gaussian(0.2), PureDP(0.2)),
    "steps by group": ByGroup("t", (PoissonGaussian(4.0, 0.1, 100), compose(), Gaussian(0.1))),
    "steps": PoissonGaussian(4.0, 0.1, 100),
    "roots": PoissonRoots(9.0, 0.05, 20, 3),
}
SEARCHED = ("one of two", "mixture", "steps by group", "steps", "roots")  # each search composes many times
PAIRS = [
    pytest.param(
        *(before, like),
        marks=[pytest.mark.slow] if like in SEARCHED and (before, like) != ("hop", "steps by group") else [],
    )
    for before in ONE_OF_EACH
    for like in ONE_OF_EACH
]


@pytest.mark.parametrize(("before", "like"), PAIRS)
def test_room_is_all_that_fits_and_no_more(before: str, like: str) -> None:
    """Of a limit of 3 something is left, whatever was released before and whatever is asked for."""
    spent, asked = PrivacyCost.from_entry(entry(ONE_OF_EACH[before])), ONE_OF_EACH[like]
    limit = Limit(Decimal(3), Decimal("1e-6"))
    remaining_epsilon = spent.remaining_epsilon(limit, entry(asked))
    assert remaining_epsilon >= 3 - spent.epsilon(5e-7) - 0.05  # what remains if epsilons are only added
    assert remaining_epsilon < 3
    for factor, expected in ((1.0, True), (1.05, False)):
        assert spent.plus(of_size(asked, remaining_epsilon * factor, 1e-6)).fits(limit) is expected


def of_size(asked: Event, epsilon: float, delta: float) -> PrivacyCost:
    """Return a release like another one, with less noise or more, that has this epsilon."""
    one = PrivacyCost.from_entry(entry(asked))
    if one._has_pure_epsilon and not one.mu_squared:
        lost = sum(getattr(part, "delta", 0.0) for part in compose(asked).events)
        return PrivacyCost.from_entry(entry(ApproximateDP(epsilon, lost) if lost else PureDP(epsilon)))
    low, high = 0.0, 16.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if one._scaled(middle).epsilon(delta) <= epsilon else (low, middle)
    return one._scaled(low)


@pytest.mark.parametrize(
    ("before", "limit", "like", "remaining_epsilon"),
    [
        ([], ("0.5", "1e-6"), PureDP(1.0), 0.5),
        ([PureDP(0.1)] * 2, ("0.3", "0"), PureDP(1.0), 0.1),
        ([LocalReport("label", 0.1)], ("0.5", "0"), LocalReport("label", 9.0), 0.4),
        ([LocalReport("label", 0.11)], ("0.5", "1e-6"), compose(LocalReport("features", 0.2)), 0.39),
        ([Gaussian(0.1)], ("0.5", "0"), PureDP(1.0), 0.0),  # no epsilon at this delta
        ([NonPrivate()], ("5", "1e-6"), PureDP(1.0), 0.0),
        ([PureDP(0.5)], ("0.5", "1e-6"), ApproximateDP(0.5), 0.0),
        ([PureDP(0.2)], ("0", "0"), PureDP(0.1), 0.0),
        ([], ("0", "0"), PureDP(0.1), 0.0),
        ([], ("1", "1e-6"), ApproximateDP(0.5, 1e-5), 0.0),
        ([], ("1e-9", "0"), PureDP(1e6), 1e-9),
        ([], ("3", "1e-6"), Gaussian(1e6), 2.999),
    ],
)
def test_room_of_cases(
    before: list[Event], limit: tuple[str, str], like: Event, remaining_epsilon: float
) -> None:
    found = total_of(map(entry, before)).remaining_epsilon(Limit(*map(Decimal, limit)), entry(like))
    assert found == pytest.approx(remaining_epsilon, rel=1e-3) and found <= remaining_epsilon


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_what_remains_without_a_release_to_compare_with(name: str) -> None:
    total, limit = PrivacyCost.from_entry(entry(ONE_OF_EACH[name])), Limit(Decimal(3), Decimal("1e-6"))
    remaining_epsilon = total.remaining_epsilon(limit)
    assert 1 < remaining_epsilon < 3
    adds_up = name in ("pure", "approximate", "report", "report with delta")
    more = PureDP(remaining_epsilon) if adds_up else Gaussian(mu_of(remaining_epsilon, 1e-6) * (1 - 1e-9))
    assert total.plus(PrivacyCost.from_entry(entry(more))).fits(limit)


def test_reports_mix_with_every_other_event() -> None:
    """What mixes is a bound: the sum of the reports on top of the others."""
    for name, event in ONE_OF_EACH.items():
        both = total_of([entry(event), entry(LocalReport("label", 0.25))])
        assert both.epsilon(1e-6) == pytest.approx(
            PrivacyCost.from_entry(entry(event)).epsilon(1e-6) + 0.25, abs=1e-3
        ), name
    assert math.isinf(total_of([entry(Gaussian(0.1)), entry(LocalReport("label", math.inf))]).epsilon(1e-6))


def test_many_prices_are_composed_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing one after the other takes seconds for a thousand prices; the result is the same bound."""
    from graphveil.privacy import accountant

    total = total_of([entry(PureDP(0.01 + number * 1e-3)) for number in range(60)])
    accountant._halves.cache_clear()
    together = total.epsilon(1e-6)
    assert accountant._halves.cache_info().misses > 60
    monkeypatch.setattr(accountant, "MAX_KINDS", 1000)
    for kept in (accountant._losses, accountant._cached_curve):
        kept.cache_clear()
    again = PrivacyCost.from_plain(total.as_plain())
    assert again.epsilon(1e-6) == pytest.approx(together, abs=1e-5)
    assert together < sum(0.01 + number * 1e-3 for number in range(60))
    more = again.plus(PrivacyCost.from_entry(entry(PureDP(0.7))))
    assert more.epsilon(1e-6) > together


def test_the_resolution_of_noise_uses_up_delta() -> None:
    allowed = Limit(Decimal(10), Decimal("1e-7"))
    assert PrivacyCost.from_entry(entry(Gaussian(0.1), slack=5e-8)).fits(allowed)
    assert not PrivacyCost.from_entry(entry(Gaussian(0.1), slack=1e-7)).fits(allowed)
    assert math.isinf(PrivacyCost.from_entry(entry(Gaussian(0.1), slack=2e-7)).epsilon(1e-7))


def test_a_total_without_a_finite_epsilon_fits_no_limit() -> None:
    total = PrivacyCost(Fraction(10) ** 14)
    assert math.isinf(total.epsilon(1e-7))
    assert not total.fits(Limit(Decimal(10**8), Decimal("1e-7")))


def test_a_limit_at_delta_zero_takes_pure_releases_alone() -> None:
    allowed = Limit(Decimal(1), Decimal(0))
    assert PrivacyCost.from_entry(entry(compose(PureDP(0.5), PureDP(0.5)))).fits(allowed)
    assert not PrivacyCost.from_entry(entry(Gaussian(1e-6))).fits(allowed)


@pytest.mark.parametrize(
    "value", [Fraction(1), Fraction(17), Fraction(1, 3), Fraction(10**9 + 1, 7), Fraction("1e-7")]
)
def test_what_is_rounded_for_keeping_errs_on_the_safe_side(value: Fraction) -> None:
    below, above = (costs._rounded(value, up=up) for up in (False, True))
    assert below <= value <= above <= value * Fraction(9, 8) and below >= value * Fraction(7, 8)


def test_training_steps_are_composed_anew_only_near_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = list[PrivacyCost]()
    real = PrivacyCost._composed
    monkeypatch.setattr(
        PrivacyCost, "_composed", lambda self, delta: (composed.append(self), real(self, delta))[1]
    )
    costs._epsilon_of_larger.cache_clear()
    one, allowed = (
        PrivacyCost.from_entry(entry(PoissonGaussian(4.0, 0.01, 10))),
        Limit(Decimal(3), Decimal("1e-6")),
    )
    assert all(PrivacyCost().plus(one, copies).fits(allowed) for copies in range(1, 400))
    assert len(composed) < 60  # a few in the beginning, then eight in a doubling
    most = max(copies for copies in range(1, 20_000, 500) if PrivacyCost().plus(one, copies).fits(allowed))
    assert (
        real(PrivacyCost().plus(one, most), Fraction("1e-6"))
        <= 3
        < real(PrivacyCost().plus(one, most + 500), Fraction("1e-6"))
    )


NEAR = (25, 28, 29)  # times ten steps: a limit ends at the second, which has four bits


def test_what_is_kept_grants_as_much_as_all_of_it_composed_anew() -> None:
    costs._epsilon_of_larger.cache_clear()
    one = PrivacyCost.from_entry(entry(PoissonGaussian(2.0, 0.05, 10)))
    for delta in ("1e-3", "1e-8"):
        spent = [PrivacyCost().plus(one, copies)._composed(Fraction(delta)) for copies in NEAR]
        for copies, epsilon in zip(NEAR, spent, strict=True):
            allowed = Limit(Decimal(repr(float(spent[1]))), Decimal(delta))
            granted = PrivacyCost().plus(one, copies).fits(allowed)
            assert granted == (epsilon <= spent[1]), f"{copies} at {delta}: granted is {granted}"
