import copy
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import getitem
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
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
from graphveil.core.ledger import Entry
from graphveil.core.unit import LocalAttributes, NodeRecord, UndirectedEdge
from graphveil.errors import ArtifactError, ConfigError, PrivacyError
from graphveil.ledger import PrivacyCost
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import (
    events_from_plain,
    events_to_plain,
    guarantee_from_plain,
    guarantee_to_plain,
)

EVENTS: list[Event] = [
    Gaussian(0.3),
    PureDP(0.5),
    LocalReport("label", math.inf),
    PairwiseGaussian("labels", ((0.1, 0.2), (0.2, 0.3))),
    PoissonGaussian(1.1, 0.01, 500, "replace"),
    PoissonRoots(4.0, 0.01, 500, 3, "replace"),
    NonPrivate(),
    OneOf((Gaussian(0.3), PairwiseGaussian("labels", ((0.1,),)))),
    ByGroup("train/val", (compose(PoissonGaussian(1.1, 0.01, 500), Gaussian(0.3)), Composed(()))),
]
GROUP = [{"kind": "gaussian", "mu": 1.0}]
TABLE = {"kind": "pairwise_gaussian", "partition": "p", "mu_squared": [[1.0]]}

# One of each kind as a function of numbers: two positive ones, two shares of one, and a whole number.
Make = Callable[[Any, Any, Any, Any, Any], Event]
FROM_NUMBERS: dict[type[Event], Make] = {
    Gaussian: lambda a, b, p, q, n: Gaussian(a),
    PairwiseGaussian: lambda a, b, p, q, n: PairwiseGaussian("labels", [[a, b], [b, a]]),  # type: ignore[arg-type]  # lists are stored as tuples
    PureDP: lambda a, b, p, q, n: PureDP(a),
    PoissonGaussian: lambda a, b, p, q, n: PoissonGaussian(a, p, n, "replace"),
    PoissonRoots: lambda a, b, p, q, n: PoissonRoots(a, p, n, n, "replace"),
    NonPrivate: lambda a, b, p, q, n: NonPrivate(),
    LocalReport: lambda a, b, p, q, n: LocalReport("label", a, p),
    ApproximateDP: lambda a, b, p, q, n: ApproximateDP(a, p),
    ByGroup: lambda a, b, p, q, n: ByGroup("train/val", (Gaussian(a), PureDP(b))),
    OneOf: lambda a, b, p, q, n: OneOf((PureDP(a), LocalReport("features", b, q))),
    Composed: lambda a, b, p, q, n: Composed((PureDP(a), ApproximateDP(b, p))),
}


def _forms(value: float) -> st.SearchStrategy[Any]:
    """Return a number in all forms in which callers have it: all are exactly equal."""
    forms = [value, np.float64(value), np.float32(value), Fraction(value), Decimal(value)]
    forms += [np.longdouble(value)]
    if value == int(value):
        forms += [int(value), np.int64(value), np.uint8(value), np.float16(value)]
    return st.sampled_from(forms)


_POSITIVE = st.sampled_from([0.5, 1.0, 2.0, 0.375, 100.0])  # exact in float32
_SHARES = st.sampled_from([0.0, 0.25, 1.0])


@given(data=st.data(), kind=st.sampled_from(list(FROM_NUMBERS)))
def test_an_event_has_one_text_for_every_form_of_its_numbers(data: st.DataObject, kind: type[Event]) -> None:
    drawn = [data.draw(part) for part in (_POSITIVE, _POSITIVE, _SHARES, _SHARES)]
    whole = data.draw(st.integers(1, 9))
    first = FROM_NUMBERS[kind](*drawn, whole)
    shown = data.draw(st.sampled_from([whole, np.int64(whole), np.uint8(whole)]))
    again = FROM_NUMBERS[kind](*(data.draw(_forms(value)) for value in drawn), shown)
    text = json.dumps(events_to_plain(first))
    assert (again, repr(again), hash(again)) == (first, repr(first), hash(first))
    assert json.dumps(events_to_plain(again)) == text
    assert events_from_plain(json.loads(text)) == compose(again)
    slack = data.draw(_forms(drawn[2]))
    total = PrivacyCost.from_entry(Entry("a", "rows", again, slack))
    assert PrivacyCost.from_plain(json.loads(json.dumps(total.as_plain()))) == total
    assert total == PrivacyCost.from_entry(Entry("a", "rows", first, drawn[2]))


