"""Local hashing of labels: golden values, the law by counting words, public hashes, and estimates."""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest

from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms import LabelRR, LocalHashing

from .fits import fits, stream

WORDS = 1 << 64
BUDGETS = [2.0**-30, 1e-6, 0.1, 1.0, 3.0, 40.0, 1000.0]

# c, epsilon, g, p, nats.
GOLDEN = [
    (7, 1.0, 3, 0.5761168848, 0.1206),
    (3, 1.0, 3, 0.5761168848, 0.1233),
    (40, 1.0, 3, 0.5761168848, 0.1232),
    (7, 0.5, 2, 0.6224593312, 0.0297),
    (40, 2.0, 5, 0.6487856444, 0.4744),
    (4, 2.0, 4, 0.7112345942, 0.4680),
]


@pytest.mark.parametrize(("classes", "epsilon", "groups", "keep", "nats"), GOLDEN)
def test_golden_values(classes: int, epsilon: float, groups: int, keep: float, nats: float) -> None:
    law = LocalHashing(epsilon=epsilon, classes=classes)
    assert (law.groups, law.size) == (groups, math.ceil(classes / groups))
    assert law.keep == pytest.approx(keep, rel=1e-9)
    assert law.information == pytest.approx(nats, abs=5e-5)


def _nats(epsilon: float, groups: Sequence[int]) -> float:
    """Return the mutual information of a group and a uniform label, from the whole table."""
    among = LabelRR(epsilon=epsilon, classes=max(groups) + 1)
    table = among.transition[list(groups)]
    return float((table / len(groups) * np.log(table / table.mean(axis=0))).sum())


@pytest.mark.parametrize(("classes", "epsilon"), [(5, 0.3), (6, 1.0), (7, 2.0), (11, 1.5), (9, 6.0)])
def test_no_other_number_of_groups_has_more_information(classes: int, epsilon: float) -> None:
    law = LocalHashing(epsilon=epsilon, classes=classes)
    expected_information = {
        number: _nats(epsilon, [place % number for place in range(classes)])
        for number in range(2, classes + 1)
    }
    assert law.information == pytest.approx(expected_information[law.groups])
    assert max(expected_information.values()) <= law.information + 1e-9


def test_two_groups_of_two_classes_are_randomized_response() -> None:
    law, rr = LocalHashing(epsilon=2.0, classes=2), LabelRR(epsilon=2.0, classes=2)
    assert law.transition == pytest.approx(rr.transition)
    assert law.information == pytest.approx(rr.information)


# -- the exact law -----------------------------------------------------------------------------------------


class Counted:
    """A stream that serves given words, one a row."""

    def __init__(self, words: Sequence[int]) -> None:
        self.given = np.array(words, dtype=np.uint64)

    def reserve_rows(self, rows: Any) -> None:
        """Serve every row."""

    def words(self, rows: Any, *, words_per_row: int) -> Any:
        assert words_per_row == 1
        return self.given[rows][:, None]

    def blocks(self, rows: Any, offsets: Any) -> Any:
        raise AssertionError("a group takes one word")


