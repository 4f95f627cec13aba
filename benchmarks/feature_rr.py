"""Compare FeatureRR with other feature mechanisms at equal total budgets: error, and accuracy of a GCN.

    python benchmarks/feature_rr.py error [--dims 16 50 500]
    python benchmarks/feature_rr.py run RESULTS.jsonl --datasets twitch/DE facebook_pages --seeds 3
    python benchmarks/feature_rr.py table RESULTS.jsonl

``error`` uses no data and no random numbers. It integrates the squared and the absolute error of one
coordinate over uniform values in [0, 1], and the squared correlation of value and estimate, which does not
depend on scale. ``run`` trains the GCN of LPGNN on randomized features and public labels, appends a JSON line
per run and skips existing ones. ``table`` prints means and 95 % intervals. Epsilon 1e-4 is noise only.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse, stats

from graphveil.core.features import to_dense
from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.estimators.session import Session
from graphveil.local.lpgnn import LPGNN, NetworkMethod
from graphveil.local.reports import RandomizedRecords
from graphveil.mechanisms import (
    AnalyticGaussian,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    MultiBit,
    PerFeature,
    SampledAllocation,
    WeightedAllocation,
    public_weights,
)
from graphveil.nn.lpgnn import FeatureEstimates
from graphveil.papers.feature_weights import combined
from graphveil.papers.scalar_mechanisms import Duchi, LaplaceDistribution, StepDistribution

BUDGETS = (0.5, 1.0, 3.0, 5.0, 9.0)
DIMS = (16, 50, 500)
SCALARS = ("duchi", "piecewise", "pm-sub", "hybrid", "three-outputs")
PRIOR = 1 / 12  # the variance of uniform values, which is the squared error of the constant 1/2
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def mechanisms_at(epsilon: float, dim: int) -> dict[str, FeatureMechanism]:
    """Return every mechanism at one epsilon for the whole vector."""
    common: dict[str, Any] = {"epsilon": epsilon, "dim": dim}
    naive: dict[str, Any] = {"k": 10, "mode": "ceil", "decode": "naive"}
    made: dict[str, FeatureMechanism] = {
        "FeatureRR naive, k = 10": FeatureRR(**common, **naive),
        "FeatureRR unbiased, k = 10": FeatureRR(**common, k=10),
        "FeatureRR unbiased, best k": FeatureRR(**common),
        "multi-bit, floor": MultiBit(**common, m="floor"),
        "multi-bit, best": MultiBit(**common),
        "1BM": MultiBit(**common, m="all"),
    }
    for name in SCALARS:
        made[f"{name}, sample"] = PerFeature(**common, scalar=name, allocation=SampledAllocation())
        made[f"{name}, split"] = PerFeature(**common, scalar=name, allocation=EvenAllocation())
    made["LPM"] = PerFeature(**common, scalar="laplace", allocation=EvenAllocation())
    made["AGM (delta 1e-10)"] = AnalyticGaussian(**common)
    return made


# -- errors, exactly ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Error:
    """Errors of one coordinate's estimate, for a uniform value."""

    squared: float
    absolute: float
    correlation: float  # squared: the share of variance that an affine function of the estimate explains


@dataclass(frozen=True)
class Normal:
    """A normal distribution."""

    mean: float
    sigma: float

    @property
    def variance(self) -> float:
        """The variance."""
        return self.sigma**2


Distribution = StepDistribution | LaplaceDistribution | Normal


