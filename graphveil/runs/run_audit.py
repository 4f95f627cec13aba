"""A finished run under audit and under attack.

An audit recomputes the plan of a run, replays it, and tests it with canaries. An attack needs the published
model and its training data.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil._util.escape import render
from graphveil._util.files import write_atomic
from graphveil.audit.bounds import LowerBound
from graphveil.audit.canaries import audit_feature_mechanism, audit_label_mechanism
from graphveil.audit.example_data import reason_without_example
from graphveil.audit.neighbor_test import NeighborTestResult
from graphveil.audit.plans import PlanAudit, audit_plan
from graphveil.audit.query_neighbor_tests import neighbor_test_plan
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ArtifactError, ConfigError
from graphveil.links import RECOMMENDER, load_any
from graphveil.local.heterorr import HeteroMethod
from graphveil.local.local_method import LocalMethod
from graphveil.publish.charts import Bar, audit_chart, inline_svg
from graphveil.publish.queries import stage_text
from graphveil.runs.experiment import Experiment
from graphveil.runs.run_folder import RunFolder, write_json
from graphveil.runs.source import Source

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator

INTERNAL = "Internal: do not publish audit results."
INTERNAL_ATTACK = "Internal: an attack is scored by the secrets that it infers. Do not publish its results."
_SAME = 1e-6  # relative, of two epsilons
_ALWAYS_UNSEEN = (
    "the training of this run: the audit repeats its queries on other data",
    "graphs with more nodes than the test graphs, and pairs of neighboring graphs that were not sampled",
    "timings, memory use, file sizes, and the random number generator of the machine",
)

Audit = TypeVar("Audit")


@dataclass(frozen=True, eq=False)
class RunAudit:
    """Audit result of one run.

    Args:
        planned: Epsilon of the plan from its stored configuration, or None without queries.
        replays: Neighbor tests of the plan's queries, by stage.
        reports: Lower bounds of randomized records, by part.
        unseen: Description of what was not examined.
    """

    method: str
    unit: str
    claimed: float
    planned: float | None
    canaries: PlanAudit | None
    replays: tuple[tuple[str, NeighborTestResult], ...]
    reports: tuple[dict[str, Any], ...]
    unseen: tuple[str, ...]
    seconds: float

    @property
    def faults(self) -> tuple[str, ...]:
        found = []
        if self.planned is not None and not math.isclose(self.planned, self.claimed, rel_tol=_SAME):
            found.append(
                f"the plan of the stored configuration has epsilon {self.planned:.6g}, unlike the claim"
            )
        if self.canaries is not None and not self.canaries.is_valid:
            found.append(f"canaries certify epsilon {self.canaries.epsilon:.4g}, above the claim")
        found += [
            f"the neighbor test of {self.stage_text(stage)} exceeds its claim"
            for stage, report in self.replays
            if report.broken
        ]
        found += [
            f"LDP reports of the {one['part']} exceed their claim" for one in self.reports if not one["valid"]
        ]
        return tuple(found)

    @property
    def bars(self) -> tuple[Bar, ...]:
        """Certified and claimed epsilon, of the whole run and by stage, for a chart."""
        found = list[Bar]()
        if self.canaries is not None:
            found.append(Bar("total", self.canaries.epsilon, self.canaries.claimed))
            for one in self.canaries.planted:
                found.append(Bar(self.stage_text(one.stage), one.bound.epsilon, one.claimed))
        for report in self.reports:
            words = f"LDP reports, {report['part']}"
            found.append(Bar(words, report["epsilon_at_least"], report["claimed"]))
        return tuple(found)

    def stage_text(self, stage: str) -> str:
        return stage_text(stage, lists=self.method == RECOMMENDER)

    def as_dict(self) -> dict[str, Any]:
        return {
            "internal": True,
            "method": self.method,
            "unit": self.unit,
            "claimed": None if math.isinf(self.claimed) else self.claimed,
            "faults": list(self.faults),
            "canaries": None if self.canaries is None else self.canaries.as_dict(),
            "replays": [{"stage": stage, **report.as_dict()} for stage, report in self.replays],
            "reports": list(self.reports),
            "not_examined": list(self.unseen),
            "seconds": self.seconds,
        }


def audit_run(place: Path, *, pairs: int = 200, seed: int = 0) -> RunAudit:
    """Audit a run folder, and write the result to its ``internal/audit.json``, with a chart next to it.

    The protected data are not read: canaries are separate graphs, and noise is newly drawn.
    """
    started, folder = time.perf_counter(), RunFolder(place)
    if not folder.internal.is_dir():
        raise ArtifactError(
            f"{place} has no internal/ folder, which an audit reads and writes. A published release cannot "
            "be audited: use the run folder that train created."
        )
    fitted = load_any(place).fitted
    method, guarantee = fitted.method, fitted.guarantee
    name, plan = method.name, fitted.plan or method.plan(fitted.sizes)
    if guarantee.unit == "none" or not guarantee.releases:
        raise ConfigError(
            f"The run in {place} has no privacy guarantee to audit: its unit is {guarantee.unit!r}, "
            "or it queries no protected data."
        )
    replays, unseen = list[tuple[str, NeighborTestResult]](), list[str]()
    named = partial(stage_text, lists=name == RECOMMENDER)
    if plan is not None:
        for query in dict.fromkeys(plan.queries):
            report = neighbor_test_plan(plan.unit, (query,), pairs=pairs, seed=seed)
            if report is None:
                unseen.append(
                    f"neighbor test of {named(query.describe().stage)}: {reason_without_example(query)}"
                )
            else:
                replays.append((query.describe().stage, report))
    canaries = None if plan is None else _confirmed(partial(audit_plan, plan, seed=seed), plan.epsilon)
    if canaries is not None:
        unseen += [f"canaries in {named(stage)}: {why}" for stage, why in canaries.without_canaries.items()]
    found = RunAudit(
        method=name,
        unit=guarantee.unit,
        claimed=guarantee.epsilon,
        planned=None if plan is None else plan.epsilon,
        canaries=canaries,
        replays=tuple(replays),
        reports=tuple(_reports(method, fitted.sizes.features or 1, fitted.sizes.classes)),
        unseen=tuple(dict.fromkeys((*unseen, *_ALWAYS_UNSEEN))),
        seconds=time.perf_counter() - started,
    )
    write_json(folder.internal / "audit.json", found.as_dict())
    if found.bars:
        parts = {
            "title": f"Audit: {found.method}, unit {found.unit}",
            "lede": INTERNAL,
            "chart": inline_svg(lambda: audit_chart(found.bars), "certified and claimed epsilon"),
            "caption": "Bars: lower bound from canaries. Ticks: claimed epsilon. No bar may exceed its tick.",
            "not_examined": found.unseen,
        }
        write_atomic(folder.internal / "audit.html", render("chart_page.html", **parts).encode())
    return found


def _reports(method: Any, features: int, classes: int) -> Iterator[dict[str, Any]]:
    """Yield the lower bound of each randomized part of a record."""
    laws = list[tuple[str, Any, Callable[[Any], LowerBound | None]]]()
    if isinstance(method, LocalMethod | HeteroMethod):
        laws = [
            ("label", method.report_config.label_mechanism(classes), audit_label_mechanism),
            ("features", method.report_config.mechanism(features), audit_feature_mechanism),
        ]
    for part, law, audit in laws:
        if law is None or math.isinf(law.epsilon):
            continue
        claimed = law.claim.epsilon
        bound = _confirmed(partial(audit, law), claimed)
        if bound is not None:
            yield {
                "part": part,
                "epsilon_at_least": bound.epsilon,
                "claimed": claimed,
                "max_certifiable_epsilon": bound.max_certifiable,
                "valid": bound.epsilon <= claimed,
            }


def _confirmed(audit: Callable[[], Audit], claimed: float) -> Audit:
    """Return an audit, or a second one if the first is above the claim: one in a hundred is, by chance."""
    found: Any = audit()
    return found if found is None or found.epsilon <= claimed else audit()


# -- attacks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AttackTarget:
    """A run with its model and its data.

    Args:
        graph: Training graph, split by the run's first seed for a model of nodes.
    """

    folder: RunFolder
    model: Any
    graph: "Graph"

    @property
    def estimator(self) -> "Estimator":
        from graphveil.estimators.base import Estimator

        if not isinstance(self.model, Estimator):
            raise ConfigError(
                "This attack needs a model of nodes, but this run predicts links. Use `graphveil attack "
                "linkteller` or `graphveil attack topology`."
            )
        return self.model

    def write(self, attack: str, figures: Mapping[str, Any]) -> Path:
        """Write an attack's results under ``internal/``."""
        path = self.folder.internal / "attacks" / f"{attack}.json"
        write_json(path, figures)
        return path


