"""Totals of releases are exact, agree with the ledger in memory, and meet limits without rounding."""

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import pytest
from dp_accounting.pld import privacy_loss_distribution

from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import (
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
    compose,
)
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import BudgetError, GraphveilError
from graphveil.ledger import Limit, PrivacyCost, costs

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


def total_of(entries: Iterable[Entry]) -> PrivacyCost:
    return reduce(PrivacyCost.plus, map(PrivacyCost.from_entry, entries), PrivacyCost())


PURE: dict[str, list[Event]] = {
    "one": [PureDP(0.3)],
    "several": [PureDP(0.1), PureDP(0.2), PureDP(0.1)],
    "bounded": [ApproximateDP(0.25), PureDP(0.5)],
    "reports": [LocalReport("features", 0.1), LocalReport("label", 0.25)],
    "groups": [ByGroup("t", (PureDP(0.1), PureDP(0.3))), ByGroup("t", (PureDP(0.2), PureDP(0.1)))],
    "no change": [Gaussian(0.0), PureDP(0.1)],
    "many kinds": [PureDP(0.01 + 2**-n) for n in range(2, 20)],  # 2^18 values of the loss
}
NOT_PURE: dict[str, Event] = {
    "small mu": Gaussian(1e-100),
    "table": PairwiseGaussian("a", ((0.1,),)),
    "delta": ApproximateDP(0.0, 1e-300),
    "sampled": PoissonGaussian(100.0, 0.01, 1),
    "roots": PoissonRoots(100.0, 0.01, 1, 3),
    "group": ByGroup("t", (PureDP(0.1), Gaussian(1e-6))),
    "no privacy": NonPrivate(),
}


def epsilon_of_worst_group(events: list[Event]) -> Fraction:
    """Return the sum of epsilons of the worst group: the largest log-likelihood ratio of all outputs."""
    groups = [event.events if isinstance(event, ByGroup) else (event, event) for event in events]
    return max(
        sum((Fraction(str(getattr(group[side], "epsilon", 0.0))) for group in groups), Fraction(0))
        for side in (0, 1)
    )


@pytest.mark.parametrize("name", PURE)
def test_pure_releases_fit_a_limit_at_delta_0_up_to_the_sum_of_their_epsilons(name: str) -> None:
    events, total = PURE[name], epsilon_of_worst_group(PURE[name])
    memory = MemoryLedger(epsilon=float(total), delta=0.0)
    for number, event in enumerate(events):
        memory.record(entry(event, str(number)))
    assert memory.curve().epsilon(0.0) == float(total)
    more = (
        LocalReport("label", 1e-9) if name == "reports" else PureDP(1e-9)
    )  # reports compose with reports alone
    with pytest.raises(BudgetError, match="at delta 0, above the limit"):
        memory.record(entry(more, "more"))
    cost, limit = total_of(map(entry, events)), Limit(Decimal(float(total)), Decimal(0))
    assert cost.fits(Limit(Decimal(float(total) * (1 + 1e-15)), Decimal(0)))
    assert not cost.plus(PrivacyCost.from_entry(entry(more))).fits(limit)


@pytest.mark.parametrize("name", NOT_PURE)
def test_releases_without_pure_privacy_never_fit_a_limit_at_delta_0(name: str) -> None:
    with pytest.raises(BudgetError, match="epsilon inf at delta 0"):
        MemoryLedger(epsilon=1e6, delta=0.0).record(entry(NOT_PURE[name]))
    limit = Limit(Decimal(1_000_000), Decimal(0))
    assert not PrivacyCost.from_entry(entry(NOT_PURE[name])).fits(limit)
    assert not total_of([entry(PureDP(0.1)), entry(NOT_PURE[name], "b")]).fits(limit)


def test_slack_of_pure_releases_needs_a_delta() -> None:
    with pytest.raises(BudgetError, match="epsilon inf at delta 0"):
        MemoryLedger(epsilon=1.0, delta=0.0).record(entry(PureDP(0.1), slack=1e-300))


@pytest.mark.parametrize("name", MIXTURES)
def test_totals_agree_with_the_ledger_in_memory(name: str) -> None:
    events = MIXTURES[name]
    total, ledger = total_of(map(entry, events)), MemoryLedger()
    for number, event in enumerate(events):
        ledger.record(entry(event, str(number)))
    composed, found = ledger.curve().epsilon(1e-6), total.epsilon(1e-6)
    assert found == pytest.approx(composed, rel=1e-9) or found < composed  # a sum is also a bound
    assert PrivacyCost.from_plain(total.as_plain()) == total
    assert total.minus(PrivacyCost.from_entry(entry(events[0]))) == total_of(map(entry, events[1:]))


