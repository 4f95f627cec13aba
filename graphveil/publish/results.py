"""Results of a run as tables and notes, from the object that ``train --json`` prints.

``Summary`` has the mean over runs with its 95 % interval. Terminals and HTML reports show the same tables.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphveil._util.figures import format_delta, format_upper_bound, percent_up
from graphveil.core.guarantee import FALSE_POSITIVE_RATE
from graphveil.core.unit import DirectedEdge, LocalAttributes, NoUnit, Row
from graphveil.data.tables.encoding import REGRESSION
from graphveil.privacy import Guarantee
from graphveil.publish.cards import NOT_COVERED, TEST_LABELS, invalid_mark, protected_things
from graphveil.publish.queries import Table

ABSENT = "n/a"  # an accuracy on nodes without labels
_SAME = (
    "The mlp baseline trains on the same {} as the method and reads no edges, so it does not use additional "
    "privacy budget."
)
SAME_FEATURES, SAME_REPORTS = _SAME.format("perturbed features"), _SAME.format("LDP reports")
METRIC_NAMES = {  # as tables print them
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "calibration_error": "calibration error",
}
NUMBER_METRIC_NAMES = {"r2": "R²", "mae": "MAE", "rmse": "RMSE"}
LINKS, RECOMMENDER = "links", "recommender"
LINK_METRIC_NAMES = {
    "roc_auc": "ROC-AUC of held-out edges",
    "average_precision": "average precision of held-out edges",
    "hit_rate_at_10": "hit rate at 10 of held-out users",
}
LINK_METRICS = {LINKS: "roc_auc", RECOMMENDER: "hit_rate_at_10"}  # that sweeps and reports compare
METRIC_NOTES = {
    LINKS: "Metrics are noisy and part of the release: of held-out edges and as many random pairs.",
    RECOMMENDER: "The hit rate is noisy and public: the share of held-out users whose ten best items "
    "contain one that was removed from their list.",
}
NO_METRICS = {
    LINKS: "No metrics were released, because no pairs are held out (held_out=0).",
    RECOMMENDER: "No metrics were released. Add --private-metrics to release some.",
}
_WEAK_HOMOPHILY = 0.05
_NORMAL = 1.959963984540054  # 97.5 % quantile
_DIGITS = 6  # more than any test set can carry


@dataclass(frozen=True)
class Summary:
    """Accuracies of several runs. ``std`` and ``ci95`` are None for a single run.

    A run without labeled test nodes has no accuracy. Its value is None, and the summary is that of the other
    runs, None if there are none.

    >>> Summary.from_values([0.80, 0.82, 0.84])
    Summary(mean=0.82, std=0.02, ci95=(0.770317, 0.869683), values=(0.8, 0.82, 0.84))
    >>> Summary.from_values([0.8]).ci95 is None, Summary.from_values([None]).mean is None
    (True, True)
    """

    mean: float | None
    std: float | None
    ci95: tuple[float, float] | None
    values: tuple[float | None, ...]

    @classmethod
    def from_values(cls, values: Sequence[float | None], *, shares: bool = True) -> "Summary":
        """Summarize the values; the interval is Student's, of shares cut to [0, 1]."""
        there = [value for value in values if value is not None]
        if not there:
            return cls(None, None, None, tuple(values))
        mean = math.fsum(there) / len(there)
        if len(there) == 1:
            return cls(round(mean, _DIGITS), None, None, tuple(values))
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in there) / (len(there) - 1))
        from scipy.special import stdtrit

        student = float(stdtrit(len(there) - 1, 0.975))  # the two-sided 95 % point
        half = student * std / math.sqrt(len(there))
        low, high = (max(0.0, mean - half), min(1.0, mean + half)) if shares else (mean - half, mean + half)
        mean, std, low, high = (round(value, _DIGITS) for value in (mean, std, low, high))
        return cls(mean, std, (low, high), tuple(values))

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "ci95": None if self.ci95 is None else list(self.ci95),
            "values": list(self.values),
        }

    def percent(self) -> str:
        """Return the mean and its interval in percent.

        >>> [Summary.from_values(values).percent() for values in ([0.80, 0.82, 0.84], [0.8], [None])]
        ['82.0 [77.0, 87.0]', '80.0', 'n/a']
        """
        return self._text(lambda share: f"{100 * share:.1f}")

    def number(self) -> str:
        """Return the mean and its interval with four digits.

        >>> Summary.from_values([120.0, 130.0], shares=False).number(), Summary.from_values([]).number()
        ('125 [61.47, 188.5]', 'n/a')
        """
        return self._text("{:.4g}".format)

    def decimal(self) -> str:
        """Return the mean and its interval with three decimals.

        >>> [Summary.from_values(values).decimal() for values in ([0.80, 0.82, 0.84], [0.8], [None])]
        ['0.820 [0.770, 0.870]', '0.800', 'n/a']
        """
        return self._text("{:.3f}".format)

    def _text(self, shown: Callable[[float], str]) -> str:
        if self.mean is None:
            return ABSENT
        interval = "" if self.ci95 is None else f" [{shown(self.ci95[0])}, {shown(self.ci95[1])}]"
        return f"{shown(self.mean)}{interval}"


