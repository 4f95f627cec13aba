"""Measure the CPU time of a fit of ClassCode in multiples of a strict fit of GAP.

    python benchmarks/classcode.py [--rounds 3] [--datasets amazon/computers]

CPU seconds after the imports, one thread, minimum of several rounds. Both methods alternate in one process,
without a baseline. The last columns are fits that read the public posteriors from a cache, as all fits of a
sweep do except the first. The goals are ratios, because they depend less on the machine.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from _measure import fastest

from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.gap import GAP

GOALS = {"facebook100/Berkeley13": 8.0, "amazon/computers": 12.0}
TERMS: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-7, "seed": 0}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument(
        "--datasets", nargs="+", choices=GOALS, default=list(GOALS), help="datasets to measure"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| dataset | GAP, CPU s | ClassCode | x GAP | goal | with cache | x GAP |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.datasets:
        graph = RECIPES["gap"].split(load_dataset(name), seed=0)
        print(row(name, graph, GOALS[name], options.rounds), flush=True)


def row(name: str, graph: Graph, goal: float, rounds: int) -> str:
    """Return one row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        ClassCode(**TERMS).fit(graph, cache=cache)
        seconds = fastest(
            {
                "gap": lambda: GAP(**TERMS).fit(graph),
                "classcode": lambda: ClassCode(**TERMS).fit(graph),
                "cached": lambda: ClassCode(**TERMS).fit(graph, cache=cache),
            },
            rounds,
        )
    gap, classcode, cached = (seconds[run] for run in ("gap", "classcode", "cached"))
    times = f"{classcode:.2f} | {classcode / gap:.1f} | {goal:g} | {cached:.2f} | {cached / gap:.1f}"
    return f"| {name} | {gap:.2f} | {times} |"


if __name__ == "__main__":
    main()
