"""Measure every method with its default settings, next to the documented number of the same budget.

    python benchmarks/defaults.py --out benchmarks/defaults.csv [--rows gap,classcode] [--datasets cora]
    python benchmarks/defaults.py --out benchmarks/defaults.csv --summarize > benchmarks/results/defaults.md

A model gets its unit and budget only, and ``out_degree_bound`` or ``max_degree`` where it is required. δ is
"auto". There are three splits, and more with ``--splits``, which only the comparison of ``auto`` reads. Each
cell is appended to the file when it is finished, and existing cells are not measured again. Cells with a
documented number come first. The first split is measured for all cells; the others follow in the order of the
measured time. Cells that took more than ``--seconds`` are not repeated.

``documented.csv`` has the best documented number by cell, its settings, and the page that it is on. A cell
misses if its mean is more than two points below it. The metric is ROC-AUC on imbalanced binary graphs and
accuracy elsewhere, both times 100. ``auto`` is compared with the best other method of the same unit and
budget, on the same splits.
"""

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

import graphveil as gv
from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import GraphveilError
from graphveil.estimators import METHODS
from graphveil.perturb import sample_public_edges

SPLITS, MARGIN, AUTO_MARGIN, INF = 3, 2.0, 1.0, math.inf
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
    "heterophilous/squirrel_filtered",
    "wikipedia/chameleon",
    "twitch/ES",
    "amazon/computers",
    "facebook100/Rutgers89",
)
BINARY = ("twitch/DE", "twitch/ES", "heterophilous/minesweeper", "heterophilous/tolokers")
NONE, EDGE, DIRECTED = "none", "undirected-edge", "directed-edge"
RECORD, NODE, BOUNDED = "node-record", "node", "node-bounded-degree"
LOCAL, SUBSET = "local-attributes", "edge-subset"
FEW_PAIRS = ("facebook100/Reed98", "cora", "citeseer")  # graphs that Spectral is measured on
FEW_EDGES = (*DATASETS[:5], *DATASETS[6:8], *DATASETS[10:13])  # graphs that GAT is measured on
LOCAL_GRAPHS = DATASETS[:10]  # graphs that local methods are measured on
MAX_DEGREE = {"heterophilous/minesweeper": 8, "citeseer": 99, "cora": 168}  # of graphs for BOUNDED
OWN_EDGES = "classcode, own edges"  # with read_own_edges=True, which is the candidate of auto
PRIVATE_EDGES = ("twitch/DE", "facebook_pages")  # graphs that HeteroRR is documented on


Runs = dict[tuple[str, ...], dict[int, float]]  # metric by dataset, method, unit, budget, and split


class Row(NamedTuple):
    """A method with its budget. The words after a comma in its name are settings in ``keywords``."""

    method: str
    unit: str
    budget: str
    keywords: dict[str, Any]


def rows() -> Iterator[Row]:
    """Yield all rows."""
    for method in ("mlp", "gcn", "sage", "gat", "auto"):
        yield Row(method, NONE, "–", {})
    for unit, epsilons in ((EDGE, (0.5, 1.0, 4.0)), (DIRECTED, (1.0, 4.0))):
        yield Row("mlp", unit, "–", {})
        for epsilon, method in product(epsilons, ("classcode", "gap", "lpgnet", "auto")):
            yield Row(method, unit, f"{epsilon:g}", {"epsilon": epsilon})
    yield Row("spectral", EDGE, "8", {"epsilon": 8.0})
    for epsilon in (1.0, 4.0):
        budget, keywords = f"{epsilon:g}", {"epsilon": epsilon}
        for method in ("mlp", "classcode", "auto"):
            yield Row(method, RECORD, budget, keywords)
        yield Row(OWN_EDGES, RECORD, budget, keywords | {"read_own_edges": True})
        yield Row("gap", RECORD, budget, keywords | {"out_degree_bound": 20})
        yield Row("gnn", RECORD, budget, keywords | {"module": "sage"})
        for method in ("mlp", "classcode", "gap", "auto"):
            yield Row(method, NODE, budget, keywords)
        for method in ("mlp", "gap", "auto"):
            yield Row(method, BOUNDED, budget, keywords)
    yield Row("auto", NODE, "8", {"epsilon": 8.0})  # the budget of published node-level methods
    for eps_y in (1.0, INF):
        yield Row("label-posterior", LOCAL, f"(0, {eps_y:g})", {"eps_y": eps_y})
        for method in ("lpgnn", "simgat"):
            yield Row(method, LOCAL, f"(1, {eps_y:g})", {"eps_x": 1.0, "eps_y": eps_y})
        for eps_x in (0.0, 1.0):
            yield Row("auto", LOCAL, f"({eps_x:g}, {eps_y:g})", {"eps_x": eps_x, "eps_y": eps_y})
    yield Row("heterorr", SUBSET, "2, eps_x 9", {"epsilon": 2.0, "eps_x": 9.0})


