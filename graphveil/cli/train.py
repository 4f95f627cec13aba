"""``train`` and ``demo``: the plan, the run, the table, the statement."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.cli import options
from graphveil.cli.failures import resumable
from graphveil.cli.screen import Screen
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.experiment.artifacts import RunFolder
    from graphveil.experiment.experiment import Experiment
    from graphveil.experiment.preview import Preview

DEMO = "synthetic/demo"


def demo(
    epsilon: options.Epsilon = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Train on an embedded graph, no files needed: plan, table, guarantee, report."""
    from graphveil.experiment.experiment import Experiment
    from graphveil.experiment.source import Source

    budget = {"unit": "undirected-edge", "epsilon": 1.0 if epsilon is None else epsilon}
    experiment = Experiment("classcode", Source(dataset=DEMO), budget, seed=seed)
    _train(experiment, out, Screen(as_json=json), by_flag=False)


def train(
    method: options.Method,
    dataset: options.Dataset = None,
    root: options.Root = None,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    id: options.Id = None,
    label: options.Label = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    directed: options.Directed = False,
    split: options.Split = None,
    recipe: options.Recipe = None,
    expect_edges: options.ExpectEdges = None,
    unit: options.Unit = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mode: options.Mode = None,
    max_units: options.MaxUnits = None,
    unsafe_noise_seed: options.UnsafeNoiseSeed = None,
    runs: options.Runs = 1,
    seed: options.Seed = 0,
    out: options.Out = None,
    set: options.Set = None,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Train a method, compare it with the no-graph baseline, and write a run folder."""
    from graphveil.experiment.experiment import Experiment
    from graphveil.experiment.source import Source

    privacy = {
        "unit": unit,
        "epsilon": epsilon,
        "delta": delta,
        "mode": mode,
        "max_units": max_units,
        "unsafe_noise_seed": unsafe_noise_seed,
    }
    parameters = configuration(method, privacy, set or [])
    if "seed" in parameters:
        raise ConfigError("--set seed: the seed has a flag of its own; use --seed")
    origin = Source(
        dataset=dataset,
        root=root if nodes is None and edges is None else None,
        nodes=nodes,
        edges=edges,
        id=id,
        label=label,
        source=source,
        target=target,
        directed=directed,
        split=split,
    )
    experiment = Experiment(method, origin, parameters, recipe, runs, seed)
    _train(experiment, out, Screen(as_json=json), resume=resume, expect_edges=expect_edges)


def configuration(method: str, flags: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """Return constructor keywords from the flags that were given and the ``--set`` texts."""
    from graphveil.experiment.parameters import method_class, parse_settings, parse_value

    parameters = parse_settings(method_class(method), settings)
    for name, value in flags.items():
        if value is None:
            continue
        if name in parameters:
            raise ConfigError(f"{name} is given twice, by its flag and by --set {name}; keep one")
        parameters[name] = parse_value(name, value, float | str) if name == "delta" else value
    return parameters


def _train(
    experiment: "Experiment",
    out: Path | None,
    screen: Screen,
    *,
    resume: bool = False,
    expect_edges: int | None = None,
    by_flag: bool = True,
) -> None:
    from graphveil.experiment.artifacts import RunFolder, default_folder, read_json
    from graphveil.experiment.preview import preview
    from graphveil.experiment.run import run

    if resume and out is None:
        raise ConfigError("--resume needs to know which run: add --out with its folder")
    folder = RunFolder(out or default_folder(experiment.method, experiment.source.name))
    folder.check(experiment.as_dict(), resume=resume)
    if resume and folder.complete:
        _show(read_json(folder.metrics), folder, screen)
        return
    with screen.notes.status(f"reading {experiment.source.name}"):
        graph = experiment.load()
        plan = preview(experiment, graph, expect_edges=expect_edges)
    screen.facts("Plan, before anything is spent", _facts(plan, folder))
    with resumable(folder.root, by_flag=by_flag):
        with screen.bars() as bars:
            outcome = run(plan, graph, folder, bars)
        _show(outcome.metrics, folder, screen)


def _facts(plan: "Preview", folder: "RunFolder") -> list[tuple[str, str]]:
    from graphveil.models.cards import catch_rate
    from graphveil.privacy.guarantee import figure_up

    experiment, guarantee = plan.experiment, plan.guarantee
    size = f"{plan.nodes:,} nodes, {plan.features:,} features, {plan.classes} classes"
    recipe = f"recipe {experiment.recipe_name}" if experiment.recipe_name else "split as in the files"
    seeds = f"{_runs(experiment.runs)} from seed {experiment.seed}"
    rows = [
        ("data", f"{experiment.source.name}: {size}, {recipe}"),
        ("method", f"{experiment.method}, {seeds}, {guarantee.mode} mode"),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
    ]
    if guarantee.unit == "none":
        rows.append(("budget", "none: this is the reference without privacy"))
    elif not plan.releases:
        rows.append(("budget", "epsilon 0: the edges are never read"))
    else:
        epsilon = f"epsilon {figure_up(guarantee.epsilon)} at delta {guarantee.delta:g}"
        rows += [
            ("budget", f"{epsilon} ({plan.delta_source})"),
            ("noise", _noise(plan)),
            ("attacker", catch_rate(guarantee)),
        ]
        if experiment.runs > 1:
            total = plan.guarantee_all_runs
            epsilon = f"epsilon {figure_up(total.epsilon)} at delta {total.delta:g}"
            rows.append(("all runs", f"together {epsilon}; {catch_rate(total)}"))
    rows += [("deviation", deviation) for deviation in guarantee.deviations]
    if plan.estimate is not None:
        memory, seconds = plan.estimate.megabytes / 1000, plan.estimate.seconds
        rows.append(
            ("estimate", f"roughly {memory:.1f} GB and {seconds:.0f} s, for as many edges as you expect")
        )
    rows.append(("folder", str(folder.root)))
    return rows


def _noise(plan: "Preview") -> str:
    stds = ", ".join(f"{sigma:.4g}" for sigma in plan.noise_std)
    answers = "release" if len(plan.releases) == 1 else "releases"
    return f"{len(plan.releases)} {answers}, noise standard deviation {stds}"


def _show(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    """Print the final table, the statement, and where things are."""
    from graphveil.experiment.results import Summary
    from graphveil.models.cards import percent_up
    from graphveil.privacy.guarantee import FALSE_ALARMS, figure_up

    single = metrics["runs"] == 1
    accuracy = "test accuracy, %" + ("" if single else " [95 % CI]")
    own = Summary.of(metrics["test_accuracy"]["values"]).percent()
    epsilon = "none" if metrics["epsilon"] is None else figure_up(metrics["epsilon"])
    rate = f"at most {percent_up(metrics['tpr_at_1pct_fpr'])} %"
    rows = [(metrics["method"], own, epsilon, f"{metrics['delta']:g}" if metrics["epsilon"] else "0", rate)]
    if metrics["method"] != "mlp":
        baseline = Summary.of(metrics["mlp_test_accuracy"]["values"]).percent()
        rows.append(("mlp (no graph)", baseline, "0", "0", f"at most {percent_up(FALSE_ALARMS)} %"))
    screen.say("")
    screen.table(("method", accuracy, "epsilon", "delta", "attacker catches"), rows)
    if metrics["epsilon"]:
        screen.say(f"What an attacker learns about one edge: catch rate at 1 % false alarms: {rate}.")
    if single:
        screen.say("One run, so no interval (train --runs 3 gives one).", style="dim")
    else:
        screen.say(_together(metrics), style="dim")
    screen.say("")
    screen.say(metrics["statement"])
    screen.say("")
    valid = metrics["guarantee"]["valid"]
    publish = (
        "release/ may be published, internal/ must not" if valid else "no guarantee holds: publish none of it"
    )
    screen.say(f"Run folder: {folder.root} ({publish})")
    screen.say(f"Report: {folder.internal / 'report.html'}   In words: graphveil explain {folder.root}")
    screen.emit(metrics)


def _together(metrics: dict[str, Any]) -> str:
    from graphveil.models.cards import percent_up
    from graphveil.privacy.guarantee import figure_up

    total = metrics["guarantee_all_runs"]
    if total["epsilon"] is None:
        return f"{metrics['runs']} runs."
    rate = percent_up(metrics["tpr_at_1pct_fpr_all_runs"])
    return (
        f"Epsilon is that of one run; all {metrics['runs']} runs on these edges together: epsilon "
        f"{figure_up(total['epsilon'])} at delta {total['delta']:g}, catch rate at most {rate} %."
    )


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
