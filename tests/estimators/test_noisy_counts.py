"""Released accuracies follow from noisy counts alone."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from graphveil.core.queries.record_counts import OutcomeCountData
from graphveil.core.release import Release
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.public_sizes import members
from tests.estimators.conftest import grouped

Patch = pytest.MonkeyPatch

CASES: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 4, "epochs": 10},
    "gap": {"hidden": 4, "epochs": 10, "out_degree_bound": 3},
    "classcode": {"out_degree_bound": 3},
}
NODES = 60


def fitted(method: str, counts: Iterable[list[float]], patch: Patch, **options: Any) -> Estimator:
    """Fit with these noisy counts in place of the release's own, in the order of the plan."""
    answer_of, own = Release.answer, iter(counts)

    def instead(release: Release, data: Any) -> Any:
        answer = answer_of(release, data)
        return torch.tensor(next(own)).double() if isinstance(data, OutcomeCountData) else answer

    with patch.context() as here:
        here.setattr(Release, "answer", instead)
        settings = {
            **CASES[method],
            "unit": "node-record",
            "epsilon": 4.0,
            "delta": 1e-5,
            "seed": 1,
            **options,
        }
        model = METHODS[method](**settings).fit(grouped(nodes=NODES))
    assert next(own, None) is None, "it queried fewer counts than expected"
    return model


@pytest.mark.parametrize("method", CASES)
def test_released_accuracies_follow_from_noisy_counts(method: str) -> None:
    """Accuracies are shares of the noisy counts, for any labels."""
    most = len(members(grouped(nodes=NODES), "test"))
    for val, test in (([2.25, 6.75], [5.5, 0.5]), ([-3.0, 8.0], [1e6, 1e6]), ([1.5, -9.0], [3.0, 1.0])):
        with pytest.MonkeyPatch.context() as patch:
            model = fitted(method, [val, test], patch, private_metrics=True)
        released = [model.private_accuracy_[split] for split in ("val", "test")]
        wanted = [max(0.0, correct) / max(1.0, min(correct + wrong, most)) for correct, wrong in (val, test)]
        assert released == pytest.approx([min(1.0, one) for one in wanted]), "not the share of the counts"
