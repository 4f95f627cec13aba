"""Measure test accuracy under node-level privacy, compared with the no-graph baseline, and CPU seconds.

    python benchmarks/node.py --out runs.jsonl [--datasets cora,pubmed] [--epsilons 1,4,8,16] [--splits 3]
        [--rows baseline,classcode] [--against old.jsonl]
    python benchmarks/node.py [--epsilons 1,2,4,8,16] [--splits 3] [--methods mlp,gap,sage] [--timing]

With ``--out``: unit node-record, delta 1e-5, hash-based splits. The output file has one JSON line per run.
Existing runs are not repeated, so an interrupted command resumes. The table has the mean test accuracy over
the splits, its standard error, and the paired difference to the baseline, the tuned MLP at the same epsilon.
``--against`` adds the paired difference to the runs of another version.

Without ``--out``: Berkeley13 from ``$GRAPHVEIL_DATA``, one row per method and mode. Strict GAP has D = 1.
Methods as published have D = 100, recipe ``gap`` without isolated nodes, and the epoch with the best
validation accuracy (SAGE: the last one). The reference is the paper's public code on the same graph, three
runs.

``--timing`` prints CPU seconds of a whole run after imports, minimum of five, on one thread: calibration,
encoder, hops, classifier, predictions.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accuracy import Cell, Runs, compared, format_cell, read

DELTA = 1e-5
DATA = "facebook100/Berkeley13"
DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp, strict": ("mlp", {}),
    "mlp, paper": ("mlp-paper", {}),
    "gap, strict": ("gap", {"out_degree_bound": 1}),
    "gap, strict, hops 3": ("gap", {"out_degree_bound": 1, "hops": 3}),
    "gap, paper": ("gap-paper", {"out_degree_bound": 100}),
    "sage, paper": ("sage-paper", {"out_degree_bound": 100}),
}
DATASETS = (
    "cora",
    "pubmed",
    "amazon/photo",
    "amazon/computers",
    "facebook100/Berkeley13",
    "facebook100/Rutgers89",
    "facebook_pages",
)
SPLIT_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", {}),
    "baseline": ("mlp", {}),
    "small-baseline": ("mlp", {"tuned": False}),
    "classcode": ("classcode", {}),
    "classcode-unlabeled": ("classcode", {"targets": "unlabeled"}),
    "classcode-own-edges": ("classcode", {"read_own_edges": True}),
    "gap": ("gap", {"out_degree_bound": 20}),
}
REFERENCE = {  # by row, then epsilon
    "mlp, paper": {8: 49.5},
    "gap, paper": {1: 40.4, 4: 51.1, 8: 58.1, 16: 62.9},
}
SECONDS = {"gap, strict": 5.0, "gap, paper": 5.0, "sage, paper": 108.0}
REPEATS = 5


def main() -> None:
    """Print the table of accuracies, or that of CPU seconds."""
    options = _options()
    import torch

    torch.set_num_threads(1)
    if options.out:
        return compare_with_baseline(options)
    rows = {
        name: row for name, row in ROWS.items() if row[0].removesuffix("-paper") in options.methods.split(",")
    }
    if options.timing:
        return timing(rows)
    return accuracies(rows, [float(epsilon) for epsilon in options.epsilons.split(",")], options.splits)


def compare_with_baseline(options: argparse.Namespace) -> None:
    """Run the missing cells, and print the table."""
    datasets, names = options.datasets.split(","), options.rows.split(",")
    epsilons = [float(epsilon) for epsilon in options.epsilons.split(",")]
    for split in range(options.splits):
        for name in datasets:
            run_missing(
                name, split, [Cell(name, row, epsilon) for epsilon in epsilons for row in names], options.out
            )
    runs = read(options.out)
    print("\n".join(table(runs, datasets, names, epsilons)))
    if options.against:
        print("\n" + "\n".join(compared(runs, read(options.against))))


def run_missing(name: str, split: int, cells: list[Cell], out: Path) -> None:
    """Run the missing cells of one split of a dataset."""
    from graphveil.data import RECIPES, load_dataset

    done = read(out)
    missing = [cell for cell in cells if split not in done.get(cell, {})]
    if not missing:
        return
    graph = RECIPES["gap"].on_clients().split(load_dataset(name), split)
    for cell in missing:
        started = time.process_time()
        accuracy = _model(*SPLIT_ROWS[cell.method], cell.epsilon, split).fit(graph).score(graph)
        seconds = time.process_time() - started
        record = {**cell._asdict(), "split": split, "accuracy": accuracy, "seconds": seconds}
        with out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")


def table(runs: Runs, datasets: list[str], names: list[str], epsilons: list[float]) -> Iterator[str]:
    """Yield the lines of the table; in brackets the paired difference to the baseline."""
    yield f"| dataset | method | {' | '.join(f'{epsilon:g}' for epsilon in epsilons)} |"
    yield f"|{'---|' * (len(epsilons) + 2)}"
    for name in datasets:
        for row in names:
            cells = [
                format_cell(
                    runs.get(Cell(name, row, epsilon), {}),
                    {} if row == "baseline" else runs.get(Cell(name, "baseline", epsilon), {}),
                )
                if runs.get(Cell(name, row, epsilon))
                else ""
                for epsilon in epsilons
            ]
            if any(cells):
                yield f"| {name} | {row} | {' | '.join(cells)} |"


def accuracies(rows: dict[str, tuple[str, dict[str, Any]]], epsilons: list[float], splits: int) -> None:
    """Print the test accuracies row by row."""
    print(f"| accuracy, % | {' | '.join(f'{epsilon:g}' for epsilon in epsilons)} |")
    print(f"|---|{'---|' * len(epsilons)}", flush=True)
    for name, (method, parameters) in rows.items():
        cells = [_accuracy(method, parameters, epsilon, splits) for epsilon in epsilons]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        known = REFERENCE.get(name, {})
        if known:
            print(f"| reference | {' | '.join(str(known.get(int(e), '')) for e in epsilons)} |", flush=True)


def _accuracy(method: str, parameters: dict[str, Any], epsilon: float, splits: int) -> str:
    """Return the mean over the splits and its standard error."""
    scores = []
    for seed in range(splits):
        graph = _graph(method, seed)
        scores.append(100 * _model(method, parameters, epsilon, seed).fit(graph).score(graph))
    error = statistics.stdev(scores) / splits**0.5 if splits > 1 else float("nan")
    return f"{statistics.fmean(scores):.1f} ± {error:.1f}"


def timing(rows: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Print the minimum CPU seconds of a whole run at epsilon 4."""
    print("| CPU seconds | graphveil | reference | reference / graphveil |\n|---|---|---|---|", flush=True)
    for name, (method, parameters) in rows.items():
        graph = _graph(method, 0)
        least = float("inf")
        for _ in range(1 if method == "sage-paper" else REPEATS):
            model = _model(method, parameters, 4.0, 0)
            start = time.process_time()
            model.fit(graph).predict()
            least = min(least, time.process_time() - start)
        known = SECONDS.get(name)
        ratio = f"{known / least:.1f}x" if known else ""
        print(f"| {name} | {least:.2f} | {known or ''} | {ratio} |", flush=True)


