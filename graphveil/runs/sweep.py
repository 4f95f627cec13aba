"""A sweep: a grid of experiments on one dataset, and the total privacy cost of the grid.

A grid is method x epsilon x settings. Every cell is constructed with it, so an invalid one raises an error
before anything is spent.

Every cell is an experiment with its own run folder, and behaves like ``train``: it is charged before it is
computed, published in one step, and resumed after an interruption. The cells read one dataset, so their
guarantees compose, and that total is known before the first cell begins.
"""

import csv
import io
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.display import html_table
from graphveil._util.files import as_path, write_atomic
from graphveil.core.backends import AggregationBackend
from graphveil.core.ledger import Entry, PrivacyLedger, attach_ledger, charge, ledger_of
from graphveil.core.unit import DirectedEdge, NoUnit, UndirectedEdge
from graphveil.data import Graph, Interactions
from graphveil.data.fingerprint import fingerprint_parts
from graphveil.data.graph_files import SerializedGraph
from graphveil.data.relational import Tables
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import (
    BudgetError,
    ConfigError,
    InputError,
    MissingDependencyError,
    PrivacyError,
    RunError,
    UnitError,
)
from graphveil.estimators.requirements import as_graph
from graphveil.estimators.saved import parameter_types
from graphveil.ledger import DataSetLedger, Ledger
from graphveil.ledger.reservations import PLANNED_LABEL
from graphveil.links import LINKS, RECOMMENDER
from graphveil.privacy import Guarantee
from graphveil.publish.charts import Series, accuracy_chart, has_epsilon, pdf_file, svg_file
from graphveil.publish.results import (
    LINK_METRIC_NAMES,
    LINK_METRICS,
    METRIC_NAMES,
    Summary,
    default_metric,
    metric_summary,
)
from graphveil.publish.schemas import plain_parameters
from graphveil.runs.charges import RunAccount
from graphveil.runs.experiment import Experiment, Preview, combined_guarantee, graph_of, preview
from graphveil.runs.grid import CELLS, OnProgress, open_grid, run_tasks
from graphveil.runs.parameters import check_parameters, load_custom_code, model_class
from graphveil.runs.run import BASELINE_METHOD, run
from graphveil.runs.run_folder import RunFolder, check_data, default_folder, read_json
from graphveil.runs.source import InMemorySource, ListSource, PublicFlags, Source

