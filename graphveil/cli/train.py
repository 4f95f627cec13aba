"""``train`` and ``demo``: the plan, the run, the table, the guarantee summary."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from graphveil._util import checks
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.cli.options import LINK_METHODS, DataOptions, PrivacyOptions
from graphveil.cli.summary import plan_facts, show_demo, show_summary
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators import METHODS
from graphveil.runs.parameters import load_custom_module, parse_parameters
from graphveil.runs.source import PublicFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphveil.core.backends import AggregationBackend
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.tracking import MLflow

SYNTHETIC = "synthetic/"  # generated from a seed, so not protected
DEMO = f"{SYNTHETIC}demo"
RECOMMENDER = "recommender"
HETERO = "heterorr"  # protects features under a unit of edges


def demo(*, epsilon: float = 1.0, seed: int = 0, out: Path | None = None, json: bool = False) -> None:
    """Train on a built-in graph and print the result and its guarantee.

    Privacy:
        epsilon: Privacy budget epsilon.

    Examples:
        graphveil demo
        graphveil demo --epsilon 2 --out runs/demo
    """
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.source import Source

    parameters = {"unit": "undirected-edge", "epsilon": epsilon}
    experiment = Experiment("classcode", Source(dataset=DEMO), parameters, seed=seed)
    folder = out or Path("runs") / f"demo-{secrets.token_hex(3)}"
    _train(experiment, folder, Screen(as_json=json), by_flag=False, show=show_demo)


def train(
    method: options.AnyMethod,
    *,
    data: DataOptions,
    public: PublicFlags,
    privacy: PrivacyOptions,
    recipe: str | None = None,
    items: Path | None = None,
    rating: str | None = None,
    min_rating: float | None = None,
    expect_edges: Annotated[int, Ge(0)] | None = None,
    epsilon: float | None = None,
    ledger: str | None = None,
    module: str | None = None,
    backend: str | None = None,
    address: str | None = None,
    runs: int = 1,
    seed: int = 0,
    baseline: bool | None = None,
    out: Path | None = None,
    set: list[str] | None = None,
    track: list[str] | None = None,
    resume: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a method and compare it with the no-graph baseline.

    Data:
        rating (COLUMN): Column of the edge table with ratings of items, for --min-rating.
        min_rating: Lowest rating of an item on a list. Rows with a lower rating are dropped.

    Run:
        expect_edges: Expected number of edges, for an estimate of memory and time.
        track (mlflow:URI): Log of the public results in MLflow: mlflow, or mlflow:URI. Repeatable.
        resume: Finish the interrupted run in --out.

    Training:
        baseline: Train the no-graph baseline (mlp). Default: yes, except for node-level units, where it
            spends additional budget.

    Examples:
        graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1
        graphveil train gnn --module sage --dataset synthetic/demo --unit node-record --epsilon 8
    """
    ratings: dict[str, Any] = {} if items is None else {"rating": rating, "min_rating": min_rating}
    keywords = {"unit": privacy.unit, "epsilon": epsilon, **privacy.keywords()}
    if module is not None:
        keywords["module"] = load_custom_module(module)  # may register METHOD
    if method not in METHODS:  # which finds methods as published that it does not list
        checks.one_of((*METHODS, *LINK_METHODS), METHOD=method)
    if data.task == REGRESSION:
        keywords["task"] = REGRESSION
    unlabeled = method in LINK_METHODS and data.label is None
    source = data.graph_source(to_predict=unlabeled, items=items, **ratings)
    if not resume and method != RECOMMENDER:  # a finished run is shown again without its tables
        # Before anything heavy is imported.
        source.inspect_tables(unit=privacy.unit, private_records=method.startswith(HETERO))
    from graphveil.core.backends import backend_by_name
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.tracking import tracker_of

    parameters = parse_parameters(method, keywords, set or (), privacy.theta)
    compare = trains_baseline(privacy.unit, baseline)
    experiment = Experiment(method, source, parameters, recipe, runs, seed, compare=compare, public=public)
    _train(
        experiment,
        out,
        Screen(as_json=json),
        resume=resume,
        expect_edges=expect_edges,
        ledger=ledger,
        dry_run=dry_run,
        backend=backend_by_name(backend, address),
        trackers=[tracker_of(one) for one in track or []],
    )


