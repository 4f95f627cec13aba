"""Measure rankings on imbalanced binary graphs: ROC-AUC and average precision of test nodes.

    python benchmarks/binary.py --out benchmarks/binary.csv [--datasets twitch/DE]
    python benchmarks/binary.py --out benchmarks/binary.csv --summarize

Every method has its default settings. Rows that the file already has are not measured again. The summary
prints means over seeds and 95 % Student intervals.
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import graphveil as gv
from graphveil.data.recipes import RECIPES

UNIT, DELTA, SEEDS, EPSILONS = "undirected-edge", 1e-7, 3, (0.1, 0.5, 1.0, 4.0)
DATASETS = ("heterophilous/tolokers", "heterophilous/minesweeper", "twitch/DE", "twitch/ES")
PRIVATE: dict[str, Callable[..., gv.Estimator]] = {"ClassCode": gv.ClassCode, "GAP": gv.GAP}
REFERENCES: dict[str, Callable[..., gv.Estimator]] = {"GCN, no privacy": gv.GCN, "SAGE, no privacy": gv.SAGE}
FIELDS = ("dataset", "method", "epsilon", "seed", "accuracy", "roc_auc", "average_precision")


def models(seed: int) -> Iterator[tuple[str, str, gv.Estimator]]:
    """Yield the name, epsilon and unfitted model of each line."""
    yield "no-graph baseline", "", gv.MLP(unit=UNIT, seed=seed)
    for name, build in PRIVATE.items():
        for epsilon in EPSILONS:
            yield name, f"{epsilon:g}", build(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed)
    for name, build in REFERENCES.items():
        yield name, "", build(unit="none", seed=seed)


def measure(out: Path, datasets: list[str]) -> None:
    """Append the rows that are missing."""
    new = not out.exists()
    done = set() if new else {tuple(row[:4]) for row in csv.reader(out.open())}
    with out.open("a", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        if new:
            rows.writerow(FIELDS)
        for dataset in datasets:
            for seed in range(SEEDS):
                graph = RECIPES["gap"].split(gv.load_dataset(dataset), seed=seed)
                for name, epsilon, model in models(seed):
                    if (dataset, name, epsilon, str(seed)) in done:
                        continue
                    found = model.fit(graph).evaluate(graph)
                    values = [f"{found[metric]:.4f}" for metric in FIELDS[4:]]
                    rows.writerow([dataset, name, epsilon, seed, *values])
                    file.flush()


def summarize(out: Path) -> None:
    """Print a Markdown table of means and intervals."""
    found: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
    for row in csv.DictReader(out.open()):
        values = [float(row[metric]) for metric in FIELDS[4:]]
        found[row["dataset"], row["method"], row["epsilon"]].append(values)
    print("| data set | method | ε | accuracy, % | ROC-AUC | average precision |\n|---|---|---|---|---|---|")
    for (dataset, name, epsilon), runs in found.items():
        mean, half = np.mean(runs, axis=0), 4.303 * np.std(runs, axis=0, ddof=1) / math.sqrt(len(runs))
        cells = [f"{100 * mean[0]:.1f} ± {100 * half[0]:.1f}"]
        cells += [f"{m:.3f} ± {h:.3f}" for m, h in zip(mean[1:], half[1:], strict=True)]
        print(f"| {dataset} | {name} | {epsilon or '–'} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--summarize", action="store_true")
    given = parser.parse_args()
    if not given.summarize:
        measure(given.out, given.datasets)
    summarize(given.out)


if __name__ == "__main__":
    main()