MAX_CELLS = 1000
_PRIVACY = (  # what a reference without privacy does without
    *("epsilon", "delta", "max_units", "out_degree_bound", "max_degree", "replace_one", "private_metrics"),
    *("unsafe_noise_seed", "perturb", "max_edges", "theta"),
)
_LONGEST_NAME, _LONGEST_LIST = 80, 8  # letters of a cell's folder, values that are written out


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One experiment of a grid.

    Args:
        epsilon: Its position on the axis; None if the result does not depend on the budget.
        settings: The swept values that its method has.
        include_nonprivate: Whether it is the non-private reference of the method.
    """

    experiment: Experiment
    epsilon: float | None
    settings: Mapping[str, Any]
    include_nonprivate: bool = False
    number: int = 0

    @property
    def series(self) -> str:
        words = [
            self.experiment.method,
            self.settings_text,
            "without privacy" if self.include_nonprivate else "",
        ]
        return " ".join(word for word in words if word)

    @property
    def settings_text(self) -> str:
        return " ".join(f"{key}={format_setting(value)}" for key, value in self.settings.items())

    @property
    def name(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        words = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{self.series}{budget}").strip("-")
        return f"{self.number:03d}-{words[:_LONGEST_NAME]}"


def format_setting(value: Any) -> str:
    """Return a setting's value as shown in tables and figures.

    >>> format_setting((0.5, 0.5)), format_setting((0.001,) * 1000)
    ('(0.5, 0.5)', '1000 values')
    """
    long = isinstance(value, tuple) and len(value) > _LONGEST_LIST
    return f"{len(value)} values" if long else str(value)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid of experiments: method x epsilon x settings, on one dataset.

    A setting applies to the methods that have it. An experiment that does not depend on the budget is one
    cell for all budgets: the MLP for edge-level privacy units, which reads no edges, and everything under
    unit ``none``. Cells have no baseline, which node-level privacy units would charge in each; add ``mlp`` to
    the methods instead.

    Args:
        epsilons: The budgets; none for methods whose budgets are settings.
        parameters: Constructor keywords of all methods: unit, delta, mode, ...
        include_nonprivate: Whether to add non-private references: each method under unit ``none``, if
            it supports that.
        public: Under ``edge-subset``: the public edges, and the nodes that may have private ones.

    >>> grid = Sweep(methods=("gap", "mlp"), source=Source(dataset="cora"), epsilons=(1.0, 2.0),
    ...              parameters={"unit": "undirected-edge"}, settings={"hops": (1, 2)})
    >>> [cell.name for cell in grid.cells][:2], grid.cells[-1].name
    (['001-gap-hops-1-epsilon-1', '002-gap-hops-1-epsilon-2'], '005-mlp')
    """

    methods: tuple[str, ...]
    source: Source
    epsilons: tuple[float, ...] = ()
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    runs: int = 1
    seed: int = 0
    include_nonprivate: bool = False
    public: PublicFlags = field(default_factory=PublicFlags)

    def __post_init__(self) -> None:
        _check_choices("METHOD", self.methods)
        tasks = (self.source.task, self.parameters.get("task"), *self.settings.get("task", ()))
        if REGRESSION in tasks:
            raise ConfigError(
                "A sweep compares accuracies, but regression has none. Train once per budget with "
                "task='regression'."
            )
        self._check_link_methods()
        for method in self.methods:  # before any value is compared, which arrays cannot be
            cls = model_class(method)
            check_parameters(cls, self.parameters)
            for key, values in self.settings.items():
                for value in values if _has(method, key) else ():
                    check_parameters(cls, {key: value})
        if self.epsilons:
            _check_choices("epsilon", self.epsilons)
        for key, values in self.settings.items():
            _check_choices(key, values)
            if key in self.parameters or key in ("epsilon", "seed", "unit"):
                raise ConfigError(f"{key} is a separate argument of a sweep. Remove it from the settings.")
            if not any(_has(method, key) for method in self.methods):
                raise ConfigError(
                    f"No method of this sweep ({', '.join(self.methods)}) has a parameter {key!r}. Remove it."
                )
        checks.within(1, MAX_CELLS, cells=len(self.cells))

    def _check_link_methods(self) -> None:
        if not {LINKS, RECOMMENDER} & {*self.methods}:
            if isinstance(self.source, ListSource):
                raise ConfigError(
                    "items (--items) is only for recommender, which is not in this sweep. Remove it."
                )
            return
        if len(self.methods) > 1:
            raise ConfigError(
                f"{', '.join(self.methods)} have no common metric: links are compared by ROC-AUC, "
                "recommenders by hit rate, and other methods by accuracy. Run a separate sweep for each."
            )
        unused = {"recipe": self.recipe, "include_nonprivate": self.include_nonprivate, **self.public.given}
        for name, value in unused.items():
            if value:
                raise ConfigError(f"Method {self.methods[0]} does not use {name}. Remove it.")
        metrics = {"held_out": 0.1} if self.methods == (LINKS,) else {"private_metrics": False}
        for name, default in metrics.items():
            if not all(self.settings.get(name, (self.parameters.get(name, default),))):
                raise ConfigError(
                    f"A sweep of {self.methods[0]} compares its released metric, which needs {name}. Set "
                    f"{name}={'0.1' if name == 'held_out' else 'True (--private-metrics)'}."
                )

    @cached_property
    def cells(self) -> tuple[SweepCell, ...]:
        """Every experiment of the grid, in order: by method, settings, epsilon; references last."""
        found = [cell for method in self.methods for cell in self._cells_of(method)]
        if self.include_nonprivate:
            found += [cell for method in self.methods for cell in self._cells_of(method, nonprivate=True)]
        return tuple(replace(cell, number=number) for number, cell in enumerate(found, 1))

    def _cells_of(self, method: str, *, nonprivate: bool = False) -> Iterator[SweepCell]:
        """Yield the cells of a method, or its non-private references: none if it has no such form."""
        axes: dict[str, Sequence[Any]] = {
            key: values for key, values in self.settings.items() if _has(method, key)
        }
        parameters, unit = self.parameters, self.parameters.get("unit")
        unread = method == BASELINE_METHOD and unit in (UndirectedEdge.name, DirectedEdge.name)
        if self.epsilons and not unread and unit != NoUnit.name:
            axes["epsilon"] = self.epsilons
        elif nonprivate:  # no budget decides about it: it is its own reference
            return
        if nonprivate:
            axes = {name: values for name, values in axes.items() if name not in _PRIVACY}
            kept = {name: value for name, value in parameters.items() if name not in _PRIVACY}
            parameters = {**kept, "unit": NoUnit.name}
            try:
                self._experiment(method, parameters)
            except UnitError:
                return
        for values in product(*axes.values()):
            settings = dict(zip(axes, values, strict=True))
            experiment = self._experiment(method, {**parameters, **settings})
            epsilon = settings.pop("epsilon", None)
            yield SweepCell(
                experiment=experiment, epsilon=epsilon, settings=settings, include_nonprivate=nonprivate
            )

    def _experiment(self, method: str, parameters: Mapping[str, Any]) -> Experiment:
        public = PublicFlags() if parameters.get("unit") == NoUnit.name else self.public
        return Experiment(
            method, self.source, parameters, self.recipe, self.runs, self.seed, compare=False, public=public
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "methods": list(self.methods),
            "epsilon": list(self.epsilons),
            "recipe": self.recipe,
            "runs": self.runs,
            "seed": self.seed,
            "include_nonprivate": self.include_nonprivate,
            **{f"data.{name}": value for name, value in self.source.as_dict().items()},
            **{f"public.{name}": value for name, value in self.public.given.items()},
            **{f"sweep.{name}": list(values) for name, values in sorted(self.settings.items())},
            **{f"set.{name}": value for name, value in plain_parameters(dict(self.parameters)).items()},
        }