@dataclass(frozen=True)
class Coordinate:
    """One coordinate's estimate of z: center + scale y with probability ``share``, the middle otherwise."""

    distribution: Callable[[float], Distribution]
    center: float = 0.0
    scale: float = 1.0
    share: float = 1.0

    @classmethod
    def of(cls, mechanism: FeatureMechanism) -> "Coordinate":
        """Return the first coordinate of a mechanism that has the same distribution for all coordinates."""
        if isinstance(mechanism, FeatureRR):
            bins = mechanism.features[0]
            return cls(
                lambda z: StepDistribution.discrete(bins.estimates, bins.probabilities(np.array([z]))[0])
            )
        if isinstance(mechanism, AnalyticGaussian):
            return cls(lambda z: Normal(z, mechanism.sigma))
        assert isinstance(mechanism, MultiBit | PerFeature)
        scalar = (
            Duchi(mechanism.epsilon / mechanism.samples)
            if isinstance(mechanism, MultiBit)
            else mechanism.scalars[0]
        )
        more = mechanism.dim / mechanism.samples
        return cls(lambda z: scalar.distribution(2 * z - 1), 0.5, more / 2, 1 / more)

    def moments(self, z: float) -> tuple[float, float, float]:
        """Return E[estimate], E[estimate^2] and E|estimate - z|."""
        law = self.distribution(z)
        mean = self.center + self.scale * law.mean
        second = mean**2 + self.scale**2 * law.variance
        away = self.scale * _distance(law, (z - self.center) / self.scale)
        rest = 1 - self.share
        sampled = self.share * mean, self.share * second, self.share * away
        return sampled[0] + rest / 2, sampled[1] + rest / 4, sampled[2] + rest * abs(z - 0.5)

    def error(self, breaks: np.ndarray) -> Error:
        """Integrate over z in [0, 1], piece by piece between the breaks."""
        low, half = breaks[:-1, None], np.diff(breaks)[:, None] / 2
        z = (low + half * (NODES + 1)).ravel()
        weights = (half * WEIGHTS).ravel()
        mean, second, away = np.array([self.moments(at) for at in z.tolist()]).T
        first, spread = weights @ mean, weights @ second - (weights @ mean) ** 2
        together = weights @ (mean * z) - first * 0.5
        return Error(
            float(weights @ (second - 2 * mean * z + z**2)),
            float(weights @ away),
            float(together) ** 2 / float(spread) / PRIOR,
        )


def error_of(mechanism: FeatureMechanism) -> Error:
    """Return the errors of a mechanism; pieces end where the integrand is not smooth."""
    breaks = np.linspace(0, 1, 3)
    if isinstance(mechanism, FeatureRR):
        bins = mechanism.features[0]
        kinks = np.concatenate([bins.values, bins.estimates, np.arange(bins.k) / bins.k])
        breaks = np.unique(np.concatenate([breaks, kinks[(kinks > 0) & (kinks < 1)]]))
    return Coordinate.of(mechanism).error(breaks)


def _distance(law: Distribution, point: float) -> float:
    """Return E|y - point|."""
    if isinstance(law, Normal):
        gap = (law.mean - point) / law.sigma
        return law.sigma * (2 * stats.norm.pdf(gap) + gap * (2 * stats.norm.cdf(gap) - 1))
    if isinstance(law, LaplaceDistribution):
        gap = abs(law.center - point) / law.scale
        return law.scale * (gap + math.exp(-gap))
    signed = (law.edges - point) * np.abs(law.edges - point) / 2
    return float((law.masses * np.abs(law.atoms - point)).sum() + (law.densities * np.diff(signed)).sum())


def errors(options: argparse.Namespace) -> None:
    """Print the tables of errors."""
    for dim in options.dims:
        print(f"\nd = {dim}: squared error / absolute error / percent of the variance explained\n")
        print("| mechanism | " + " | ".join(f"{epsilon:g}" for epsilon in options.budgets) + " |")
        print("|---" * (len(options.budgets) + 1) + "|")
        print("| the constant 1/2 |" + " 0.0833 / 0.25 / 0 |" * len(options.budgets))
        for name in mechanisms_at(1.0, dim):
            found = [error_of(mechanisms_at(epsilon, dim)[name]) for epsilon in options.budgets]
            print(f"| {name} | " + " | ".join(map(cell_of, found)) + " |")
    over_budget(options)
    weighted(options)


