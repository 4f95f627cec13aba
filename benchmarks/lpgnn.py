"""Measure the test accuracy of LPGNN on locally randomized records, next to the published results.

    python benchmarks/lpgnn.py run RESULTS.jsonl [--experiments published] [--datasets cora] [--runs 5]
    python benchmarks/lpgnn.py table RESULTS.jsonl

``run`` appends a JSON line per run and skips existing ones, so it can be interrupted at any time. ``table``
prints Markdown: means and 95 % intervals (Student's t) in percent, next to the results in the paper's
notebooks. Splits, initial parameters and noise follow the seed, so settings of one experiment are paired. The
noise is reproducible and therefore has no privacy guarantee.

Experiments:

* ``published``: the paper's cells, with its steps and learning parameters.
* ``mechanisms``: mechanisms for features, at epsilon_y inf.
* ``labels``: cross entropy, forward correction and Drop at epsilon_x 1.
* ``posterior``: settings with the label posterior, at the budget of the published results.
* ``no-features``: the label posterior of the graph and one noisy label per node, by budget.
* ``baseline``: an MLP without edges on the LDP reports of the published cells, with their learning
  parameters and with others.

Features of PubMed are scaled per column as in the paper, which reads all records, unless the setting states
that each node scales its own row. Binary features are not scaled.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.local.label_posterior import LabelPosterior
from graphveil.local.lpgnn import LPGNN, PAPER_SETTINGS

INF = math.inf
SCALED = {"pubmed": {"scaling": "columns", "data_dependent_bounds": True}}
QUICK = {"learning_rate": 0.01, "weight_decay": 0.01, "dropout": 0.75}  # the paper's best at (1, inf)
NOISY = {  # and at (1, 1)
    "cora": {"learning_rate": 0.01, "weight_decay": 0.001, "dropout": 0.5},
    "pubmed": {"learning_rate": 0.01, "weight_decay": 1e-4, "dropout": 0.25},
    "facebook_pages": {"learning_rate": 0.001, "weight_decay": 0.01, "dropout": 0.5},
}
X_STEPS = {"cora": 16, "pubmed": 16, "facebook_pages": 8}  # the paper's best at (1, inf)
STEPS = {"cora": (2, 8), "pubmed": (4, 2), "facebook_pages": (2, 4)}  # and at (1, 1)
PUBLISHED = {
    ("cora", INF): "83.9 ± 0.4",
    ("cora", 1.0): "69.3 ± 1.2",
    ("pubmed", INF): "82.9 ± 0.2",
    ("pubmed", 1.0): "74.9 ± 0.3",
    ("facebook_pages", INF): "92.7 ± 0.1",
    ("facebook_pages", 1.0): "84.9 ± 0.2",
}
MECHANISMS = {  # published results at epsilon_x 0.01, 0.1, 1, 2, and its best steps there
    "multi-bit": ("68.0 ± 2.9", "64.6 ± 3.2", "83.9 ± 0.4", "84.0 ± 0.3"),
    "1bm": ("45.8 ± 3.3", "62.3 ± 1.5", "59.9 ± 2.7", "58.5 ± 2.9"),
    "lpm": ("43.2 ± 3.1", "57.8 ± 2.3", "61.9 ± 3.1", "58.1 ± 2.1"),
    "agm": ("59.7 ± 2.3", "62.7 ± 2.8", "67.5 ± 3.0", "77.2 ± 1.9"),
}
BUDGETS = {0.01: 8, 0.1: 16, 1.0: 16, 2.0: 16}
LABELS = {  # cross entropy, forward correction, Drop at epsilon_y 0.5, 1, 2, with the paper's steps for Drop
    0.5: ((2, 8), ("18.6", "18.6", "42.9 ± 1.5")),
    1.0: ((2, 8), ("25.5", "37.1", "69.3 ± 1.2")),
    2.0: ((8, 4), ("52.9", "75.1", "78.4 ± 0.7")),
}
GRID = {  # further learning parameters for the baseline: from none to much regularization
    f"decay {decay:g}, dropout {dropout:g}": {
        "learning_rate": 0.01,
        "weight_decay": decay,
        "dropout": dropout,
        "select": "likelihood",
    }
    for decay, dropout in ((0.0, 0.0), (0.001, 0.5), (0.01, 0.75), (0.1, 0.75))
}
HOPS = {"cora": 16, "pubmed": 16, "facebook_pages": 8}  # of the posterior's diffusion
POSTERIOR = {"x_steps": 16, "y_steps": 8, "posterior_steps": 16, "select": "likelihood", "m": "best"}
MOVED = ((0.1, 1.9), (0.5, 1.5), (1.5, 0.5))  # other divisions of the total 2 than (1, 1)
DENSE = {"x_steps": 8, "y_steps": 4, "posterior_steps": 8}  # at a mean degree of 15 instead of 4


@dataclass(frozen=True)
class Cell:
    """One setting of one experiment, and the published result."""

    experiment: str
    dataset: str
    setting: str
    parameters: dict[str, Any] = field(hash=False, compare=False)
    published: str = field(default="-", compare=False)
    method: Callable[..., Any] = field(default=LPGNN, hash=False, compare=False)


def cells() -> Iterator[Cell]:
    """Yield all cells."""
    yield from _published()
    yield from _mechanisms()
    yield from _labels()
    yield from _posterior()
    yield from _no_features()
    yield from _baseline()


def _published() -> Iterator[Cell]:
    for dataset, steps in X_STEPS.items():
        exact = {"eps_x": 1.0, "eps_y": INF, "x_steps": steps, "y_steps": 0, **QUICK}
        x, y = STEPS[dataset]
        noisy = {"eps_x": 1.0, "eps_y": 1.0, "x_steps": x, "y_steps": y, **NOISY[dataset]}
        for name, parameters in (("(1, inf)", exact), ("(1, 1)", noisy)):
            paper = PUBLISHED[dataset, parameters["eps_y"]]
            yield Cell("published", dataset, name, {**parameters, "m": "floor", **_scaling(dataset)}, paper)


def _mechanisms() -> Iterator[Cell]:
    for name, results in MECHANISMS.items():
        m = {"m": "floor"} if name == "multi-bit" else {}
        for (eps_x, steps), paper in zip(BUDGETS.items(), results, strict=True):
            parameters = {"features": name, "eps_x": eps_x, "eps_y": INF, "x_steps": steps, "y_steps": 0}
            yield Cell("mechanisms", "cora", f"{name}, {eps_x:g}", {**parameters, **QUICK, **m}, paper)


def _labels() -> Iterator[Cell]:
    for eps_y, ((x, y), results) in LABELS.items():
        base = {"eps_x": 1.0, "eps_y": eps_y, "x_steps": x, "m": "floor", **NOISY["cora"]}
        kinds = {
            "cross entropy": {"y_steps": 0, "forward_correction": False},
            "forward correction": {"y_steps": 0},
            "Drop": {"y_steps": y},
        }
        for (name, own), paper in zip(kinds.items(), results, strict=True):
            yield Cell("labels", "cora", f"{name}, {eps_y:g}", {**base, **own}, paper)


def _posterior() -> Iterator[Cell]:
    for dataset in STEPS:
        learning = {**NOISY["cora"], **_scaling(dataset)}
        paper = PUBLISHED[dataset, 1.0]
        both = {"eps_x": 1.0, "eps_y": 1.0}
        settings = POSTERIOR | DENSE if dataset == "facebook_pages" else POSTERIOR
        yield Cell("posterior", dataset, "posterior, (1, 1)", {**both, **settings, **learning}, paper)
        mixture = {**both, **settings, **learning, "prior": "mixture"}
        ways = {"mixture": {}, "mixture, posterior_use evidence": {"posterior_use": "evidence"}}
        for name, own in ways.items():
            yield Cell("posterior", dataset, f"{name}, (1, 1)", mixture | own, paper)
            subset = mixture | own | {"labels": "subset"}
            yield Cell("posterior", dataset, f"{name}, subset selection, (1, 1)", subset, paper)
        x, y = STEPS[dataset]
        published = {"x_steps": x, "y_steps": y, "m": "floor", **NOISY[dataset], **_scaling(dataset)}
        for eps_x, eps_y in MOVED:
            name = f"published method, ({eps_x:g}, {eps_y:g})"
            yield Cell("posterior", dataset, name, {"eps_x": eps_x, "eps_y": eps_y, **published}, paper)
        moved = {**mixture, "eps_x": 0.1, "eps_y": 1.9, "posterior_use": "evidence"}
        yield Cell("posterior", dataset, "mixture, posterior_use evidence, (0.1, 1.9)", moved, paper)
        split = {**POSTERIOR, "eps_x": 0.1, "eps_y": 1.9, "x_steps": 8, "y_steps": 4, "posterior_steps": 0}
        yield Cell("posterior", dataset, "split, (0.1, 1.9)", {**split, **learning}, paper)
        if dataset in SCALED:
            rows = {**NOISY["cora"], "scaling": "row"}
            yield Cell(
                "posterior", dataset, "posterior, scaled rows, (1, 1)", {**both, **POSTERIOR, **rows}, paper
            )


def _no_features() -> Iterator[Cell]:
    ways: dict[str, dict[str, Any]] = {
        "diffusion": {"prior": "diffusion", "labels": "rr"},
        "mixture": {"labels": "rr"},
        "mixture, subset selection": {"labels": "subset"},
    }
    for dataset, hops in HOPS.items():
        for eps_y in (1.0, 1.9, 2.0):
            for name, own in ways.items():
                parameters = {"eps_y": eps_y, "posterior_steps": hops, **own}
                yield Cell(
                    "no-features", dataset, f"{name}, (0, {eps_y:g})", parameters, method=LabelPosterior
                )


def _baseline() -> Iterator[Cell]:
    for cell in _published():
        yield Cell("baseline", cell.dataset, f"mlp, {cell.setting}", cell.parameters)
        for name, learning in GRID.items():
            yield Cell("baseline", cell.dataset, f"mlp, {cell.setting}, {name}", cell.parameters | learning)


def _scaling(dataset: str) -> dict[str, Any]:
    return SCALED.get(dataset, {})


def run(options: argparse.Namespace) -> None:
    """Run the missing cells, seed by seed."""
    done = {
        (cell["experiment"], cell["dataset"], cell["setting"], cell["seed"]) for cell in read(options.results)
    }
    wanted = [
        cell
        for cell in cells()
        if cell.experiment in options.experiments
        and cell.dataset in options.datasets
        and (options.settings is None or cell.setting in options.settings)
    ]
    recipe, graphs = RECIPES["lpgnn"].on_clients(), dict[str, Graph]()
    for seed in range(options.first, options.first + options.runs):
        for cell in wanted:
            key = (cell.experiment, cell.dataset, cell.setting)
            if (*key, seed) in done:
                continue
            if cell.dataset not in graphs:
                graph = load_dataset(cell.dataset, root=options.root, recipe=None)
                graphs[cell.dataset] = recipe.prepare(graph)
            split = recipe.split(graphs[cell.dataset], seed=seed)
            append(
                options.results,
                dict(zip(("experiment", "dataset", "setting"), key, strict=True))
                | {"seed": seed, **measured(split, cell, seed)},
            )


def measured(graph: Graph, cell: Cell, seed: int) -> dict[str, float]:
    """Return the test accuracy and the CPU seconds of one run."""
    paper = PAPER_SETTINGS if cell.method is LPGNN else {}
    settings = {
        "unit": "local-attributes",
        "seed": seed,
        "unsafe_noise_seed": seed,
        **paper,
        **cell.parameters,
    }
    baseline = cell.experiment == "baseline"
    collected = LPGNN(**{**settings, "epochs": 1}).fit(graph) if baseline else None  # for its LDP reports
    started = time.process_time()
    model = cell.method(**settings)
    if collected is None:
        model = model.fit(graph)
    else:
        model = model.no_graph_baseline().fit_same_reports(collected, graph)
    return {"accuracy": model.score(graph), "seconds": time.process_time() - started}


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one line."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(*line.values(), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return all runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(options: argparse.Namespace) -> None:
    """Print the table of each experiment."""
    lines = read(options.results)
    for experiment in EXPERIMENTS:
        wanted = [cell for cell in cells() if cell.experiment == experiment]
        runs = {cell: [line for line in lines if _is(line, cell)] for cell in wanted}
        if not any(runs.values()):
            continue
        print(f"\n**{experiment}**\n\n{HEAD}")
        for cell, own in runs.items():
            if own:
                seconds = np.mean([line["seconds"] for line in own])
                numbers = f"{interval([line['accuracy'] for line in own])} | {len(own)} | {seconds:.1f}"
                print(f"| {cell.dataset} | {cell.setting} | {cell.published} | {numbers} |")


def _is(line: dict[str, Any], cell: Cell) -> bool:
    return (line["experiment"], line["dataset"], line["setting"]) == (
        cell.experiment,
        cell.dataset,
        cell.setting,
    )


def interval(values: list[float]) -> str:
    """Return mean and half the width of the 95 percent interval, in percent."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else math.nan
    return f"{100 * np.mean(values):.1f} ± {100 * half:.1f}"


HEAD = "| dataset | setting | published | graphveil | runs | CPU s |\n|---|---|---|---|---|---|"
EXPERIMENTS = ("published", "mechanisms", "labels", "posterior", "no-features", "baseline")


def main() -> None:
    """Parse the command line, and run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="run the missing cells")
    running.add_argument("results", type=Path)
    running.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    running.add_argument("--datasets", nargs="+", default=list(STEPS))
    running.add_argument("--settings", nargs="+", default=None, help="run these settings only")
    running.add_argument("--runs", type=int, default=5)
    running.add_argument("--first", type=int, default=0, help="first seed")
    running.add_argument("--root", type=Path, default=None)
    running.set_defaults(command=run)
    showing = commands.add_parser("table", help="print the tables")
    showing.add_argument("results", type=Path)
    showing.set_defaults(command=table)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.command(options)


if __name__ == "__main__":
    main()