def _has(method: str, key: str) -> bool:
    return key in parameter_types(model_class(method))


def _check_choices(name: str, values: Sequence[object]) -> None:
    if not values:
        raise ConfigError(
            f"{name} is an empty list, so the sweep has no configurations. Give at least one value, "
            "for example a,b,c."
        )
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise ConfigError(
            f"{name}: {twice[0]!s} is given twice, and each would spend privacy budget. Keep one."
        )


# -- the plan ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The plan that is shown before anything is spent.

    ``total`` is the guarantee of all cells together, None if no protected data are queried.
    """

    sweep: Sweep
    raw: Graph
    previews: tuple[Preview, ...]  # cells that are prepared alike share their data
    total: Guarantee | None


def plan_sweep(sweep: Sweep) -> SweepPlan:
    """Read the data, check every cell that can be checked, and return the plan; nothing is spent."""
    prepared: dict[tuple[object, ...], Any] = {}
    data = sweep.cells[0].experiment.read()
    previews = tuple(_plan_cell(cell.experiment, data, prepared) for cell in sweep.cells)
    return SweepPlan(sweep=sweep, raw=graph_of(data), previews=previews, total=total_of(previews))


def _plan_cell(
    experiment: Experiment, data: Graph | Interactions, prepared: dict[tuple[object, ...], Any]
) -> Preview:
    """Return the plan of a cell; cells that are prepared alike share their data."""
    if experiment.preparation not in prepared:
        prepared[experiment.preparation] = experiment.prepared(data)
    # Planned fits of all cells together may not fit in memory.
    return replace(preview(experiment, prepared[experiment.preparation]), fits=None)


def _is_charged(plan: Preview) -> bool:
    return plan.guarantee.releases > 0 and plan.guarantee.unit != NoUnit.name


def total_of(previews: Iterable[Preview]) -> Guarantee | None:
    """Return the guarantee of several cells together, every run of each counted; None if they query nothing.

    It is stated at the largest delta among them.
    """
    requested = filter(_is_charged, previews)
    single = [one.guarantee for one in requested for _ in range(one.experiment.runs)]
    return combined_guarantee(sorted(single, key=lambda one: -one.delta)) if single else None


def account_of(plan: SweepPlan, ledger: str | None) -> RunAccount | None:
    """Return the account of the sweep's data, attached to every graph that a cell queries, if any does."""
    if plan.total is None:
        return None
    account = RunAccount.from_parts(fingerprint_parts(plan.raw), plan.total, ledger)
    for edges in {one.graph.edge_set for one in plan.previews if _is_charged(one)}:
        attach_ledger(edges, account.ledger)
    return account


