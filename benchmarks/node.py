"""How accurate are GAP, MLP and SAGE on protected records, and what does a whole run cost in CPU seconds?

    python benchmarks/node.py [--epsilons 1,2,4,8,16] [--splits 3] [--methods mlp,gap,sage] [--timing]

Unit node-owner, delta 1e-5, Berkeley13 through ``$GRAPHVEIL_DATA`` or ``../shared/data``. One line a method
and mode: mean test accuracy over the splits and its standard error. Strict GAP takes D = 1; paper mode takes
D = 100, recipe ``gap`` with isolated nodes dropped, and the epoch that is best on validation nodes (SAGE the
last one). The reference is the paper's public code on the same graph, three runs.

``--timing`` prints CPU seconds of a whole run after imports instead, the least of five, on one thread:
calibration, encoder, hops, classifier, predictions.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

DELTA = 1e-5
DATA = "facebook100/Berkeley13"
BESIDE = Path(__file__).parents[2] / "shared" / "data"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp, strict": ("mlp", {}),
    "mlp, paper": ("mlp", {"mode": "paper"}),
    "gap, strict": ("gap", {"degree_budget": 1}),
    "gap, strict, hops 3": ("gap", {"degree_budget": 1, "hops": 3}),
    "gap, paper": ("gap", {"degree_budget": 100, "mode": "paper"}),
    "sage, paper": ("sage", {"degree_budget": 100, "mode": "paper"}),
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
    rows = {name: row for name, row in ROWS.items() if row[0] in options.methods.split(",")}
    if options.timing:
        return timing(rows)
    return accuracies(rows, [float(epsilon) for epsilon in options.epsilons.split(",")], options.splits)


def accuracies(rows: dict[str, tuple[str, dict[str, Any]]], epsilons: list[float], splits: int) -> None:
    """Print test accuracies, each line as soon as it is measured."""
    print(f"| accuracy, % | {' | '.join(f'{epsilon:g}' for epsilon in epsilons)} |")
    print(f"|---|{'---|' * len(epsilons)}", flush=True)
    for name, (method, parameters) in rows.items():
        cells = [_accuracy(method, parameters, epsilon, splits) for epsilon in epsilons]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        known = REFERENCE.get(name, {})
        if known:
            print(f"| reference | {' | '.join(str(known.get(int(e), '')) for e in epsilons)} |", flush=True)


def _accuracy(method: str, parameters: dict[str, Any], epsilon: float, splits: int) -> str:
    """Return the mean over the splits, and its standard error."""
    scores = []
    for seed in range(splits):
        graph = _graph(parameters, seed)
        scores.append(100 * _model(method, parameters, epsilon, seed).fit(graph).score(graph))
    error = statistics.stdev(scores) / splits**0.5 if splits > 1 else float("nan")
    return f"{statistics.fmean(scores):.1f} ± {error:.1f}"


def timing(rows: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Print the least CPU seconds of a whole run at epsilon 4."""
    print("| CPU seconds | ours | reference | cheaper |\n|---|---|---|---|", flush=True)
    for name, (method, parameters) in rows.items():
        graph = _graph(parameters, 0)
        least = float("inf")
        for _ in range(1 if method == "sage" else REPEATS):
            model = _model(method, parameters, 4.0, 0)
            start = time.process_time()
            model.fit(graph).predict()
            least = min(least, time.process_time() - start)
        known = SECONDS.get(name)
        ratio = f"{known / least:.1f}x" if known else ""
        print(f"| {name} | {least:.2f} | {known or ''} | {ratio} |", flush=True)


def _model(method: str, parameters: dict[str, Any], epsilon: float, seed: int) -> Any:
    from graphveil.models import METHODS

    return METHODS[method](unit="node-owner", epsilon=epsilon, delta=DELTA, seed=seed, **parameters)


def _graph(parameters: dict[str, Any], seed: int) -> Any:
    """Return Berkeley13 as the mode prepares it, with the split of a seed."""
    from graphveil.graph import RECIPES, load_dataset

    root = Path(os.environ.get("GRAPHVEIL_DATA", BESIDE))
    raw = load_dataset(DATA, root, recipe=None)
    paper = parameters.get("mode") == "paper"
    prepared = RECIPES["gap"].prepare(raw, paper=paper)
    return RECIPES["gap"].split(prepared, seed, by_id=not paper)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", default="1,2,4,8,16")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--methods", default="mlp,gap,sage")
    parser.add_argument("--timing", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