def cell_of(error: Error) -> str:
    """Return squared error, absolute error and percent of variance explained as one cell."""
    return f"{error.squared:.3g} / {error.absolute:.3g} / {100 * error.correlation:.2g}"


def flat_scores(dim: int) -> np.ndarray:
    """Return two sets of scores with flat Dirichlet sizes, in different orders."""
    sizes = -np.log1p(-(np.arange(dim) + 0.5) / dim)
    return np.stack([sizes, np.random.default_rng(0).permutation(sizes)]) / sizes.sum()


def over_budget(options: argparse.Namespace) -> None:
    """Print the budget and the error of weights without normalization, as in the text of the paper."""
    print("\nequation 7 as printed, gamma = 1/2: budget spent for epsilon 1, and naive squared error\n")
    print("| d | spent | " + " | ".join(f"{epsilon:g}" for epsilon in options.budgets) + " |")
    print("|---" * (len(options.budgets) + 2) + "|")
    for dim in options.dims:
        raw = combined(*flat_scores(dim), 0.5)[0]
        found = [
            np.mean([error_of(_naive(epsilon * share)).squared for share in raw])
            for epsilon in options.budgets
        ]
        print(f"| {dim} | {raw.sum():.2f} | " + " | ".join(f"{value:.4f}" for value in found) + " |")


def _naive(epsilon: float) -> FeatureRR:
    return FeatureRR(epsilon=epsilon, dim=1, k=10, mode="ceil", decode="naive")


def weighted(options: argparse.Namespace) -> None:
    """Print the squared error weighted by importance, unbiased, for three allocations of one budget."""
    ways: Mapping[str, Callable[[np.ndarray], EvenAllocation | WeightedAllocation]] = {
        "split": lambda scores: EvenAllocation(),
        "linear": WeightedAllocation.linear,
        "cube root": WeightedAllocation.cube_root,
    }
    print("\nimportance-weighted squared error, unbiased, best k: sum of w_i MSE_i\n")
    print("| d | allocation | " + " | ".join(f"{epsilon:g}" for epsilon in options.budgets) + " |")
    print("|---" * (len(options.budgets) + 2) + "|")
    for dim in options.dims:
        scores = flat_scores(dim)[0]
        for name, way in ways.items():
            shares = way(scores).budgets(1.0, dim)
            found = [_weighted(scores, epsilon * shares) for epsilon in options.budgets]
            print(f"| {dim} | {name} | " + " | ".join(f"{value:.4g}" for value in found) + " |")


def _weighted(scores: np.ndarray, budgets: np.ndarray) -> float:
    each = [error_of(FeatureRR(epsilon=budget, dim=1)).squared for budget in budgets.tolist()]
    return float(scores @ np.array(each))


# -- accuracy -----------------------------------------------------------------------------------------------

NAIVE, UNBIASED, BEST = "feature-rr-naive", "feature-rr", "multi-bit"
ARMS = (NAIVE, UNBIASED, BEST, "multi-bit-floor", "duchi", "piecewise", "pm-sub", "hybrid", "three-outputs")
ARMS += ("lpm", "agm")
EXACT, CONSTANT = "exact features", "no features"
NOISE_ONLY = 1e-4  # epsilon at which estimates contain practically no information
VARIANTS = ("references", "main", "raw", "kprop", "weights")


@dataclass(frozen=True, order=True)
class Cell:
    """The key of a run in the results."""

    dataset: str
    eps_x: float
    seed: int
    arm: str
    steps: int  # of KProp before the GCN
    standard: bool  # whether the server standardizes the noisy matrix
    weights: str  # how the budget is divided among features


@dataclass(kw_only=True, eq=False)
class StandardizedLPGNN(LPGNN):
    """LPGNN whose server centers the columns of the estimates and scales the matrix (post-processing)."""

    method: ClassVar[str] = "lpgnn"

    def _build_method(self) -> NetworkMethod:
        return StandardizedMethod(**vars(super()._build_method()))