# -- results -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    Args:
        grid: its cells as they were configured.
        cells: what ``train --json`` prints, of each.
        total: the guarantee of all cells together; None if no protected data were queried.
    """

    grid: tuple[SweepCell, ...]
    cells: tuple[dict[str, Any], ...]
    total: Guarantee | None
    out: Path

    @property
    def metric(self) -> str | None:
        """The metric that the table shows next to the accuracy: that of all cells, or else a default one.

        For links and recommenders it is the released metric that takes the place of the accuracy.
        """
        if self.grid[0].experiment.pairs:
            return LINK_METRICS[self.grid[0].experiment.method]
        chosen = {cell.experiment.parameters.get("metric") for cell in self.grid}
        if chosen == {None}:
            chosen = {default_metric(metrics) for metrics in self.cells}
        return chosen.pop() if len(chosen) == 1 else None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One flat record a cell, as in ``sweep.csv``; ``pandas.DataFrame(result.rows)`` is a frame."""
        rows = list[dict[str, Any]]()
        for cell, metrics in zip(self.grid, self.cells, strict=True):
            found, private = accuracy_of(metrics), metrics.get("private_accuracy")
            chosen = (
                Summary.from_values([None]) if self.metric is None else metric_summary(metrics, self.metric)
            )
            row = {
                "cell": cell.name,
                "method": cell.experiment.method,
                "settings": cell.settings_text,
                "include_nonprivate": cell.include_nonprivate,
                "unit": metrics["unit"],
                "mode": metrics["mode"],
                "epsilon": cell.epsilon,
                "delta": metrics["delta"],
                "runs": metrics["runs"],
                "accuracy": found.mean,
                **dict(zip(("ci95_low", "ci95_high"), found.ci95 or (None, None), strict=True)),
                "covered": bool(private["covered"] if private else metrics["covered"]),
                "metric": self.metric,
                "metric_value": chosen.mean,
                **dict(zip(("metric_low", "metric_high"), chosen.ci95 or (None, None), strict=True)),
            }
            rows.append(row)
        return rows

    def _repr_html_(self) -> str:
        rows = self.rows
        head = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
        cells = [
            [f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in head]
            for row in rows
        ]
        return html_table(head, cells)

    @property
    def uncovered(self) -> bool:
        """Whether an accuracy in it follows from protected data without a guarantee."""
        return not all(row["covered"] for row in self.rows)

    @property
    def series(self) -> list[Series]:
        """Accuracy over epsilon by method and settings, or the metric of links and recommenders.

        What has no epsilon is a level.
        """
        linked = self.grid[0].experiment.pairs
        return self._series(partial(metric_summary, name=str(self.metric)) if linked else accuracy_of)

    def _series(self, value_of: Callable[[Mapping[str, Any]], Summary]) -> list[Series]:
        lines = dict[str, list[tuple[float | None, Summary]]]()
        for cell, metrics in zip(self.grid, self.cells, strict=True):
            lines.setdefault(cell.series, []).append((cell.epsilon, value_of(metrics)))
        return [Series.from_points(name, points) for name, points in lines.items()]

    def write(self) -> None:
        """Write ``sweep.csv`` and, if there is more than non-private levels, the figure; each in one step."""
        text = io.StringIO()
        rows = self.rows
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.out / "sweep.csv", text.getvalue().encode())
        linked, metric = self.grid[0].experiment.pairs, self.metric
        figures = [("curve", LINK_METRIC_NAMES[str(metric)] if linked else "test accuracy", self.series)]
        if not linked and metric in METRIC_NAMES:
            values = self._series(partial(metric_summary, name=metric))
            figures.append(("metric", f"test {METRIC_NAMES[metric]}", values))
        for name, outcome, series in figures:
            if has_epsilon(series):
                draw = partial(accuracy_chart, series, label=f"{outcome}, %")
                if linked and self.cells[0]["runs"] == 1:
                    draw = partial(draw, intervals="bars and bands: 95 % intervals of the noise")
                title = f"{outcome[0].upper()}{outcome[1:]} over epsilon"
                write_atomic(self.out / f"{name}.svg", svg_file(draw, title).encode())
                write_atomic(self.out / f"{name}.pdf", pdf_file(draw, title))