def trains_baseline(unit: str | None, baseline: bool | None) -> bool:
    """Return whether the no-graph baseline is trained.

    Under node-level units it queries the same records and adds to the total, so it is off by default there.

    >>> trains_baseline("undirected-edge", None), trains_baseline("node-record",
    ...     None), trains_baseline("node-record", True)
    (True, False, True)
    """
    return unit not in ("node-record", "node-bounded-degree") if baseline is None else baseline


def _train(
    experiment: "Experiment",
    out: Path | None,
    screen: Screen,
    *,
    resume: bool = False,
    expect_edges: int | None = None,
    ledger: str | None = None,
    backend: "AggregationBackend | str | None" = None,
    by_flag: bool = True,
    show: "Callable[[dict[str, Any], RunFolder, Screen], None]" = show_summary,
    dry_run: bool = False,
    trackers: "Sequence[MLflow]" = (),
) -> None:
    from graphveil.core.ledger import ledger_of
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.experiment import graph_of, preview
    from graphveil.runs.run import run
    from graphveil.runs.run_folder import RunFolder, default_folder, read_json
    from graphveil.runs.tracking import PublicRecord

    if resume and out is None:
        raise ConfigError("--resume needs the run folder. Add --out with it.")
    folder = RunFolder(out or default_folder(experiment.method, experiment.source.name))
    folder.check(experiment.as_dict(), resume=resume)
    if resume and folder.complete and not dry_run:
        try:
            show_summary(read_json(folder.metrics), folder, screen)
        except (ArtifactError, KeyError, TypeError, ValueError, AttributeError):
            raise ArtifactError(
                f"{folder.metrics} is damaged. The run itself is finished: `graphveil explain` and "
                "`graphveil predict` read its release."
            ) from None
        return
    with screen.spinner(f"reading {experiment.source.name}"):
        raw = experiment.read()
        data = experiment.prepared(raw)
        graph_of(data).check_backend(backend)  # which may raise an error, before anything is written
        plan = preview(experiment, data, expect_edges=expect_edges)
        graph = plan.graph
        # Synthetic graphs protect nobody, and a released graph was charged when it was released.
        synthetic = (experiment.source.dataset or "").startswith(SYNTHETIC) and ledger is None
        account = None
        if plan.guarantee_all_runs.releases and not (dry_run or synthetic or graph.edge_set.released):
            account = RunAccount.from_graph(graph_of(raw), plan.guarantee, ledger, charge=graph)
        if account is not None and not resume:
            account.check_room(plan.guarantee_all_runs)
    title = "Plan (no privacy budget has been spent)"
    if resume:
        title = "Plan of the resumed run (finished queries are not charged again)"
    screen.print_facts(title, plan_facts(plan, folder, account, resumed=resume))
    if dry_run:
        screen.dry_run(plan.guarantee_all_runs)
        return
    # From here on budget may be spent: an error is a failed run, with the command that resumes it.
    with explain_resume_on_failure(folder.root, ledger_of(graph.edge_set), by_flag=by_flag):
        with screen.bars() as bars:
            metrics = run(plan, folder, bars, account, resume=resume, backend=backend)
        for tracker in trackers:
            try:
                tracker(PublicRecord.from_experiment(experiment, metrics, plan.guarantee))
            except Exception as error:  # an unreachable server does not undo the run
                screen.note(f"The run is finished, but could not be logged: {type(error).__name__}.")
        with report_output_failure(folder.root, again=True):
            show(metrics, folder, screen)
