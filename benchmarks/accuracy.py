"""How accurate is ClassCode at each epsilon, beside the MLP, on every data set that is here?

    python benchmarks/accuracy.py [--datasets cora,facebook100/Berkeley13] [--epsilons 0.5,1] [--splits 3]

One line a data set and epsilon: mean test accuracy over the splits, its standard error, the MLP on the same
splits, and the paired difference. Strict mode, unit undirected-edge, delta 1e-7, recipe gap. The public
posteriors depend on the split only, so the runs of a split share them.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from graphveil.errors import GraphveilError
from graphveil.graph import RECIPES, Graph, load_dataset
from graphveil.models.classcode import ClassCode
from graphveil.models.mlp import MLP

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
DELTA = 1e-7


def main() -> None:
    """Measure and print the table."""
    options = _options()
    torch.set_num_threads(1)
    print("| data set | epsilon | ClassCode | MLP | difference | CPU s a run |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.datasets.split(","):
        try:
            graph = load_dataset(name)
        except GraphveilError as problem:
            print(f"| {name} | skipped: {problem} |", flush=True)
            continue
        epsilons = [float(epsilon) for epsilon in options.epsilons.split(",")]
        measure(name, graph, epsilons, options.splits)


def measure(name: str, graph: Graph, epsilons: list[float], splits: int) -> None:
    """Print the lines of one data set."""
    parts = [RECIPES["gap"].split(graph, seed) for seed in range(splits)]
    mlp = [MLP(unit="undirected-edge", seed=seed).fit(part).score(part) for seed, part in enumerate(parts)]
    with tempfile.TemporaryDirectory() as folder:
        for epsilon in epsilons:
            started = time.process_time()
            ours = [_run(part, epsilon, seed, Path(folder)) for seed, part in enumerate(parts)]
            seconds = (time.process_time() - started) / splits
            gains = [a - b for a, b in zip(ours, mlp, strict=True)]
            cells = [name, f"{epsilon:g}", *map(_figure, (ours, mlp, gains)), f"{seconds:.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


def _run(graph: Graph, epsilon: float, seed: int, folder: Path) -> float:
    """Return one test accuracy; the split's public posteriors are kept in the folder for the next epsilon."""
    model = ClassCode(unit="undirected-edge", epsilon=epsilon, delta=DELTA, seed=seed)
    return model.fit(graph, cache=folder).score(graph)


def _figure(values: list[float]) -> str:
    mean = 100 * statistics.fmean(values)
    error = 100 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{mean:.1f} ± {error:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--epsilons", default="0.1,0.5,1,2,4,8")
    parser.add_argument("--splits", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