def accuracy_of(metrics: Mapping[str, Any]) -> Summary:
    """Return a cell's test accuracy: from charged noisy counts where there are some, else the exact one.

    Links and recommenders have none.
    """
    if "metric_values" in metrics:
        return Summary.from_values([None])
    private = metrics["private_accuracy"]
    return Summary.from_values((private["test"] if private else metrics["test_accuracy"])["values"])


# -- running -----------------------------------------------------------------------------------------------


def run_sweep(
    plan: SweepPlan,
    folder: RunFolder,
    on_progress: OnProgress,
    account: RunAccount | None = None,
    *,
    resume: bool = False,
    jobs: int = 1,
    backend: AggregationBackend | str | None = None,
    own: Sequence[str] = (),
) -> SweepResult:
    """Run the cells of a plan, ``jobs`` in parallel, skipping finished ones, and write table and figure.

    The sweep's folder is opened like a run's: one process at a time, with the configuration and the data of
    the first call. Public posteriors are trained once, in its working folder. The number of jobs does not
    affect results, and may change on resuming. ``own`` are the user's own files, which each job needs.

    Raises:
        BudgetError: The ledger has no room for the cells that have not begun. Nothing was spent on them.
        GraphError: The graph has grown and has several ledgers, which workers do not support.
    """
    if jobs > 1 and backend == "disk":
        raise ConfigError(
            "jobs= (--jobs) copies the graph to each process, but backend='disk' (--backend disk) "
            "does not load it into memory. Remove one of them, or use backend='ray'."
        )
    if jobs > 1 and isinstance(plan.sweep.source, ListSource):
        raise ConfigError("A sweep of recommenders runs in one process. Remove jobs (--jobs).")
    cells = plan.sweep.cells
    run_one = partial(run_cell, folder=folder, count=len(cells), backend=backend)
    with open_grid(folder, plan.sweep.as_dict(), resume=resume):
        check_data(folder, plan.raw)
        # Raise an error now instead of in the middle of the grid.
        begun = [cell_folder(folder, cell).lock.is_file() for cell in cells]
        to_come = total_of(one for one, known in zip(plan.previews, begun, strict=True) if not known)
        if account is not None and to_come is not None:
            account.check_room(to_come)
        left = [number for number, cell in enumerate(cells) if not cell_folder(folder, cell).complete]
        if min(jobs, len(left)) > 1:  # workers leave the cells finished, and their results are read below
            how: dict[str, Any] = {"jobs": jobs, "own": own, "resume": resume}
            try:
                _run_in_workers(plan, left, run_one, on_progress, account, **how)
            except (InputError, PrivacyError, MissingDependencyError) as error:
                # Nothing was spent on the rejected cell, but other cells may have been charged.
                if account is None or begun == [cell_folder(folder, cell).lock.is_file() for cell in cells]:
                    raise
                raise RunError(f"{error} Other cells that began stay charged.") from error
        metrics = tuple(
            run_one(cell, one, on_progress, account) for cell, one in zip(cells, plan.previews, strict=True)
        )
        result = SweepResult(cells, metrics, plan.total, folder.root)
        result.write()
    return result


def run_cell(
    cell: SweepCell,
    plan: Preview,
    show: OnProgress,
    account: RunAccount | None,
    *,
    folder: RunFolder,
    count: int,
    backend: AggregationBackend | str | None = None,
) -> dict[str, Any]:
    own = cell_folder(folder, cell)
    begun = own.lock.is_file()
    if not begun:  # killed before its configuration was locked: no query can have been answered
        shutil.rmtree(own.root, ignore_errors=True)
    own.check(cell.experiment.as_dict(), resume=begun)
    if own.complete:
        return read_json(own.metrics)
    prefix = f"cell {cell.number}/{count} "
    charged = None if account is None or not plan.guarantee.releases else account.for_next_experiment()
    return run(
        plan,
        own,
        lambda stage, done, total: show(prefix + stage, done, total),
        charged,
        resume=begun,
        shared=folder.work / "public",
        backend=backend,
    )


def cell_folder(folder: RunFolder, cell: SweepCell) -> RunFolder:
    return RunFolder(folder.root / CELLS / cell.name)


