import json
from typing import Any

import pytest

from graphveil.errors import ArtifactError
from graphveil.privacy import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    Guarantee,
    PairwiseGaussian,
    PoissonGaussian,
    UndirectedEdge,
    compose,
)
from graphveil.privacy.events import NonPrivate
from graphveil.privacy.plain import (
    events_from_plain,
    events_to_plain,
    guarantee_from_plain,
    guarantee_to_plain,
)

EVENTS: list[Event] = [
    Gaussian(0.3),
    PairwiseGaussian("labels", ((0.1, 0.2), (0.2, 0.3))),
    PoissonGaussian(1.1, 0.01, 500, "replace"),
    NonPrivate(),
    ByGroup("train/val", (compose(PoissonGaussian(1.1, 0.01, 500), Gaussian(0.3)), Composed(()))),
]
GROUP = [{"kind": "gaussian", "mu": 1.0}]


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_survives_json(event: Event) -> None:
    assert events_from_plain(json.loads(json.dumps(events_to_plain(event)))) == compose(event)


def test_a_guarantee_is_accounted_anew_and_never_believed() -> None:
    guarantee = Guarantee.of(
        UndirectedEdge(), compose(Gaussian(2.0)), delta=1e-7, releases=1, deviations=("a flaw",)
    )
    record = guarantee_to_plain(guarantee) | {"epsilon": 0.001, "valid": True}
    back = guarantee_from_plain(json.loads(json.dumps(record)))
    assert back == guarantee
    assert back.epsilon > 10
    assert not back.valid


def test_everything_that_a_guarantee_is_accounted_from_survives_json() -> None:
    guarantee = Guarantee.of(
        UndirectedEdge(),
        compose(Gaussian(0.2), Gaussian(0.3)),
        delta=1e-7,
        releases=2,
        slack=1e-9,
        mode="paper",
        deviations=("a flaw",),
        notes=("a note",),
        one_way=False,
    )
    back = guarantee_from_plain(json.loads(json.dumps(guarantee_to_plain(guarantee))))
    assert (back, back.statement()) == (guarantee, guarantee.statement())


@pytest.mark.parametrize(
    "records",
    [
        "gaussian",
        [{"kind": "laplace", "scale": 1.0}],
        [{"kind": "gaussian"}],
        [{"kind": "gaussian", "mu": 1.0, "more": 1}],
        [{"kind": "gaussian", "mu": "1.0"}],
        [{"kind": "gaussian", "mu": -1.0}],
        ["gaussian"],
        [{"kind": "pairwise_gaussian", "partition": "p", "mu_squared": [[1, 2], [3, 4]]}],
        [{"kind": "by_group", "partition": "p"}],
        [{"kind": "by_group", "partition": "p", "events": [GROUP], "more": 1}],
        [{"kind": "by_group", "partition": 1, "events": [GROUP]}],
        [{"kind": "by_group", "partition": "p", "events": []}],
        [{"kind": "by_group", "partition": "p", "events": [GROUP] * 101}],
        [{"kind": "by_group", "partition": "p", "events": GROUP}],
        [
            {
                "kind": "by_group",
                "partition": "p",
                "events": [[{"kind": "by_group", "partition": "p", "events": [GROUP]}]],
            }
        ],
    ],
)
def test_a_damaged_record_is_a_typed_error(records: Any) -> None:
    with pytest.raises(ArtifactError):
        events_from_plain(records)