@dataclass(frozen=True, kw_only=True)
class StandardizedMethod(NetworkMethod):
    """The method of ``StandardizedLPGNN``."""

    def collected(self, graph: Graph, session: Session) -> RandomizedRecords:
        """Return the collected estimates, standardized."""
        found = super().collected(graph, session)
        return replace(found, features=standardized(found.features))


def standardized(estimates: FeatureEstimates) -> FeatureEstimates:
    """Return estimates whose columns have mean 0 and whose entries have variance 1."""
    x = estimates.deviations
    if isinstance(x, torch.Tensor):
        x = x - x.mean(dim=0)
        return FeatureEstimates(x / x.std().clamp(min=1e-12))
    mean = np.asarray(x.mean(axis=0)).ravel()
    scale = 1 / math.sqrt(float((x.data.astype(np.float64) ** 2).sum()) / np.prod(x.shape) - (mean**2).mean())
    parts = sparse.csr_array((x.data * np.float32(scale), x.indices, x.indptr), shape=x.shape)
    return FeatureEstimates(parts, torch.from_numpy(-mean * scale).float())


def cells(options: argparse.Namespace, dataset: str) -> Iterator[Cell]:
    """Yield the selected runs: references first, then by epsilon."""
    seeds = range(options.seeds)
    if "references" in options.variants:
        for seed in seeds:
            yield Cell(dataset, math.inf, seed, CONSTANT, 0, False, "-")
            yield from (Cell(dataset, math.inf, seed, EXACT, steps, True, "-") for steps in (0, 4))
            for arm, steps in product((BEST, UNBIASED), (0, 4)):
                yield Cell(dataset, NOISE_ONLY, seed, arm, steps, True, "split")
    for eps_x in options.budgets:
        for seed in seeds:
            for arm in options.arms:
                ways = variants(arm, dataset in options.public)
                yield from (
                    Cell(dataset, eps_x, seed, arm, *way[1:]) for way in ways if way[0] in options.variants
                )


def variants(arm: str, has_public: bool) -> Iterator[tuple[str, int, bool, str]]:
    """Yield a name, steps of KProp, whether inputs are standardized, and the division of the budget."""
    yield "main", 0, True, "split"
    yield "kprop", 4, True, "split"
    if arm in (NAIVE, BEST):
        yield "raw", 0, False, "split"
    if has_public and arm in (NAIVE, UNBIASED):
        yield from (("weights", 0, True, way) for way in ("linear", "cube_root"))


def run(options: argparse.Namespace) -> None:
    """Run the missing cells."""
    done = {cell for cell, _ in read(options.results)}
    recipe = RECIPES["lpgnn"]
    for dataset in options.datasets:
        whole = recipe.prepare(load_dataset(dataset, root=options.root))
        thetas = {}
        if dataset in options.public:
            public = load_dataset(options.public[dataset], root=options.root)
            thetas = public_thetas(public, whole.num_features)
        for cell in cells(options, dataset):
            if cell not in done:
                started = time.process_time()
                accuracy = measured(cell, recipe.split(whole, seed=cell.seed), thetas, options)
                found = {"accuracy": accuracy, "seconds": time.process_time() - started}
                with options.results.open("a") as file:
                    file.write(json.dumps({**vars(cell), **found, "epochs": options.epochs}) + "\n")


