import json
from typing import Any

import pytest

from graphveil.errors import ArtifactError
from graphveil.privacy import (
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
]


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
    ],
)
def test_a_damaged_record_is_a_typed_error(records: Any) -> None:
    with pytest.raises(ArtifactError):
        events_from_plain(records)