def measured_on(row: Row, dataset: str) -> bool:
    """Whether a cell is measured. The time of some methods grows too fast with the node pairs or edges."""
    if row.method == "auto" and row.unit == NONE:  # which fits a GAT
        return dataset in FEW_EDGES
    methods = {"spectral": FEW_PAIRS, "heterorr": PRIVATE_EDGES, "gat": FEW_EDGES}
    units = {DIRECTED: FEW_PAIRS, BOUNDED: MAX_DEGREE, LOCAL: LOCAL_GRAPHS}
    return dataset in methods.get(row.method, (dataset,)) and dataset in units.get(row.unit, (dataset,))


def split(dataset: str, row: Row, seed: int) -> gv.Graph:
    """Return the dataset as the command loads it for a unit, with the recipe of the documentation."""
    recipe = "lpgnn" if row.unit == LOCAL else "gap"
    by_id = row.unit in (RECORD, NODE, BOUNDED, LOCAL)
    graph = gv.load_dataset(dataset, recipe=recipe, seed=seed, by_id=by_id)
    if row.unit == DIRECTED:  # the datasets are undirected: each edge becomes two, protected one by one
        source, target = graph.adjacency.edge_index()
        edges = Adjacency.from_edges(source, target, num_nodes=graph.num_nodes, directed=True)
        return replace(graph, adjacency=edges)
    if row.unit != SUBSET:
        return graph
    public = sample_public_edges(graph, 0.2, seed=seed)
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
        if measured_on(row, dataset)
        and (not options.rows or row.method.partition(",")[0] in options.rows.split(","))
        and (not options.units or row.unit in options.units.split(","))
    ]
    known = {tuple(list(line.values())[:4]) for line in read(DOCUMENTED)}
    for compared, repeated in product((True, False), (False, True)):
        cells = [(*cell, 0) for cell in wanted if ((cell[0], *cell[1][:3]) in known) == compared]
        if repeated:
            timed = [(done.get((cell[0], *cell[1][:3], 0), INF), cell) for cell in cells]
            short = sorted((pair for pair in timed if pair[0] <= options.seconds), key=lambda pair: pair[0])
            cells = [(*cell[:2], seed) for _, cell in short for seed in range(1, options.splits)]
        for dataset, row, seed in cells:
            key = (dataset, *row[:3], seed)
            if key in done:
                continue
            started = time.process_time()
            graph = split(dataset, row, seed)
            try:
                bound = {"max_degree": MAX_DEGREE[dataset]} if row.unit == BOUNDED else {}
                kind = METHODS[row.method.partition(",")[0]]
                model = kind(unit=row.unit, seed=seed, **row.keywords, **bound)
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
    """Yield the lines of the page: the cells that miss, those of ``auto``, and a table for each dataset."""
    runs: Runs = defaultdict(dict)
    for cell in read(out):
        metric = "roc_auc" if cell["dataset"] in BINARY else "accuracy"
        key = cell["dataset"], cell["method"], cell["unit"], cell["budget"]
        runs[key][int(cell["seed"])] = 100 * float(cell[metric])
    known = {tuple(list(line.values())[:4]): line for line in read(DOCUMENTED)}
    lines, missed = defaultdict[str, list[str]](list), []
    for key, found in runs.items():
        values = [value for seed, value in found.items() if seed < SPLITS]  # as the documented numbers
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
    yield from compare_auto(runs)
    for dataset in DATASETS:
        metric = "ROC-AUC" if dataset in BINARY else "accuracy"
        yield f"\n## {dataset}\n\nTest {metric}, times 100.\n\n{COLUMNS}"
        yield from lines[dataset]