def test_events_of_every_kind_have_numbers_in_every_form() -> None:
    assert set(FROM_NUMBERS) == set(get_args(Event))


@pytest.mark.parametrize(
    "value", ["2", True, np.True_, None, Decimal("nan"), Decimal("sNaN"), -(2**999), 1j], ids=str
)
def test_an_event_rejects_what_is_no_number(value: Any) -> None:
    for make in (Gaussian, PureDP, ApproximateDP, lambda one: LocalReport("label", one)):
        with pytest.raises(ConfigError):
            make(value)


_KEYS = st.sampled_from(["kind", "partition", "events", "mu", "steps", "mu_squared"])


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner | st.just("by_group"), max_size=4)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_survives_json(event: Event) -> None:
    assert events_from_plain(json.loads(json.dumps(events_to_plain(event)))) == compose(event)


def test_a_guarantee_is_recomputed_and_stored_numbers_are_ignored() -> None:
    guarantee = Guarantee.from_event(
        UndirectedEdge(), compose(Gaussian(2.0)), delta=1e-7, releases=1, deviations=("a flaw",)
    )
    record = guarantee_to_plain(guarantee) | {"epsilon": 0.001, "valid": True}
    back = guarantee_from_plain(json.loads(json.dumps(record)))
    assert back == guarantee
    assert back.epsilon > 10
    assert not back.valid


def test_everything_that_a_guarantee_is_accounted_from_survives_json() -> None:
    guarantee = Guarantee.from_event(
        UndirectedEdge(),
        compose(Gaussian(0.2), Gaussian(0.3)),
        delta=1e-7,
        releases=2,
        slack=1e-9,
        deviations=("a flaw",),
        notes=("a note",),
        linear_group_scaling=False,
    )
    back = guarantee_from_plain(json.loads(json.dumps(guarantee_to_plain(guarantee))))
    assert (back, back.formal_statement()) == (guarantee, guarantee.formal_statement())


