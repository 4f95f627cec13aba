"""Compare SimGAT with few hops and KProp with many hops, on locally randomized features.

    python benchmarks/simgat.py similarity cora pubmed facebook_pages
    python benchmarks/simgat.py run RESULTS.jsonl --datasets cora --seeds 5 --hops 2 4 8 16
    python benchmarks/simgat.py table RESULTS.jsonl

``similarity`` prints the size and the CPU time of the similarity matrix S, and the effect of averaging with S
on noise and classes. ``run`` appends a JSON line per run and skips existing ones, so it can be interrupted at
any time; S is computed once and stored next to the results. ``table`` prints Markdown. Runs of one seed share
the split, the noise and the initial parameters, so differences are paired.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from _measure import peak_rss_mb
from scipy import sparse, stats

from graphveil.core.noise.random import PublicStreams
from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.estimators.session import Session
from graphveil.local.lpgnn import LPGNN, NetworkMethod
from graphveil.nn.layers import SparseRows
from graphveil.nn.message_passing import k_prop
from graphveil.papers.simgat import SimGAT, SimGATMethod, averaging
from graphveil.papers.similarity import PublicEdges, parse_similarity

KPROP = "kprop"
SIMILARITIES = {
    "multihop": "multihop",
    "deepwalk": "deepwalk(length=40, window=5)",  # a quarter of the work of the defaults
    "node2vec": "node2vec(length=40, window=5)",
}
BUDGETS = (0.01, 0.1, 1.0, 2.0, 3.0)
HOPS = (2, 4, 8, 16)
LEVEL = 0.05
BASIS = "unit 'local-attributes' leaves edges public"
# LPGNN's best ones at (eps_x, eps_y) = (1, inf), the same for all data sets and for both sides
LEARNING = {
    "learning_rate": 0.01,
    "weight_decay": 0.01,
    "dropout": 0.75,
    "posterior_steps": 0,
    "select": "paper",
    "labels": "rr",
}
PROBES = 256


def similarity_matrix(graph: Graph, name: str, folder: Path) -> Any:
    """Return S, from the folder if it was stored there."""
    path = folder / f"S-{graph.name}-{name}.npz"
    if not path.exists():
        edges = PublicEdges(graph.adjacency, basis=BASIS)
        sparse.save_npz(path, parse_similarity(SIMILARITIES[name])(edges, streams=PublicStreams(0)))
    return sparse.load_npz(path)


@dataclass(kw_only=True, eq=False)
class GivenSimGAT(SimGAT):
    """SimGAT with a precomputed S, and the initial parameters of LPGNN for the same seed."""

    method: ClassVar[str] = "lpgnn"
    given: Any = field(default=None, repr=False)

    def _build_method(self) -> NetworkMethod:
        return GivenMethod(**vars(super()._build_method()), given=self.given)


@dataclass(frozen=True, kw_only=True)
class GivenMethod(SimGATMethod):
    """Averaging with a precomputed S."""

    given: Any = field(repr=False)

    def similar(self, edges: PublicEdges, session: Session) -> Any:
        """Return the precomputed S."""
        return self.given


# -- runs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Cell:
    """The key of a run in the results."""

    dataset: str
    eps_x: float
    seed: int
    arm: str  # kprop, or a similarity
    steps: int


def cells(options: argparse.Namespace, dataset: str) -> Iterator[Cell]:
    """Yield the selected cells, seed by seed."""
    few = sorted(options.simgat_hops or {k - 1 for k in options.hops} | {1, 2})
    for eps_x in options.budgets:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for steps in sorted({*options.hops, *few}):
                yield Cell(dataset, eps_x, seed, KPROP, steps)
            for name in options.similarities:
                yield from (Cell(dataset, eps_x, seed, name, steps) for steps in few)


def run(options: argparse.Namespace) -> None:
    """Run the missing cells."""
    done = {cell for cell, _ in read(options.results)}
    for dataset in options.datasets:
        recipe, root = RECIPES["lpgnn"], options.root
        whole = recipe.prepare(load_dataset(dataset, root=root))
        if options.blank:
            whole = whole.replace(x=sparse.csr_array(whole.x.shape, dtype=np.float32))
        given = {
            name: similarity_matrix(whole, name, options.results.parent) for name in options.similarities
        }
        for cell in cells(options, dataset):
            if cell not in done:
                graph = recipe.split(whole, seed=cell.seed)
                append(options.results, cell, measured(cell, graph, given, options))


def measured(
    cell: Cell, graph: Graph, given: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, float]:
    """Return the test accuracy and the CPU seconds of one run."""
    build: Callable[..., LPGNN | SimGAT] = LPGNN
    if cell.arm != KPROP:
        build = partial(GivenSimGAT, given=given[cell.arm])
    model = build(
        unit="local-attributes",
        eps_x=cell.eps_x,
        eps_y=options.eps_y,
        x_steps=cell.steps,
        y_steps=0 if math.isinf(options.eps_y) else 8,
        epochs=options.epochs,
        seed=cell.seed,
        unsafe_noise_seed=cell.seed,  # pairs share their noise; no guarantee is needed here
        **LEARNING,
    )
    started = time.process_time()
    accuracy = model.fit(graph).score(graph)
    return {"accuracy": accuracy, "epochs": options.epochs, "seconds": time.process_time() - started}


def append(path: Path, cell: Cell, found: dict[str, float]) -> None:
    """Add one line."""
    with path.open("a") as file:
        file.write(json.dumps({**vars(cell), **found}) + "\n")


def read(path: Path) -> list[tuple[Cell, float]]:
    """Return all runs and their accuracies."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(Cell(*(line[name] for name in Cell.__dataclass_fields__)), line["accuracy"]) for line in lines]


