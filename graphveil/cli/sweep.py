"""``sweep``: a grid of experiments, its total privacy cost, one table and one figure."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil._util.figures import counted
from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.cli.options import LINK_METHODS, DataOrLists, PrivacyOptions
from graphveil.cli.train import HETERO, SYNTHETIC
from graphveil.errors import ConfigError
from graphveil.runs.source import PublicFlags

if TYPE_CHECKING:
    from graphveil.privacy import Guarantee
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.sweep import SweepPlan, SweepResult


def sweep(
    methods: str,
    *,
    out: Path,
    data: DataOrLists,
    public: PublicFlags,
    privacy: PrivacyOptions,
    recipe: str | None = None,
    epsilon: str | None = None,
    ledger: str | None = None,
    backend: str | None = None,
    address: str | None = None,
    runs: int = 1,
    seed: int = 0,
    include_nonprivate: bool = False,
    set: list[str] | None = None,
    jobs: int = 1,
    module: str | None = None,
    resume: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a grid of methods, budgets and settings on one dataset.

    Args:
        methods (METHODS): Comma-separated methods to compare, or links, or recommender. The no-graph
            baseline is mlp.

    Run:
        out (FOLDER): New folder for runs, table and figure.
        jobs: Number of worker processes, each with a copy of the graph.
        resume: Finish the sweep in --out.

    Privacy:
        epsilon (NUMBER,...): Comma-separated privacy budgets to compare.

    Training:
        include_nonprivate: Also train the non-private reference of each method that has one. It has no
            privacy guarantee.
        set (NAME=V,...): Values of a parameter to compare, for the methods that have it. Repeatable.

    Examples:
        graphveil sweep classcode,gap --dataset synthetic/demo --unit undirected-edge --epsilon 1,4
            --out sweep
        graphveil sweep gap --dataset synthetic/demo --unit undirected-edge --epsilon 1 --set hops=1,2
            --out sweep
    """
    from graphveil.core.backends import backend_by_name
    from graphveil.estimators.saved import parameter_types
    from graphveil.runs.parameters import (
        list_items,
        load_custom_module,
        model_class,
        parse_value,
        read_settings,
        read_theta,
    )
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.sweep import Sweep, account_of, plan_sweep, run_sweep

    chosen = backend_by_name(backend, address)
    names, own = list_items("METHOD", methods), None if module is None else load_custom_module(module)
    linked = bool({*names} & {*LINK_METHODS})
    source = data.checked(to_predict=linked and data.label is None)
    # Before anything heavy is imported. A finished sweep is shown again without its tables.
    if not resume and not linked:
        private = any(name.startswith(HETERO) for name in names)
        source.inspect_tables(unit=privacy.unit, private_records=private)
    # Flags that only some methods have are settings of one value; the others apply to all methods.
    parameters = privacy.keywords()
    if "delta" in parameters:
        parameters["delta"] = parse_value("delta", parameters["delta"], float | str)
    settings: dict[str, Any] = {
        name: (parameters.pop(name),) for name in ("perturb", "max_edges") if name in parameters
    }
    if privacy.theta is not None:
        settings["theta"] = (read_theta(privacy.theta).theta,)
    if own is not None:
        settings["module"] = (own,)
    known = {key: hint for name in names[::-1] for key, hint in parameter_types(model_class(name)).items()}
    tried = read_settings(set or (), known, f"A sweep of {', '.join(names)}", several=True)
    for name in tried.keys() & {*settings, *parameters}:
        raise ConfigError(f"{name} is given twice, by its option and by --set {name}. Keep one.")
    grid = Sweep(
        methods=names,
        source=source,
        epsilons=tuple(parse_value("epsilon", text, float) for text in list_items("--epsilon", epsilon)),
        settings=tried | settings,
        parameters=parameters,
        public=public,
        recipe=recipe,
        runs=runs,
        seed=seed,
        include_nonprivate=include_nonprivate,
    )
    checks.integer_at_least(1, jobs=jobs)
    screen, folder = Screen(as_json=json), RunFolder(out)
    folder.check(grid.as_dict(), resume=resume)
    with screen.spinner(f"reading {source.name}"):
        plan = plan_sweep(grid)
        for one in plan.previews:
            one.graph.check_backend(chosen)  # which may raise an error, before anything is written
        synthetic = (source.dataset or "").startswith(SYNTHETIC) and ledger is None
        account = None if synthetic or dry_run else account_of(plan, ledger)
    screen.print_facts(
        "Plan of the grid (no privacy budget has been spent)", _facts(plan, folder, account, resumed=resume)
    )
    if dry_run:
        screen.dry_run(plan.total)
        return
    with explain_resume_on_failure(folder.root, None if account is None else account.ledger):
        with screen.bars() as bars:
            files = () if module is None else (module,)
            how: dict[str, Any] = {"resume": resume, "jobs": jobs, "backend": chosen, "own": files}
            result = run_sweep(plan, folder, bars, account, **how)
        with report_output_failure(folder.root, again=True):
            _show(result, screen)