def _run_in_workers(
    plan: SweepPlan,
    numbers: Sequence[int],
    run_one: Callable[..., dict[str, Any]],
    show: OnProgress,
    account: RunAccount | None,
    *,
    jobs: int,
    own: Sequence[str],
    resume: bool,
) -> None:
    charged = defaultdict[PrivacyLedger, list[int]](list)
    for number in numbers:
        if _is_charged(plan.previews[number]):
            charged[ledger_of(plan.previews[number].graph.edge_set)].append(number)
    configuration = {part.name: getattr(plan.sweep, part.name) for part in fields(Sweep)}
    if isinstance(plan.sweep.source, InMemorySource):  # a worker has its graph already
        del configuration["source"]
    with ExitStack() as stack:
        ledgers = dict[int, DataSetLedger]()
        for ledger, cells in charged.items():
            planned = total_of(plan.previews[number] for number in cells)
            assert planned is not None
            opened = stack.enter_context(_opened_by_workers(ledger, planned, resume=resume))
            ledgers |= dict.fromkeys(cells, opened)
        worker = CellWorker(
            sent=SerializedGraph.from_graph(plan.raw),
            configuration=configuration,
            run_one=run_one,
            ledgers=ledgers,
            account=account,
            own=own,
            threads=max(1, (os.cpu_count() or 1) // jobs),
        )
        for _ in run_tasks(numbers, worker, jobs=jobs, on_progress=show):
            pass


@contextmanager
def _opened_by_workers(ledger: PrivacyLedger, planned: Guarantee, *, resume: bool) -> Iterator[DataSetLedger]:
    """Return a ledger that workers can open: a temporary one, if this one is in memory.

    A ledger in memory is charged with the plan of all cells before the workers start, so its limit applies to
    all of them together. At the end, the entries of the workers replace that charge.
    """
    if isinstance(ledger, DataSetLedger):
        yield ledger
        return
    charges = [
        Entry(token_hex(16), PLANNED_LABEL, one.event, one.slack, one.protected)
        for one in (planned, *planned.additional)
    ]
    with TemporaryDirectory(prefix="graphveil-") as folder:
        store = Ledger(Path(folder) / "ledger.sqlite")
        store.init("sweep", planned.protected)
        shared = store.data_set("sweep")
        for entry in ledger.entries if resume else ():  # a release that is resumed is charged once
            charge(shared, entry)
        try:
            for entry in charges:
                charge(ledger, entry)
            yield shared
        finally:
            entries = [entry for entry in shared.entries if not ledger.contains(entry.release_id)]
            _replace_entries(ledger, charges, entries)
            store.close()


def _replace_entries(ledger: PrivacyLedger, planned: Sequence[Entry], entries: Sequence[Entry]) -> None:
    """Replace planned entries by those of which noise was drawn, unless rounding makes these larger."""
    for entry in planned:
        ledger.refund(entry.release_id)
    try:
        for entry in entries:
            charge(ledger, entry)
    except BudgetError:
        for entry in entries:
            ledger.refund(entry.release_id)
        entries = planned
        for entry in entries:
            charge(ledger, entry)
    for entry in entries:
        ledger.commit(entry.release_id)


@dataclass(kw_only=True)
class CellWorker:
    """Runs cells by their numbers in a worker, which gets the graph once. Results stay in the cells' folders.

    Args:
        sent: The graph as read.
        configuration: Arguments of the sweep; without a source, its graph was passed in memory.
        ledgers: The ledger of each cell that is charged.
        own: The user's own files.
    """

    sent: SerializedGraph
    configuration: Mapping[str, Any]
    run_one: Callable[..., dict[str, Any]]
    ledgers: Mapping[int, DataSetLedger]
    account: RunAccount | None
    own: Sequence[str]
    threads: int
    prepared: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def __call__(self, number: int, show: OnProgress) -> None:
        raw, cells = self._started
        plan = _plan_cell(cells[number].experiment, raw, self.prepared)
        edges, ledger = plan.graph.edge_set, self.ledgers.get(number)
        if ledger is not None and ledger_of(edges) is not ledger:
            attach_ledger(edges, ledger)
        self.run_one(cells[number], plan, show, self.account)

    @cached_property
    def _started(self) -> tuple[Graph, tuple[SweepCell, ...]]:
        torch.set_num_threads(self.threads)  # of exact sums, which are the same with any number
        for text in self.own:
            load_custom_code(text)
        raw = self.sent.restored()
        return raw, Sweep(**{"source": InMemorySource.from_graph(raw), **self.configuration}).cells


# -- the public function -----------------------------------------------------------------------------------


@checked
def sweep(
    methods: Sequence[str],
    graph: Graph | Tables,
    *,
    epsilon: Sequence[float] | float = (),
    settings: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    recipe: str | None = None,
    runs: int = 1,
    seed: int = 0,
    include_nonprivate: bool = False,
    ledger: str | None = None,
    resume: bool = False,
    jobs: int = 1,
    backend: AggregationBackend | str | None = None,
    on_plan: Callable[[SweepPlan], object] = lambda plan: None,
    on_progress: OnProgress = lambda stage, done, total: None,
    **parameters: Any,
) -> SweepResult:
    """Run a grid of experiments, method x epsilon x settings, on a graph; the same as ``graphveil sweep``.

    All cells read one dataset, so the privacy cost of the whole grid is the composition of their guarantees
    (``result.total``), not the largest of them.

    Args:
        methods: Names of ``gv.METHODS``, or ``["links"]``, compared by its ROC-AUC of held-out edges.
        graph: Graph as read (``recipe=None``), or with its own masks, which all runs then share. Or tables,
            for ``relational`` and ``mlp``.
        epsilon: The budgets; a single number is a budget.
        settings: Values to try by constructor keyword: ``{"hops": [1, 2, 3]}``.
        out: A new folder, by default one under ``runs/``: cells/, ``sweep.csv``, ``curve.svg`` and
            ``curve.pdf``, and ``metric.svg`` and ``metric.pdf`` if the table has a metric.
        recipe: How to prepare and split a graph without masks; by default as in its method's paper.
        runs: Number of runs per cell.
        seed: Seed of public randomness; run r has ``seed + r``.
        include_nonprivate: Also run the non-private reference of each method, which reads the exact edges.
        ledger: Registered dataset to charge: ``NAME``, ``URL`` or ``URL#NAME``.
        resume: Finish the sweep in ``out``; finished cells are neither run nor charged again.
        jobs: Number of cells to run in parallel, each in a process with a copy of the graph; does not
            affect results. A ledger in memory is charged with the whole grid before the first cell. A script
            calls it under ``if __name__ == "__main__":``, and registers custom methods above that line.
        backend: Aggregation backend (``graphveil.backends``); does not affect results either.
        on_plan: Called with the plan, including ``plan.total``, before anything is spent.
        on_progress: Called with a stage, the finished steps, and the total.
        **parameters: Keywords of all methods: ``unit``, ``delta``, ``mode``, ...

    Returns:
        The rows of the table, the total guarantee, and the paths of the files.

    Raises:
        ConfigError: An unknown method, an empty grid, or a folder in use; nothing is spent.
        BudgetError: The ledger has no room for the whole grid; nothing is spent.

    Privacy:
        Unit: that of each cell. Reads: the graph's protected data in every cell. Charges: the guarantee of
        each cell to the ledger of the graph, before the cell is computed. Public: ``release/`` of each cell.

    >>> import graphveil as gv, tempfile
    >>> graph = gv.load_dataset("synthetic/tiny", recipe=None)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = gv.sweep(["gap"], graph, epsilon=[1, 4], unit="undirected-edge", delta=1e-7,
    ...                      settings={"epochs": [2]}, out=f"{folder}/first")
    >>> [row["epsilon"] for row in found.rows], round(found.total.epsilon, 2)
    ([1.0, 4.0], 4.17)
    """
    checks.integer_at_least(1, jobs=jobs)
    grid = Sweep(
        methods=tuple(methods),
        source=InMemorySource.from_graph(as_graph(graph, parameters.get("unit"), tables=True)),
        epsilons=tuple(map(float, np.atleast_1d(np.asarray(epsilon)))),
        settings={key: tuple(values) for key, values in (settings or {}).items()},
        parameters=parameters,
        recipe=recipe,
        runs=runs,
        seed=seed,
        include_nonprivate=include_nonprivate,
    )
    folder = RunFolder(default_folder("sweep", grid.source.name) if out is None else as_path(out, "out"))
    folder.check(grid.as_dict(), resume=resume)
    plan = plan_sweep(grid)
    account = None if ledger is None else account_of(plan, ledger)
    on_plan(plan)
    return run_sweep(plan, folder, on_progress, account, resume=resume, jobs=jobs, backend=backend)