def test_sums_are_exact() -> None:
    gaussian = PrivacyCost.from_entry(entry(Gaussian(0.1)))
    assert PrivacyCost().plus(gaussian, 100_000).mu_squared == 100_000 * Fraction(0.1) ** 2
    with_slack = PrivacyCost.from_entry(entry(PureDP(0.1), slack=1e-9))
    assert PrivacyCost().plus(with_slack, 7).slack == 7 * Fraction(Decimal("1e-9"))


@pytest.mark.parametrize(
    ("single", "copies", "limit"),
    [("0.0245", 1, "0.0245"), ("0.1", 3, "0.3"), ("0.7", 10, "7"), ("1e-3", 1000, "1")],
)
def test_decimal_budgets_are_compared_without_rounding(single: str, copies: int, limit: str) -> None:
    one = PrivacyCost.from_entry(entry(ApproximateDP(float(single))))
    allowed = Limit(Decimal(limit), Decimal("1e-7"))
    assert PrivacyCost().plus(one, copies).fits(allowed)
    assert not PrivacyCost().plus(one, copies + 1).fits(allowed)


@pytest.mark.parametrize("epsilon", [0.0245, 0.1, 0.5, 1.0, 4.0, 8.0])
def test_a_release_fits_the_budget_that_it_was_calibrated_for(epsilon: float) -> None:
    one, allowed = PrivacyCost.from_entry(entry(Gaussian(mu_of(epsilon, 1e-7)))), limit_of(epsilon)
    assert one.fits(allowed) and not one.plus(one).fits(allowed)


def limit_of(epsilon: float, delta: str = "1e-7") -> Limit:
    return Limit(Decimal(str(epsilon)), Decimal(delta))


@pytest.mark.parametrize(
    ("total", "limit", "fits"),
    [
        (entry(Gaussian(0.1), slack=5e-8), limit_of(10), True),
        (entry(Gaussian(0.1), slack=1e-7), limit_of(10), False),  # slack uses up delta
        (entry(Gaussian(0.1), slack=2e-7), limit_of(10), False),
        (entry(Gaussian(1e7)), limit_of(10**8), False),  # no finite epsilon
        (entry(compose(PureDP(0.5), PureDP(0.5))), limit_of(1, "0"), True),
        (entry(Gaussian(1e-6)), limit_of(1, "0"), False),  # at delta 0 only pure releases fit
    ],
)
def test_limits_account_for_slack_and_delta(total: Entry, limit: Limit, fits: bool) -> None:
    cost = PrivacyCost.from_entry(total)
    assert cost.fits(limit) is fits is (cost.epsilon(limit.delta) <= limit.epsilon)


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
def test_remaining_epsilon_is_all_that_fits_and_no_more(before: str, like: str) -> None:
    """Of a limit of 3 some budget remains, for all earlier releases and all requested ones."""
    spent, requested = PrivacyCost.from_entry(entry(ONE_OF_EACH[before])), ONE_OF_EACH[like]
    limit = Limit(Decimal(3), Decimal("1e-6"))
    remaining_epsilon = spent.remaining_epsilon(limit, entry(requested))
    assert remaining_epsilon >= 3 - spent.epsilon(5e-7) - 0.05  # what remains if epsilons are only added
    assert remaining_epsilon < 3
    for factor, expected in ((1.0, True), (1.05, False)):
        assert spent.plus(of_size(requested, remaining_epsilon * factor, 1e-6)).fits(limit) is expected


def of_size(requested: Event, epsilon: float, delta: float) -> PrivacyCost:
    """Return a release like another one, with less noise or more, that has this epsilon."""
    one = PrivacyCost.from_entry(entry(requested))
    if one._has_pure_epsilon and not one.mu_squared:
        lost = sum(getattr(part, "delta", 0.0) for part in compose(requested).events)
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
def test_remaining_epsilon_of_edge_cases(
    before: list[Event], limit: tuple[str, str], like: Event, remaining_epsilon: float
) -> None:
    found = total_of(map(entry, before)).remaining_epsilon(Limit(*map(Decimal, limit)), entry(like))
    assert found == pytest.approx(remaining_epsilon, rel=1e-3) and found <= remaining_epsilon


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_remaining_epsilon_without_a_requested_release(name: str) -> None:
    total, limit = PrivacyCost.from_entry(entry(ONE_OF_EACH[name])), Limit(Decimal(3), Decimal("1e-6"))
    remaining_epsilon = total.remaining_epsilon(limit)
    assert 1 < remaining_epsilon < 3
    adds_up = name in ("pure", "approximate", "report", "report with delta")
    more = PureDP(remaining_epsilon) if adds_up else Gaussian(mu_of(remaining_epsilon, 1e-6) * (1 - 1e-9))
    assert total.plus(PrivacyCost.from_entry(entry(more))).fits(limit)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_ldp_reports_add_their_epsilon_to_other_events(name: str) -> None:
    both = total_of([entry(ONE_OF_EACH[name]), entry(LocalReport("label", 0.25))])
    alone = PrivacyCost.from_entry(entry(ONE_OF_EACH[name])).epsilon(1e-6)
    assert both.epsilon(1e-6) == pytest.approx(alone + 0.25, abs=1e-3)
    unprotected = total_of([entry(ONE_OF_EACH[name]), entry(LocalReport("label", math.inf))])
    assert math.isinf(unprotected.epsilon(1e-6))