def _model(method: str, parameters: dict[str, Any], epsilon: float, seed: int) -> Any:
    from graphveil.estimators import METHODS

    return METHODS[method](unit="node-record", epsilon=epsilon, delta=DELTA, seed=seed, **parameters)


def _graph(method: str, seed: int) -> Any:
    """Return Berkeley13 as the method expects it, with the split of a seed."""
    from graphveil.data import RECIPES, load_dataset

    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    raw = load_dataset(DATA, root, recipe=None)
    paper = method.endswith("-paper")
    recipe = RECIPES["gap"] if paper else RECIPES["gap"].on_clients()
    return recipe.split(recipe.prepare(raw, paper=paper), seed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", default="1,2,4,8,16", help="values of epsilon")
    parser.add_argument("--splits", type=int, default=3, help="number of splits")
    parser.add_argument("--methods", default="mlp,gap,sage", help="methods, without --out")
    parser.add_argument("--out", type=Path, help="JSON lines file of results; is continued")
    parser.add_argument("--against", type=Path, help="results of another version to compare with")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names of datasets, with --out")
    parser.add_argument(
        "--rows", default="baseline,classcode", help=f"of {', '.join(SPLIT_ROWS)}, with --out"
    )
    parser.add_argument("--timing", action="store_true", help="print CPU seconds instead of accuracies")
    return parser.parse_args()


if __name__ == "__main__":
    main()
