"""Errors of predicted numbers: views of Twitch streamers, next to the no-graph baseline.

    python benchmarks/regression.py                    writes benchmarks/regression.csv
    python benchmarks/regression.py --summarize        prints the table of the documentation

The target is log10(1 + views) of a streamer, whose public range is 0 to 9. The split of recipe `gap` differs
between seeds. Every fit uses default settings.
"""

import argparse
import csv
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from scipy.special import stdtrit

import graphveil as gv
from graphveil.data import RECIPES

RESULTS = Path(__file__).with_name("regression.csv")
RANGE, SEEDS, EPSILONS = (0.0, 9.0), (0, 1, 2), (1.0, 4.0, 8.0)
DATA = Path(os.environ.get("GRAPHVEIL_DATA", "~/.graphveil/data")).expanduser()
HEAD = ("dataset", "method", "unit", "epsilon", "seed", "r2", "mae", "rmse")


def twitch(country: str) -> gv.Graph:
    """Return a Twitch graph whose target is log10(1 + views)."""
    graph = gv.load_dataset(f"twitch/{country}")
    with (DATA / "twitch" / country / f"{country}_target.csv").open(encoding="utf-8") as file:
        views = {int(row["new_id"]): float(row["views"]) for row in csv.DictReader(file)}
    numbers = np.array([views[node] for node in range(graph.num_nodes)])
    return graph.replace(targets=torch.from_numpy(np.log10(1 + numbers)))


def models(seed: int) -> list[gv.Estimator]:
    """Return the models of one seed."""
    common = {"task": "regression", "seed": seed}
    records = {**common, "unit": "node-record", "target_range": RANGE}
    return [
        gv.MLP(unit="none", **common),
        gv.GAP(unit="none", **common),
        *(gv.GAP(unit="undirected-edge", epsilon=epsilon, **common) for epsilon in EPSILONS),
        *(gv.MLP(epsilon=epsilon, **records) for epsilon in EPSILONS),
        *(gv.GAP(epsilon=epsilon, out_degree_bound=10, **records) for epsilon in EPSILONS),
    ]


def measure() -> None:
    """Fit all models, and write their errors on test nodes."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for country in ("DE", "ES"):
            graph = twitch(country)
            for seed in SEEDS:
                split = RECIPES["gap"].split(graph, seed=seed)
                for model in models(seed):
                    found = model.fit(split).evaluate(split).metrics
                    errors = [f"{found[name]:.4f}" for name in ("r2", "mae", "rmse")]
                    row = [f"twitch/{country}", model.method, model.unit, model.epsilon or "", seed, *errors]
                    writer.writerow(row)
                    file.flush()


def summarize() -> None:
    """Print means over seeds with 95 % intervals of Student's distribution."""
    groups = defaultdict(list)
    with RESULTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["dataset"], row["unit"], row["method"], row["epsilon"]
            groups[key].append([float(row[name]) for name in ("r2", "mae", "rmse")])
    for key, values in groups.items():
        found = np.array(values)
        half = stdtrit(len(found) - 1, 0.975) * found.std(axis=0, ddof=1) / np.sqrt(len(found))
        cells = [f"{mean:.3f} ± {wide:.3f}" for mean, wide in zip(found.mean(axis=0), half, strict=True)]
        print("| " + " | ".join([*key, *cells]) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summarize", action="store_true")
    summarize() if parser.parse_args().summarize else measure()