def predicts_numbers(metrics: Mapping[str, Any]) -> bool:
    return bool(metrics.get("task") == REGRESSION)


def number_cells(metrics: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return R², MAE and RMSE on test nodes of a method, or of the baseline with the prefix ``mlp_``."""
    found = metrics[f"{prefix}test_metrics"] or {name: {"values": [None]} for name in NUMBER_METRIC_NAMES}
    summaries = [Summary.from_values(found[name]["values"], shares=False) for name in NUMBER_METRIC_NAMES]
    return [summary.number() for summary in summaries]


def uncovered_mark(metrics: Mapping[str, Any]) -> str:
    """Return the note next to exact results that depend on protected records; empty for others."""
    return "" if metrics["covered"] or metrics["unit"] == NoUnit.name else f" ({NOT_COVERED})"


def compared_models(metrics: Mapping[str, Any], baseline: str) -> list[tuple[str, str, "Cost"]]:
    models = [(str(metrics["method"]), "", Cost.from_guarantee(metrics["guarantee"]))]
    key = "mlp_test_metrics" if predicts_numbers(metrics) else "mlp_test_accuracy"
    if metrics["method"] != "mlp" and metrics[key]:
        models.append((baseline, "mlp_", baseline_cost(metrics)))
    return models


def results_table(metrics: Mapping[str, Any], *, page: bool = False) -> Table:
    """Return the methods side by side, each with its results and its privacy cost.

    The head marks values that depend on protected records. Where noisy counts were charged, a terminal shows
    the accuracies from these alone, because its table may fold; a page shows the exact ones too.
    """
    single, private, tested = metrics["runs"] == 1, metrics["private_accuracy"], metrics.get("tested")
    interval_head = " [95 % interval]" if page else " [95 % CI]"
    several, mark = "" if single else interval_head, uncovered_mark(metrics)

    def exact(prefix: str) -> list[str]:
        return [interval(metrics[f"{prefix}test_accuracy"], tested).percent()]

    def noisy(prefix: str) -> list[str]:  # noise of counts is no sampling error: one run has no interval
        return [Summary.from_values(private[f"{prefix}test"]["values"]).percent()]

    # Heads, and the function of a prefix that returns cells.
    parts: list[tuple[list[str], Callable[[str], list[str]]]]
    if predicts_numbers(metrics):
        heads = [f"test {words}{several}{mark}" for words in NUMBER_METRIC_NAMES.values()]
        parts = [(heads, lambda prefix: number_cells(metrics, prefix))]
    elif private and not page:
        parts = [([f"test accuracy from noisy counts, %{several}"], noisy)]
    else:
        parts = [([f"test accuracy, %{interval_head if tested else several}{mark}"], exact)]
        parts += [([f"from noisy counts, %{several}"], noisy)] if private else []
    names = ("mlp (no-graph baseline)", "ε", "δ") if page else ("mlp (no graph)", "epsilon", "delta")
    rows = [
        (name, *(cell for _, cells in parts for cell in cells(prefix)), *cost.cells(metrics, page=page))
        for name, prefix, cost in compared_models(metrics, names[0])
    ]
    return ("method", *(head for heads, _ in parts for head in heads), *names[1:], "TPR at 1 % FPR"), rows


def metric_table(metrics: Mapping[str, Any]) -> Table | None:
    """Return metrics on test nodes next to those of the baseline; None where labels are secret."""
    own, baseline = metrics.get("test_metrics"), metrics.get("mlp_test_metrics")
    if predicts_numbers(metrics):
        return None
    if not own:
        private = private_metric_texts(metrics)
        head = ("metric from noisy counts [95 % CI]", str(metrics["method"]))
        return (head, list(private.items())) if private else None
    columns = [(str(metrics["method"]), own)]
    if baseline and metrics["method"] != "mlp":
        columns.append(("mlp (no graph)", baseline))
    intervals = " [95 % CI]" if metrics["runs"] > 1 else ""
    rows = [
        (words, *(Summary.from_values(column[name]["values"]).decimal() for _, column in columns))
        for name, words in metric_names(metrics.get("positive")).items()
    ]
    return (f"metric{intervals}", *(name for name, _ in columns)), rows


def link_metric_table(metrics: Mapping[str, Any]) -> Table:
    """Return the released metrics of links or of a recommender: of the first run, and the mean of several."""
    head, rows = ["metric", "value", "95 % interval"], list[list[str]]()
    if metrics["runs"] > 1:
        head.append(f"mean of {metrics['runs']} runs [95 % CI]")
    for name, one in metrics["private_metrics"].items():
        row = [LINK_METRIC_NAMES[name], f"{one['value']:.3f}", f"{one['low']:.3f} to {one['high']:.3f}"]
        if metrics["runs"] > 1:
            row.append(Summary.from_values(metrics["metric_values"][name]).decimal())
        rows.append(row)
    return head, rows


def pair_remarks(method: str, unit: str, private: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    if not private and method == RECOMMENDER and unit in (DirectedEdge.name, Row.name):
        return f"No metrics were released: a hit rate reads whole lists, which unit {unit} does not protect."
    if not private and parameters.get("private_metrics"):
        return (
            "Hit rate: n/a, because the noisy number of held-out users with two items does not exceed "
            "its noise. Use more users or a larger --epsilon."
        )
    if not private:
        return NO_METRICS[method]
    area = private.get("roc_auc")
    if area is None or not area["low"] <= 0.5 <= area["high"]:
        return METRIC_NOTES[method]
    return (
        f"{METRIC_NOTES[method]} The interval of ROC-AUC contains 0.5, which random scores have: with this "
        "noise the metrics do not show whether the scores are informative."
    )


def metric_names(positive: str | None) -> dict[str, str]:
    """Return the printed names of metrics, with the positive class of two where one counts.

    >>> metric_names("fraud")["average_precision"]
    'average precision (positive class: fraud)'
    """
    if positive is None:
        return METRIC_NAMES
    return METRIC_NAMES | {"average_precision": f"average precision (positive class: {positive})"}


def private_metric_texts(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics of the first run from charged noisy counts, with intervals; empty without them.

    >>> found = {"macro_f1": {"value": 0.8, "low": 0.75, "high": 0.84}}
    >>> private_metric_texts({"private_metrics": [{"metrics": found}]})
    {'macro F1': '0.800 [0.750, 0.840]'}
    """
    if not metrics.get("private_metrics"):
        return {}
    first = metrics["private_metrics"][0]
    found = first["metrics"]
    return {
        words: f"{found[name]['value']:.3f} [{found[name]['low']:.3f}, {found[name]['high']:.3f}]"
        for name, words in metric_names(first.get("positive")).items()
        if name in found
    }


def default_metric(metrics: Mapping[str, Any]) -> str | None:
    """Return the metric that tables show next to the accuracy if a run selected by none; None for none.

    With two classes it is the ROC-AUC. With more it is the macro F1, if it was released under a unit that
    protects labels, where no metric can select.

    >>> counts = [{"metrics": {"macro_f1": {"value": 0.8, "low": 0.75, "high": 0.84}}}]
    >>> default_metric({"classes": 3, "private_metrics": counts}), default_metric({"classes": 3})
    ('macro_f1', None)
    >>> default_metric({"classes": 2, "test_metrics": {"roc_auc": {"values": [0.7]}}})
    'roc_auc'
    """
    private = metrics.get("private_metrics") or []
    name = "roc_auc" if metrics["classes"] == 2 else "macro_f1" if private else None
    found = private[0]["metrics"] if private else metrics.get("test_metrics") or {}
    return name if name in found else None


def metric_summary(metrics: Mapping[str, Any], name: str) -> Summary:
    """Return a metric of test nodes over the runs: from charged noisy counts if there are some, else exact.

    The interval of a single run with noisy counts is that of the noise.
    """
    if "metric_values" in metrics:  # of links, or of a recommender
        values, noisy = metrics["metric_values"].get(name, [None]), metrics["private_metrics"].get(name)
    elif private := metrics.get("private_metrics"):
        values = [run["metrics"].get(name, {}).get("value") for run in private]
        noisy = private[0]["metrics"].get(name)
    else:
        found = (metrics.get("test_metrics") or {}).get(name)
        values, noisy = [None] if found is None else found["values"], None
    summary = Summary.from_values(values)
    return replace(summary, ci95=(noisy["low"], noisy["high"])) if noisy and metrics["runs"] == 1 else summary


def interval(figures: Mapping[str, Any], tested: int | None) -> Summary:
    """Return accuracies with their 95 % interval: Student's over runs, Wilson's for a single one.

    >>> low, high = interval({"values": [0.9]}, 100).ci95
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    summary = Summary.from_values(figures["values"])
    if summary.ci95 is not None or summary.mean is None or not tested:
        return summary
    share, wide = summary.mean, _NORMAL**2 / tested
    middle = (share + wide / 2) / (1 + wide)
    half = _NORMAL * math.sqrt(share * (1 - share) / tested + wide / (4 * tested)) / (1 + wide)
    return Summary(summary.mean, None, (max(0.0, middle - half), min(1.0, middle + half)), summary.values)


@dataclass(frozen=True)
class Cost:
    """Privacy loss of one model: epsilon (None for infinity), and an attacker's true-positive rate.

    ``mark`` is printed next to both if no guarantee is valid.
    """

    epsilon: float | None
    max_tpr: float
    mark: str = ""

    @classmethod
    def from_guarantee(cls, guarantee: Mapping[str, Any]) -> "Cost":
        """Create one from a guarantee as plain values: the proved epsilon, not a paper's budget.

        >>> Cost.from_guarantee({"epsilon": 86.2, "max_tpr_at_1pct_fpr": 1.0, "valid": False,
        ...     "unit": "node-record"})
        Cost(epsilon=86.2, max_tpr=1.0, mark=' (not valid)')
        """
        mark = invalid_mark(valid=guarantee["valid"], unit=guarantee["unit"])
        return cls(guarantee["epsilon"], guarantee["max_tpr_at_1pct_fpr"], mark)

    def text(self) -> str:
        return f"{epsilon_text(self.epsilon)}{self.mark}"

    def cells(self, metrics: Mapping[str, Any], *, page: bool) -> tuple[str, str, str]:
        delta, rate = format_delta(metrics["delta"]) if self.epsilon else "0", f"{percent_up(self.max_tpr)} %"
        if page:
            return self.text(), delta, f"≤ {rate}{self.mark}"
        none = "inf" if metrics["unit"] == LocalAttributes.name else "none"
        return f"{epsilon_text(self.epsilon, none)}{self.mark}", delta, f"at most {rate}"


def epsilon_text(epsilon: float | None, none: str = "∞") -> str:
    """Return an epsilon, rounded up; None is infinity."""
    return none if epsilon is None else format_upper_bound(epsilon)


def baseline_cost(metrics: Mapping[str, Any]) -> Cost:
    """Return the privacy loss of the no-graph baseline of a method.

    A baseline that learned from the method's own LDP reports has the method's values; it adds no loss.
    """
    if metrics["baseline_guarantee"] is not None:
        return Cost.from_guarantee(metrics["baseline_guarantee"])
    if metrics["unit"] == LocalAttributes.name:
        return Cost.from_guarantee(metrics["guarantee"])
    return Cost(0.0, FALSE_POSITIVE_RATE)


def weak_homophily(adjusted: float, error: float) -> bool:
    """Return whether classes of neighbors add little, by an estimate and its standard error."""
    return abs(adjusted) + 2 * error < _WEAK_HOMOPHILY


def choice_text(choice: Mapping[str, Any]) -> str:
    known = {name: value for name, value in choice["candidates"].items() if value is not None}
    names = METRIC_NAMES | {"validation_log_likelihood": "log-likelihood"}
    metric, mean = names.get(choice["metric"], choice["metric"]), choice.get("mean_out_degree")
    scores = ", ".join(
        f"{name} {100 * value:.1f} %" if metric == "accuracy" else f"{name} {value:.3f}"
        for name, value in known.items()
    )
    if metric == "log_likelihood":
        evidence = f" Log-likelihood of a held-out LDP report above that of class shares, in nats: {scores}."
    elif known:
        evidence = f" Validation {metric}: {scores}."
    else:
        evidence = "" if mean is None else f" Noisy mean out-degree: {mean:.1f}."
    return f"Chosen method: {choice['chosen']}.{evidence}"


def cost_remarks(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notes on the table of privacy losses.

    A baseline may have learned from the method's own LDP reports; and a paper's accounting may differ.
    """
    if metrics["mlp_test_accuracy"] is not None:
        if metrics["unit"] == LocalAttributes.name:
            yield SAME_REPORTS
        if metrics["guarantee"].get("additional"):
            yield SAME_FEATURES
    requested, proved = metrics["epsilon"], metrics["guarantee"]["epsilon"]
    if metrics["mode"] == "paper" and requested and proved:
        stated = format_upper_bound(requested)
        if stated != format_upper_bound(proved):
            yield f"The paper's accounting calls this noise epsilon {stated}."


def remarks(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notes on the results of a run, for terminals and pages."""
    runs = metrics["runs"]
    for one, total in zip(
        metrics["guarantee"].get("additional", []),
        metrics["guarantee_all_runs"].get("additional", []),
        strict=True,
    ):
        cost, sum_ = Cost.from_guarantee(one), Cost.from_guarantee(total)
        if cost.epsilon is None or sum_.epsilon is None:
            yield "Features are not protected: they are used as they are."
            continue
        all_runs = "" if runs == 1 else f" (all {runs} runs: {format_upper_bound(sum_.epsilon)})"
        yield (
            "Features have a separate guarantee, which is not added: epsilon "
            f"{format_upper_bound(cost.epsilon)}{cost.mark}{all_runs}, TPR at 1 % FPR at most "
            f"{percent_up(cost.max_tpr)} %{cost.mark}."
        )
    if runs == 1 and predicts_numbers(metrics):
        yield "Single run, without an interval. Use --runs 3 to add variation."
    elif runs == 1 and metrics.get("private_metrics"):
        yield "Single run: intervals reflect the noise of the counts only. Use --runs 3 to add variation."
    elif runs == 1:
        yield "Single run: the interval reflects test-set size only. Use --runs 3 to add variation."
    if choice := metrics.get("choice"):
        yield choice_text(choice)
    predicted = [one for one in metrics.get("per_class") or [] if one["precision"] is not None]
    if metrics.get("test_metrics") and len(predicted) == 1:
        first = " of the first run" if runs > 1 else ""
        yield (
            f"All test nodes{first} are predicted as one class. Use --class-weight balanced to find the "
            "others; predicted probabilities rank them (ROC-AUC)."
        )
    found = metrics.get("homophily")
    if found is not None and metrics["unit"] == "undirected-edge" and weak_homophily(**found):
        yield (
            f"Low homophily: adjusted homophily {found['adjusted']:.2f} ± {1.96 * found['error']:.2f} "
            "(95 % interval), estimated from the released counts. Classes of neighbors add little to the "
            "features on such a graph. Compare with the no-graph baseline."
        )
    yield from cost_remarks(metrics)
    yield from _total_cost(metrics)
    if not uncovered_mark(metrics):
        return
    if metrics["private_accuracy"]:
        yield "Exact accuracies are in internal/metrics.json. They are not covered: do not publish them."
        return
    if predicts_numbers(metrics):
        yield "Exact errors depend on protected records and are not covered: do not publish them."
        return
    remedy = " --private-metrics releases noisy accuracies that are." if metrics["mode"] == "strict" else ""
    yield (f"Exact accuracies depend on protected records and are not covered: do not publish them.{remedy}")


def _total_cost(metrics: Mapping[str, Any]) -> list[str]:
    """Return the total cost of all queries of the same protected data."""
    total, runs, baseline = metrics["guarantee_all_runs"], metrics["runs"], metrics["baseline_guarantee"]
    tested = [TEST_LABELS] if runs > 1 and metrics["unit"] == "local-attributes" else []
    if total["epsilon"] is None:
        return [f"{runs} runs.", *tested] if runs > 1 else []
    if runs == 1 and baseline is None:
        return []
    names = f"all {runs} runs" if runs > 1 else "the model"
    names += " with the mlp" if baseline is not None else ""
    rate = percent_up(metrics["max_tpr_at_1pct_fpr_all_runs"])
    return [
        f"Epsilon in the table is for one model; {names} on these {protected_things(metrics['unit'])} "
        f"together: epsilon {format_upper_bound(total['epsilon'])} at delta {format_delta(total['delta'])}, "
        f"TPR at 1 % FPR at most {rate} %{Cost.from_guarantee(metrics['guarantee']).mark}.",
        *tested,
    ]


CLASSIFIER = "classifier"


@dataclass(frozen=True)
class FinishedRun:
    """One run folder that is complete.

    Args:
        curves: Curves of held-out edges by name, each a list of [x, y]; None for other runs.
    """

    name: str
    metrics: Mapping[str, Any]
    guarantee: Guarantee
    configuration: Mapping[str, Any]
    versions: Mapping[str, str]
    attacks: Mapping[str, Mapping[str, Any]]
    curves: Mapping[str, Sequence[Sequence[float]]] | None = None

    @property
    def kind(self) -> str:
        """The method of links or recommendations, or ``"classifier"``: runs of one kind are comparable."""
        return str(self.metrics["method"]) if "metric_values" in self.metrics else CLASSIFIER

    @property
    def cost(self) -> Cost:
        return Cost.from_guarantee(self.metrics["guarantee"])

    @property
    def group(self) -> str:
        """What runs have in common that differ in their budget alone."""
        name = str(self.metrics["method"])
        return name if self.metrics["mode"] == "strict" else f"{name.removesuffix('-paper')}, paper mode"

    @property
    def metric(self) -> str | None:
        """The metric that the run selected by, or the default one; None for accuracy alone."""
        chosen = self.configuration.get("set.metric")
        return default_metric(self.metrics) if chosen in (None, "accuracy") else str(chosen)

    @property
    def accuracy(self) -> Summary:
        """Test accuracy; of a single run with Wilson's interval, where the number of test nodes is known.

        For links and recommenders it is the released metric that takes its place.
        """
        if self.kind != CLASSIFIER:
            return metric_summary(self.metrics, LINK_METRICS[self.kind])
        return interval(self.metrics["test_accuracy"], self.metrics.get("tested"))

    @property
    def baseline(self) -> Summary | None:
        """That of the network that reads no edge, if it ran."""
        found = self.metrics.get("mlp_test_accuracy")
        return None if found is None else interval(found, self.metrics.get("tested"))