def _facts(
    plan: "SweepPlan", folder: "RunFolder", account: "RunAccount | None", *, resumed: bool
) -> list[tuple[str, str]]:
    from graphveil.runs.sweep import format_setting

    grid, first = plan.sweep, plan.previews[0]
    cells, runs = len(grid.cells), grid.runs
    budgets = ", ".join(f"{epsilon:g}" for epsilon in grid.epsilons) or "as set"
    settings = [(key, ", ".join(map(format_setting, values))) for key, values in grid.settings.items()]
    rows = [
        ("data", f"{grid.source.name}: {first.sizes}"),
        ("grid", f"{counted(cells, 'cell')} of {counted(runs, 'run')} each from seed {grid.seed}"),
        ("methods", ", ".join(grid.methods)),
        ("epsilon", budgets),
        *settings,
        ("total privacy cost", _format_total(plan.total)),
    ]
    rows += [("deviation", words) for words in (plan.total.deviations if plan.total else ())]
    if grid.include_nonprivate:
        referenced = {cell.experiment.method for cell in grid.cells if cell.include_nonprivate}
        without = [name for name in grid.methods if name not in referenced]
        left_out = f"; {', '.join(without)}: none" if without else ""
        rows.append(
            (
                "non-private",
                f"references that read the exact edges, not part of the total, internal{left_out}",
            )
        )
    if account is not None:
        rows.append(("ledger", account.before(resumed=resumed)))
    return [*rows, ("folder", str(folder.root))]


def _format_total(total: "Guarantee | None") -> str:
    from graphveil._util.figures import format_epsilon_delta
    from graphveil.publish.cards import attack_bound_text, invalid_mark

    if total is None:
        return "none: no cell queries protected data"
    mark = invalid_mark(valid=total.valid, unit=total.unit)
    return (
        f"all cells together {format_epsilon_delta(total.epsilon, total.delta)}{mark}, "
        f"{counted(total.releases, 'release')}; {attack_bound_text(total)}"
    )


def _show(result: "SweepResult", screen: Screen) -> None:
    from graphveil.publish.results import LINK_METRIC_NAMES, METRIC_NAMES, metric_summary
    from graphveil.runs.sweep import accuracy_of

    interval = "" if result.cells[0]["runs"] == 1 else " [95 % CI]"
    metric = result.metric if result.metric != "accuracy" else None
    linked = result.grid[0].experiment.method in LINK_METHODS
    names = LINK_METRIC_NAMES if linked else METRIC_NAMES
    accuracy = () if linked else (f"test accuracy, %{interval}",)
    noisy = " [95 % CI]" if any(cell.get("private_metrics") for cell in result.cells) else interval
    chosen = () if metric is None else (f"{names[metric]}{noisy}",)
    head = ("method", "settings", "epsilon", *accuracy, *chosen, "runs")
    rows = [
        (
            f"{cell.experiment.method}{' (no privacy)' if cell.include_nonprivate else ''}",
            cell.settings_text,
            "-" if cell.epsilon is None else f"{cell.epsilon:g}",
            *(() if linked else (accuracy_of(metrics).percent(),)),
            *(() if metric is None else (metric_summary(metrics, metric).decimal(),)),
            str(metrics["runs"]),
        )
        for cell, metrics in zip(result.grid, result.cells, strict=True)
    ]
    screen.print_line("")
    screen.table(head, rows, right=(2, len(head) - 1))
    screen.print_line("")
    screen.print_line(
        f"Epsilon in the table is for one run of one cell; {_format_total(result.total)}.", style="dim"
    )
    if result.uncovered:
        screen.print_line(
            "Some of these accuracies are not covered by a guarantee: do not publish the table or the figure."
        )
    files = [("table", "sweep.csv"), ("figure", "curve.svg"), ("", "curve.pdf")]
    files += [("metric", "metric.svg"), ("", "metric.pdf")]
    places = [(name, str(result.out / file)) for name, file in files if (result.out / file).exists()]
    cells = f"{result.out / 'cells'}: one run folder per cell"
    screen.print_facts("Files", [*places, ("cells", cells)])
    total = None
    if result.total is not None:
        plain = result.total.as_dict()
        total = {name: plain[name] for name in ("unit", "epsilon", "delta", "releases", "valid")}
    screen.emit_json({"cells": list(result.cells), "total": total, "out": str(result.out)})
