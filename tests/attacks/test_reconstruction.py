"""Reconstruction: exact without noise, and no better than its controls at a small budget."""

import math
from typing import Any

import numpy as np
import pytest

from graphveil.attacks import attack_records, quality
from graphveil.attacks.reconstruction import (
    ADAPTIVE,
    MEAN,
    NAIVE,
    SHUFFLED,
    ridge,
    similarity,
)
from graphveil.errors import ConfigError
from graphveil.mechanisms import FeatureRR, MultiBit
from graphveil.papers.as_published.image_networks import (
    image_encoder,
    in_unit_range,
    random_map,
    up_convolution,
)

RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(700, 3))
TABLE = 1 / (1 + np.exp(-(HIDDEN @ RNG.normal(size=(3, 12)))))  # twelve attributes of three causes
PUBLIC, SECRET = TABLE[:500], TABLE[500:]
EMBED = in_unit_range(random_map(12, 24), PUBLIC)


@pytest.mark.parametrize("law", [MultiBit, FeatureRR])
def test_tables_are_reconstructed_without_noise_and_not_at_a_small_budget(law: type) -> None:
    by = {
        epsilon: attack_records(PUBLIC, SECRET, law(epsilon=epsilon, dim=24), embed=EMBED).qualities
        for epsilon in (math.inf, 0.1)
    }
    for name in (NAIVE, ADAPTIVE):
        assert by[math.inf][name]["r2"] > 0.97
        assert by[math.inf][name]["identified"] > 0.9
        assert by[0.1][name]["identified"] < 0.03
    assert -0.02 < by[0.1][ADAPTIVE]["r2"] < 0.05
    assert by[0.1][NAIVE]["r2"] < -1  # it takes noise for data
    for control in (MEAN, SHUFFLED):
        assert by[math.inf][control]["r2"] < 0.01


def test_more_budget_is_never_worse_for_the_adaptive_attacker() -> None:
    errors = [
        attack_records(PUBLIC, SECRET, MultiBit(epsilon=epsilon, dim=24, m="all"), embed=EMBED).qualities[
            ADAPTIVE
        ]["mse"]
        for epsilon in (1.0, 30.0, 300.0, math.inf)
    ]
    assert errors == sorted(errors, reverse=True)


def test_inverse_is_fitted_to_public_records_only() -> None:
    fitted_to = []

    def learn(embeddings: np.ndarray, records: np.ndarray) -> Any:
        fitted_to.append(records)
        return lambda rows: rows

    x = TABLE[:120, :6]
    report = attack_records(x[:80], x[80:], MultiBit(epsilon=2.0, dim=6), learn=learn, copies=2)
    assert [len(records) for records in fitted_to] == [80, 160]
    assert all(np.array_equal(records[:80], x[:80]) for records in fitted_to)
    assert np.array_equal(report.drawn[NAIVE], report.drawn[ADAPTIVE])  # of the same LDP reports
    assert np.allclose(report.drawn[MEAN], x[:80].mean(axis=0))


def test_ridge_is_the_linear_inverse() -> None:
    turned = RNG.normal(size=(4, 4))
    x = RNG.normal(size=(200, 4))
    assert np.allclose(ridge(x @ turned, x)(x[:5] @ turned), x[:5], atol=1e-3)


def test_quality_by_hand() -> None:
    true = np.array([[0.0, 0.0], [1.0, 1.0]])
    found = quality(np.array([[0.0, 0.1], [0.0, 0.0]]), true)
    assert found["mse"] == pytest.approx(2.01 / 4)
    assert found["psnr"] == pytest.approx(-10 * math.log10(2.01 / 4))
    assert found["r2"] == pytest.approx(1 - 2.01)
    assert found["identified"] == 0.5 and found["ssim"] is None
    assert quality(np.full((2, 2), 0.5), true)["identified"] == 0.5  # both are as near: ties share
    with pytest.raises(ConfigError, match="the true records have the shape"):
        quality(true[:1], true)


def test_similarity_is_one_for_the_image_itself_and_falls_with_noise() -> None:
    image = np.add.outer(np.linspace(0, 0.5, 16), np.linspace(0, 0.5, 16))
    noisy = [np.clip(image + scale * RNG.normal(size=(16, 16)), 0, 1) for scale in (0.02, 0.1, 0.5)]
    found = [similarity(image, other) for other in (image, *noisy)]
    assert found[0] == 1.0 and found == sorted(found, reverse=True)


@pytest.mark.slow
def test_images_are_reconstructed_by_convolutions() -> None:
    """Blobs at random places: the inverse finds where they are, without noise, and the mean image with it."""
    places, grid = np.random.default_rng(2).uniform(1, 6, size=(300, 2)), np.arange(8)
    rows, columns = (np.exp(-((grid - places[:, [axis]]) ** 2) / 2) for axis in (0, 1))
    images = (rows[:, :, None] * columns[:, None, :]).reshape(300, 64)
    public, secret = images[:240], images[240:]
    embed = in_unit_range(image_encoder(public, 8, 8, epochs=30), public)
    learn = up_convolution(8, epochs=30)
    options = {"embed": embed, "learn": learn, "side": 8, "copies": 2}
    laws = [MultiBit(epsilon=epsilon, dim=8) for epsilon in (math.inf, 0.1)]
    exact, noisy = (attack_records(public, secret, law, **options) for law in laws)
    assert exact.qualities[NAIVE]["r2"] > 0.4 > 0.05 > noisy.qualities[ADAPTIVE]["r2"] > -0.5
    assert exact.qualities[NAIVE]["identified"] > 0.15 > 0.1 > noisy.qualities[ADAPTIVE]["identified"]
    assert exact.qualities[NAIVE]["ssim"] > exact.qualities[MEAN]["ssim"] + 0.2
