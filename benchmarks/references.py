"""Tune GCN, SAGE and GAT without privacy over a small public grid, as references.

    python benchmarks/references.py --out benchmarks/references.csv [--datasets cora]
    python benchmarks/references.py --out benchmarks/references.csv --summarize

The grid has the default settings, a wider network, and networks with residual connections and layer norm. On
dense features residual networks also have standardized columns. The setting with the best metric on
validation nodes of the first split is then fitted on three splits. The metric is ROC-AUC on imbalanced binary
graphs and accuracy elsewhere. Rows that the file already has are not measured again. GAT is tuned on graphs
with few edges.
"""

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphveil as gv
from graphveil.estimators import METHODS

SEEDS = 3
BINARY = ("heterophilous/tolokers", "heterophilous/minesweeper", "twitch/DE", "twitch/ES")
FEW_EDGES = ("facebook100/Reed98", "cora", "citeseer")
DATASETS = (*BINARY, *FEW_EDGES)
FIELDS = ("dataset", "method", "setting", "seed", "validation", "accuracy", "roc_auc", "seconds")
_WIDE: dict[str, Any] = {"hidden": 64, "activation": "relu", "epochs": 200}
_RESIDUAL: dict[str, Any] = {**_WIDE, "residual": True, "learning_rate": 0.003, "dropout": 0.2}
GRID: dict[str, dict[str, Any]] = {
    "default": {},
    "wide": {**_WIDE, "dropout": 0.5},
    "residual, 3 layers": {**_RESIDUAL, "layers": 3},
    "residual, 5 layers": {**_RESIDUAL, "layers": 5},
}


def split(dataset: str, seed: int, *, standardized: bool) -> gv.Graph:
    """Return a split of a dataset, with standardized columns if they are dense. Features are public."""
    graph = gv.load_dataset(dataset, seed=seed)
    if not standardized or not isinstance(graph.x, torch.Tensor):
        return graph
    seen = graph.x[graph.labeled_in("train")]
    return graph.replace(x=(graph.x - seen.mean(dim=0)) / seen.std(dim=0).clamp(min=1e-6))


def measure(out: Path, datasets: list[str]) -> None:
    """Append the missing rows."""
    torch.set_num_threads(1)
    if not out.exists():
        out.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    done = {tuple(list(row.values())[:4]): float(row["validation"]) for row in read(out)}
    for dataset in datasets:
        for method in ("gcn", "sage", "gat") if dataset in FEW_EDGES else ("gcn", "sage"):
            cells = [(dataset, method, setting, "0") for setting in GRID]
            for cell in cells:
                if cell not in done:
                    done[cell] = _fit(out, *cell)
            best = max(cells, key=lambda cell: done[cell])[2]
            for seed in range(1, SEEDS):
                for setting in dict.fromkeys(("default", best)):
                    if (dataset, method, setting, str(seed)) not in done:
                        _fit(out, dataset, method, setting, str(seed))


def _fit(out: Path, dataset: str, method: str, setting: str, seed: str) -> float:
    """Fit one model, append its row, and return the metric on validation nodes."""
    graph = split(dataset, int(seed), standardized="residual" in setting)
    metric = "roc_auc" if dataset in BINARY else "accuracy"
    selected = {"metric": metric} if setting != "default" else {}
    started = time.process_time()
    model = METHODS[method](unit="none", seed=int(seed), **selected, **GRID[setting]).fit(graph)
    seconds = time.process_time() - started
    validation, test = model.evaluate(graph, "val")[metric], model.evaluate(graph)
    values = (validation, test["accuracy"], test["roc_auc"])
    with out.open("a", newline="", encoding="utf-8") as file:
        row = (dataset, method, setting, seed, *(f"{value:.4f}" for value in values), f"{seconds:.1f}")
        csv.writer(file, lineterminator="\n").writerow(row)
    return float(validation)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summarize(out: Path) -> Iterator[str]:
    """Yield a Markdown table: default and chosen setting, means and 95 % Student intervals."""
    runs: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in read(out):
        runs[row["dataset"], row["method"]][row["setting"]].append(row)
    yield "| dataset | method | default | tuned | setting |\n|---|---|---|---|---|"
    for (dataset, method), settings in runs.items():
        if not settings.keys() >= GRID.keys():
            continue  # the grid is not complete
        best = max(settings, key=lambda setting: float(settings[setting][0]["validation"]))
        metric = "roc_auc" if dataset in BINARY else "accuracy"
        cells = [_interval([float(row[metric]) for row in settings[name]]) for name in ("default", best)]
        yield f"| {dataset} | {method} | {' | '.join(cells)} | {best} |"


def _interval(values: list[float]) -> str:
    if len(values) < SEEDS:
        return f"{np.mean(values):.3f} ({len(values)} runs)"
    return f"{np.mean(values):.3f} ± {4.303 * np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="CSV file; is continued")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), help="names of datasets")
    parser.add_argument("--summarize", action="store_true", help="print the table and measure nothing")
    options = parser.parse_args()
    if not options.summarize:
        measure(options.out, options.datasets)
    print("\n".join(summarize(options.out)))


if __name__ == "__main__":
    main()
