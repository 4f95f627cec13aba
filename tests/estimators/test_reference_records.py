"""Methods on protected records against the papers' public code: K = 2, D = 100, batches of 256, 10 epochs.

Noise is seeded, so that the outcomes repeat. The reference's figures are means of three runs, delta 1e-5.
"""

from pathlib import Path
from typing import Any

import pytest

from graphveil.data import RECIPES, load_dataset
from graphveil.estimators import METHODS

SPLITS = 9  # a run errs by 1 to 1.5, so the reference's mean of three by up to 0.8


def accuracies(data_root: Path, school: str, method: str, splits: int, **parameters: Any) -> list[float]:
    """Return test accuracies in percent, one a split."""
    raw = load_dataset(f"facebook100/{school}", data_root, recipe=None)
    prepared = RECIPES["gap"].prepare(raw, paper=True)
    common = {"unit": "node-record", "delta": 1e-5, **parameters}
    found = []
    for seed in range(splits):
        graph = RECIPES["gap"].split(prepared, seed)
        model = METHODS[f"{method}-paper"](seed=seed, unsafe_noise_seed=seed, **common).fit(graph)
        assert not model.guarantee.valid
        found.append(100 * model.score(graph))
    return found


@pytest.mark.slow
class TestReference:
    @pytest.mark.parametrize(("epsilon", "reference"), [(1.0, 40.4), (4.0, 51.1), (8.0, 58.1), (16.0, 62.9)])
    def test_gap(self, data_root, epsilon, reference):
        found = accuracies(data_root, "Berkeley13", "gap", SPLITS, epsilon=epsilon, out_degree_bound=100)
        assert sum(found) / SPLITS == pytest.approx(reference, abs=1.5)

    def test_mlp(self, data_root):
        found = accuracies(data_root, "Berkeley13", "mlp", SPLITS, epsilon=8.0)
        assert sum(found) / SPLITS == pytest.approx(49.5, abs=1.5)

    def test_sage(self, data_root):
        """The reference has 34 on a school of this size that is not among ours: the mean over three."""
        found = [
            score
            for school in ("Berkeley13", "Rutgers89", "Wisconsin87")
            for score in accuracies(data_root, school, "sage", 3, epsilon=8.0, out_degree_bound=100)
        ]
        assert sum(found) / len(found) == pytest.approx(34, abs=1.5)

    def test_sage_learns_nothing_where_losses_are_clipped(self, data_root):
        """The theory's clipping, with the same noise: hardly above the share of the largest class."""
        options = {"epsilon": 8.0, "out_degree_bound": 100, "clip_per": "root"}
        (found,) = accuracies(data_root, "Berkeley13", "sage", 1, **options)
        assert found < 28