def _law(law: LocalHashing, label: int, hashes: np.ndarray) -> dict[int, Fraction]:
    """Return the exact probability of each group: the number of words that report it."""
    groups = law.groups
    change = law.among_groups.counts[1]
    ends = [0, *(moved * change for moved in range(1, groups)), WORDS]
    if label < 0:
        ends = [-(-number * WORDS // groups) for number in range(groups + 1)]
    edges = sorted({word for end in ends for word in (end - 1, end) if 0 <= word < WORDS})
    reported = law.perturb_with_hashes(
        np.full(len(edges), label), np.tile(hashes, (len(edges), 1)), stream=Counted(edges)
    )
    groups_reported = law.groups_of(np.tile(hashes, (len(edges), 1)), reported).tolist()
    found = dict.fromkeys(range(groups), Fraction(0))
    for first, after in pairwise(ends):
        inside = {group for word, group in zip(edges, groups_reported, strict=True) if first <= word < after}
        assert len(inside) == 1, "what is reported changes elsewhere"
        found[inside.pop()] += Fraction(after - first, WORDS)
    return found


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("classes", [2, 5, 7])
def test_for_every_fixed_hash_no_group_is_more_than_e_to_the_epsilon_times_as_likely(
    classes: int, epsilon: float
) -> None:
    law = LocalHashing(epsilon=epsilon, classes=classes)
    for hashes in law.hashes([b"ann", b"bob"]):
        laws = {label: _law(law, label, hashes) for label in range(-1, classes)}
        assert all(sum(one.values()) == 1 for one in laws.values())
        with localcontext(prec=60):
            most = Decimal(epsilon).exp()
            for one, other in product(laws.values(), repeat=2):
                for group, chance in one.items():
                    ratio = chance / other[group]
                    assert Decimal(ratio.numerator) <= most * Decimal(ratio.denominator)
        if epsilon < 40:
            own = laws[0][int(hashes[0])]
            assert float(own) == pytest.approx(law.keep, rel=1e-8)
            other = next(chance for group, chance in laws[0].items() if group != hashes[0])
            assert math.log(own / other) == pytest.approx(epsilon, abs=2e-9)


@pytest.mark.parametrize("label", [3, -1])
def test_groups_follow_the_law_by_the_hashes_of_rows(label: int) -> None:
    law, count = LocalHashing(epsilon=1.0, classes=7), 250_000
    hashes = law.hashes_of_rows(np.arange(count))
    reported = law.perturb(np.full(count, label), stream=stream(label + 1))
    moved = law.groups_of(hashes, reported) - (0 if label < 0 else hashes[:, label])
    among = law.among_groups
    exact = [1 / 3] * 3 if label < 0 else [among.keep, among.change, among.change]
    fits(np.bincount(moved % 3, minlength=3), np.array(exact), seen=0.3)


# -- hashes ------------------------------------------------------------------------------------------------


def test_hashes_are_stable_and_depend_on_public_values_only() -> None:
    law = LocalHashing(epsilon=1.0, classes=7)
    assert law.hashes([b"ann", b"bob"]).tolist() == HASHES
    rows = np.array([5, 2, 9])
    assert np.array_equal(law.hashes_of_rows(rows), law.hashes_of_rows(np.arange(10))[rows])
    for label in (0, 6):  # the report is a group of the same hash for any label
        law.groups_of(law.hashes_of_rows(rows), law.perturb(np.full(3, label), stream=stream(), rows=rows))


HASHES = [[0, 1, 0, 0, 1, 2, 2], [1, 1, 2, 0, 0, 2, 0]]


def test_two_classes_are_in_one_group_as_often_as_any_other_two() -> None:
    law, count = LocalHashing(epsilon=1.0, classes=7), 20_000
    hashes = law.hashes_of_rows(np.arange(count))
    assert (np.sort(hashes, axis=1) == [0, 0, 0, 1, 1, 2, 2]).all()
    together = 5 / 21  # pairs within groups of 3, 2 and 2
    for one, other in combinations(range(7), 2):
        share = (hashes[:, one] == hashes[:, other]).mean()
        assert share == pytest.approx(together, abs=5 * math.sqrt(together * (1 - together) / count))


def test_a_hash_of_another_mechanism_is_rejected() -> None:
    law = LocalHashing(epsilon=1.0, classes=7)
    for hashes in (np.zeros((1, 7), dtype=int), np.arange(7)[None] % 2, np.arange(6)[None] % 3):
        with pytest.raises(ConfigError, match="assign all 7 classes to 3 groups"):
            law.perturb_with_hashes(np.array([1]), hashes, stream=stream())


# -- what is known from it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
def test_each_class_is_reported_with_the_transition_probability(missing: float) -> None:
    law, count = LocalHashing(epsilon=1.0, classes=5), 60_000
    own = np.where(np.arange(count) < missing * count, -1, 2)
    shares = law.members(law.perturb(own, stream=stream())).mean(axis=0)
    assert shares == pytest.approx(law.transition_with(missing)[2], abs=5 * math.sqrt(0.25 / count))
    assert law.keep_with(missing) == pytest.approx(law.transition_with(missing)[2, 2])


def test_ratios_compare_a_group_with_a_uniform_one() -> None:
    law = LocalHashing(epsilon=1.0, classes=7)
    inside, outside = law.ratios()
    assert (inside, outside) == pytest.approx((3 * law.among_groups.keep, 3 * law.among_groups.change))
    assert (law.ratios(0.3)[0], law.ratios(1.0)) == (pytest.approx(0.7 * inside + 0.3), (1, pytest.approx(1)))


def test_rejects_classes_that_are_no_group_of_the_hash() -> None:
    law = LocalHashing(epsilon=1.0, classes=7)
    hashes = np.arange(7)[None] % 3  # {0, 3, 6}, {1, 4}, {2, 5}
    assert law.groups_of(hashes, np.array([[2, 5, -1]])).tolist() == [2]
    with pytest.raises(GraphError, match="one group of its hash"):
        law.groups_of(hashes, np.array([[2, 4, -1]]))
