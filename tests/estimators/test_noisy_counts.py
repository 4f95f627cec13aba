"""Released accuracies and the selection of checkpoints follow from noisy counts alone."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphveil.core.queries.record_counts import AccuracyCountData, OutcomeCountData
from graphveil.core.release import Release
from graphveil.estimators import METHODS, private_training
from graphveil.estimators.base import Estimator
from graphveil.estimators.public_sizes import members
from tests.estimators.conftest import grouped

Patch = pytest.MonkeyPatch

CASES: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 4, "epochs": 10},
    "gap": {"hidden": 4, "epochs": 10, "out_degree_bound": 3},
    "classcode": {"out_degree_bound": 3},
}
CHOOSING = ("mlp", "gap")
NODES = 60


def fitted(method: str, counts: Iterable[list[float]], patch: Patch, **options: Any) -> Estimator:
    """Fit with these noisy counts in place of the release's own, in the order of the plan."""
    answer_of, own = Release.answer, iter(counts)

    def instead(release: Release, data: Any) -> Any:
        answer = answer_of(release, data)
        counted = isinstance(data, AccuracyCountData | OutcomeCountData)
        return torch.tensor(next(own)).double() if counted else answer

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


@pytest.mark.parametrize("method", CHOOSING)
def test_the_candidate_with_the_largest_noisy_count_is_kept(method: str) -> None:
    """The kept parameters have the largest noisy count, not the best accuracy."""
    for best in (0, 6):
        passed = list[list[dict[str, Tensor]]]()
        counts = [float(place == best) for place in range(10)]
        with pytest.MonkeyPatch.context() as patch:
            _noting(passed, patch)
            trained: Any = fitted(method, [counts], patch, selection="private").fitted.trained
        network = trained.network if method == "mlp" else trained.classifier
        kept = network.state_dict()
        assert len(passed[-1]) == 10
        same = [all(torch.equal(kept[name], state[name]) for name in kept) for state in passed[-1]]
        assert same[best], "another candidate was kept than that of the largest count"
        assert sum(same) == 1


def _noting(passed: list[list[dict[str, Tensor]]], patch: Patch) -> None:
    """Note the weights that each training passed."""
    shipped = private_training.fit_dpsgd

    def noted(*args: Any, **more: Any) -> list[dict[str, Tensor]]:
        passed.append(shipped(*args, **more))
        return passed[-1]

    patch.setattr(private_training, "fit_dpsgd", noted)
