"""Claims on Cora: what the paper reaches, and what a product of network and neighbors adds at its budget."""

from pathlib import Path

import numpy as np
import pytest

import graphveil as gv
from graphveil.data import RECIPES, load_dataset

RECIPE = RECIPES["lpgnn"].on_clients()


def accuracies(root: Path, seeds: range, **parameters: object) -> list[float]:
    """Return test accuracies, with splits, weights and noise by seed."""
    graph = RECIPE.prepare(load_dataset("cora", root=root, recipe=None))
    found = []
    for seed in seeds:
        split = RECIPE.split(graph, seed=seed)
        model = gv.LPGNN(unit="local-attributes", seed=seed, unsafe_noise_seed=seed, eps_x=1.0, **parameters)
        found.append(model.fit(split).score(split))
    return found


def test_a_quarter_of_the_training_is_well_above_chance(data_root: Path) -> None:
    quick = {"learning_rate": 0.03, "dropout": 0.5, "epochs": 60, "x_steps": 16, "y_steps": 0}
    assert min(accuracies(data_root, range(1), eps_y=float("inf"), **quick)) > 0.6


@pytest.mark.slow
def test_the_papers_cells_and_ours(data_root: Path) -> None:
    common = {"weight_decay": 0.001, "dropout": 0.5, "eps_y": 1.0}
    paper = accuracies(data_root, range(5), x_steps=2, y_steps=8, m="floor", **common)
    ours = accuracies(
        data_root, range(5), x_steps=16, y_steps=8, posterior_steps=16, select="likelihood", **common
    )
    assert np.mean(paper) > 0.66
    assert np.mean(ours) > np.mean(paper) + 0.01