def measured(
    cell: Cell, graph: Graph, thetas: Mapping[str, tuple[float, ...]], options: argparse.Namespace
) -> float:
    """Return the test accuracy of one run."""
    build = StandardizedLPGNN if cell.standard else LPGNN
    if cell.arm == CONSTANT:
        graph = graph.replace(x=torch.full((graph.num_nodes, 1), 0.5))
    given: dict[str, Any] = {"unit": "none"}
    if cell.arm not in (CONSTANT, EXACT):
        name, floor, _ = cell.arm.partition("-floor")
        given = {"unit": "local-attributes", "eps_x": cell.eps_x, "eps_y": math.inf, "features": name}
        given |= {"m": "floor"} if floor else {}
        given |= {"theta": thetas[cell.weights]} if cell.weights in thetas else {}
    model = build(
        **given,
        x_steps=cell.steps,
        y_steps=0,
        backbone="gcn",
        epochs=options.epochs,
        learning_rate=0.01,
        weight_decay=1e-3,
        dropout=0.5,
        posterior_steps=0,
        select="paper",
        labels="rr",
        seed=cell.seed,
        unsafe_noise_seed=cell.seed,  # pairs share their noise; no guarantee is needed here
    )
    return float(model.fit(graph).score(graph))


def public_thetas(public: Graph, dim: int) -> dict[str, tuple[float, ...]]:
    """Return theta by the SHAP values of a linear classifier of public records, and by their cube roots.

    The SHAP values of a linear model are w_i (x_i - mean_i). A tenth of the weight is divided equally, so
    that features that no public record has keep a budget.
    """
    x = to_dense(public.x)[:, :dim]
    weights = torch.zeros(dim, public.num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(x @ weights, public.y) + 1e-3 * (weights**2).sum()
        loss.backward()
        optimizer.step()
    size = weights.detach().abs().mean(dim=1)
    values = ((x - x.mean(dim=0)) * size).numpy()
    even = np.zeros((1, dim))
    return {
        way: public_weights(values, even, gamma=0.9, public_records=True, allocation=way).theta
        for way in ("linear", "cube_root")
    }


# -- tables -------------------------------------------------------------------------------------------------


def read(path: Path) -> list[tuple[Cell, float]]:
    """Return all runs and their accuracies."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(Cell(**{name: line[name] for name in Cell.__annotations__}), line["accuracy"]) for line in lines]


def table(options: argparse.Namespace) -> None:
    """Print a table per dataset: accuracy in percent, with the half-width of its 95 % interval."""
    runs = read(options.results)
    for dataset in dict.fromkeys(cell.dataset for cell, _ in runs):
        budgets = sorted({cell.eps_x for cell, _ in runs if cell.dataset == dataset})
        groups: dict[tuple[Any, ...], dict[float, list[float]]] = {}
        for cell, accuracy in runs:
            if cell.dataset == dataset:
                key = (cell.arm, cell.steps, cell.standard, cell.weights)
                groups.setdefault(key, {}).setdefault(cell.eps_x, []).append(100 * accuracy)
        print(f"\n{dataset}\n")
        print(
            "| features | KProp | standardized | weights | "
            + " | ".join(f"{eps:g}" for eps in budgets)
            + " |"
        )
        print("|---" * (len(budgets) + 4) + "|")
        for (arm, steps, standard, weights), found in groups.items():
            cells = " | ".join(interval(found.get(eps, [])) for eps in budgets)
            print(f"| {arm} | {steps} | {'yes' if standard else 'no'} | {weights} | {cells} |")


def interval(values: list[float]) -> str:
    """Return the mean and the half-width of the interval by Student's t."""
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {half:.1f}"


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    exact = commands.add_parser("error")
    exact.add_argument("--dims", type=int, nargs="+", default=list(DIMS))
    exact.set_defaults(command=errors)
    trained = commands.add_parser("run")
    trained.add_argument("results", type=Path)
    trained.add_argument("--root", type=Path, default=None)
    trained.add_argument("--datasets", nargs="+", default=["twitch/DE", "facebook_pages"])
    trained.add_argument("--seeds", type=int, default=3)
    trained.add_argument("--epochs", type=int, default=40)
    trained.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    trained.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    trained.set_defaults(command=run, public={"twitch/DE": "twitch/ES"})
    for sub in (exact, trained):
        sub.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS))
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    shown.set_defaults(command=table)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.command(options)


if __name__ == "__main__":
    main()
