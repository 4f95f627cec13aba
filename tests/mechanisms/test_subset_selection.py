"""Subset selection on labels: golden values, the law by counting words, and estimates."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from graphveil.mechanisms import LabelRR, SubsetSelection

from .fits import fits, stream

WORDS = 1 << 64
BUDGETS = [2.0**-30, 1e-6, 0.1, 1.0, 3.0, 40.0, 1000.0]

# c, epsilon, k, p, nats of a set, nats of randomized response.
GOLDEN = [
    (7, 1.0, 2, 0.5209151054, 0.1215, 0.0923),
    (3, 1.0, 1, 0.5761168848, 0.1233, 0.1233),
    (15, 1.0, 4, 0.4970998046, 0.1199, 0.0541),
    (70, 0.5, 26, 0.4934770961, 0.0309, 0.0024),
]


@pytest.mark.parametrize(("classes", "epsilon", "size", "keep", "nats", "nats_of_rr"), GOLDEN)
def test_golden_values(
    classes: int, epsilon: float, size: int, keep: float, nats: float, nats_of_rr: float
) -> None:
    law = SubsetSelection(epsilon=epsilon, classes=classes)
    assert law.size == size
    assert law.keep == pytest.approx(keep, rel=1e-9)
    assert law.information == pytest.approx(nats, abs=5e-5)
    assert LabelRR(epsilon=epsilon, classes=classes).information == pytest.approx(nats_of_rr, abs=5e-5)


def test_the_information_is_the_sum_over_all_sets() -> None:
    law = SubsetSelection(epsilon=1.0, classes=6)
    sets = list(combinations(range(6), law.size))
    table = np.array([[_chance(law, label in one) for one in sets] for label in range(6)])
    assert table.sum(axis=1) == pytest.approx(np.ones(6))
    assert law.information == pytest.approx((table / 6 * np.log(table / table.mean(axis=0))).sum())


def _chance(law: SubsetSelection, inside: bool) -> float:
    others = law.classes - 1
    own = law.keep / math.comb(others, law.size - 1)
    return own if inside else (1 - law.keep) / math.comb(others, law.size)


# -- the exact law -----------------------------------------------------------------------------------------


def _choices(bound: int) -> list[Fraction]:
    """The chance of each number below a bound: how many words of 64 bits stand for it."""
    starts = [-(-j * WORDS // bound) for j in range(bound + 1)]
    return [Fraction(after - before, WORDS) for before, after in pairwise(starts)]


def _drawn(count: int, dim: int) -> dict[frozenset[int], Fraction]:
    """The law of a Fisher-Yates shuffle's first places, by all of its choices."""
    found: Counter[frozenset[int]] = Counter()
    for steps in product(*(range(dim - top) for top in range(count))):
        deck, chance = list(range(dim)), Fraction(1)
        for top, step in enumerate(steps):
            deck[top], deck[top + step] = deck[top + step], deck[top]
            chance *= _choices(dim - top)[step]
        found[frozenset(deck[:count])] += chance
    return found


def _law(law: SubsetSelection, label: int | None) -> dict[frozenset[int], Fraction]:
    """Return the exact law of a report."""
    if label is None:
        return _drawn(law.size, law.classes)
    inside, outside = (Fraction(count, WORDS) for count in law.counts)
    found: Counter[frozenset[int]] = Counter()
    for drawn, chance in _drawn(law.size - 1, law.classes - 1).items():
        found[_from(label, drawn, law.classes) | {label}] += inside * chance
    for drawn, chance in _drawn(law.size, law.classes - 1).items():
        found[_from(label, drawn, law.classes)] += outside * chance
    return found


def _from(label: int, drawn: frozenset[int], classes: int) -> frozenset[int]:
    return frozenset((label + 1 + other) % classes for other in drawn)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("classes", [2, 3, 5, 6])
def test_no_set_is_more_than_e_to_the_epsilon_times_as_likely(classes: int, epsilon: float) -> None:
    law = SubsetSelection(epsilon=epsilon, classes=classes)
    laws = [_law(law, label) for label in (None, *range(classes))]
    assert all(sum(one.values()) == 1 for one in laws)
    with localcontext(prec=60):
        most = Decimal(epsilon).exp()
        for one, other in product(laws, repeat=2):
            for reported, chance in one.items():
                ratio = chance / other[reported]
                assert Decimal(ratio.numerator) <= most * Decimal(ratio.denominator)
    if epsilon < 40:
        inside, outside = laws[1][frozenset(range(law.size))], laws[1][frozenset(range(1, law.size + 1))]
        assert float(inside) == pytest.approx(_chance(law, True), rel=1e-8)
        assert math.log(inside / outside) == pytest.approx(epsilon, abs=2e-9)


@pytest.mark.parametrize("epsilon", [2.0**-30, 0.01, 1.0])
def test_sets_of_very_many_classes_keep_the_budget_with_all_that_their_draws_are_uneven(
    epsilon: float,
) -> None:
    law = SubsetSelection(epsilon=epsilon, classes=1 << 16)
    uneven = Fraction(law.size * law.classes + 1, WORDS)  # of a set's chance, either way
    inside, outside = law.counts
    others = Fraction(law.classes - law.size, law.size)  # sets without the own class, a set with it
    with localcontext(prec=60):
        worst = Fraction(inside, outside) * others * (1 + uneven) / (1 - uneven)
        assert Decimal(worst.numerator) <= Decimal(epsilon).exp() * Decimal(worst.denominator)
        alike = (1 + uneven) / (1 - uneven)
        assert Decimal(alike.numerator) <= Decimal(epsilon).exp() * Decimal(alike.denominator)


def test_one_class_of_few_is_randomized_response() -> None:
    law, rr = SubsetSelection(epsilon=2.0, classes=4), LabelRR(epsilon=2.0, classes=4)
    assert law.size == 1
    assert law.transition == pytest.approx(rr.transition)
    assert law.information == pytest.approx(rr.information)


@pytest.mark.parametrize("label", [0, 3, -1])
def test_sets_follow_the_law(label: int) -> None:
    law = SubsetSelection(epsilon=1.0, classes=7)
    assert law.size == 2
    reported = law.perturb(np.full(400_000, label), stream=stream(label + 1))
    assert (np.diff(reported, axis=1) > 0).all(), "a class is reported twice"
    exact = _law(law, None if label < 0 else label)
    sets = [sorted(one) for one in exact]
    code = np.array([10, 1])
    places = {int(np.array(one) @ code): place for place, one in enumerate(sets)}
    counts = np.bincount([places[each] for each in (reported @ code).tolist()], minlength=len(sets))
    fits(counts, np.array([float(one) for one in exact.values()]), seen=0.1)


# -- what is known from it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
def test_each_class_is_reported_with_the_transition_probability(missing: float) -> None:
    law = SubsetSelection(epsilon=1.0, classes=6)
    for label in (0, 4):
        own, blind = _law(law, label), _law(law, None)
        shares = [
            sum(
                (1 - missing) * float(own[reported]) + missing * float(blind[reported])
                for reported in own
                if one in reported
            )
            for one in range(6)
        ]
        assert law.transition_with(missing)[label] == pytest.approx(shares)
    assert law.keep_with(missing) == pytest.approx(law.transition_with(missing)[2, 2])


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_ratios_compare_a_set_with_a_uniform_one(missing: float) -> None:
    law = SubsetSelection(epsilon=1.0, classes=6)
    blind = 1 / math.comb(6, law.size)
    for inside, ratio in zip((True, False), law.ratios(missing), strict=True):
        assert ratio == pytest.approx(((1 - missing) * _chance(law, inside) + missing * blind) / blind)
