"""Measure the effect of feature scaling on test accuracy, with and without an unscaled column.

    python benchmarks/scaling.py run before.csv        (with PYTHONPATH set to the older code)
    python benchmarks/scaling.py run after.csv
    python benchmarks/scaling.py compare before.csv after.csv

Cells that are in the CSV file are not measured again. ``compare`` prints the mean test accuracy of three
seeds and the half-width of its 95 % interval (Student's t), before and after. It exits with 1 if a mean
without the extra column fell by more than the larger half-width.
"""

import argparse
import csv
import math
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

import graphveil as gv
from graphveil.data import Graph

SEEDS = (0, 1, 2)
STUDENT = 4.303  # 97.5 % quantile of Student's t with 2 degrees of freedom
HEAD = ("data", "unit", "method", "column", "seed", "accuracy", "seconds")
EDGE = "undirected-edge"
DATA = ("cora", "amazon/photo", "twitch/DE", "facebook100/Berkeley13")
EXTRA = ("none", "money")
METHODS = {
    (EDGE, "mlp"): lambda seed: gv.MLP(unit=EDGE, epsilon=1.0, seed=seed),
    (EDGE, "gap"): lambda seed: gv.GAP(unit=EDGE, epsilon=1.0, seed=seed),
    (EDGE, "classcode"): lambda seed: gv.ClassCode(unit=EDGE, epsilon=1.0, seed=seed),
    ("node-record", "mlp"): lambda seed: gv.MLP(unit="node-record", epsilon=4.0, seed=seed),
    ("node-record", "gap"): lambda seed: gv.GAP(
        unit="node-record", epsilon=4.0, out_degree_bound=10, seed=seed
    ),
    ("node-record", "classcode"): lambda seed: gv.ClassCode(
        unit="node-record", epsilon=4.0, out_degree_bound=10, seed=seed
    ),
}
CELLS = [(data, EDGE, method) for data in DATA for method in ("mlp", "gap", "classcode")] + [
    (data, "node-record", method)
    for data in ("twitch/DE", "facebook100/Berkeley13")
    for method in ("mlp", "gap", "classcode")
]


def graph_of(data: str, unit: str, column: str, seed: int) -> Graph:
    """Return a graph as its recipe prepares it, with a log-normal column unless ``column`` is none."""
    graph = gv.load_dataset(data, seed=seed, by_id=unit == "node-record")
    if column == "none":
        return graph
    money = np.random.default_rng(seed).lognormal(12, 1, graph.num_nodes).astype(np.float32)
    if isinstance(graph.x, torch.Tensor):
        return graph.replace(x=torch.cat([graph.x, torch.from_numpy(money)[:, None]], dim=1))
    from scipy import sparse

    return graph.replace(x=sparse.csr_array(sparse.hstack([graph.x, money[:, None]])))


def run(path: Path, datasets: list[str]) -> None:
    """Measure the missing cells, and append them."""
    done = {(*row[:5],) for row in _rows(path)}
    for seed in SEEDS:
        for data, unit, method in (cell for cell in CELLS if cell[0] in datasets):
            for column in EXTRA:
                cell = (data, unit, method, column, str(seed))
                if cell in done:
                    continue
                graph, started = graph_of(data, unit, column, seed), time.perf_counter()
                accuracy = METHODS[unit, method](seed).fit(graph).score(graph)
                row = (*cell, f"{accuracy:.5f}", f"{time.perf_counter() - started:.1f}")
                with path.open("a", newline="") as file:
                    csv.writer(file).writerow(row)
                print(*row, flush=True)


def compare(before: Path, after: Path) -> None:
    """Print both files as one table."""
    old, new = _means(before), _means(after)
    fell = False
    print("| data | unit | method | extra column | before | after |\n|---|---|---|---|---|---|")
    for cell in (cell for cell in old if cell in new):
        (was, spread), (now, other) = old[cell], new[cell]
        fell |= cell[-1] == "none" and now < was - max(spread, other)
        print(f"| {' | '.join(cell)} | {was:.1f} ± {spread:.1f} | {now:.1f} ± {other:.1f} |")
    sys.exit(1 if fell else 0)


def _means(path: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    found: dict[tuple[str, ...], list[float]] = {}
    for *cell, _, accuracy, _ in _rows(path):
        found.setdefault(tuple(cell), []).append(100 * float(accuracy))
    return {
        cell: (statistics.mean(all_), STUDENT * statistics.stdev(all_) / math.sqrt(len(all_)))
        for cell, all_ in found.items()
        if len(all_) == len(SEEDS)
    }


def _rows(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))


def main() -> None:
    """Measure or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "compare"))
    parser.add_argument("files", type=Path, nargs="+", help="CSV file to continue, or two to compare")
    parser.add_argument("--datasets", nargs="+", default=list(DATA), help="datasets to run")
    args = parser.parse_args()
    if args.command == "run":
        run(*args.files, args.datasets)
    else:
        compare(*args.files)


if __name__ == "__main__":
    main()
