"""Train R runs and their no-graph baselines, measure, and leave a run folder."""

import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.errors import InputError, PrivacyError
from graphveil.experiment.artifacts import RunFolder, read_json, write_history, write_json
from graphveil.experiment.experiment import Experiment
from graphveil.experiment.preview import Preview, together
from graphveil.experiment.results import Summary
from graphveil.models.cards import Card, other_runs
from graphveil.privacy import Guarantee, NoUnit, budget_of
from graphveil.privacy.plain import guarantee_from_plain, guarantee_to_plain

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.models.base import Estimator

OnProgress = Callable[[str, int, int], None]
STAGES = ("total", "calibrate", "encoder", "aggregate", "classifier")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What one finished run leaves for the summary, as plain values."""

    seed: int
    accuracy: dict[str, float]
    baseline: dict[str, float]
    seconds: dict[str, float]
    guarantee: dict[str, Any]
    history: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished experiment: its figures, its history, and its guarantee."""

    metrics: dict[str, Any]
    history: list[list[Any]]
    guarantee: Guarantee


def run(plan: Preview, graph: "Graph", folder: RunFolder, on_progress: OnProgress) -> Outcome:
    """Run the experiment of a preview, resuming what the folder holds, and publish its release.

    The release is the run of the first seed, fixed beforehand. Every run's answers about the edges are booked
    in the graph's budget before they are computed.
    """
    started = time.perf_counter()
    fresh = not folder.root.exists()
    folder.open(plan.experiment.as_dict())
    try:
        records = [
            _run(plan.experiment, graph, folder, index, on_progress) for index in range(plan.experiment.runs)
        ]
    except (InputError, PrivacyError):
        if fresh and not budget_of(graph.edge_set).entries:
            shutil.rmtree(folder.root, ignore_errors=True)
        raise
    outcome = _summarise(plan, graph, records, time.perf_counter() - started)
    outcome.metrics["out"] = str(folder.root)
    _write(outcome, folder)
    folder.publish(folder.workspace(plan.experiment.seed) / "release")
    return outcome


def _run(
    experiment: Experiment, graph: "Graph", folder: RunFolder, index: int, show: OnProgress
) -> RunRecord:
    """Return the record of one run, from the folder if it was finished before."""
    workspace = folder.workspace(experiment.seed + index)
    path = workspace / "record.json"
    if path.exists():
        return RunRecord(**read_json(path))
    prefix = f"run {index + 1}/{experiment.runs} " if experiment.runs > 1 else ""
    split = experiment.split(graph, index)
    model = experiment.model(index).fit(
        split, on_progress=_labelled(show, prefix), workspace=workspace / "method"
    )
    baseline = None
    if experiment.method != "mlp":
        baseline = experiment.baseline(index)
        baseline.fit(split, on_progress=_labelled(show, f"{prefix}baseline "), workspace=workspace / "mlp")
    record = _record(model, baseline, split, experiment.seed + index)
    if index == 0:
        _stage_release(model, experiment, record, workspace / "release")
    write_json(path, asdict(record))
    return record


def _record(model: "Estimator", baseline: "Estimator | None", split: "Graph", seed: int) -> RunRecord:
    models = [model] if baseline is None else [model, baseline]
    history = [
        [seed, one.method, stage, *asdict(epoch).values()] for one in models for stage, epoch in one.history_
    ]
    return RunRecord(
        seed=seed,
        accuracy=_accuracies(model, split),
        baseline=_accuracies(baseline or model, split),
        seconds=dict(model.seconds_),
        guarantee=guarantee_to_plain(model.guarantee),
        history=[[None if value != value else value for value in row] for row in history],
    )


def _accuracies(model: "Estimator", split: "Graph") -> dict[str, float]:
    return {part: model.score(split, part) for part in ("test", "val")}


