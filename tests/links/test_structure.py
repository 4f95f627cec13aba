"""Clusters and latent positions of nodes from noisy counts."""

import numpy as np
import torch

from graphveil.links.pair_model import clusters, positions


def test_positions_separate_groups_that_counts_show() -> None:
    rng, group = np.random.default_rng(0), np.arange(300) % 3
    counts = rng.poisson(np.where(group[:, None] == np.arange(3), 20.0, 4.0)) + rng.normal(size=(300, 3))
    known = torch.from_numpy(rng.normal(size=(300, 2)).astype(np.float32))  # unrelated
    found = positions(counts, np.full(300, 28.0), 1.0, (known,))[1].numpy()
    assert (np.linalg.norm(found, axis=1) <= 1).all()
    cosines, same = found @ found.T, group[:, None] == group
    assert cosines[same].mean() > cosines[~same].mean() + 0.5


def test_counts_of_noise_give_short_directions() -> None:
    rng = np.random.default_rng(1)
    counts = rng.normal(size=(500, 4)) * 9
    _, directions = positions(counts, np.full(500, 2.0), 9.0, (torch.zeros(500, 1),))
    assert float(directions.norm(dim=1).mean()) < 0.6


def test_clusters_are_found_again_and_fit_few_points() -> None:
    points = torch.from_numpy(np.repeat(np.eye(4, dtype=np.float32) * 9, 10, axis=0))
    found = [clusters(points, 6, np.random.default_rng(2)) for _ in range(2)]
    assert np.array_equal(found[0], found[1])
    assert all(len(set(found[0][first : first + 10])) == 1 for first in range(0, 40, 10))
    assert clusters(points[:2], 8, np.random.default_rng(0)).max() < 2
