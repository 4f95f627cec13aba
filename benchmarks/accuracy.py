"""How accurate is ClassCode at each epsilon, beside the floor, on every data set that is here?

    python benchmarks/accuracy.py --out runs.jsonl [--datasets cora,facebook100/Berkeley13] [--epsilons 0.5,1]
        [--splits 5] [--methods floor,classcode,gap] [--against old.jsonl] [--cache folder]

One line of ``runs.jsonl`` a run; a run that is there is not made again, so the command resumes after a kill.
Then tables: mean test accuracy over the splits and its standard error, the gain over the floor on the same
splits, CPU seconds a run, and with ``--against`` the paired difference to the runs of another version. Strict
mode, unit undirected-edge, delta 1e-7, recipe gap. The floor is the tuned MLP, whose posteriors ClassCode
begins with: they depend on the split only, so the runs of a split share them, and the floor's line has their
time.
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
    "floor": lambda epsilon, seed: MLP(unit=UNIT, seed=seed),
    "small": lambda epsilon, seed: MLP(unit=UNIT, seed=seed, tuned=False),
    "classcode": lambda epsilon, seed: ClassCode(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed),
    "spectral": lambda epsilon, seed: Spectral(unit=UNIT, epsilon=epsilon, seed=seed),
    "gap": lambda epsilon, seed: GAP(unit=UNIT, epsilon=epsilon, delta=DELTA, seed=seed),
}
FREE = ("floor", "small")  # methods that no epsilon changes


class Cell(NamedTuple):
    """What is run once a split; epsilon is 0 for a method that reads no edge."""

    data: str
    method: str
    epsilon: float


Runs = dict[Cell, dict[int, tuple[float, float]]]  # test accuracy and CPU seconds, by split


def main() -> None:
    """Make the runs that are missing, and print the tables."""
    options = _options()
    torch.set_num_threads(1)
    cells = list(_cells(options.datasets, options.methods, options.epsilons))
    for name in options.datasets:
        try:
            make(name, [cell for cell in cells if cell.data == name], options.splits, options)
        except GraphveilError as problem:
            print(f"{name} skipped: {problem}", file=sys.stderr, flush=True)
    runs = read(options.out)
    print("\n".join(table(runs, options.datasets, options.methods, options.epsilons)))
    if options.against:
        print("\n" + "\n".join(compared(runs, read(options.against))))


def make(name: str, cells: list[Cell], splits: int, options: argparse.Namespace) -> None:
    """Make the missing runs of one data set, split by split."""
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
    """Return test accuracy and CPU seconds; the split's public posteriors wait in the cache for the next."""
    started = time.process_time()
    accuracy = model.fit(graph, cache=cache).score(graph)
    return accuracy, time.process_time() - started


def read(path: Path) -> Runs:
    """Return the runs of a file; none if it is not there."""
    runs: Runs = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        cell = Cell(record["data"], record["method"], record["epsilon"])
        runs.setdefault(cell, {})[record["split"]] = (record["accuracy"], record["seconds"])
    return runs


def table(runs: Runs, datasets: list[str], methods: list[str], epsilons: list[float]) -> Iterator[str]:
    """Yield the lines of the table: accuracy, and below it the gain over the floor."""
    columns = ["data set", "method", "-", *(f"{epsilon:g}" for epsilon in epsilons), "CPU s"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for name in datasets:
        floor = runs.get(Cell(name, "floor", 0.0), {})
        for method in methods:
            levels = [0.0] if method in FREE else epsilons
            rows = [runs.get(Cell(name, method, epsilon), {}) for epsilon in levels]
            if not all(rows):
                continue
            cells = [figure(row, floor if method not in FREE else {}) for row in rows]
            blank = [""] * (len(epsilons) if method in FREE else 1)
            seconds = statistics.median(run[1] for row in rows for run in row.values())
            order = [*cells, *blank] if method in FREE else [*blank, *cells]
            yield f"| {' | '.join([name, method, *order, f'{seconds:.1f}'])} |"


def compared(runs: Runs, others: Runs) -> Iterator[str]:
    """Yield a line for each cell that both have: the paired difference, and whether it fell beyond chance."""
    yield "| data set | method | epsilon | other | this | difference | |\n|---|---|---|---|---|---|---|"
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


def figure(row: dict[int, tuple[float, float]], floor: dict[int, tuple[float, float]]) -> str:
    """Return mean and standard error, and in brackets those of the gain over the floor, if there is one."""
    values = [100 * accuracy for accuracy, _ in row.values()]
    own = f"{statistics.fmean(values):.1f} ± {_error(values):.1f}"
    gains = [100 * (row[split][0] - floor[split][0]) for split in row if split in floor]
    return own if not gains else f"{own} ({statistics.fmean(gains):+.1f} ± {_error(gains):.1f})"


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _cells(datasets: Iterable[str], methods: list[str], epsilons: list[float]) -> Iterator[Cell]:
    for name in datasets:
        for method in methods:
            yield from (Cell(name, method, level) for level in ([0.0] if method in FREE else epsilons))


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", type=names, default=list(DATASETS))
    parser.add_argument("--methods", type=names, default=["floor", "classcode"])
    parser.add_argument(
        "--epsilons", type=lambda text: list(map(float, names(text))), default=[0.1, 0.5, 1, 2, 4, 8]
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--cache", type=Path, help="keep the public posteriors of all splits here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
