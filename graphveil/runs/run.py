"""Train R runs and their no-graph baselines, measure, and leave a run folder."""

import math
import resource
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.core.ledger import ledger_of
from graphveil.core.unit import LocalAttributes, NodeUnit, NoUnit
from graphveil.data.tables.encoding import REGRESSION
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from graphveil.publish.cards import Card, other_runs
from graphveil.publish.reports import report_page
from graphveil.publish.results import (
    METRIC_NAMES,
    NUMBER_METRIC_NAMES,
    Summary,
    pair_remarks,
    private_metric_texts,
)
from graphveil.runs.charges import RunAccount, add_receipts
from graphveil.runs.compliance_report import write_reports
from graphveil.runs.experiment import Experiment, Preview, charged_guarantee, combined_guarantee
from graphveil.runs.grid import OnProgress
from graphveil.runs.run_folder import (
    RunFolder,
    check_data,
    damaged_file_error,
    forget_data,
    read_checked,
    write_checked,
    write_history,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from graphveil.core.backends import AggregationBackend
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator
    from graphveil.links.pairs import PairModel

BASELINE_METHOD = "mlp"  # the baseline's name
STAGES = ("total", "calibrate", "encoder", "aggregate", "classifier")


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one finished run leaves for the summary, as plain values."""

    seed: int
    seconds: dict[str, float]
    guarantee: dict[str, Any]
    baseline_guarantee: dict[str, Any] | None = None  # None if it had no privacy cost
    own: dict[str, Any] = field(default_factory=dict)  # what ``_measured`` returns
    baseline: dict[str, Any] | None = None
    private_metrics: dict[str, Any] | None = None  # of test nodes, from noisy counts
    clipped: int | None = None  # values that nodes cut to the public range
    homophily: dict[str, float] | None = None  # from released counts
    choice: dict[str, Any] | None = None  # method that was chosen, and the evidence
    history: list[list[Any]] = field(default_factory=list)
    per_class: list[list[int]] = field(default_factory=list)  # tested, right, predicted; empty if secret
    curves: dict[str, Any] | None = None  # of held-out edges, from noisy counts
    staged: dict[str, str] = field(default_factory=dict)  # digests of the files that wait to be published

    @property
    def guarantees(self) -> list[Guarantee]:
        plain = (self.guarantee, self.baseline_guarantee)
        return [guarantee_from_plain(record) for record in plain if record is not None]


def run(
    plan: Preview,
    folder: RunFolder,
    on_progress: OnProgress,
    account: RunAccount | None = None,
    *,
    resume: bool = False,
    shared: Path | None = None,
    backend: "AggregationBackend | str | None" = None,
) -> dict[str, Any]:
    """Run the experiment of a preview, resuming an unfinished one in the folder, and publish its release.

    Returns what ``train --json`` prints.

    The release is the run of the first seed, fixed in advance. Every query of protected data, of all runs and
    baselines, is charged to the graph's budget before it is computed. Resumed runs use the graph of the first
    call. ``shared`` is a folder of results that follow from public data alone, which experiments on one graph
    share. ``backend`` is the aggregation backend; it does not affect results.
    """
    started, graph = time.perf_counter(), plan.graph
    recorded_before, records = len(ledger_of(graph.edge_set)), list[RunResult]()

    def spent() -> bool:
        if account is not None:
            account.refund()
        return bool(records) or len(ledger_of(graph.edge_set)) > recorded_before

    with folder.opened(plan.experiment.as_dict(), resume=resume, spent=spent):
        check_data(folder, graph)
        records = [
            _run(plan, folder, index, on_progress, account, shared, backend)
            for index in range(plan.experiment.runs)
        ]
        metrics, first = _summarize(plan, records, time.perf_counter() - started), records[0]
        history = [row for record in records for row in record.history]
        page = partial(report_page, metrics, history, first.guarantees[0], curves=first.curves)
        if not plan.experiment.pairs:
            write_history(folder.internal / "history.csv", history)
        if first.clipped is not None:  # private, so it is not in the metrics
            write_json(folder.internal / "clipped.json", {"clipped_values": first.clipped})
        workspace = folder.workspace(plan.experiment.seed)
        write_reports(folder, metrics, workspace / folder.release.name, page, account)
        if graph.encoding is not None and not plan.experiment.pairs:
            write_json(folder.columns, graph.encoding.as_plain())
        forget_data(folder)
        folder.publish(workspace, first.staged)
    return metrics


def _run(
    plan: Preview,
    folder: RunFolder,
    index: int,
    show: OnProgress,
    account: RunAccount | None,
    shared: Path | None,
    backend: "AggregationBackend | str | None",
) -> RunResult:
    experiment = plan.experiment
    workspace = folder.workspace(experiment.seed + index)
    path = workspace / "record.json"
    if path.exists():
        try:
            return RunResult(**read_checked(path))
        except TypeError:  # another version's record does not fit
            raise damaged_file_error(path) from None
    prefix = f"run {index + 1}/{experiment.runs} " if experiment.runs > 1 else ""
    # What was shown is what is executed.
    fit, baseline_fit = (plan.fits if index == 0 else None) or (None, None)
    split = experiment.split(plan.data, index) if fit is None else fit.graph
    public = shared or workspace / "public"  # what method and baseline compute from public data alone
    how: dict[str, Any] = {} if experiment.pairs else {"backend": backend, "cache": public}
    model: Any = experiment.model(index).fit(
        split if fit is None else fit,
        on_progress=_labeled(show, prefix),
        workspace=workspace / "method",
        **how,
    )
    baseline: Any = experiment.baseline(index)
    if baseline is not None:
        reported = _labeled(show, f"{prefix}baseline ")
        if experiment.local:  # nodes randomize their records, which must not be reported twice
            baseline.fit_same_reports(model, split, on_progress=reported)
        else:
            seen = model.with_reported_features(split)
            given = baseline_fit if baseline_fit is not None and baseline_fit.graph is seen else seen
            baseline.fit(given, on_progress=reported, workspace=workspace / "mlp", cache=public)
    seed = experiment.seed + index
    record = _pair_record(model, seed) if experiment.pairs else _record(model, baseline, split, seed)
    if index == 0:
        _stage_release(model, experiment, record, folder, workspace)
        record = replace(record, staged=folder.staged(workspace))
    if account is not None:
        add_receipts(folder.receipts, account)
    write_checked(path, asdict(record))
    return record


def _record(model: "Estimator", baseline: "Estimator | None", split: "Graph", seed: int) -> RunResult:
    models = {model.method: model} | ({} if baseline is None else {BASELINE_METHOD: baseline})
    history = [
        [seed, name, stage, *asdict(epoch).values()]
        for name, one in models.items()
        for stage, epoch in one.history_
    ]
    baselines = None if baseline is None else charged_guarantee(baseline.guarantee)
    compared = model if model.method == model.baseline else baseline  # an MLP is its own baseline
    labels_public = not model.guarantee.protected.protects_records
    released = getattr(model, "homophily_", None)  # how alike neighbors are, by released counts
    homophily = None if released is None else {"adjusted": released.adjusted, "error": released.error}
    # Errors of numbers are exact, as accuracies are, and not covered under units that protect labels.
    numbers = model.task == REGRESSION
    own, reference = _measured(model, split, exact=labels_public or numbers), None
    if compared is not None:
        reference = _measured(compared, model.with_reported_features(split), exact=bool(own["metrics"]))
    return RunResult(
        seed=seed,
        own=own,
        baseline=reference,
        private_metrics=None if model.private_metrics_ is None else model.private_metrics_.as_dict(),
        seconds=dict(model.seconds_),
        guarantee=guarantee_to_plain(model.guarantee),
        baseline_guarantee=None if baselines is None else guarantee_to_plain(baselines),
        clipped=getattr(model, "clipped_", None),
        homophily=homophily,
        choice=getattr(model, "choice_", None),
        history=[[None if value != value else value for value in row] for row in history],
        per_class=_per_class(model, split) if labels_public and not numbers else [],
    )


def _pair_record(model: "PairModel", seed: int) -> RunResult:
    metrics = model.fitted.learned["metrics"] or {}
    curves = model.fitted.learned.get("curves")  # of links only
    return RunResult(
        seed=seed,
        private_metrics={name: one.as_dict() for name, one in metrics.items()},
        seconds=dict(model.fitted.seconds),
        guarantee=guarantee_to_plain(model.guarantee),
        curves=None if curves is None else curves._asdict(),
    )


def _measured(model: "Estimator", view: "Graph", *, exact: bool) -> dict[str, Any]:
    """Return accuracies, those from noisy counts, and exact metrics on test nodes.

    There are none of label sets, and without a labeled test node.
    """
    found: dict[str, Any] = {"metrics": {}, "confusion_matrix": [], "positive": None}
    tested = view.labeled_in("test")
    if exact and view.label_sets is None and model.proba_ is not None and bool(tested.any()):
        found = model.evaluate(view).as_dict()
    return {**found, "accuracy": _accuracies(model, view), "private_accuracy": dict(model.private_accuracy_)}


def _accuracies(model: "Estimator", split: "Graph") -> dict[str, float | None]:
    """Return the exact accuracies, of which a unit of records lets none fail for want of a label."""
    # No prediction is covered by the guarantee, so there is none; or numbers, which have no accuracy.
    if model.proba_ is None or model.task == REGRESSION:
        return dict.fromkeys(("test", "val"))
    scores = {part: model.score(split, part) for part in ("test", "val")}
    return {part: None if math.isnan(score) else score for part, score in scores.items()}


def _per_class(model: "Estimator", split: "Graph") -> list[list[int]]:
    tested, head = split.labeled_in("test"), model.fitted.method.head
    true, predicted = head.labels(split)[tested], model.predict(split)[tested]
    return [
        [int(count.sum()) for count in (_of(true, k), _of(true, k) & _of(predicted, k), _of(predicted, k))]
        for k in range(head.width(split))
    ]


def _of(labels: "Tensor", number: int) -> "Tensor":
    return labels == number if labels.ndim == 1 else labels[:, number]


def _stage_release(
    model: Any, experiment: Experiment, record: RunResult, folder: RunFolder, workspace: Path
) -> None:
    from graphveil.estimators.fitted import save_fitted
    from graphveil.estimators.inference import write_graph_fingerprint
    from graphveil.publish.release_folder import withheld_files

    release, per_node = workspace / folder.release.name, workspace / folder.per_node.name
    for attempt in (release, per_node):
        shutil.rmtree(attempt, ignore_errors=True)
    if experiment.pairs:
        model.save(release, dataset=experiment.source.published_name)
        return
    numbers = model.task == REGRESSION
    shown = private_metric_texts(
        {"private_metrics": [record.private_metrics] if record.private_metrics else []}
    )
    if isinstance(model.protected_unit, NodeUnit):  # labels are protected: only charged counts
        names = {"test": "test", "val": "validation"}
        where = "accuracy of labeled nodes, from noisy counts"
        noisy = record.own["private_accuracy"]
        published = {f"{names[part]} {where}": value for part, value in noisy.items()}
    else:
        parts = {"test": record.own}
        if model.method != model.baseline and record.baseline is not None:
            parts["no-graph baseline (MLP), test"] = record.baseline
        published = {
            f"{prefix} {words}": value
            for prefix, measured in parts.items()
            for name, words in (NUMBER_METRIC_NAMES if numbers else {"test": "accuracy"}).items()
            if (value := measured["metrics" if numbers else "accuracy"].get(name)) is not None
        }
        if not numbers:
            known = {name: record.own["metrics"].get(name) for name in METRIC_NAMES}
            shown = {METRIC_NAMES[name]: f"{value:.3f}" for name, value in known.items() if value is not None}
    runs = record.guarantees * experiment.runs
    card = Card(
        dataset=experiment.source.published_name,
        recipe=experiment.recipe_name,
        accuracies=published,
        metrics=shown,
        other_runs=other_runs(
            experiment.seed,
            experiment.runs,
            combined_guarantee(runs),
            compared=record.baseline_guarantee is not None,
        ),
    )
    kept_back = per_node if withheld_files(model.guarantee.unit) and model.proba_ is not None else None
    save_fitted(model.fitted, release, card, per_node=kept_back)
    if model.graph_fingerprint is not None:
        write_graph_fingerprint(workspace, model.graph_fingerprint)


def _summarize(plan: Preview, records: Sequence[RunResult], wall: float) -> dict[str, Any]:
    guarantee, graph, pairs = records[0].guarantees[0], plan.graph, plan.experiment.pairs
    all_runs = combined_guarantee([one for record in records for one in record.guarantees])
    figures = {
        **_configuration(plan, guarantee),
        **(_pair_figures(plan, records) if pairs else _node_figures(plan, records, valid=all_runs.valid)),
        "guarantee": guarantee.as_dict(),
        "baseline_guarantee": None if plan.baseline is None else plan.baseline.as_dict(),
        "guarantee_all_runs": {
            "epsilon": all_runs.as_dict()["epsilon"],
            "delta": all_runs.delta,
            "releases": all_runs.releases,
            **({"additional": [one.as_dict() for one in all_runs.additional]} if all_runs.additional else {}),
        },
        "max_tpr_at_1pct_fpr": guarantee.max_tpr(),
        "max_tpr_at_1pct_fpr_all_runs": all_runs.max_tpr(),
        "deviations": list(guarantee.deviations),
        "summary": guarantee.summary(),
        "statement": guarantee.formal_statement(),
    }
    if not pairs:
        edges_public = guarantee.unit in (NoUnit.name, LocalAttributes.name)
        figures |= {
            "nodes": graph.num_nodes,
            "features": graph.num_features,
            "constant_feature": graph.encoding is not None and graph.encoding.constant,
            "classes": graph.num_classes,
            "edges_stored": graph.edge_index().shape[1] if edges_public else None,
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **figures,
        "seconds": _seconds(records),
        "seconds_wall": round(wall, 3),
        "peak_rss_mb": round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)),
    }


def _node_figures(plan: Preview, records: Sequence[RunResult], *, valid: bool) -> dict[str, Any]:
    first, own, unit = records[0], [record.own for record in records], plan.guarantee.protected
    baselines = [record.baseline for record in records if record.baseline is not None]
    return {
        "test_accuracy": _summary(own, "test"),
        "val_accuracy": _summary(own, "val"),
        "mlp_test_accuracy": _summary(baselines, "test"),
        "mlp_val_accuracy": _summary(baselines, "val"),
        "tested": sum(tested for tested, *_ in first.per_class) or None,
        "per_class": _class_figures(first, plan.graph),
        "test_metrics": _metric_figures(own),
        "mlp_test_metrics": _metric_figures(baselines),
        "confusion_matrix": own[0]["confusion_matrix"],
        "positive": own[0]["positive"],
        "homophily": first.homophily,
        **({} if first.choice is None else {"choice": first.choice}),
        # Exact accuracies are covered where they follow from what was released and from public labels. Under
        # ``local-attributes`` those of training and validation nodes are on reported labels, and test labels
        # are not covered by anything.
        "covered": unit.name == LocalAttributes.name or unit.level == "edge",
        "private_accuracy": _private_figures(own, baselines, valid=valid),
        "private_metrics": [record.private_metrics for record in records if record.private_metrics],
    }


def _pair_figures(plan: Preview, records: Sequence[RunResult]) -> dict[str, Any]:
    """Return what pairs have in place of accuracies: released values and public sizes only."""
    experiment, released = plan.experiment, [record.private_metrics or {} for record in records]
    unit = plan.guarantee.unit
    return {
        "sizes": plan.sizes,
        "covered": True,
        "private_metrics": released[0],
        "metric_values": {
            name: [one[name]["value"] for one in released if name in one] for name in released[0]
        },
        "remarks": pair_remarks(experiment.method, unit, released[0], experiment.parameters),
    }


def _class_figures(record: RunResult, graph: "Graph") -> list[dict[str, Any]]:
    """Return the first run's recall and precision by class; none where labels are secret."""
    names = graph.class_names or tuple(map(str, range(len(record.per_class))))
    return [
        {
            "class": str(name),
            "tested": tested,
            "recall": right / tested if tested else None,
            "precision": right / predicted if predicted else None,
        }
        for name, (tested, right, predicted) in zip(names, record.per_class, strict=False)
    ]


def _metric_figures(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metrics of all runs by name; none where labels are secret."""
    from graphveil.training.metrics import METRICS, NUMBER_METRICS

    figures = [one["metrics"] for one in measured]
    if not figures or not all(figures):
        return {}
    if NUMBER_METRICS[0] in figures[0]:
        return {
            name: Summary.from_values([one[name] for one in figures], shares=False).as_dict()
            for name in NUMBER_METRICS
        }
    return {name: _summary(measured, name, "metrics") for name in (*METRICS, "calibration_error")}


def _configuration(plan: Preview, guarantee: Guarantee) -> dict[str, Any]:
    experiment = plan.experiment
    model = experiment.model(0)
    # A method may use less than the given budget, and the configuration has the given one.
    given, numbers = (
        model.epsilon if guarantee.releases else None,
        experiment.parameters.get("task") == REGRESSION,
    )
    # Budgets of features and label, if those are protected; None means infinity.
    reported = [item for one in (guarantee, *guarantee.additional) for item in one.as_dict().items()]
    return {
        "method": experiment.method,
        "dataset": experiment.source.name,
        "recipe": experiment.recipe_name,
        "unit": guarantee.unit,
        "epsilon": guarantee.as_dict()["epsilon"] if given is None else given,
        **{name: value for name, value in reported if name in ("eps_x", "eps_y")},
        "delta": guarantee.delta,
        "delta_source": plan.delta_source,
        "mode": "paper" if experiment.as_published else "strict",
        **({"task": REGRESSION, "target_range": model.target_range} if numbers else {}),
        "runs": experiment.runs,
        "seed": experiment.seed,
        "hops": getattr(model, "hops", None),
        "noise_std": list(plan.noise_std),
        "releases": [row.as_release() for row in plan.releases],
        "stages": [stage.as_stage() for stage in plan.stages],
    }


def _private_figures(
    own: Sequence[dict[str, Any]], baselines: Sequence[dict[str, Any]], *, valid: bool
) -> dict[str, Any] | None:
    parts = own[0]["private_accuracy"]
    if not parts:
        return None
    baselines = [one for one in baselines if one["private_accuracy"]]
    figures = {part: _summary(own, part, "private_accuracy") for part in parts}
    figures |= {f"mlp_{part}": _summary(baselines, part, "private_accuracy") for part in parts}
    return {"covered": valid, **figures}


def _summary(
    measured: Sequence[Mapping[str, Any]], part: str, kind: str = "accuracy"
) -> dict[str, Any] | None:
    return Summary.from_values([one[kind][part] for one in measured]).as_dict() if measured else None


def _seconds(records: Sequence[RunResult]) -> dict[str, float]:
    stages = dict.fromkeys([*STAGES, *(stage for record in records for stage in record.seconds)])
    return {
        stage: round(sum(record.seconds.get(stage, 0.0) for record in records) / len(records), 4)
        for stage in stages
    }


def _labeled(show: OnProgress, prefix: str) -> OnProgress:
    return lambda stage, done, total: show(prefix + stage, done, total)
