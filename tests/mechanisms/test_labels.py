"""Randomized response on labels: golden values, transition, frequencies, and words that are counted."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from graphveil.core.noise.random import RowStream
from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms import LabelMechanism, LabelRR, LocalHashing, SubsetSelection

from .fits import fits, stream

# local_and_topology.md, 15.4: c, eps, p, q.
GOLDEN = [
    (2, 1, 0.7310585786, None),
    (3, 1, 0.5761168848, 0.2119415576),
    (4, 1, 0.4753668864, 0.1748777045),
    (7, 1, 0.3117910022, 0.1147014996),
    (10, 1, 0.2319693167, 0.0853367426),
    (7, 3, 0.7699874832, 0.0383354195),
    (10, 0.5, 0.1548280990, 0.0939079890),
]


@pytest.mark.parametrize(("classes", "epsilon", "keep", "change"), GOLDEN)
def test_golden_values(classes: int, epsilon: float, keep: float, change: float | None) -> None:
    law = LabelRR(epsilon=epsilon, classes=classes)
    assert law.keep == pytest.approx(keep, rel=1e-9)
    assert law.change == pytest.approx(1 - keep if change is None else change, rel=2e-9)


BUDGETS = [1e-9, 0.01, 1.0, 8.0, 40.0, 50.0, 1000.0]


@pytest.mark.parametrize("classes", [2, 7, 1000])
def test_label_probabilities_meet_the_budget_exactly(classes: int) -> None:
    for law in (LabelRR(epsilon=epsilon, classes=classes) for epsilon in BUDGETS):
        keep, change = law.counts
        assert keep + (classes - 1) * change == 1 << 64
        with localcontext(prec=60):
            most = Decimal(law.epsilon).exp()
            assert Decimal(keep) <= most * change
            assert Decimal(change) <= most * keep
        if law.epsilon < 40:
            assert math.log(keep) - math.log(change) == pytest.approx(law.epsilon, abs=1e-9)
            assert keep / 2**64 == pytest.approx(law.keep, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 7, 1000, 1 << 16])
def test_a_missing_label_keeps_the_budget_too(classes: int) -> None:
    least, most = (1 << 64) // classes, -(-(1 << 64) // classes)  # words of a class that is drawn uniformly
    for epsilon in (2.0**-30, *BUDGETS[1:]):
        keep, change = LabelRR(epsilon=epsilon, classes=classes).counts
        with localcontext(prec=60):
            bound = Decimal(epsilon).exp()
            for one, other in ((keep, least), (most, change), (most, keep), (change, least)):
                assert Decimal(one) <= bound * other


def test_missing_labels_report_uniform_classes_and_affect_no_other_record() -> None:
    law, labels = LabelRR(epsilon=3.0, classes=5), np.arange(400_000) % 5
    gaps = np.where(np.arange(400_000) % 2, labels, -1)
    whole, some = (law.perturb(given, stream=stream(3)) for given in (labels, gaps))
    fits(np.bincount(some[gaps == -1], minlength=5), np.full(5, 0.2), seen=2)
    assert (some[gaps != -1] == whole[gaps != -1]).all()
    drawn_labels = np.bincount(some, minlength=5)
    fits(drawn_labels, np.full(5, 0.2) @ law.transition_with(0.5), seen=2)
    kept = LabelRR(epsilon=math.inf, classes=5).perturb(gaps[:10], stream=stream())
    assert (kept == gaps[:10]).all()  # nothing is hidden there


@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
def test_a_share_of_missing_labels_mixes_the_channel_with_chance(missing: float) -> None:
    law, shares = LabelRR(epsilon=2.0, classes=4), np.array([0.7, 0.1, 0.1, 0.1])
    mixed = (1 - missing) * shares @ law.transition + missing / 4
    assert shares @ law.transition_with(missing) == pytest.approx(mixed)
    with pytest.raises(ConfigError, match="missing="):
        law.transition_with(1.5)


def test_the_first_and_the_last_words_of_each_shift() -> None:
    law = LabelRR(epsilon=1.0, classes=4)
    _, change = law.counts
    words = [0, change - 1, change, 2 * change, 3 * change - 1, 3 * change, (1 << 64) - 1]

    class Given(RowStream):
        def reserve_rows(self, rows: np.ndarray) -> None: ...

        def words(self, rows: np.ndarray, *, words_per_row: int) -> np.ndarray:
            return np.array(words, dtype=np.uint64)[rows, None]

    shifts = law.perturb(np.zeros(len(words), dtype=np.int64), stream=Given(bytes(32)))
    assert shifts.tolist() == [1, 1, 2, 3, 3, 0, 0]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_labels_follow_the_transition(epsilon: float) -> None:
    law = LabelRR(epsilon=epsilon, classes=5)
    for label, row in enumerate(law.transition):
        drawn_labels = law.perturb(np.full(800_000, label), stream=stream(label))
        fits(np.bincount(drawn_labels, minlength=5), row, seen=0.1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_transition_and_inverse(epsilon: float) -> None:
    law = LabelRR(epsilon=epsilon, classes=6)
    assert law.transition.sum(axis=1) == pytest.approx(np.ones(6))
    assert law.transition @ law.inverse == pytest.approx(np.eye(6), abs=1e-9)
    logs = np.log(law.transition)
    assert (logs.max(axis=0) - logs.min(axis=0)).max() == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(
    "labels",
    [np.array([3]), np.array([-2]), np.array([0.0]), np.array([[0]]), np.array([True]), np.array(["1"])],
)
def test_rejects_labels_that_are_no_classes_without_naming_them(labels: np.ndarray) -> None:
    with pytest.raises(GraphError, match=r"classes from 0 to 2|be integers of shape"):
        LabelRR(epsilon=1.0, classes=3).perturb(labels, stream=stream())


# -- all three mechanisms ----------------------------------------------------------------------------------

KINDS = [LabelRR, SubsetSelection, LocalHashing]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, 70_000])
def test_rejects_numbers_of_classes_outside_their_range(kind: type[LabelMechanism], classes: int) -> None:
    with pytest.raises(ConfigError, match="classes="):
        kind(epsilon=1.0, classes=classes)


@pytest.mark.parametrize("kind", KINDS)
def test_no_noise_leaves_the_labels(kind: type[LabelMechanism]) -> None:
    law, labels = kind(epsilon=math.inf, classes=9), np.array([3, -1, 8])
    assert (law.size, law.keep, law.change, law.information) == (1, 1, 0, pytest.approx(math.log(9)))
    assert law.perturb(labels, stream=stream()).reshape(-1).tolist() == labels.tolist()
    assert (law.transition == np.eye(9)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_unbiased_and_have_the_variance(kind: type[LabelMechanism]) -> None:
    law, shares = kind(epsilon=1.0, classes=6), np.array([0.4, 0.2, 0.2, 0.1, 0.05, 0.05])
    assert (shares @ law.transition - law.change) / law.gap == pytest.approx(shares)  # an exact sum
    labels = np.random.default_rng(0).choice(6, (500, 400), p=shares)
    found = [
        law.frequencies(law.perturb(row, stream=stream(i), rows=np.arange(400) + 400 * i))
        for i, row in enumerate(labels)
    ]
    variance = law.frequency_variance(shares, 400)
    assert np.mean(found, axis=0) == pytest.approx(shares, abs=5 * math.sqrt(variance.max() / 500))
    assert np.var(found, axis=0) == pytest.approx(variance, rel=0.3)
    reported = shares @ law.transition
    assert variance == pytest.approx(reported * (1 - reported) / (400 * law.gap**2))


OF_SETS = ([[1, 1]], [[2, 1]], [[0, 7]], [[-1, 2]], [[1]], [1, 2], [[0.0, 1.0]])
OF_GROUPS = (
    *([[1, 1, 2]], [[2, 1, -1]], [[0, 5, 7]], [[3, -1, -1]], [[-1, 2, 3]]),
    *([[2, -1, 3]], [[1, 2]], [1, 2, 3]),
)
IMPOSSIBLE = [(SubsetSelection, one) for one in OF_SETS] + [(LocalHashing, one) for one in OF_GROUPS]


@pytest.mark.parametrize(("kind", "reported"), IMPOSSIBLE)
def test_rejects_impossible_reports(kind: type[LabelMechanism], reported: list) -> None:
    with pytest.raises(GraphError, match=r"distinct classes|one of 3 groups|from 0 to 6|integers of"):
        kind(epsilon=1.0, classes=7).frequencies(np.array(reported))