def _stage_release(model: "Estimator", experiment: Experiment, record: RunRecord, folder: Path) -> None:
    """Save the release beside the run's state; an earlier attempt's is replaced."""
    from graphveil.models.storage import save_model

    shutil.rmtree(folder, ignore_errors=True)
    accuracies = {"test accuracy": record.accuracy["test"]}
    if experiment.method != "mlp":
        accuracies["no-graph baseline (MLP), test accuracy"] = record.baseline["test"]
    card = Card(
        dataset=experiment.source.published_name,
        recipe=experiment.recipe_name,
        accuracies=accuracies,
        other_runs=other_runs(
            experiment.seed, experiment.runs, together([model.guarantee] * experiment.runs)
        ),
    )
    save_model(model, folder, card)


def _summarise(plan: Preview, graph: "Graph", records: Sequence[RunRecord], wall: float) -> Outcome:
    guarantees = [guarantee_from_plain(record.guarantee) for record in records]
    guarantee, all_runs = guarantees[0], together(guarantees)
    metrics = {
        **_configuration(plan, guarantee),
        **_accuracy_figures(records),
        "covered": guarantee.unit != NoUnit.name,
        "guarantee": guarantee.as_dict(),
        "guarantee_all_runs": {"epsilon": all_runs.as_dict()["epsilon"], "delta": all_runs.delta},
        "tpr_at_1pct_fpr": guarantee.attacker_rate,
        "tpr_at_1pct_fpr_all_runs": all_runs.attacker_rate,
        "deviations": list(guarantee.deviations),
        "statement": guarantee.statement(),
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "edges_stored": len(graph.adjacency.indices) if guarantee.unit == NoUnit.name else None,
        "seconds": _seconds(records),
        "seconds_wall": round(wall, 3),
        "peak_rss_mb": _peak_megabytes(),
    }
    return Outcome(
        metrics=metrics, history=[row for record in records for row in record.history], guarantee=guarantee
    )


def _configuration(plan: Preview, guarantee: Guarantee) -> dict[str, Any]:
    experiment = plan.experiment
    model = experiment.model(0)
    return {
        "method": experiment.method,
        "dataset": experiment.source.name,
        "recipe": experiment.recipe_name,
        "unit": guarantee.unit,
        "epsilon": model.epsilon if guarantee.releases else guarantee.as_dict()["epsilon"],
        "delta": guarantee.delta,
        "delta_source": plan.delta_source,
        "mode": guarantee.mode,
        "runs": experiment.runs,
        "seed": experiment.seed,
        "hops": getattr(model, "hops", None),
        "noise_std": list(plan.noise_std),
        "releases": [asdict(row) for row in plan.releases],
    }


def _accuracy_figures(records: Sequence[RunRecord]) -> dict[str, Any]:
    def summary(figures: Sequence[dict[str, float]], part: str) -> dict[str, Any]:
        return Summary.of([figure[part] for figure in figures]).as_dict()

    own, baseline = [record.accuracy for record in records], [record.baseline for record in records]
    return {
        "test_accuracy": summary(own, "test"),
        "val_accuracy": summary(own, "val"),
        "mlp_test_accuracy": summary(baseline, "test"),
        "mlp_val_accuracy": summary(baseline, "val"),
    }


def _seconds(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return the method's mean seconds a run, by stage; a stage that it does not have takes none."""
    stages = dict.fromkeys([*STAGES, *(stage for record in records for stage in record.seconds)])
    return {
        stage: round(sum(record.seconds.get(stage, 0.0) for record in records) / len(records), 4)
        for stage in stages
    }


def _peak_megabytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def _write(outcome: Outcome, folder: RunFolder) -> None:
    from graphveil.experiment.report import report_page

    write_history(folder.internal / "history.csv", outcome.history)
    page = report_page(outcome.metrics, outcome.history, outcome.guarantee)
    (folder.internal / "report.html").write_text(page)
    write_json(folder.metrics, outcome.metrics)


def _labelled(show: OnProgress, prefix: str) -> OnProgress:
    return lambda stage, done, total: show(prefix + stage, done, total)
