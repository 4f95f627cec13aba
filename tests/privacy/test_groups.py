"""Records in groups: the accountant against an enumeration of every combination of groups."""

import math
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.core.accounting.accountant import MAX_CASES, Curve, privacy_curve, total_mu
from graphveil.core.events import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    PairwiseGaussian,
    PoissonGaussian,
    compose,
    within_partition,
)
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.errors import BudgetError

SIZES = {"split": 3, "regions": 2}  # groups of each partition
COARSE = 0.05  # enough to compare two ways of arriving at the same composition
TRAINING = (PoissonGaussian(2.0, 0.1, 1), PoissonGaussian(1.5, 0.05, 1, "replace"))

gaussians = st.integers(0, 4).map(lambda k: Gaussian(k / 4))
trainings = st.builds(
    lambda kind, steps: PoissonGaussian(kind.noise_multiplier, kind.sampling_rate, steps, kind.relation),
    st.sampled_from(TRAINING),
    st.integers(0, 3),
)
tables = st.lists(st.integers(0, 4), min_size=3, max_size=3).map(
    lambda x: PairwiseGaussian("split", ((x[0] / 8, x[1] / 8), (x[1] / 8, x[2] / 8)))
)


def events(plain: st.SearchStrategy[Event]) -> st.SearchStrategy[Composed]:
    step = st.lists(plain, max_size=2).map(lambda parts: compose(*parts))
    grouped = [
        st.lists(step, min_size=size, max_size=size).map(lambda each, name=name: ByGroup(name, tuple(each)))
        for name, size in SIZES.items()
    ]
    return st.lists(st.one_of(plain, tables, *grouped), max_size=5).map(lambda parts: compose(*parts))


def records(event: Event) -> Iterator[list[Event]]:
    """Yield the plain events of every record and pair, one list for each combination of groups."""
    pairs = [(0, 0), (0, 1), (1, 1)]
    for pair, *groups in product(pairs, *(range(size) for size in SIZES.values())):
        chosen = dict(zip(SIZES, groups, strict=True))
        own: list[Event] = []
        for part in compose(event).events:
            if isinstance(part, ByGroup):
                own += compose(part.events[chosen[part.partition]]).events
            elif isinstance(part, PairwiseGaussian):
                own.append(Gaussian(math.sqrt(part.mu_squared[pair[0]][pair[1]])))
            else:
                own.append(part)
        yield own


def curve_of(met: list[Event]) -> Curve:
    """Return the curve of plain events, put together by hand."""
    mu = math.sqrt(sum(part.mu**2 for part in met if isinstance(part, Gaussian)))
    training = [
        PoissonGaussian(kind.noise_multiplier, kind.sampling_rate, steps, kind.relation)
        for kind in TRAINING
        if (steps := sum(part.steps for part in met if getattr(part, "relation", None) == kind.relation))
    ]
    return privacy_curve(compose(Gaussian(mu), *training), interval=COARSE)


@given(events(gaussians))
def test_total_mu_is_that_of_the_worst_record(event: Event) -> None:
    worst = max(sum(part.mu**2 for part in met if isinstance(part, Gaussian)) for met in records(event))
    assert total_mu(event) == pytest.approx(math.sqrt(worst), abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(events(st.one_of(gaussians, trainings)))
def test_the_curve_is_the_maximum_over_all_records(event: Event) -> None:
    curve = privacy_curve(event, interval=COARSE)
    worst = max(curve_of(met).delta(0.3) for met in records(event))
    assert curve.delta(0.3) >= worst * (1 - 1e-9) - 1e-15
    assert math.prod(SIZES.values()) <= MAX_CASES  # so all combinations are tracked separately:
    assert curve.delta(0.3) == pytest.approx(worst, rel=1e-6, abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.lists(events(st.one_of(gaussians, trainings)), min_size=2, max_size=2))
def test_two_splits_cover_every_combination_of_their_groups(runs: list[Event]) -> None:
    """A record may be in any group of the first split and in any of the second."""
    named = [within_partition(run, str(number)) for number, run in enumerate(runs)]
    bound = privacy_curve(compose(*named), interval=COARSE)
    for together in list(product(*(list(records(run)) for run in runs)))[::7]:
        assert curve_of([part for met in together for part in met]).delta(0.3) <= bound.delta(0.3) + 1e-12


def test_more_combinations_than_are_tracked_are_bounded() -> None:
    kinds = [PoissonGaussian(2.0, 0.01 * k, 5) for k in range(1, 4)]
    event = compose(*(ByGroup(name, tuple(kinds)) for name in ("a", "b", "c", "d")))  # 15 distinct sums
    worst = max(
        privacy_curve(compose(*chosen), interval=COARSE).epsilon(1e-5)
        for chosen in ((kinds[2],) * 4, (kinds[0],) * 4, (kinds[0], *kinds))
    )
    assert worst <= privacy_curve(event, interval=COARSE).epsilon(1e-5) < math.inf


def test_a_ledger_composes_the_worst_record_of_two_splits() -> None:
    training, selection = PoissonGaussian(2.0, 0.0128, 500), Gaussian(0.2)
    event = ByGroup("train/val", (training, selection))
    ledger = MemoryLedger()
    for run in ("one", "two"):
        ledger.record(Entry(run, "gap", within_partition(event, run)))
    pairs = [(training, training), (training, selection), (selection, selection)]
    worst = max(privacy_curve(compose(*pair)).epsilon(1e-5) for pair in pairs)
    assert ledger.curve().epsilon(1e-5) == pytest.approx(worst, rel=1e-9)
    both_in_each = privacy_curve(compose(*[training, selection] * 2)).epsilon(1e-5)
    assert worst < both_in_each  # but no record is in training and selection of one split


def test_a_ledger_with_a_limit_rejects_the_worst_record() -> None:
    event = ByGroup("train/val", (Gaussian(0.3), Gaussian(0.1)))
    limit = privacy_curve(Gaussian(0.5)).epsilon(1e-5)  # above sqrt(2) 0.3, below sqrt(3) 0.3
    ledger = MemoryLedger(epsilon=limit, delta=1e-5)
    for run in ("one", "two"):
        ledger.record(Entry(run, "gap", within_partition(event, run)))
    with pytest.raises(BudgetError, match="would bring the total"):
        ledger.record(Entry("three", "gap", within_partition(event, "three")))