def test_many_kinds_of_releases_agree_with_an_independent_composition() -> None:
    """More kinds than ``MAX_KINDS`` are composed in halves; dp-accounting composes one after the other."""
    epsilons = [0.01 + number * 1e-3 for number in range(60)]
    total = total_of([entry(PureDP(epsilon)) for epsilon in epsilons])
    responses = (
        privacy_loss_distribution.from_randomized_response(
            2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=1e-4
        )
        for epsilon in epsilons
    )
    reference = reduce(lambda one, other: one.compose(other), responses)
    rounded_up = reference.get_epsilon_for_delta(1e-6)  # it rounds each loss up to a multiple of 1e-4
    assert rounded_up - 60 * 1e-4 <= total.epsilon(1e-6) <= rounded_up
    assert total.epsilon(1e-6) < sum(epsilons)
    assert total.plus(PrivacyCost.from_entry(entry(PureDP(0.7)))).epsilon(1e-6) > total.epsilon(1e-6)


@pytest.mark.parametrize(
    "value", [Fraction(1), Fraction(17), Fraction(1, 3), Fraction(10**9 + 1, 7), Fraction("1e-7")]
)
def test_cached_totals_are_rounded_towards_a_larger_cost(value: Fraction) -> None:
    below, above = (costs._rounded(value, up=up) for up in (False, True))
    assert below <= value <= above <= value * Fraction(9, 8) and below >= value * Fraction(7, 8)


def test_training_steps_are_composed_a_few_times_for_many_entries() -> None:
    costs._epsilon_of_larger.cache_clear()
    one = PrivacyCost.from_entry(entry(PoissonGaussian(4.0, 0.01, 10)))
    allowed = limit_of(3, "1e-6")
    assert all(PrivacyCost().plus(one, copies).fits(allowed) for copies in range(1, 400))
    assert costs._epsilon_of_larger.cache_info().misses < 60  # about eight in a doubling


NEAR = (25, 28, 29)  # times ten steps: a limit ends at the second, which has four bits


@pytest.mark.parametrize("delta", ["1e-3", "1e-8"])
def test_cached_compositions_grant_as_much_as_exact_ones(delta: str) -> None:
    """Near a limit the exact total decides; the loop over one delta fills the cache for the other."""
    costs._epsilon_of_larger.cache_clear()
    one = PrivacyCost.from_entry(entry(PoissonGaussian(2.0, 0.05, 10)))
    for current in ("1e-3", delta):
        spent = [privacy_curve(PrivacyCost().plus(one, n).event).epsilon(float(current)) for n in NEAR]
        for copies, epsilon in zip(NEAR, spent, strict=True):
            granted = PrivacyCost().plus(one, copies).fits(limit_of(spent[1], current))
            assert granted == (epsilon <= spent[1]), f"{copies} at {current}: granted is {granted}"


def test_a_total_from_before_events_stored_floats_is_read() -> None:
    old = {
        json.dumps([{"epsilon": 2, "kind": "pure_dp"}]): 2,
        json.dumps([{"epsilon": 2.0, "kind": "pure_dp"}]): 1,
    }
    stored = {"mu_squared": "0", "slack": "0", "others": old}
    assert PrivacyCost.from_plain(stored) == total_of([entry(PureDP(2.0))] * 3)


@pytest.mark.parametrize(
    "kind",
    [
        [{"epsilon": 2.0, "kind": "pure_dp"}] * 2,
        [{"epsilon": True, "kind": "pure_dp"}],
        [{"epsilon": "2", "kind": "pure_dp"}],
        [],
    ],
)
def test_a_total_of_anything_but_single_events_is_rejected(kind: list[object]) -> None:
    stored = {"mu_squared": "0", "slack": "0", "others": {json.dumps(kind): 1}}
    with pytest.raises((ValueError, LookupError, GraphveilError)):
        PrivacyCost.from_plain(stored)
