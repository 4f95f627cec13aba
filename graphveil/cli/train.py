"""``train`` and ``demo``: the plan, the run, the table, the guarantee summary.

`graphveil train METHOD --help` lists the flags of the command, and below them the method's own parameters.
"""

import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphveil._util import checks
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.cli.options import (
    ColumnOptions,
    Command,
    PrivacyOptions,
    PublicEdgeOptions,
    SourceOptions,
    TableOptions,
    grouped,
)
from graphveil.cli.summary import plan_facts, show_summary
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphveil.data import Graph
    from graphveil.ledger.accounts import RunAccount
    from graphveil.release import AggregationBackend
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.preview import Preview
    from graphveil.runs.run import ExperimentResult
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.tracking import MLflow

_PLAN = "Plan, before anything is spent"
_RESUMED = "Plan of a run that is resumed: what it has released is not released again"
SYNTHETIC = "synthetic/"  # generated from a seed, so not protected
DEMO = f"{SYNTHETIC}demo"
HETERO = "heterorr"  # protects features under a unit of edges


def demo(
    epsilon: options.Epsilon = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Train on a built-in graph and print the result and its guarantee."""
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.source import Source

    budget = {"unit": "undirected-edge", "epsilon": 1.0 if epsilon is None else epsilon}
    experiment = Experiment("classcode", Source(dataset=DEMO), budget, seed=seed)
    _train(experiment, out, Screen(as_json=json), by_flag=False)


@grouped
def train(
    method: options.Method,
    origin: SourceOptions,
    tables: TableOptions,
    columns: ColumnOptions,
    public: PublicEdgeOptions,
    privacy: PrivacyOptions,
    recipe: options.Recipe = None,
    expect_edges: options.ExpectEdges = None,
    epsilon: options.Epsilon = None,
    ledger: options.Ledger = None,
    module: options.Module = None,
    backend: options.AggregationBackend = None,
    address: options.Address = None,
    runs: options.Runs = 1,
    seed: options.Seed = 0,
    baseline: options.Baseline = None,
    out: options.Out = None,
    set: options.Set = None,
    track: options.Track = None,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Train a method and compare it with the no-graph baseline."""
    own = None if module is None else load_custom_module(module)
    keywords = {"unit": privacy.unit, "epsilon": epsilon, **privacy.keywords(), "module": own}
    checks.one_of(tuple(METHODS), METHOD=method)
    source = origin.source(tables, columns)
    if not resume:  # a finished run is shown again without its tables
        # Before anything heavy is imported.
        source.inspect_tables(unit=privacy.unit, private_records=method == HETERO)
    from graphveil.release.backends import backend_by_name
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.tracking import tracker_of

    parameters = configuration(method, keywords, set or [], privacy.theta)
    if "seed" in parameters:
        raise ConfigError("--set seed: the seed has a flag of its own; use --seed")
    compare = trains_baseline(privacy.unit, baseline)
    experiment = Experiment(
        method, source, parameters, recipe, runs, seed, compare=compare, public=public.flags()
    )
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


def load_custom_module(text: str) -> str | None:
    """Return the name of an architecture, or of the module in a file that is run; None for a method."""
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.own.architectures import ARCHITECTURES
    from graphveil.estimators.own.code import factory_name
    from graphveil.runs.parameters import load_custom_code

    if text in ARCHITECTURES:
        return text
    found = load_custom_code(text)
    return None if isinstance(found, type) and issubclass(found, Estimator) else factory_name(found)


def configuration(
    method: str, flags: dict[str, Any], settings: list[str], theta: Path | None = None
) -> dict[str, Any]:
    """Return constructor keywords from the given flags, ``--set`` texts and a file of weights."""
    from graphveil.runs.parameters import (
        check_names,
        method_class,
        parse_settings,
        parse_value,
        read_theta,
    )

    cls = method_class(method)
    parameters = parse_settings(cls, settings)
    if theta is not None:
        if not cls.local:
            raise ConfigError(
                f"--theta is for methods on records that nodes randomize; {method} has no weights"
            )
        flags = {**flags, "theta": read_theta(theta).theta}
    for name, value in flags.items():
        if value is None:
            continue
        if name in parameters:
            raise ConfigError(f"{name} is given twice, by its flag and by --set {name}; keep one")
        check_names(cls, [name])
        parameters[name] = parse_value(name, value, float | str) if name == "delta" else value
    return parameters


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
    dry_run: bool = False,
    trackers: "Sequence[MLflow]" = (),
) -> None:
    from graphveil.ledger import ledger_of
    from graphveil.release.backends import backend_for
    from graphveil.runs.preview import preview
    from graphveil.runs.run import run
    from graphveil.runs.run_folder import RunFolder, default_folder

    if resume and out is None:
        raise ConfigError("--resume needs to know which run: add --out with its folder")
    folder = RunFolder(out or default_folder(experiment.method, experiment.source.name))
    folder.check(experiment.as_dict(), resume=resume)
    if resume and folder.complete and not dry_run:
        _show_again(folder, screen)
        return
    with screen.spinner(f"reading {experiment.source.name}"):
        raw = experiment.source.load()
        graph = experiment.prepared(raw)
        backend_for(backend, graph.adjacency)  # which may raise an error, before anything is written
        plan = preview(experiment, graph, expect_edges=expect_edges)
        account = None if dry_run else _account(plan, raw, graph, ledger)
        if account is not None and not resume:
            account.check_room(plan.guarantee_all_runs)
    screen.print_facts(_RESUMED if resume else _PLAN, plan_facts(plan, folder, account, resumed=resume))
    if dry_run:
        screen.dry_run(plan.guarantee_all_runs)
        return
    with explain_resume_on_failure(folder.root, ledger_of(graph.edge_set), by_flag=by_flag):
        with screen.bars() as bars:
            outcome = run(plan, graph, folder, bars, account, resume=resume, backend=backend)
        _track(experiment, outcome, trackers, screen)
        with report_output_failure(folder.root, again=True):
            show_summary(outcome.metrics, folder, screen)