@pytest.mark.parametrize(
    "records",
    [
        "gaussian",
        [{"kind": "laplace", "scale": 1.0}],
        [{"kind": "gaussian"}],
        [{"kind": "gaussian", "mu": 1.0, "more": 1}],
        [{"kind": "gaussian", "mu": "1.0"}],
        [{"kind": "gaussian", "mu": -1.0}],
        [{"kind": "pure_dp", "epsilon": -0.1}],
        ["gaussian"],
        [{"kind": "pairwise_gaussian", "partition": "p", "mu_squared": [[1, 2], [3, 4]]}],
        [{"kind": "by_group", "partition": "p"}],
        [{"kind": "by_group", "partition": "p", "events": [GROUP], "more": 1}],
        [{"kind": "by_group", "partition": 1, "events": [GROUP]}],
        [{"kind": "by_group", "partition": "p", "events": []}],
        [{"kind": "by_group", "partition": "p", "events": [GROUP] * 101}],
        [{"kind": "by_group", "partition": "p", "events": GROUP}],
        [{"kind": "by_group", "partition": "p", "events": ["gaussian"]}],
        [{"kind": "by_group", "partition": "p", "events": [GROUP * 201]}],
        [{"kind": "by_group", "events": [GROUP]}],
        [{"kind": "by_group", "partition": "p", "events": [[TABLE]]}],
        [{"kind": ["by_group"], "partition": "p", "events": [GROUP]}],
        [{"kind": {}, "mu": 1.0}],
        [{"kind": None}],
        GROUP * 201,
        [{"kind": "gaussian", "mu": 1e400}],
        [{"kind": "poisson_gaussian", "noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 2.0**70}],
        [None],
        {},
        [
            {
                "kind": "by_group",
                "partition": "p",
                "events": [[{"kind": "by_group", "partition": "p", "events": [GROUP]}]],
            }
        ],
    ],
)
def test_rejects_damaged_events(records: Any) -> None:
    with pytest.raises(ArtifactError):
        events_from_plain(records)


def test_rejects_deeply_nested_groups() -> None:
    record: dict[str, Any] = {"kind": "by_group", "partition": "p", "events": [GROUP]}
    for _ in range(5000):
        record = {"kind": "by_group", "partition": "p", "events": [[record]]}
    with pytest.raises(ArtifactError):
        events_from_plain([record])


@pytest.mark.parametrize(
    "training",
    [
        {"noise_multiplier": 1e-300, "sampling_rate": 0.5, "steps": 1},
        {"noise_multiplier": 1e-300, "sampling_rate": 1.0, "steps": 1},
        {"noise_multiplier": 1.0, "sampling_rate": 0.9, "steps": 2**62},
        {"noise_multiplier": 1e300, "sampling_rate": 1e-300, "steps": 1},
    ],
)
def test_extreme_training_takes_no_time_to_account_for(training: dict[str, Any]) -> None:
    part = {"kind": "poisson_gaussian", "relation": "replace", **training}
    group = {"kind": "by_group", "partition": "p", "events": [[part], []]}
    record = guarantee_to_plain(Guarantee.from_event(UndirectedEdge(), compose(), delta=1e-7, releases=1))
    assert guarantee_from_plain(record | {"events": [group]}).epsilon in (0.0, math.inf)


ABSURD = (10**400, -(10**400), 10**5000, 10**20, 1e308, math.nan, True, "1", None, [], {}, [10**400])
RECORDS = {
    "edges": (
        UndirectedEdge(),
        (Gaussian(0.2), PairwiseGaussian("a", ((0.1, 0.2), (0.2, 0.3))), PoissonGaussian(2.0, 0.01, 10)),
    ),
    "cases": (UndirectedEdge(), (OneOf((Gaussian(0.2), PoissonGaussian(2.0, 0.01, 10))),)),
    "owner": (NodeRecord(), (ByGroup("t", (Gaussian(0.2), Composed(()))),)),
    "local": (LocalAttributes(), (LocalReport("features", 1.0),)),
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from _places(value[key], (*path, key))


@pytest.mark.parametrize("name", RECORDS)
def test_an_absurd_value_anywhere_is_rejected_or_accounted_for(name: str) -> None:
    unit, events = RECORDS[name]
    first = Guarantee.from_event(unit, compose(*events), delta=1e-6, releases=1, edge_mu=0.1)
    plain = guarantee_to_plain(first)
    assert guarantee_from_plain(json.loads(json.dumps(plain))) == first
    for *path, last in _places(plain):
        for value in ABSURD:
            record = copy.deepcopy(plain)
            holder = reduce(getitem, path, record)
            holder[last] = value
            with suppress(ArtifactError, PrivacyError):
                guarantee_from_plain(record)


def test_a_huge_mu_has_no_privacy() -> None:
    record = guarantee_to_plain(Guarantee.from_event(UndirectedEdge(), compose(), delta=1e-7, releases=1))
    huge = guarantee_from_plain(record | {"events": [{"kind": "gaussian", "mu": 1e308}]})
    assert huge.epsilon == math.inf
    assert "(inf, 1e-07)" in huge.formal_statement()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=12), _nested, max_leaves=12))
def test_rejects_any_other_json(anything: Any) -> None:
    with pytest.raises(ArtifactError):
        events_from_plain([anything])
