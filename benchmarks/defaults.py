"""Measure every method with its default settings, next to the documented number of the same budget.

    python benchmarks/defaults.py --out benchmarks/defaults.csv [--rows gap,classcode] [--datasets cora]
    python benchmarks/defaults.py --out benchmarks/defaults.csv --summarize > benchmarks/results/defaults.md

A model gets its unit and budget only, and ``out_degree_bound`` where it is required. Three splits, δ is
"auto". Each cell is appended to the file when it is finished, and existing cells are not measured again.
Cells with a documented number come first. The first split is measured for all cells; the others follow in the
order of the measured time. Cells that took more than ``--seconds`` are not repeated.

``documented.csv`` has the best documented number by cell, its settings, and the page that it is on. A cell
misses if its mean is more than two points below it. The metric is ROC-AUC on imbalanced binary graphs and
accuracy elsewhere, both times 100.
"""

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import graphveil as gv
from graphveil.errors import GraphveilError
from graphveil.estimators import METHODS
from graphveil.perturb import sample_public_edges

SEEDS, MARGIN, INF = 3, 2.0, math.inf
DOCUMENTED = Path(__file__).with_name("documented.csv")
FIELDS = ("dataset", "method", "unit", "budget", "seed", "accuracy", "roc_auc", "seconds")
DATASETS = (
    "facebook100/Reed98",
    "cora",
    "citeseer",
    "amazon/photo",
    "pubmed",
    "facebook_pages",
    "twitch/DE",
    "heterophilous/minesweeper",
    "facebook100/Berkeley13",
    "heterophilous/tolokers",
)
BINARY = ("twitch/DE", "heterophilous/minesweeper", "heterophilous/tolokers")
EDGE, RECORD, LOCAL, SUBSET = "undirected-edge", "node-record", "local-attributes", "edge-subset"
FEW_PAIRS = ("facebook100/Reed98", "cora", "citeseer")  # graphs that Spectral is measured on
FEW_EDGES = (*FEW_PAIRS, "amazon/photo", "pubmed")  # graphs that GAT is measured on
PRIVATE_EDGES = ("twitch/DE", "facebook_pages")  # graphs that HeteroRR is documented on


class Row(NamedTuple):
    """A method with its budget."""

    method: str
    unit: str
    budget: str
    keywords: dict[str, Any]


def rows() -> Iterator[Row]:
    """Yield all rows."""
    for method in ("mlp", "gcn", "sage", "gat", "auto"):
        yield Row(method, "none", "–", {})
    yield Row("mlp", EDGE, "–", {})
    for method in ("classcode", "gap", "lpgnet", "auto"):
        yield Row(method, EDGE, "1", {"epsilon": 1.0})
    yield Row("spectral", EDGE, "8", {"epsilon": 8.0})
    for epsilon in (1.0, 4.0):
        for method in ("mlp", "classcode", "auto"):
            yield Row(method, RECORD, f"{epsilon:g}", {"epsilon": epsilon})
        yield Row("gap", RECORD, f"{epsilon:g}", {"epsilon": epsilon, "out_degree_bound": 20})
        yield Row("gnn", RECORD, f"{epsilon:g}", {"epsilon": epsilon, "module": "sage"})
    for eps_y in (1.0, INF):
        yield Row("label-posterior", LOCAL, f"(0, {eps_y:g})", {"eps_y": eps_y})
        for method in ("lpgnn", "simgat"):
            yield Row(method, LOCAL, f"(1, {eps_y:g})", {"eps_x": 1.0, "eps_y": eps_y})
        for eps_x in (0.0, 1.0):
            yield Row("auto", LOCAL, f"({eps_x:g}, {eps_y:g})", {"eps_x": eps_x, "eps_y": eps_y})
    yield Row("heterorr", SUBSET, "2, eps_x 9", {"epsilon": 2.0, "eps_x": 9.0})


def measured_on(row: Row, dataset: str) -> bool:
    """Whether a cell is measured. The time of some methods grows too fast with the node pairs or edges."""
    chosen = {"spectral": FEW_PAIRS, "heterorr": PRIVATE_EDGES, "gat": FEW_EDGES}
    if row.method == "auto" and row.unit == "none":  # which fits a GAT
        return dataset in FEW_EDGES
    return dataset in chosen.get(row.method, (dataset,))


def split(dataset: str, row: Row, seed: int) -> gv.Graph:
    """Return the dataset as the command loads it for a unit, with the recipe of the documentation."""
    recipe = "lpgnn" if row.unit == LOCAL else "gap"
    graph = gv.load_dataset(dataset, recipe=recipe, seed=seed, by_id=row.unit in (RECORD, LOCAL))
    if row.unit != SUBSET:
        return graph
    public = sample_public_edges(graph.adjacency, 0.2, seed=seed)
    return graph.with_public(public, torch.ones(graph.num_nodes, dtype=torch.bool))