def _track(
    experiment: "Experiment", outcome: "ExperimentResult", trackers: "Sequence[MLflow]", screen: Screen
) -> None:
    """Log the public part of a finished run; an unreachable server does not undo the run."""
    from graphveil.runs.tracking import PublicRecord

    for tracker in trackers:
        try:
            tracker(PublicRecord.from_experiment(experiment, outcome.metrics, outcome.guarantee))
        except Exception as error:  # of another program
            screen.note(f"The run is finished, and could not be logged: {type(error).__name__}.")


def _account(plan: "Preview", raw: "Graph", graph: "Graph", ledger: str | None) -> "RunAccount | None":
    """Return the account of the graph's data, if anything secret is released about them."""
    from graphveil.ledger.accounts import RunAccount

    made_up = (plan.experiment.source.dataset or "").startswith(SYNTHETIC) and ledger is None
    if made_up or not plan.guarantee_all_runs.releases or graph.edge_set.released:
        return None
    return RunAccount.from_graph(raw, plan.guarantee, ledger, charge=graph)


def _show_again(folder: "RunFolder", screen: Screen) -> None:
    """Show the results of a finished run, or that they are damaged: its release needs none of them."""
    from graphveil.runs.run_folder import read_json

    try:
        show_summary(read_json(folder.metrics), folder, screen)
    except (ArtifactError, KeyError, TypeError, ValueError, AttributeError):
        raise ArtifactError(
            f"{folder.metrics} is damaged; the run is finished all the same: `graphveil explain` and "
            "`graphveil predict` read its release"
        ) from None


# -- the help of a method --------------------------------------------------------------------------------

# Keywords that have a flag of their own.
_FLAGS = {
    *("unit", "epsilon", "delta", "mode", "seed", "max_units", "out_degree_bound", "max_degree"),
    *("replace_one", "private_metrics", "unsafe_noise_seed", "perturb", "max_edges"),
}
_ENTRY = re.compile(r"^([a-z_][a-z_0-9, ]*): (.*)$")


class MethodCommand(Command):
    """A command whose help ends with the parameters of the method that it names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments before they are parsed, since --help is handled first."""
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the flags, and the method's parameters if one is named."""
        super().format_help(ctx, formatter)
        named = [word for word in ctx.meta.get("words", ()) if word in METHODS]
        if named:
            typer.echo(parameters_page(named[0]))
        else:
            typer.echo("`graphveil train METHOD --help` lists the parameters of a method for --set.\n")


def parameters_page(method: str) -> str:
    """Return a method's parameters for --set: name, default and description.

    >>> "  hops=2  K, the number of aggregations." in parameters_page("gap")
    True
    """
    cls = METHODS[method]
    descriptions = dict[str, str]()
    for base in reversed(cls.__mro__):  # a class may describe an argument better than those it derives from
        descriptions |= _arguments(inspect.cleandoc(base.__doc__ or ""))
    lines = [f"Parameters of {method}, for --set NAME=VALUE:"]
    for part in dataclasses.fields(cls):
        if part.init and part.name not in _FLAGS:
            default = "?" if part.default is dataclasses.MISSING else str(part.default).lower()
            text = f"{part.name}={default}  {descriptions.get(part.name, '')}".rstrip()
            lines += textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="      ")
    return "\n".join([*lines, ""])


def _arguments(page: str) -> dict[str, str]:
    """Read the part "Args:" of a docstring."""
    _, found, rest = page.partition("Args:\n")
    descriptions, names = dict[str, str](), list[str]()
    for line in rest.splitlines() if found else ():
        if line and not line.startswith(" "):
            break
        entry = _ENTRY.match(line[4:]) if line.startswith("    ") and not line.startswith("     ") else None
        if entry is not None:
            names = [name.strip() for name in entry[1].split(",")]
            descriptions |= dict.fromkeys(names, entry[2])
        elif names and line.strip():
            descriptions |= {name: f"{descriptions[name]} {line.strip()}" for name in names}
        elif not line.strip():
            names = []
    return {name: text.replace("``", "").replace(":class:", "") for name, text in descriptions.items()}
