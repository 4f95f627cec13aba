"""Measure the time and the memory of local mechanisms on a feature matrix.

    python benchmarks/local.py [--rows 117000] [--dim 602] [--rounds 5]

One thread. Each row perturbs all records with a keyed stream and estimates them. Times are multiples of
``torch.rand`` for the same matrix (float32) in the same process. Memory is a multiple of the matrix: the peak
beyond the input, including LDP reports and estimates, as traced from NumPy in a separate run.
"""

import argparse
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from _measure import fastest

from graphveil.mechanisms import (
    AnalyticGaussian,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    LocalNoise,
    MultiBit,
    PerFeature,
    SampledAllocation,
    WeightedAllocation,
)


def mechanisms(dim: int) -> dict[str, FeatureMechanism]:
    """Return the mechanisms at epsilon 1 for the whole vector, unless the name states another epsilon."""
    theta = WeightedAllocation.linear(range(1, dim + 1))
    return {
        "multi-bit (m = 1)": MultiBit(epsilon=1.0, dim=dim),
        "multi-bit, epsilon 10 (m = 5)": MultiBit(epsilon=10.0, dim=dim),
        "1BM (m = d)": MultiBit(epsilon=1.0, dim=dim, m="all"),
        "FeatureRR (k = 2)": FeatureRR(epsilon=1.0, dim=dim),
        "FeatureRR, weights": FeatureRR(epsilon=1.0, dim=dim, allocation=theta),
        "FeatureRR, k = 10": FeatureRR(epsilon=1.0, dim=dim, k=10),
        "FeatureRR, paper (k = 10)": FeatureRR(epsilon=1.0, dim=dim, k=10, mode="ceil", decode="naive"),
        "PM, sample of one": PerFeature(
            epsilon=1.0, dim=dim, scalar="piecewise", allocation=SampledAllocation()
        ),
    }


def slow(dim: int) -> dict[str, FeatureMechanism]:
    """Return slow mechanisms, which are measured on a tenth of the rows."""
    return {
        "Duchi, split": PerFeature(epsilon=1.0, dim=dim, scalar="duchi", allocation=EvenAllocation()),
        "PM, split": PerFeature(epsilon=1.0, dim=dim, scalar="piecewise", allocation=EvenAllocation()),
        "LPM (Laplace, split)": PerFeature(
            epsilon=1.0, dim=dim, scalar="laplace", allocation=EvenAllocation()
        ),
        "AGM": AnalyticGaussian(epsilon=1.0, dim=dim),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=117_000, help="number of records")
    parser.add_argument("--dim", type=int, default=602, help="number of features")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{options.rows} x {options.dim}, one thread, CPU time, minimum of {options.rounds} rounds")
    print(f"{'mechanism':>30} {'perturb':>8} {'estimate':>8} {'x rand':>8} {'ns/value':>8} {'x memory':>8}")
    table(mechanisms(options.dim), options.rows, options.rounds)
    table(slow(options.dim), options.rows // 10, min(2, options.rounds))


def table(laws: dict[str, FeatureMechanism], rows: int, rounds: int) -> None:
    """Print a row for each mechanism."""
    for name, law in laws.items():
        x = torch.rand(rows, law.dim).numpy()
        reports = law.perturb(x, stream=LocalNoise().stream("features"))
        runs: dict[str, Callable[[], object]] = {
            "rand": lambda law=law: torch.rand(rows, law.dim),
            "perturb": lambda law=law, x=x: law.perturb(x, stream=LocalNoise().stream("features")),
            "estimate": lambda law=law, reports=reports: law.estimate(reports),
        }
        least = fastest(runs, rounds)
        both = least["perturb"] + least["estimate"]
        print(
            f"{name:>30} {least['perturb'] / least['rand']:8.2f} {least['estimate'] / least['rand']:8.2f} "
            f"{both / least['rand']:8.2f} {both / x.size * 1e9:8.1f} {peak_bytes(law, x) / x.nbytes:8.2f}"
        )


def peak_bytes(law: FeatureMechanism, x: np.ndarray) -> int:
    """Return the peak bytes of all arrays beyond x."""
    tracemalloc.start()
    law.estimate(law.perturb(x, stream=LocalNoise().stream("features")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
