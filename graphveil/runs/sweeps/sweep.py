"""A sweep: a grid of experiments on one data set, and what the whole grid costs.

Every cell is an experiment with a run folder of its own, so whatever holds for ``train`` holds for a cell: it
is booked before it is computed, published in one step, and resumed after a kill. The cells read one data
set, so their guarantees compose, and that total is known before the first cell begins.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.files import as_path
from graphveil.data import Graph
from graphveil.errors import ConfigError, InputError, MissingDependencyError, PrivacyError, UnitError
from graphveil.privacy import DirectedEdge, Guarantee, NoUnit, UndirectedEdge, attach_ledger, ledger_of
from graphveil.release import AggregationBackend
from graphveil.runs.accounts.graph_tags import fingerprint_parts
from graphveil.runs.accounts.ledger_account import RunAccount
from graphveil.runs.accounts.preview import Preview, combined_guarantee, preview
from graphveil.runs.artifacts import RunFolder, read_json
from graphveil.runs.experiment import Experiment
from graphveil.runs.inputs.data_fingerprint import check_data, forget_data
from graphveil.runs.inputs.parameters import check_names, method_class
from graphveil.runs.inputs.public_flags import PublicFlags
from graphveil.runs.inputs.source import InMemorySource, Source
from graphveil.runs.run import BASELINE_METHOD, OnProgress, run
from graphveil.runs.sweeps.sweep_cell import SweepCell
from graphveil.runs.sweeps.sweep_results import SweepResult, write_results
from graphveil.runs.sweeps.sweep_workers import run_cells_in_parallel

MAX_CELLS = 1000
CELLS = "cells"  # the folder of the cells' run folders
_PRIVACY = (  # what a reference without privacy does without
    "epsilon",
    "delta",
    "max_units",
    "out_degree_bound",
    "max_degree",
    "replace_one",
    "private_metrics",
    "unsafe_noise_seed",
    "perturb",
    "max_edges",
    "theta",
)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid of experiments: method x epsilon x settings, on one data set.

    A setting applies to the methods that have it. What a budget decides nothing about is one cell for all
    of them: the MLP where edges are protected, which reads none, and everything under unit ``none``. Cells
    have no MLP beside them, which under node units would be paid in each: name ``mlp`` among the methods.

    Args:
        methods: names of ``METHODS``.
        source: where the graph comes from.
        epsilons: the budgets; none for methods whose budgets are settings.
        settings: values to try by constructor keyword.
        parameters: constructor keywords of all methods: unit, delta, mode, ...
        recipe: how to prepare and split, as in :class:`Experiment`.
        runs: R of each cell.
        seed: S of each cell, so that all cells have the same splits.
        include_nonprivate: whether to add non-private references: each method under unit ``none``, where it
            has such a form.
        public: under ``edge-subset``: which edges are public, and who may have private ones.

    Raises:
        ConfigError: an unknown method, an empty or repeated choice, a setting that no method has, too many
            cells; and what :class:`Experiment` refuses of any cell.

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
        """Check the whole grid by building every cell once."""
        _check_choices("METHOD", self.methods)
        for method in self.methods:
            method_class(method)
        if self.epsilons:
            _check_choices("epsilon", self.epsilons)
        for key, values in self.settings.items():
            _check_choices(key, values)
            if key in self.parameters or key in ("epsilon", "seed", "unit"):
                raise ConfigError(f"{key} has a place of its own in a sweep; leave it out of the settings")
            if not any(_has(method, key) for method in self.methods):
                raise ConfigError(
                    f"no method of this sweep ({', '.join(self.methods)}) has a setting {key!r}"
                )
        checks.within(1, MAX_CELLS, cells=len(self.cells))

    @cached_property
    def cells(self) -> tuple[SweepCell, ...]:
        """Every experiment of the grid, in order: by method, settings, epsilon; references last."""
        return tuple(self._numbered())

    def _numbered(self) -> Iterator[SweepCell]:
        found = [*self._private(), *(self._nonprivate_references() if self.include_nonprivate else ())]
        for number, (method, settings, epsilon, parameters, include_nonprivate) in enumerate(found, 1):
            experiment = self._experiment(method, {**parameters, **settings})
            yield SweepCell(
                number=number,
                experiment=experiment,
                epsilon=epsilon,
                settings=settings,
                include_nonprivate=include_nonprivate,
            )

    def _private(self) -> Iterator[tuple[str, dict[str, Any], float | None, dict[str, Any], bool]]:
        for method in self.methods:
            check_names(method_class(method), self.parameters)
            for settings in self._settings_of(method):
                for epsilon in self._epsilons_of(method):
                    budget = {} if epsilon is None else {"epsilon": epsilon}
                    yield method, settings, epsilon, {**self.parameters, **budget}, False

    def _nonprivate_references(
        self,
    ) -> Iterator[tuple[str, dict[str, Any], float | None, dict[str, Any], bool]]:
        kept = {name: value for name, value in self.parameters.items() if name not in _PRIVACY}
        parameters = {**kept, "unit": NoUnit.name}
        for method in self.methods:
            if self.parameters.get("unit") == NoUnit.name or not self._has_nonprivate_reference(
                method, parameters
            ):
                continue
            kept = {name: values for name, values in self.settings.items() if name not in _PRIVACY}
            for settings in self._settings_of(method, kept):
                yield method, settings, None, parameters, True

    def _has_nonprivate_reference(self, method: str, parameters: dict[str, Any]) -> bool:
        if self._epsilons_of(method) == (None,):
            return False  # it is what it is already
        try:
            self._experiment(method, parameters)
        except UnitError:
            return False
        return True

    def _settings_of(
        self, method: str, settings: Mapping[str, tuple[Any, ...]] | None = None
    ) -> list[dict[str, Any]]:
        requested = self.settings if settings is None else settings
        own = {key: values for key, values in requested.items() if _has(method, key)}
        return [dict(zip(own, values, strict=True)) for values in product(*own.values())]

    def _epsilons_of(self, method: str) -> tuple[float | None, ...]:
        unit = self.parameters.get("unit")
        unread = method == BASELINE_METHOD and unit in (UndirectedEdge.name, DirectedEdge.name)
        return (None,) if not self.epsilons or unread or unit == NoUnit.name else self.epsilons

    def _experiment(self, method: str, parameters: dict[str, Any]) -> Experiment:
        public = PublicFlags() if parameters.get("unit") == NoUnit.name else self.public
        return Experiment(
            method, self.source, parameters, self.recipe, self.runs, self.seed, compare=False, public=public
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the whole configuration as plain values, one key a choice."""
        from graphveil.artifacts.files import plain_parameters

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


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The plan that is shown before anything is spent.

    ``total`` is the guarantee of all cells together, None if nothing is asked of protected data.
    """

    sweep: Sweep
    raw: Graph
    graphs: tuple[Graph, ...]  # prepared, one a cell; cells that are prepared alike share one
    previews: tuple[Preview, ...]
    total: Guarantee | None


def plan_sweep(sweep: Sweep) -> SweepPlan:
    """Read the data, check every cell that can be checked, and return the plan; nothing is spent.

    Raises:
        PrivacyError: a guarantee asked for cannot be given.
        GraphError: the data cannot be used.
    """
    raw = sweep.source.load()
    prepared: dict[tuple[object, ...], Graph] = {}
    graphs, previews = [], []
    for cell in sweep.cells:
        one = cell.experiment
        if one.preparation not in prepared:
            prepared[one.preparation] = one.prepared(raw)
        graphs.append(prepared[one.preparation])
        # Prepared graphs of all cells together may not fit in memory.
        previews.append(replace(preview(one, graphs[-1]), first=None))
    return SweepPlan(
        sweep=sweep, raw=raw, graphs=tuple(graphs), previews=tuple(previews), total=total_of(previews)
    )


def total_of(previews: Iterable[Preview]) -> Guarantee | None:
    """Return the guarantee of several cells together, every run of each counted; None if they ask nothing.

    It is stated at the largest delta among them.
    """
    requested = [one for one in previews if one.guarantee.releases and one.guarantee.unit != NoUnit.name]
    single = [one.guarantee for one in requested for _ in range(one.experiment.runs)]
    return combined_guarantee(sorted(single, key=lambda one: -one.delta)) if single else None


def account_of(plan: SweepPlan, ledger: str | None) -> RunAccount | None:
    """Return the account of the sweep's data, attached to every graph that a cell asks; None if none does.

    Raises:
        ConfigError: no such data set is registered, several could be meant, or it has other data.
    """
    if plan.total is None:
        return None
    requested = [
        graph
        for graph, one in zip(plan.graphs, plan.previews, strict=True)
        if one.guarantee.releases and one.guarantee.unit != NoUnit.name
    ]
    account = RunAccount.from_parts(fingerprint_parts(plan.raw), plan.total, ledger)
    for edges in {graph.edge_set for graph in requested}:
        attach_ledger(edges, account.ledger)
    return account


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
    """Run the cells of a plan, ``jobs`` side by side, skipping finished ones, and write table and figure.

    The sweep's folder is opened like a run's: one process at a time, the configuration and the data of the
    first call. Public posteriors are learned once, in its working folder. How many jobs there are changes no
    byte, and may change on resuming; ``own`` are the user's own files, which each of them needs.

    Raises:
        ConfigError: the folder belongs to something else, or to another process.
        BudgetError: the ledger has no room for the cells that have not begun. Nothing was spent on them.
    """
    checks.integer_at_least(1, jobs=jobs)
    if jobs > 1 and backend == "disk":
        raise ConfigError(
            "jobs= (--jobs) sends each process a copy of the graph in memory, which backend='disk' "
            "(--backend "
            "disk) does not read; drop one of them, or use backend='ray'"
        )
    fresh = folder.missing
    with folder.locked(plan.sweep.as_dict(), resume=resume):
        try:
            check_data(folder, plan.raw)
            _check_room(plan, folder, account)
            metrics = _run_cells(plan, folder, on_progress, account, jobs, backend, own)
        except (InputError, PrivacyError, MissingDependencyError):
            if not resume and not _has_started(folder):
                forget_data(folder)
                folder.drop(made=fresh)
            raise
        result = SweepResult(plan.sweep.cells, tuple(metrics), plan.total, folder.root)
        write_results(result)
        forget_data(folder)
        shutil.rmtree(folder.work, ignore_errors=True)
    return result


def _run_cells(
    plan: SweepPlan,
    folder: RunFolder,
    show: OnProgress,
    account: RunAccount | None,
    jobs: int,
    backend: AggregationBackend | str | None,
    own: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the figures of all cells, in the order of the grid."""
    cells = plan.sweep.cells
    runner = partial(run_cell, folder=folder, count=len(cells), backend=backend)
    left = [
        (cell, ledger_of(graph.edge_set))
        for cell, graph in zip(cells, plan.graphs, strict=True)
        if not cell_folder(folder, cell).complete
    ]
    if min(jobs, len(left)) > 1:
        run_cells_in_parallel(left, plan.raw, runner, show, account, jobs, own)  # which leaves them finished
    return [
        runner(cell, one, graph, show, account)
        for cell, one, graph in zip(cells, plan.previews, plan.graphs, strict=True)
    ]