def measure(out: Path, options: argparse.Namespace) -> None:
    """Append the missing cells."""
    torch.set_num_threads(1)
    if not out.exists():
        out.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    done = {(*list(cell.values())[:4], int(cell["seed"])): float(cell["seconds"]) for cell in read(out)}
    wanted = [
        (dataset, row)
        for dataset in options.datasets.split(",")
        for row in rows()
        if measured_on(row, dataset) and (not options.rows or row.method in options.rows.split(","))
    ]
    known = {tuple(list(line.values())[:4]) for line in read(DOCUMENTED)}
    for compared, repeated in product((True, False), (False, True)):
        cells = [(*cell, 0) for cell in wanted if ((cell[0], *cell[1][:3]) in known) == compared]
        if repeated:
            timed = [(done.get((cell[0], *cell[1][:3], 0), INF), cell) for cell in cells]
            short = sorted((pair for pair in timed if pair[0] <= options.seconds), key=lambda pair: pair[0])
            cells = [(*cell[:2], seed) for _, cell in short for seed in range(1, SEEDS)]
        for dataset, row, seed in cells:
            key = (dataset, *row[:3], seed)
            if key in done:
                continue
            started = time.process_time()
            graph = split(dataset, row, seed)
            try:
                model = METHODS[row.method](unit=row.unit, seed=seed, **row.keywords)
                found = model.fit(graph).evaluate(graph)
            except GraphveilError as error:
                print(*key, error, flush=True)
                continue
            done[key] = time.process_time() - started
            values = (f"{found['accuracy']:.4f}", f"{found['roc_auc']:.4f}", f"{done[key]:.1f}")
            with out.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerow([*key, *values])


def read(path: Path) -> list[dict[str, str]]:
    """Return the lines of a file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summarize(out: Path) -> Iterator[str]:
    """Yield the lines of the page: the cells that miss, and a table for each dataset."""
    runs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for cell in read(out):
        metric = "roc_auc" if cell["dataset"] in BINARY else "accuracy"
        runs[cell["dataset"], cell["method"], cell["unit"], cell["budget"]].append(100 * float(cell[metric]))
    known = {tuple(list(line.values())[:4]): line for line in read(DOCUMENTED)}
    lines, missed = defaultdict[str, list[str]](list), []
    for key, values in runs.items():
        line = known.get(key)
        number, page = "–", "–"
        if line is not None:
            number, page = line["documented"], f"{line['page']} ({line['settings']})"
        dataset, method, unit, budget = key
        entry = f"| `{method}`, `{unit}`, {budget} | {interval(values)} | {number} | {page} |"
        lines[dataset].append(entry)
        if line is not None and np.mean(values) < float(number) - MARGIN:
            missed.append(f"| {dataset} {entry}")
    yield HEAD
    yield "| dataset " + COLUMNS.replace("\n|", "\n|---|", 1)
    yield from missed
    for dataset in DATASETS:
        metric = "ROC-AUC" if dataset in BINARY else "accuracy"
        yield f"\n## {dataset}\n\nTest {metric}, times 100.\n\n{COLUMNS}"
        yield from lines[dataset]


def interval(values: list[float]) -> str:
    """Return mean and half the 95 % Student interval."""
    if len(values) < SEEDS:
        return f"{np.mean(values):.1f} ({len(values)} run{'s' if len(values) > 1 else ''})"
    return f"{np.mean(values):.1f} ± {4.303 * np.std(values, ddof=1) / math.sqrt(len(values)):.1f}"


COLUMNS = "| method, unit, budget | default | documented | page and settings |\n|---|---|---|---|"
HEAD = """# Every method with default settings

[All results](README.md)

    python benchmarks/defaults.py --out benchmarks/defaults.csv

Each method gets its unit and budget only: δ is "auto", `gap` under `node-record` has `out_degree_bound=20`,
`gnn` has `module="sage"`, and `heterorr` protects 20 % of the edges. Means of three splits with 95 %
intervals (Student's t). "Documented" is the best number in the documentation for the same method, unit and
budget, with any settings. Budgets are ε, or (`eps_x`, `eps_y`).

Not measured: `module`, which has no default, and `sage` under `node-record`, which has no valid guarantee.
Spectral is measured on three small graphs, because it embeds a dense noisy graph. `gat` and `auto` without
privacy are measured on graphs with few edges.

## Defaults below the documented number

These cells are more than two points below it. Known causes:

* **`classcode` under `node-record`.** The documented number has `read_own_edges=True`. It is not the default,
  because it is less accurate on sparse graphs with a small budget (CiteSeer at ε = 1: 48.3 instead of 59.7,
  in `auto.csv`). `auto` chooses between it and the baseline by a noisy mean out-degree.
* **δ under `node-record`.** The documented numbers have δ = 1e-5. "auto" is 1e-6 for 10,000 nodes or more,
  and the noise at ε = 1 is then 1.13 times as large.
* **Small graphs.** On Reed98 (962 nodes) accuracies vary by ten points and more between splits.
"""


def main() -> None:
    """Measure, or print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="CSV file; is continued")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names of datasets")
    parser.add_argument("--rows", default="", help="methods; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="cells above this time have one run")
    parser.add_argument("--summarize", action="store_true", help="print the page and measure nothing")
    options = parser.parse_args()
    if options.summarize:
        print("\n".join(summarize(options.out)))
    else:
        measure(options.out, options)


if __name__ == "__main__":
    main()