def compare_auto(runs: Runs) -> Iterator[str]:
    """Yield the section that compares ``auto`` with the best fixed method and the baseline of each cell."""
    tables, below = defaultdict[str, list[str]](list), []
    cells = [key for key in runs if key[1] == "auto"]
    for dataset, _, unit, budget in sorted(cells, key=lambda key: (DATASETS.index(key[0]), key[3])):
        own = runs[dataset, "auto", unit, budget]
        # The baseline has no budget at edge level, and label-posterior reads no features.
        budgets = (budget, "–", f"(0, {budget.rpartition(' ')[2]}")
        fixed = {
            key[1]: {seed: value for seed, value in values.items() if seed in own}
            for key, values in runs.items()
            if key[0] == dataset and key[1] != "auto" and key[2] == unit and key[3] in budgets
        }
        differences = {
            name: [own[seed] - value for seed, value in values.items()]
            for name, values in fixed.items()
            if values
        }
        if not differences:  # this budget was measured for ``auto`` only
            continue
        best = min(differences, key=lambda name: np.mean(differences[name]))
        lead, baseline = differences[best], differences.get("mlp")
        entry = (
            f"| {dataset} | {budget} | {len(lead)} | {interval([own[seed] for seed in fixed[best]])} "
            f"| {interval([*fixed[best].values()])} (`{best}`) | {interval(lead)} "
            f"| {'–' if baseline is None else interval(baseline)} |"
        )
        tables[unit].append(entry)
        if np.mean(lead) < -AUTO_MARGIN or (baseline and np.mean(baseline) < -half_width(baseline)):
            below.append(f"| `{unit}` {entry}")
    yield AUTO.format(cells=sum(map(len, tables.values())), below=len(below))
    yield "| unit " + AUTO_COLUMNS.replace("\n|", "\n|---|", 1)
    yield from below
    for unit, entries in tables.items():
        yield f"\n### Auto under `{unit}`\n\n{AUTO_COLUMNS}"
        yield from entries


def half_width(values: list[float]) -> float:
    """Return half the width of the 95 % Student interval of the mean; infinite for one or two runs."""
    if len(values) < 3:
        return INF
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1) * error)


def interval(values: list[float]) -> str:
    """Return mean and half the 95 % Student interval."""
    if len(values) < 3:
        return f"{np.mean(values):.1f} ({len(values)} run{'s' if len(values) > 1 else ''})"
    return f"{np.mean(values):.1f} ± {half_width(values):.1f}"


AUTO_COLUMNS = (
    "| dataset | budget | splits | auto | best fixed method | difference | auto − baseline |\n"
    "|---|---|---|---|---|---|---|"
)
AUTO = """
## Auto and the best fixed method

The best fixed method of a cell has the highest mean of all methods of the same unit and budget, on the same
splits. Differences are paired by split, with 95 % intervals. The two runs of a pair have independent noise.
The best of several means is too high by chance, so small differences favor the fixed method. Budgets are
exhausted in each run. "classcode, own edges" has `read_own_edges=True`, which is a candidate of `auto`.

Known causes of cells below:

* **Other noise.** On Reed98 at edge level and on Cora under `node-record` auto chose the best fixed method in
  all splits. On the same release the difference is zero (`notes/110-auto.md`), and so it is on Photo under
  `local-attributes` on the same reports.
* **Chance.** On Minesweeper under node-level units all methods have a ROC-AUC near 50.
* **Noise in features.** On Squirrel under `node-record` both candidates are below the largest class (34 %).
* **Low homophily** is not detected under `node-record`: Twitch ES at ε = 1.

Of {cells} cells, {below} are more than one point below the best fixed method, or below the baseline by more
than the interval:
"""
COLUMNS = "| method, unit, budget | default | documented | page and settings |\n|---|---|---|---|"
HEAD = """# Every method with default settings

[All results](README.md)

    python benchmarks/defaults.py --out benchmarks/defaults.csv

Each method gets its unit and budget only: δ is "auto", `gap` under `node-record` has `out_degree_bound=20`,
`gnn` has `module="sage"`, and `heterorr` protects 20 % of the edges. "classcode, own edges" has
`read_own_edges=True`. Under `node-bounded-degree` `max_degree` is the maximum degree of the graph. Under
`directed-edge` each edge of a dataset is two edges. Means of three splits with 95 % intervals (Student's t).
"Documented" is the best number in the documentation for the same method, unit and
budget, with any settings. Budgets are ε, or (`eps_x`, `eps_y`).

Not measured: `module`, which has no default, and `sage` under `node-record`, which has no valid guarantee.
Spectral is measured on three small graphs, because it embeds a dense noisy graph. `gat` and `auto` without
privacy are measured on graphs with few edges. Some cells of large graphs have fewer runs or are missing.

## Defaults below the documented number

These cells are more than two points below it. Known causes:

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
    parser.add_argument("--units", default="", help="privacy units; all by default")
    parser.add_argument("--splits", type=int, default=SPLITS, help="number of splits")
    parser.add_argument("--seconds", type=float, default=60.0, help="cells above this time have one run")
    parser.add_argument("--summarize", action="store_true", help="print the page and measure nothing")
    options = parser.parse_args()
    if options.summarize:
        print("\n".join(summarize(options.out)))
    else:
        measure(options.out, options)


if __name__ == "__main__":
    main()