def _check_room(plan: SweepPlan, folder: RunFolder, account: RunAccount | None) -> None:
    """Refuse now what the ledger would refuse in the middle of the grid."""
    pairs = zip(plan.sweep.cells, plan.previews, strict=True)
    to_come = total_of(one for cell, one in pairs if not cell_folder(folder, cell).lock.is_file())
    if account is not None and to_come is not None:
        account.check_room(to_come)


def run_cell(
    cell: SweepCell,
    plan: Preview,
    graph: Graph,
    show: OnProgress,
    account: RunAccount | None,
    *,
    folder: RunFolder,
    count: int,
    backend: AggregationBackend | str | None = None,
) -> dict[str, Any]:
    """Return the figures of one of ``count`` cells, from its folder if it was finished before."""
    own = cell_folder(folder, cell)
    begun = own.lock.is_file()
    if not begun:  # killed before its configuration was locked: nothing can have been asked
        shutil.rmtree(own.root, ignore_errors=True)
    own.check(cell.experiment.as_dict(), resume=begun)
    if own.complete:
        return read_json(own.metrics)
    prefix = f"cell {cell.number}/{count} "
    outcome = run(
        plan,
        graph,
        own,
        lambda stage, done, total: show(prefix + stage, done, total),
        None if account is None or not plan.guarantee.releases else account.for_next_experiment(),
        resume=begun,
        shared=folder.work / "public",
        backend=backend,
    )
    return outcome.metrics


