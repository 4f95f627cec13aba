"""How accurate is LPGNN on randomized records, beside the published figures?

    python benchmarks/lpgnn.py run RESULTS.jsonl [--questions published ...] [--datasets cora ...] [--runs 5]
    python benchmarks/lpgnn.py table RESULTS.jsonl

``run`` adds a line to RESULTS.jsonl for each run and skips those that are there, so it can be stopped at any
time. ``table`` prints Markdown: means and 95 percent intervals (Student's t) in percent beside what the
paper's notebooks have. Splits, initial weights and noise follow the seed, so two settings of one question are
compared in pairs; a reproducible noise has no guarantee, and none is needed here.

Questions: ``published``, the paper's cells with its own steps and learning parameters; ``mechanisms``, what
randomizes features, at epsilon_y inf; ``labels``, plain cross entropy, forward correction and Drop at
epsilon_x 1; ``ours``, what beats the published figures at the same budget; ``alone``, what the graph and one
noisy label a person come to without any features, of the label posterior and by budget; ``baseline``, what an
MLP that reads no edge makes of the reports of the published cells, with their learning parameters and others.

PubMed's features are scaled column by column as in the paper, from everybody's data, but where a line says
that each node scales its own row; binary features need no scaling.
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
from graphveil.local.lpgnn import LPGNN

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
MECHANISMS = {  # the paper's figures at epsilon_x 0.01, 0.1, 1, 2, and its best steps there
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
HOPS = {"cora": 16, "pubmed": 16, "facebook_pages": 8}  # of the posterior's guess from afar
OURS = {"x_steps": 16, "y_steps": 8, "posterior_steps": 16, "select": "likelihood", "m": "best"}
MOVED = ((0.1, 1.9), (0.5, 1.5), (1.5, 0.5))  # a total of 2, dealt otherwise than (1, 1)
DENSE = {"x_steps": 8, "y_steps": 4, "posterior_steps": 8}  # at a mean degree of 15 instead of 4


@dataclass(frozen=True)
class Cell:
    """One setting of one question, and what the paper has for it."""

    question: str
    dataset: str
    setting: str
    parameters: dict[str, Any] = field(hash=False, compare=False)
    published: str = field(default="-", compare=False)
    method: Callable[..., Any] = field(default=LPGNN, hash=False, compare=False)


def cells() -> Iterator[Cell]:
    """Yield everything that can be measured."""
    yield from _published()
    yield from _mechanisms()
    yield from _labels()
    yield from _ours()
    yield from _alone()
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
    for name, figures in MECHANISMS.items():
        m = {"m": "floor"} if name == "multi-bit" else {}
        for (eps_x, steps), paper in zip(BUDGETS.items(), figures, strict=True):
            parameters = {"features": name, "eps_x": eps_x, "eps_y": INF, "x_steps": steps, "y_steps": 0}
            yield Cell("mechanisms", "cora", f"{name}, {eps_x:g}", {**parameters, **QUICK, **m}, paper)


def _labels() -> Iterator[Cell]:
    for eps_y, ((x, y), figures) in LABELS.items():
        base = {"eps_x": 1.0, "eps_y": eps_y, "x_steps": x, "m": "floor", **NOISY["cora"]}
        kinds = {
            "cross entropy": {"y_steps": 0, "forward_correction": False},
            "forward correction": {"y_steps": 0},
            "Drop": {"y_steps": y},
        }
        for (name, own), paper in zip(kinds.items(), figures, strict=True):
            yield Cell("labels", "cora", f"{name}, {eps_y:g}", {**base, **own}, paper)


def _ours() -> Iterator[Cell]:
    for dataset in STEPS:
        learning = {**NOISY["cora"], **_scaling(dataset)}
        paper = PUBLISHED[dataset, 1.0]
        both = {"eps_x": 1.0, "eps_y": 1.0}
        ours = OURS | DENSE if dataset == "facebook_pages" else OURS
        yield Cell("ours", dataset, "posterior, (1, 1)", {**both, **ours, **learning}, paper)
        mixture = {**both, **ours, **learning, "prior": "mixture"}
        ways = {"mixture": {}, "mixture, by evidence": {"posterior_use": "evidence"}}
        for name, own in ways.items():
            yield Cell("ours", dataset, f"{name}, (1, 1)", mixture | own, paper)
            several = mixture | own | {"labels": "subset"}
            yield Cell("ours", dataset, f"{name}, subset selection, (1, 1)", several, paper)
        x, y = STEPS[dataset]
        own_way = {"x_steps": x, "y_steps": y, "m": "floor", **NOISY[dataset], **_scaling(dataset)}
        for eps_x, eps_y in MOVED:
            name = f"the paper's method, ({eps_x:g}, {eps_y:g})"
            yield Cell("ours", dataset, name, {"eps_x": eps_x, "eps_y": eps_y, **own_way}, paper)
        moved = {**mixture, "eps_x": 0.1, "eps_y": 1.9, "posterior_use": "evidence"}
        yield Cell("ours", dataset, "mixture, by evidence, (0.1, 1.9)", moved, paper)
        split = {**OURS, "eps_x": 0.1, "eps_y": 1.9, "x_steps": 8, "y_steps": 4, "posterior_steps": 0}
        yield Cell("ours", dataset, "split, (0.1, 1.9)", {**split, **learning}, paper)
        if dataset in SCALED:
            rows = {**NOISY["cora"], "scaling": "row"}
            yield Cell("ours", dataset, "posterior, own rows, (1, 1)", {**both, **OURS, **rows}, paper)


def _alone() -> Iterator[Cell]:
    ways: dict[str, dict[str, Any]] = {
        "diffusion, as before": {"prior": "diffusion"},
        "mixture": {},
        "mixture, subset selection": {"labels": "subset"},
    }
    for dataset, hops in HOPS.items():
        for eps_y in (1.0, 1.9, 2.0):
            for name, own in ways.items():
                parameters = {"eps_y": eps_y, "posterior_steps": hops, **own}
                yield Cell("alone", dataset, f"{name}, (0, {eps_y:g})", parameters, method=LabelPosterior)


def _baseline() -> Iterator[Cell]:
    for cell in _published():
        yield Cell("baseline", cell.dataset, f"mlp, {cell.setting}", cell.parameters)
        for name, learning in GRID.items():
            yield Cell("baseline", cell.dataset, f"mlp, {cell.setting}, {name}", cell.parameters | learning)


def _scaling(dataset: str) -> dict[str, Any]:
    return SCALED.get(dataset, {})


def run(options: argparse.Namespace) -> None:
    """Run what is not there yet, seed by seed."""
    done = {
        (cell["question"], cell["dataset"], cell["setting"], cell["seed"]) for cell in read(options.results)
    }
    wanted = [
        cell
        for cell in cells()
        if cell.question in options.questions
        and cell.dataset in options.datasets
        and (options.settings is None or cell.setting in options.settings)
    ]
    recipe, graphs = RECIPES["lpgnn"].on_clients(), dict[str, Graph]()
    for seed in range(options.first, options.first + options.runs):
        for cell in wanted:
            key = (cell.question, cell.dataset, cell.setting)
            if (*key, seed) in done:
                continue
            if cell.dataset not in graphs:
                graph = load_dataset(cell.dataset, root=options.root, recipe=None)
                graphs[cell.dataset] = recipe.prepare(graph)
            split = recipe.split(graphs[cell.dataset], seed=seed)
            append(
                options.results,
                dict(zip(("question", "dataset", "setting"), key, strict=True))
                | {"seed": seed, **measured(split, cell, seed)},
            )


def measured(graph: Graph, cell: Cell, seed: int) -> dict[str, float]:
    """Return the test accuracy and the processor seconds of one run."""
    settings = {"unit": "local-attributes", "seed": seed, "unsafe_noise_seed": seed, **cell.parameters}
    beside = cell.question == "baseline"
    told = LPGNN(**{**settings, "epochs": 1}).fit(graph) if beside else None  # for its reports
    started = time.process_time()
    model = cell.method(**settings)
    model = model.fit(graph) if told is None else model.no_graph_baseline().fit_same_reports(told, graph)
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
    """Print the table of each question."""
    lines = read(options.results)
    for question in QUESTIONS:
        asked = [cell for cell in cells() if cell.question == question]
        found = {cell: [line for line in lines if _is(line, cell)] for cell in asked}
        if not any(found.values()):
            continue
        print(f"\n**{question}**\n\n{HEAD}")
        for cell, own in found.items():
            if own:
                seconds = np.mean([line["seconds"] for line in own])
                figures = f"{interval([line['accuracy'] for line in own])} | {len(own)} | {seconds:.1f}"
                print(f"| {cell.dataset} | {cell.setting} | {cell.published} | {figures} |")


def _is(line: dict[str, Any], cell: Cell) -> bool:
    return (line["question"], line["dataset"], line["setting"]) == (cell.question, cell.dataset, cell.setting)


def interval(values: list[float]) -> str:
    """Return mean and half the width of the 95 percent interval, in percent."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else math.nan
    return f"{100 * np.mean(values):.1f} ± {100 * half:.1f}"


HEAD = "| data set | setting | paper | here | runs | processor s |\n|---|---|---|---|---|---|"
QUESTIONS = ("published", "mechanisms", "labels", "ours", "alone", "baseline")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("run")
    asking.add_argument("results", type=Path)
    asking.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    asking.add_argument("--datasets", nargs="+", default=list(STEPS))
    asking.add_argument("--settings", nargs="+", default=None, help="only these rows")
    asking.add_argument("--runs", type=int, default=5)
    asking.add_argument("--first", type=int, default=0, help="the first seed")
    asking.add_argument("--root", type=Path, default=None)
    asking.set_defaults(command=run)
    showing = commands.add_parser("table")
    showing.add_argument("results", type=Path)
    showing.set_defaults(command=table)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.command(options)


if __name__ == "__main__":
    main()
