"""Measure test accuracy under edge-level privacy, compared with the no-graph baseline.

    python benchmarks/accuracy.py --out runs.jsonl [--datasets cora,facebook100/Berkeley13] [--epsilons 0.5,1]
        [--splits 5] [--methods baseline,classcode,gap] [--against old.jsonl] [--cache folder]

The output file has one JSON line per run. Existing runs are not repeated, so an interrupted command resumes.
The tables have the mean test accuracy over the splits and its standard error, the gain over the baseline on
the same splits, CPU seconds per run, and with ``--against`` the paired difference to the runs of another
version. Strict mode, unit undirected-edge, delta 1e-7, recipe gap. The baseline is the tuned MLP, whose
posteriors ClassCode starts from. They depend on the split only, so the runs of a split share them, and their
time is that of the baseline.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from graphveil.auto import AutoClassifier
from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.errors import GraphveilError
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.gap import GAP
from graphveil.estimators.mlp import MLP
from graphveil.estimators.spectral import Spectral

DATASETS = (
    "facebook100/Berkeley13",
    "facebook100/Rutgers89",
    "facebook100/Wisconsin87",
    "facebook100/Reed98",
    "facebook_pages",
    "amazon/computers",
    "amazon/photo",
    "cora",
    "citeseer",
    "pubmed",
    "twitch/DE",
    "twitch/ES",
    "wikipedia/chameleon",
    "wikipedia/squirrel",
    "lastfm_asia",
    "karate",
)
UNIT, DELTA = "undirected-edge", 1e-7
Make = Callable[[float, int], Estimator]
METHODS: dict[str, Make] = {
    "baseline": lambda epsilon, seed: MLP(unit=UNIT, seed=seed),
    "small-baseline": lambda epsilon, seed: MLP(unit=UNIT, seed=seed, tuned=False),
    "auto": lambda epsilon, seed: AutoClassifier(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed),
    "classcode": lambda epsilon, seed: ClassCode(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed),
    "spectral": lambda epsilon, seed: Spectral(unit=UNIT, epsilon=epsilon, seed=seed),
    "gap": lambda epsilon, seed: GAP(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed),
}
EPSILON_FREE = ("baseline", "small-baseline")  # methods that do not depend on epsilon


class Cell(NamedTuple):
    """A run per split; epsilon is 0 for a method that reads no edges."""

    data: str
    method: str
    epsilon: float


Runs = dict[Cell, dict[int, tuple[float, float]]]  # test accuracy and CPU seconds, by split


def main() -> None:
    """Run the missing cells, and print the tables."""
    options = _options()
    torch.set_num_threads(1)
    cells = list(_cells(options.datasets, options.methods, options.epsilons))
    for name in options.datasets:
        try:
            run_missing(name, [cell for cell in cells if cell.data == name], options.splits, options)
        except GraphveilError as problem:
            print(f"{name} skipped: {problem}", file=sys.stderr, flush=True)
    runs = read(options.out)
    print("\n".join(table(runs, options.datasets, options.methods, options.epsilons)))
    if options.against:
        print("\n" + "\n".join(compared(runs, read(options.against))))


def run_missing(name: str, cells: list[Cell], splits: int, options: argparse.Namespace) -> None:
    """Run the missing cells of one dataset, split by split."""
    done = read(options.out)
    if all(split in done.get(cell, {}) for cell in cells for split in range(splits)):
        return
    graph = load_dataset(name)
    for split in range(splits):
        missing = [cell for cell in cells if split not in done.get(cell, {})]
        part = RECIPES["gap"].split(graph, split)
        with tempfile.TemporaryDirectory() as folder:
            for cell in missing:
                cache = options.cache or Path(folder)
                accuracy, seconds = _run(METHODS[cell.method](cell.epsilon, split), part, cache)
                record = {**cell._asdict(), "split": split, "accuracy": accuracy, "seconds": seconds}
                with options.out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(record) + "\n")


def _run(model: Estimator, graph: Graph, cache: Path) -> tuple[float, float]:
    """Return test accuracy and CPU seconds; the cache stores the public posteriors of the split."""
    started = time.process_time()
    accuracy = model.fit(graph, cache=cache).score(graph)
    return accuracy, time.process_time() - started


def read(path: Path) -> Runs:
    """Return the runs in a file, or none if it does not exist."""
    runs: Runs = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        cell = Cell(record["data"], record["method"], record["epsilon"])
        runs.setdefault(cell, {})[record["split"]] = (record["accuracy"], record["seconds"])
    return runs


def table(runs: Runs, datasets: list[str], methods: list[str], epsilons: list[float]) -> Iterator[str]:
    """Yield the lines of the table: accuracy, and in brackets the gain over the baseline."""
    columns = ["dataset", "method", "-", *(f"{epsilon:g}" for epsilon in epsilons), "CPU s"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for name in datasets:
        baseline = runs.get(Cell(name, "baseline", 0.0), {})
        for method in methods:
            levels = [0.0] if method in EPSILON_FREE else epsilons
            rows = [runs.get(Cell(name, method, epsilon), {}) for epsilon in levels]
            if not all(rows):
                continue
            cells = [format_cell(row, baseline if method not in EPSILON_FREE else {}) for row in rows]
            blank = [""] * (len(epsilons) if method in EPSILON_FREE else 1)
            seconds = statistics.median(run[1] for row in rows for run in row.values())
            order = [*cells, *blank] if method in EPSILON_FREE else [*blank, *cells]
            yield f"| {' | '.join([name, method, *order, f'{seconds:.1f}'])} |"


def compared(runs: Runs, others: Runs) -> Iterator[str]:
    """Yield the paired difference of each cell in both files, and whether it fell by two standard errors."""
    yield "| dataset | method | epsilon | other | this | difference | |\n|---|---|---|---|---|---|---|"
    for cell in sorted(set(runs) & set(others)):
        both = sorted(set(runs[cell]) & set(others[cell]))
        if len(both) < 2:
            continue
        other, this = ([100 * some[cell][split][0] for split in both] for some in (others, runs))
        gains = [b - a for a, b in zip(other, this, strict=True)]
        mean, error = statistics.fmean(gains), _error(gains)
        fell = "fell" if mean < -2 * error else ""
        means = f"{statistics.fmean(other):.1f} | {statistics.fmean(this):.1f} | {mean:+.1f} ± {error:.1f}"
        yield f"| {cell.data} | {cell.method} | {cell.epsilon:g} | {means} | {fell} |"


def format_cell(row: dict[int, tuple[float, float]], baseline: dict[int, tuple[float, float]]) -> str:
    """Return mean and standard error, and in brackets those of the gain over the baseline, if given."""
    values = [100 * accuracy for accuracy, _ in row.values()]
    own = f"{statistics.fmean(values):.1f} ± {_error(values):.1f}"
    gains = [100 * (row[split][0] - baseline[split][0]) for split in row if split in baseline]
    return own if not gains else f"{own} ({statistics.fmean(gains):+.1f} ± {_error(gains):.1f})"


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _cells(datasets: Iterable[str], methods: list[str], epsilons: list[float]) -> Iterator[Cell]:
    for name in datasets:
        for method in methods:
            yield from (
                Cell(name, method, level) for level in ([0.0] if method in EPSILON_FREE else epsilons)
            )


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file of results; is continued")
    parser.add_argument("--datasets", type=names, default=list(DATASETS), help="names of datasets")
    parser.add_argument(
        "--methods", type=names, default=["baseline", "classcode"], help=f"of {', '.join(METHODS)}"
    )
    parser.add_argument(
        "--epsilons",
        type=lambda text: list(map(float, names(text))),
        default=[0.1, 0.5, 1, 2, 4, 8],
        help="values of epsilon",
    )
    parser.add_argument("--splits", type=int, default=5, help="number of splits")
    parser.add_argument("--against", type=Path, help="results of another version to compare with")
    parser.add_argument("--cache", type=Path, help="folder that stores the public posteriors of all splits")
    return parser.parse_args()


if __name__ == "__main__":
    main()