def load_attack_target(place: Path, overrides: Mapping[str, Any]) -> AttackTarget:
    """Load a run and its data again, from their original location or from the overrides."""
    folder = RunFolder(place)
    if not folder.lock.is_file():
        raise ArtifactError(
            f"{place} has no internal/ folder, which records the training data. An attack needs them. "
            "Pass the complete run folder."
        )
    data, locked = folder.data_options, folder.configuration
    data |= {name: value for name, value in overrides.items() if value is not None}
    if "persons" in data:
        raise ConfigError(
            f"No attack is implemented for several tables. Run `graphveil audit {folder.root}`."
        )
    model = load_any(place)
    if model.method == RECOMMENDER:
        raise ConfigError(
            "No attack is implemented for a recommender, which publishes one item-item matrix for all users. "
            f"Run `graphveil audit {folder.root}`."
        )
    if model.get_params().get("task") == REGRESSION:
        raise ConfigError(
            "Attacks need class probabilities, but this run predicts numbers. Attack a run that "
            "predicts classes."
        )
    parameters = {name: value for name, value in model.recorded_params().items() if name != "seed"}
    source = Source.from_dict(data)
    experiment = Experiment(
        model.method, source, parameters, locked.get("recipe"), seed=int(locked["seed"]), compare=False
    )
    graph, sizes = experiment.split(experiment.load(), 0), model.fitted.sizes
    if graph.num_nodes != sizes.nodes or (not experiment.pairs and graph.num_features != sizes.features):
        raise ConfigError(
            "The data differ in size from the training data of the run. Pass the data that the run "
            "was trained on (--root, --nodes, --edges)."
        )
    return AttackTarget(folder, model, graph)
