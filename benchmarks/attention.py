"""Does attention that is learned from secret edges pay for itself?

    python benchmarks/attention.py [--datasets facebook_pages] [--epsilons 1,2,4,8] [--runs 5]

One line a data set and epsilon: mean test accuracy over the runs (a split each) with its standard error, of
the MLP, of plain sums and of sums weighed by attention, in strict mode and with the source's accounting; then
the difference of strict attention from plain sums on the same splits, and the noise of both. Unit
undirected-edge, delta 1e-5, recipe weighted, one hop. A dash is a setting that the accounting refuses.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

import torch

from graphveil.errors import CalibrationError
from graphveil.graph import RECIPES, Graph, load_dataset
from graphveil.models.gap import GAP
from graphveil.models.mlp import MLP
from graphveil.privacy.guarantee import Mode

UNIT, DELTA = "undirected-edge", 1e-5


def main() -> None:
    """Measure and print the table."""
    options = _options()
    torch.set_num_threads(1)
    print("| data set | epsilon | MLP | plain | attention | paper | difference | noise | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.datasets.split(","):
        graph = RECIPES["weighted"].prepare(load_dataset(name, recipe=None, root=options.root))
        parts = [RECIPES["weighted"].split(graph, seed) for seed in range(options.runs)]
        mlp = [MLP(unit=UNIT, seed=seed).fit(part).score(part) for seed, part in enumerate(parts)]
        for epsilon in map(float, options.epsilons.split(",")):
            print(_line(name, parts, epsilon, mlp), flush=True)


def _line(name: str, parts: list[Graph], epsilon: float, mlp: list[float]) -> str:
    started = time.process_time()
    plain, std = _scores(parts, epsilon, "one")
    ours, own_std = _scores(parts, epsilon, "attention")
    papers, _ = _scores(parts, epsilon, "attention", mode="paper")
    gains = [a - b for a, b in zip(ours, plain, strict=True)]
    cells = [_figure(values) for values in (mlp, plain, ours, papers, gains)]
    seconds = (time.process_time() - started) / len(parts)
    return f"| {name} | {epsilon:g} | {' | '.join(cells)} | {std:.3f}, {own_std:.3f} | {seconds:.0f} |"


def _scores(
    parts: list[Graph], epsilon: float, weights: str, mode: Mode = "strict"
) -> tuple[list[float], float]:
    """Return test accuracies and the noise of the sums; no accuracies where the accounting refuses."""
    found = []
    for seed, part in enumerate(parts):
        model = GAP(unit=UNIT, epsilon=epsilon, delta=DELTA, hops=1, seed=seed, mode=mode, weights=weights)
        try:
            found.append(model.fit(part).score(part))
        except CalibrationError:
            return [], math.nan
        assert model.plan_ is not None
        std = model.plan_.noise_std[-1]
    return found, std


def _figure(values: list[float]) -> str:
    if not values:
        return "-"
    mean = 100 * statistics.fmean(values)
    error = 100 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{mean:.1f} ± {error:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", default="facebook_pages,amazon/computers")
    parser.add_argument("--epsilons", default="1,2,4,8")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--root", type=Path, help="folder of the data sets")
    return parser.parse_args()


if __name__ == "__main__":
    main()
