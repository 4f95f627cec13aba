"""How many strict runs of GAP does a fit of ClassCode cost?

    python benchmarks/classcode.py [--rounds 3]

CPU seconds after the imports, on one thread, both methods in turns in one process, the fastest of a few
rounds; no MLP beside either. The last columns are a fit that finds its public posteriors in a cache, as all
but the first of a sweep do. The bars are ratios, since machines differ by more than methods do.
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

BARS = {"facebook100/Berkeley13": 8.0, "amazon/computers": 12.0}
TERMS: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-7, "seed": 0}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| data set | GAP, CPU s | ClassCode | times GAP | bar | from the cache | times GAP |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, bar in BARS.items():
        print(row(name, RECIPES["gap"].split(load_dataset(name), seed=0), bar, rounds), flush=True)


def row(name: str, graph: Graph, bar: float, rounds: int) -> str:
    """Return one line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        ClassCode(**TERMS).fit(graph, cache=cache)
        seconds = fastest(
            {
                "gap": lambda: GAP(**TERMS).fit(graph),
                "classcode": lambda: ClassCode(**TERMS).fit(graph),
                "again": lambda: ClassCode(**TERMS).fit(graph, cache=cache),
            },
            rounds,
        )
    gap, ours, again = (seconds[run] for run in ("gap", "classcode", "again"))
    times = f"{ours:.2f} | {ours / gap:.1f} | {bar:g} | {again:.2f} | {again / gap:.1f}"
    return f"| {name} | {gap:.2f} | {times} |"


if __name__ == "__main__":
    main()