def cell_folder(folder: RunFolder, cell: SweepCell) -> RunFolder:
    """Return the run folder of a cell."""
    return RunFolder(folder.root / CELLS / cell.name)


@checked
def sweep(
    methods: Sequence[str],
    graph: Graph,
    *,
    epsilon: Sequence[float] | float = (),
    settings: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path,
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

    All cells read one data set, so the price of the whole grid is what their guarantees compose to
    (``result.total``), not the largest of them.

    Args:
        methods: names of ``gv.METHODS``.
        graph: as it was read (``recipe=None``), or with masks of its own, which all runs then share.
        epsilon: the budgets; a single number is a budget.
        settings: values to try by constructor keyword: ``{"hops": [1, 2, 3]}``.
        out: a new folder: cells/, ``sweep.csv``, ``curve.svg`` and ``curve.pdf``.
        recipe: how to prepare and split a graph without masks; by default as its method's paper does.
        runs: how many runs a cell.
        seed: of public randomness; run r has ``seed + r``.
        include_nonprivate: also run the non-private reference of each method, which reads the exact edges.
        ledger: the registered data set to charge: ``NAME``, ``URL`` or ``URL#NAME``.
        resume: finish the sweep that ``out`` holds; finished cells are neither run nor charged again.
        jobs: how many cells to run side by side, each in a process that gets a copy of the graph; it changes
            no byte. Ledgers stay in this process. A script calls it under ``if __name__ == "__main__":``, and
            registers methods of its own above that line.
        backend: who sums over edges (:mod:`graphveil.backends`); it changes no byte either.
        on_plan: called with the plan, ``plan.total`` among it, before anything is spent.
        on_progress: called with a stage, what is done, and the total.
        **parameters: keywords of all methods: ``unit``, ``delta``, ``mode``, ...

    Raises:
        ConfigError: an unknown method, an empty grid, a folder in use; nothing is spent.
        BudgetError: the ledger has no room for the whole grid; nothing is spent.

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
        source=InMemorySource.from_graph(graph),
        epsilons=tuple(map(float, np.atleast_1d(np.asarray(epsilon)))),
        settings={key: tuple(values) for key, values in (settings or {}).items()},
        parameters=parameters,
        recipe=recipe,
        runs=runs,
        seed=seed,
        include_nonprivate=include_nonprivate,
    )
    folder = RunFolder(as_path(out, "out"))
    folder.check(grid.as_dict(), resume=resume)
    plan = plan_sweep(grid)
    account = None if ledger is None else account_of(plan, ledger)
    on_plan(plan)
    return run_sweep(plan, folder, on_progress, account, resume=resume, jobs=jobs, backend=backend)


def _has_started(folder: RunFolder) -> bool:
    """Whether any cell has a folder; an empty folder of cells goes."""
    with suppress(OSError):
        (folder.root / CELLS).rmdir()
    return (folder.root / CELLS).exists()


def _has(method: str, key: str) -> bool:
    from graphveil.estimators.saved import parameter_types

    return key in parameter_types(method_class(method))


def _check_choices(name: str, values: Sequence[object]) -> None:
    """Refuse a choice of nothing, and one that is given twice."""
    if not values:
        raise ConfigError(f"{name}: an empty grid has no cells; give one value or several, a,b,c")
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise ConfigError(f"{name}: {twice[0]!s} is given twice, and would be paid twice; keep one")
