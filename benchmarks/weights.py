"""Measure the effect of aggregation weights on the test accuracy of GAP and ClassCode.

    python benchmarks/weights.py --out runs.jsonl [--datasets facebook_pages,amazon/computers] [--runs 10]
        [--epsilons 1,2,4,8] [--rows mlp,gap,gap:sigmoid_cos,gap:sigmoid_cos:paper,classcode]
        [--unit undirected-edge] [--delta 1e-5] [--against gap] [--recipe weighted] [--only-print]

A row is a method, a weight and a mode. The output file has one JSON line per run, so an interrupted command
resumes. A table for each dataset has the mean test accuracy over the runs (one split each) with the
half-width of its 95 % interval (Student's t). In brackets is the paired difference to the row ``--against``
at the same epsilon, with its interval. All rows have one hop.

``gap:sigmoid_cos_as_one`` is the weight with noise for a bound of 1, as in the calibration of the paper.
Under ``--unit directed-edge`` each stored direction of an undirected graph is protected separately, as in the
paper. The runs of a split share public computations: the encoder of GAP, the posteriors of ClassCode.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy import stats

from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.errors import CalibrationError
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.mlp import MLP
from graphveil.papers.weights import SigmoidCos
from graphveil.release.weights import register_weight

ROWS = (
    "mlp",
    "gap",
    "gap:sigmoid_cos",
    "gap:exp_cos",
    "gap:half_cos",
    "gap:relu_cos",
    "gap:jaccard",
    "gap:class_agree",
    "gap:posterior_dot",
    "gap:learned_public",
    "gap:sigmoid_cos:paper",
    "gap:attention",
    "gap:attention:paper",
    "classcode",
)
SHARED = ("encoder.*", "posterior-*")  # stages of a workspace that depend on the split only

Cell = dict[str, Any]  # one line of the output


class SigmoidCosAsOne(SigmoidCos):
    """The logistic weight with sensitivity 1, as in the paper."""

    @property
    def bound(self) -> float:
        """Return the bound of Lemma 1 of the paper."""
        return 1.0


@dataclass(frozen=True)
class Row:
    """A table row."""

    method: str
    weights: str = "one"
    mode: str = "strict"

    @classmethod
    def parse(cls, text: str) -> "Row":
        """Return the row of a text such as ``gap:sigmoid_cos:paper``."""
        return cls(*text.split(":"))

    def model(self, unit: str, epsilon: float | None, delta: float, seed: int) -> Estimator:
        """Return the model of a run."""
        if self.method == "mlp":
            return MLP(unit=unit, seed=seed)
        given: dict[str, Any] = {"unit": unit, "epsilon": epsilon, "delta": delta, "seed": seed}
        if self.method == "classcode":
            return ClassCode(**given, **({} if self.weights == "one" else {"weights": self.weights}))
        method = METHODS["gap-paper" if self.mode == "paper" else "gap"]
        return method(**given, hops=1, weights=self.weights)


def main() -> None:
    """Run the missing cells, and print the tables."""
    options = _options()
    torch.set_num_threads(1)
    register_weight("sigmoid_cos_as_one", SigmoidCosAsOne)
    if not options.only_print:
        for name in options.datasets:
            _sweep(name, options)
    done = list(_read(options.out))
    for name in options.datasets:
        print(_table(name, options, done), flush=True)


def _sweep(name: str, options: argparse.Namespace) -> None:
    """Append the missing runs of a dataset to the output file."""
    graph = _prepared(name, options)
    for run in range(options.runs):
        missing = list(_missing(name, run, options))
        if not missing:
            continue
        part = RECIPES[options.recipe].split(graph, run)
        with tempfile.TemporaryDirectory() as shared:
            for text, epsilon in missing:
                cell = _key(name, text, epsilon, run, options) | _measured(
                    Row.parse(text).model(options.unit, epsilon, options.delta, run), part, Path(shared), text
                )
                with options.out.open("a") as file:
                    file.write(json.dumps(cell) + "\n")


def _prepared(name: str, options: argparse.Namespace) -> Graph:
    """Return the graph as the recipe prepares it, without a split, which may remove edges."""
    graph = RECIPES[options.recipe].prepare(load_dataset(name, recipe=None, root=options.root))
    if options.unit != "directed-edge" or graph.directed:
        return graph
    return graph.replace(adjacency=dataclasses.replace(graph.adjacency, directed=True))


def _missing(name: str, run: int, options: argparse.Namespace) -> Iterator[tuple[str, float | None]]:
    done = [{k: v for k, v in cell.items() if k not in _FOUND} for cell in _read(options.out)]
    for text in options.rows:
        for epsilon in [None] if text == "mlp" else options.epsilons:
            if _key(name, text, epsilon, run, options) not in done:
                yield text, epsilon


_FOUND = ("accuracy", "seconds", "noise", "rejected")


def _key(name: str, text: str, epsilon: float | None, run: int, options: argparse.Namespace) -> Cell:
    """Return the key of a run."""
    where = {"dataset": name, "recipe": options.recipe, "unit": options.unit, "delta": options.delta}
    return where | {"row": text, "epsilon": epsilon, "run": run}


def _measured(model: Estimator, graph: Graph, shared: Path, text: str) -> Cell:
    """Return the accuracy, the CPU seconds and the last noise of a run, or the error of its calibration."""
    # Paper mode has another encoder than strict mode.
    kept = shared / ("paper" if text.endswith(":paper") else "strict")
    kept.mkdir(exist_ok=True)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        shutil.copytree(kept, work)
        try:
            accuracy = model.fit(graph, workspace=work).score(graph)
        except CalibrationError as error:
            return {"accuracy": None, "rejected": str(error)}
        if not isinstance(model, MLP):
            for stage in (path for pattern in SHARED for path in work.glob(pattern)):
                shutil.copy(stage, kept)
    noise = None if model.plan_ is None else model.plan_.noise_std[-1]
    return {"accuracy": accuracy, "seconds": round(time.process_time() - start, 2), "noise": noise}


def _read(path: Path) -> Iterator[Cell]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _table(name: str, options: argparse.Namespace, done: list[Cell]) -> str:
    """Return the Markdown table of a dataset."""
    setting = f"recipe {options.recipe}, {options.unit}, delta {options.delta:g}"
    title = f"{name}, {setting}, {options.runs} runs; against {options.against}"
    lines = [
        f"\n{title}\n",
        f"| row | {' | '.join(f'epsilon {epsilon:g}' for epsilon in options.epsilons)} | CPU s |",
        f"|---|{'---|' * (len(options.epsilons) + 1)}",
    ]
    for text in options.rows:
        cells = [_cell(name, text, epsilon, options, done) for epsilon in options.epsilons]
        lines.append(f"| {text} | {' | '.join(cells)} | {_seconds(name, text, options, done)} |")
    return "\n".join(lines)


def _cell(name: str, text: str, epsilon: float, options: argparse.Namespace, done: list[Cell]) -> str:
    mine = _accuracies(name, text, epsilon, options, done)
    if None in mine.values():
        return "rejected"
    theirs = _accuracies(name, options.against, epsilon, options, done)
    accuracy = _interval(mine.values())
    pairs = [mine[run] - theirs[run] for run in mine if theirs.get(run) is not None]
    return accuracy if text == options.against else f"{accuracy} ({_interval(pairs, '+')})"


def _accuracies(
    name: str, text: str, epsilon: float, options: argparse.Namespace, done: list[Cell]
) -> dict[int, Any]:
    """Return accuracies in percent by run; None if the calibration was rejected."""
    wanted = _key(name, text, None if text == "mlp" else epsilon, 0, options)
    del wanted["run"]
    return {
        cell["run"]: None if cell["accuracy"] is None else 100 * cell["accuracy"]
        for cell in done
        if cell["run"] < options.runs and wanted.items() <= cell.items()
    }


def _seconds(name: str, text: str, options: argparse.Namespace, done: list[Cell]) -> str:
    """Return the median CPU seconds of a row; most runs reuse the public computations of the split."""
    wanted = _key(name, text, None, 0, options)
    del wanted["run"], wanted["epsilon"]
    found = [cell["seconds"] for cell in done if wanted.items() <= cell.items() and "seconds" in cell]
    return f"{statistics.median(found):.1f}" if found else "-"


def _interval(values: Iterable[float], sign: str = "") -> str:
    """Return a mean and the half-width of its 95 % interval."""
    found = list(values)
    if not found:
        return "-"
    mean = statistics.fmean(found)
    if len(found) == 1:
        return f"{mean:{sign}.1f}"
    half = stats.t.ppf(0.975, len(found) - 1) * statistics.stdev(found) / len(found) ** 0.5
    return f"{mean:{sign}.1f} ± {half:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file of results; is continued")
    parser.add_argument("--datasets", default="facebook_pages,amazon/computers", help="names of datasets")
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, separated by commas")
    parser.add_argument("--epsilons", default="1,2,4,8", help="values of epsilon")
    parser.add_argument("--runs", type=int, default=10, help="number of splits")
    parser.add_argument("--delta", type=float, default=1e-5, help="delta")
    parser.add_argument("--unit", default="undirected-edge", choices=("undirected-edge", "directed-edge"))
    parser.add_argument("--recipe", default="weighted", choices=tuple(RECIPES))
    parser.add_argument("--against", default="gap", help="row to compute differences to")
    parser.add_argument("--root", type=Path, help="folder of the datasets")
    parser.add_argument("--only-print", action="store_true", help="print the tables only")
    options = parser.parse_args()
    options.datasets, options.rows = options.datasets.split(","), options.rows.split(",")
    options.epsilons = [float(epsilon) for epsilon in options.epsilons.split(",")]
    return options


if __name__ == "__main__":
    main()