# -- tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """SimGAT minus KProp over shared seeds, in percentage points."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean difference."""
        return float(np.mean(self.values))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of the mean, by Student's t."""
        return float(stats.t.ppf(0.975, len(self.values) - 1) * stats.sem(self.values))

    @property
    def p_value(self) -> float:
        """The p-value of a paired two-sided t-test."""
        spread = max(abs(value - self.mean) for value in self.values)
        return 1.0 if spread == 0 == self.mean else float(stats.ttest_1samp(self.values, 0).pvalue)


def holm(p_values: list[float]) -> list[float]:
    """Return p-values corrected for multiple tests (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return corrected.tolist()


def table(options: argparse.Namespace) -> None:
    """Print the accuracies for each dataset, and the differences to KProp."""
    runs = dict(read(options.results))
    for dataset in dict.fromkeys(cell.dataset for cell in runs):
        mine = {cell: accuracy for cell, accuracy in runs.items() if cell.dataset == dataset}
        budgets = sorted({cell.eps_x for cell in mine})
        print(f"\n### {dataset}\n")
        print_accuracies(mine, budgets)
        print_differences(mine, budgets)


def print_accuracies(runs: Mapping[Cell, float], budgets: list[float]) -> None:
    """Print mean accuracies by arm and steps."""
    print("| accuracy | hops | " + " | ".join(f"{eps:g}" for eps in budgets) + " |")
    print("|---|---|" + "---|" * len(budgets))
    for arm, steps in sorted({(cell.arm, cell.steps) for cell in runs}, key=lambda key: (_rank(key[0]), key)):
        row = [_by_seed(runs, eps, arm, steps) for eps in budgets]
        texts = (f"{100 * np.mean([*found.values()]):.1f}" if found else "" for found in row)
        print(f"| {arm} | {steps} | " + " | ".join(texts) + " |")
    print()


def print_differences(runs: Mapping[Cell, float], budgets: list[float]) -> None:
    """Print SimGAT minus KProp in points with 95 % intervals; bold if significant after Holm over budgets."""
    print("| SimGAT | k' | KProp k | " + " | ".join(f"{eps:g}" for eps in budgets) + " | n |")
    print("|---|---|---|" + "---|" * len(budgets) + "---|")
    hops = sorted({cell.steps for cell in runs if cell.arm == KPROP})
    arms = {(cell.arm, cell.steps) for cell in runs if cell.arm != KPROP}
    for (arm, few), many in itertools.product(sorted(arms, key=lambda key: (_rank(key[0]), key)), hops):
        if many == few + 1 or (few in (1, 2) and (many == few or many in HOPS[1:])):
            found = [_difference(runs, eps, (arm, few), (KPROP, many)) for eps in budgets]
            if any(found):
                print(f"| {arm} | {few} | {many} | {_row(found)} |")
    print_best(runs, budgets)


def print_best(runs: Mapping[Cell, float], budgets: list[float]) -> None:
    """Print the best number of hops of each similarity and of KProp, for each budget."""
    print("\nBest number of hops of both, chosen on the same runs:\n")
    print("| SimGAT | " + " | ".join(f"{eps:g}" for eps in budgets) + " | n |")
    print("|---|" + "---|" * len(budgets) + "---|")
    for arm in sorted({cell.arm for cell in runs if cell.arm != KPROP}, key=_rank):
        pairs = [(_best(runs, eps, arm), _best(runs, eps, KPROP)) for eps in budgets]
        found = [
            _difference(runs, eps, (arm, few), (KPROP, many))
            for eps, (few, many) in zip(budgets, pairs, strict=True)
        ]
        if any(found):
            print(f"| {arm} (k'; k: {', '.join(f'{few}; {many}' for few, many in pairs)}) | {_row(found)} |")


def _best(runs: Mapping[Cell, float], eps_x: float, arm: str) -> int:
    def accuracy(steps: int) -> float:
        return float(np.mean([*_by_seed(runs, eps_x, arm, steps).values()]))

    tried = sorted({cell.steps for cell in runs if cell.arm == arm and cell.eps_x == eps_x})
    return max(tried, key=accuracy, default=0)


def _row(found: list[Difference | None]) -> str:
    """Return the cells of a row of differences, corrected over its budgets."""
    corrected = iter(holm([one.p_value for one in found if one is not None]))
    texts = []
    for one in found:
        text = "" if one is None else f"{one.mean:+.1f} ± {one.half_width:.1f}"
        texts.append(f"**{text}**" if one is not None and next(corrected) < LEVEL else text)
    return " | ".join(texts) + f" | {min(len(one.values) for one in found if one is not None)}"


def _difference(
    runs: Mapping[Cell, float], eps_x: float, ours: tuple[str, int], theirs: tuple[str, int]
) -> Difference | None:
    first, second = _by_seed(runs, eps_x, *ours), _by_seed(runs, eps_x, *theirs)
    shared = sorted(first.keys() & second.keys())
    if len(shared) < 2:
        return None
    return Difference(tuple(100 * (first[seed] - second[seed]) for seed in shared))


def _by_seed(runs: Mapping[Cell, float], eps_x: float, arm: str, steps: int) -> dict[int, float]:
    return {
        cell.seed: accuracy
        for cell, accuracy in runs.items()
        if (cell.eps_x, cell.arm, cell.steps) == (eps_x, arm, steps)
    }


def _rank(arm: str) -> int:
    return [KPROP, *SIMILARITIES].index(arm)


# -- similarity matrices ------------------------------------------------------------------------------------


def similarity(options: argparse.Namespace) -> None:
    """Print the CPU time and the size of S, and the effect of propagation with S on noise and classes."""
    for dataset in options.datasets:
        graph = load_dataset(dataset, root=options.root)
        edges = PublicEdges(graph.adjacency, basis=BASIS)
        print(
            f"\n### {dataset}\n\n| similarity | CPU s | peak MB | similar nodes | in same class | k' = ",
            end="",
        )
        print(" | ".join(map(str, options.steps)), "|\n" + "|---" * (5 + len(options.steps)) + "|")
        print("| none | | | | |", " | ".join(smoothing(graph, k, None) for k in options.steps), "|")
        for name in options.similarities:
            started = time.process_time()
            found = parse_similarity(SIMILARITIES[name])(edges, streams=PublicStreams(0))
            seconds = time.process_time() - started
            rows, columns = found.nonzero()
            alike = float((graph.y[rows] == graph.y[columns]).float().mean())
            facts = f"{seconds:.1f} | {peak_rss_mb():.0f} | {found.nnz / graph.num_nodes:.1f} | {alike:.2f}"
            print(f"| {name} | {facts} |", " | ".join(smoothing(graph, k, found) for k in options.steps), "|")


def smoothing(graph: Graph, steps: int, found: Any) -> str:
    """Return two statistics of the weights w_vu of propagated rows.

    The first is the median of (sum_u w_vu)^2 / sum_u w_vu^2, the number of equally weighted nodes with the
    same noise. The second is the mean share of weight on nodes of the same class.
    """
    through = k_prop(graph.adjacency, steps)
    if found is not None:
        through = replace(through, parts=(*through.parts, SparseRows.from_scipy(averaging(found))))
    signs = PublicStreams(0).numpy("probes").choice([-1.0, 1.0], size=(graph.num_nodes, PROBES))
    squares = through.apply(torch.from_numpy(signs.astype(np.float32))).square().mean(dim=1)
    classes = through.apply(torch.nn.functional.one_hot(graph.y).float())
    total = classes.sum(dim=1)
    known = total > 0
    own = classes.gather(1, graph.y[:, None])[:, 0]
    count = float((total[known].square() / squares[known]).median())
    return f"{count:.0f}, {float((own[known] / total[known]).mean()):.2f}"


def main() -> None:
    """Parse the command line, and run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, command in (("run", run), ("table", table), ("similarity", similarity)):
        sub = commands.add_parser(name)
        sub.set_defaults(command=command)
        if name != "similarity":
            sub.add_argument("results", type=Path)
        if name == "table":
            continue
        sub.add_argument("datasets" if name == "similarity" else "--datasets", nargs="+", default=["cora"])
        sub.add_argument("--similarities", nargs="+", choices=SIMILARITIES, default=list(SIMILARITIES))
        sub.add_argument("--root", type=Path)
        sub.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8, 16])
        sub.add_argument("--seeds", type=int, default=5)
        sub.add_argument("--first-seed", type=int, default=0)
        sub.add_argument("--blank", action="store_true", help="control: all features are zero before noise")
        sub.add_argument("--hops", type=int, nargs="+", default=HOPS)
        sub.add_argument(
            "--simgat-hops", type=int, nargs="+", help="values of k' for SimGAT; default: k - 1, 1 and 2"
        )
        sub.add_argument("--budgets", type=float, nargs="+", default=BUDGETS)
        sub.add_argument("--eps-y", type=float, default=math.inf)
        sub.add_argument("--epochs", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.command(options)


if __name__ == "__main__":
    main()
