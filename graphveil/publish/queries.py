"""Tables of queries: those of a plan, those that a release stores, and those that its events prove.

A saved release also contains a table for readers. It may have been changed by anyone, so only the kinds of
its queries are shown. A table that contradicts the events is rejected.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from graphveil.core.accounting.accountant import privacy_curve, total_mu
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    LocalReport,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
    without_failures,
)
from graphveil.core.noise.discrete_laplace import sigma_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.held_out import PAIR_PARTS
from graphveil.core.queries.list_products import ListProductQuery
from graphveil.core.unit import NodeUnit, Row, Unit
from graphveil.errors import ArtifactError, ConfigError
from graphveil.privacy import Guarantee

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # a head, and rows

QUERY_KINDS = {  # of an answer: its kind in stored folders, and the words of tables and model cards
    "rows": "noisy aggregates",
    "counts": "counts of edges",
    "graph": "a noisy graph",
    "total": "the number of edges",
    "out_degrees": "the sum of clipped out-degrees",
    "h_index": "the h-index of the degrees",
    "moments": "sums of aggregates by class",
    "chosen": "the queries of the chosen method together",
    "tree": "a tree over the nodes",
    "blocks": "counts of blocks of pairs",
    "neighbor_counts": "neighbor counts",
    "row_counts": "counts of rows",
    "edge_products": "the sum of products of feature vectors over edges",
    "pair_sums": "sums of pair features over edges",
    "pair_histogram": "a histogram of scores of held-out edges",
    "steps": "training",
    "attention": "training on edges",
    "tally": "counts of correct predictions",
    "outcomes": "counts of correct and wrong predictions",
    "products": "products of lists",
    "histogram": "a histogram of predictions by class",
    "ranges": "histograms of feature columns",
    "features": "randomized features",
    "label": "randomized label",
}
LIST_QUERY_KINDS = QUERY_KINDS | {  # in a release of a recommender
    "rows": "popularity of items",
    "products": "products of lists: how often two items are on a list together",
    "outcomes": "counts of held-out users with and without a hit",
}
_STAGES = {  # of a budget
    "push": "out-edge aggregation",
    "out-degrees": "sum of clipped out-degrees",
    "degrees": "h-index of the degrees",
    "aggregation": "projected sum over neighbors",
    "moments": "sums of aggregates by class",
    "hop": "sum over neighbors",
    "edge counts": "counts of edges by class pair",
    "graph": "noisy graph",
    "tally": "counts of correct predictions",
    "outcomes": "counts of correct and wrong predictions",
    "histogram": "histogram of predictions by class",
    "popularity": "popularity of items",
    "list products": "how often two items are on a list together",
    "hits": "counts of held-out users with and without a hit",
    "ranges": "histograms of feature columns",
}
_LIST_STAGES = {"push": "popularity", "hop": "popularity", "outcomes": "hits"}  # of a recommender
_PARTS = ("train", "val", "other")  # default groups of records, if a partition's name lists none
_STEPS, _REPORTS = ("steps", "attention"), ("features", "label")
_BOUNDED = ("graph", "total", "tree", "blocks")
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class QueryRow:
    """One noisy query of protected data, or several equal ones in a row: a row of a table.

    Args:
        sensitivity: L2 sensitivity before noise; 1 if the noise is relative to it.
        noise_std: Standard deviations of the noise, by group of rows; for training steps the noise
            multiplier.
        pays: Public groups of records that are charged; empty for edge-level privacy units.
        epsilon: Cost of the row alone, at the plan's delta; budget of an LDP report. Infinite if not known.
        share: Part of one record's squared mu, for the record that takes part in most stages, or else one
            that takes part in this one. Sampled steps count by the mu of a Gaussian release of the same
            epsilon.
    """

    kind: str
    sensitivity: float = 1.0
    noise_std: Sequence[float] = ()
    values_per_node: int | None = None
    steps: int | None = None
    sampling_rate: float | None = None
    pays: Sequence[str] = ()
    words: str = ""
    count: int = 1
    epsilon: float = math.inf
    share: float = 0.0
    alternative: int | None = None

    def as_release(self) -> dict[str, Any]:
        return self._plain("kind", "sensitivity", "noise_std", "values_per_node", "steps", "pays", "words")

    def as_stage(self) -> dict[str, Any]:
        multiplier, stds = (None, self.noise_std) if self.steps is None else (self.noise_std[0], ())
        return {
            **self._plain("kind", "count", "steps", "sampling_rate"),
            "noise_multiplier": multiplier,
            "noise_std": list(stds),
            **self._plain("sensitivity", "pays", "epsilon", "share"),
            **({} if self.alternative is None else {"alternative": self.alternative}),
        }

    def as_event(self) -> dict[str, Any]:
        """Return a row of ``event_rows`` as plain JSON values, in which infinity is None."""
        return {
            "kind": self.kind,
            "relative_noise": self.noise_std[0] if self.noise_std else None,
            **self._plain("steps", "sampling_rate"),
            "epsilon": self.epsilon if self.epsilon < math.inf else None,
            "pays": list(self.pays),
        }

    def _plain(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def name(self) -> str:
        name = self.prefix + stage_text(self.kind)
        return name if self.count == 1 else f"{name} x {self.count}"

    @property
    def prefix(self) -> str:
        return "" if self.alternative is None else f"alternative {self.alternative}: "

    @property
    def noise(self) -> str:
        if self.kind == "tree":
            return "a random walk"
        if self.steps is not None:
            return f"multiplier {self.noise_std[0]:.4g}"
        return f"std {', '.join(f'{std:.4g}' for std in dict.fromkeys(self.noise_std))}"

    @property
    def batches(self) -> str:
        """How often training reads how many records; empty for everything else."""
        if self.steps is None:
            return ""
        rate = "on all" if self.sampling_rate == 1 else f"at {self.sampling_rate:.3g}"
        return f"{self.steps:,} {rate}"

    @property
    def charged_groups(self) -> str:
        """The groups that are charged; the part that is neither train nor val contains the test nodes."""
        return ", ".join("test and unsplit" if name == _PARTS[-1] else name for name in self.pays)


# -- tables ------------------------------------------------------------------------------------------------


def release_table(rows: Sequence[QueryRow]) -> Table:
    of = "item" if any(row.kind == "products" for row in rows) else "node"
    columns: dict[str, Callable[[QueryRow], str]] = {
        "sensitivity": lambda row: f"{row.sensitivity:.6g}",
        "noise standard deviation": _noise_std,
        f"values per {of}": lambda row: str(row.values_per_node or "-"),
    }
    return _table(rows, "kind", columns)


def event_table(rows: Sequence[QueryRow]) -> Table:
    return _table(rows, "query", {"noise over sensitivity": _relative_noise})


def _table(rows: Sequence[QueryRow], what: str, columns: Mapping[str, Callable[[QueryRow], str]]) -> Table:
    cells = dict(columns)
    if any(row.pays for row in rows):
        cells["charged to"] = lambda row: row.charged_groups
    lines = [
        (str(number), kind, *(cell(row) for cell in cells.values()))
        for number, (row, kind) in enumerate(zip(rows, query_kind_texts(rows), strict=True), start=1)
    ]
    return ("#", what, *cells), lines


def query_kind_texts(rows: Sequence[QueryRow]) -> list[str]:
    """Return the readable kinds of the queries of a release; products of lists are those of a recommender."""
    names = LIST_QUERY_KINDS if any(row.kind == "products" for row in rows) else QUERY_KINDS
    return [names.get(row.kind, row.kind) for row in rows]


def _noise_std(row: QueryRow) -> str:
    stds = ", ".join(f"{sigma:.5g}" for sigma in dict.fromkeys(row.noise_std))
    return row.words or (stds if row.steps is None else f"{stds} x the clipping norm, {row.steps:,} times")


def _relative_noise(row: QueryRow) -> str:
    if not row.noise_std:
        return f"randomized at epsilon {row.epsilon:g}" if row.epsilon < math.inf else "none"
    noise = f"{row.noise_std[0]:.5g}"
    if row.steps is None:
        return f"{noise}, for all steps together" if row.kind in _STEPS else noise
    return f"{noise}, {row.steps:,} times, each record with probability {row.sampling_rate:.3g}"


def stage_text(stage: str, *, lists: bool = False) -> str:
    """Return the printed name of a stage; with ``lists``, that of a query of a recommender.

    >>> stage_text("hop"), stage_text("training")
    ('sum over neighbors', 'training')
    """
    kind = _LIST_STAGES.get(stage, stage) if lists else stage
    return _STAGES.get(kind, kind)


# -- queries of a plan -------------------------------------------------------------------------------------


def release_rows(plan: ReleasePlan) -> tuple[QueryRow, ...]:
    """Return a plan's queries in order; alternatives are one row with the noise that is charged for them."""
    common = len(plan.queries) - sum(plan.alternatives)
    rows = tuple(
        QueryRow(
            kind=check_query_kind(described.kind),
            sensitivity=query.sensitivity(plan.unit),
            noise_std=described.noise,
            values_per_node=described.values_per_node,
            steps=described.steps,
            pays=charged_groups(query.event(plan.unit), plan.unit),
        )
        for query in plan.queries[:common]
        for described in (query.describe(),)
    )
    if not plan.alternatives:
        return rows
    chosen = compose(plan.event).events[-1]
    noise = 1 / (total_mu(chosen) or math.inf)
    return (*rows, QueryRow(kind="chosen", noise_std=(noise,), pays=charged_groups(chosen, plan.unit)))


def check_query_kind(kind: str) -> str:
    """Return a kind of query; an unknown one is an error that names the table to extend.

    >>> check_query_kind("medians")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: kind='medians' of a query has no description for release folders and \
model cards. Add it to QUERY_KINDS in graphveil/publish/queries.py.
    """
    if kind not in QUERY_KINDS:
        raise ConfigError(
            f"kind={kind!r} of a query has no description for release folders and model cards. Add it "
            "to QUERY_KINDS in graphveil/publish/queries.py."
        )
    return kind


def charged_groups(event: Event, unit: Unit) -> tuple[str, ...]:
    """Return the names of the public groups of records, or parts of node pairs, that an event affects.

    It is empty for edges that are not divided into parts.

    >>> from graphveil.privacy import Composed, Gaussian, NodeRecord
    >>> charged_groups(ByGroup("records", (Gaussian(1.0), Composed(()), Composed(()))), NodeRecord())
    ('train',)
    """
    if not isinstance(event, ByGroup):
        return ("all",) if isinstance(unit, NodeUnit) else ()
    count = len(event.events)
    names: Sequence[str] = event.partition.split("/")
    if len(names) == count:
        names = [f"rows {name}" for name in names] if isinstance(unit, Row) else names
    elif not isinstance(unit, NodeUnit):  # the partition's own name does not list its groups
        names = PAIR_PARTS.split("/")
    else:
        names = _PARTS if count == len(_PARTS) else [f"group {group}" for group in range(1, count + 1)]
    paying = tuple(name for name, part in zip(names, event.events, strict=True) if total_mu(part) != 0)
    return ("all",) if len(paying) == count else paying


# -- queries that the events of a guarantee prove ----------------------------------------------------------


def event_rows(guarantee: Guarantee, rows: Sequence[QueryRow]) -> tuple[QueryRow, ...]:
    """Return one row per query, in order.

    The noise is relative to the sensitivity, for the pair of groups or the group of records that the answer
    depends on most. An LDP report has its epsilon instead, infinite where it is not randomized.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> kept = Guarantee.from_event(UndirectedEdge(), Gaussian(0.5), delta=1e-5, releases=1)
    >>> row = QueryRow(kind="rows", noise_std=[2.0], values_per_node=3)
    >>> [row.noise_std for row in event_rows(kept, [row])]
    [(2.0,)]
    """
    events = without_failures(compose(guarantee.event, *(one.event for one in guarantee.additional))).events
    if len(events) != len(rows) or not all(map(_agrees, events, rows)):
        raise ArtifactError(
            "The table of released quantities does not match the events in the same file, so the "
            "file was changed. Restore privacy.json from the original run."
        )
    return tuple(
        QueryRow(kind=row.kind, pays=charged_groups(event, guarantee.protected), **_figures(_worst(event)))
        for event, row in zip(events, rows, strict=True)
    )


def _figures(one: Event) -> dict[str, Any]:
    if isinstance(one, ApproximateDP | LocalReport):
        return {"epsilon": one.epsilon}
    if isinstance(one, PoissonGaussian | PoissonRoots):
        steps = {"steps": one.steps, "sampling_rate": one.sampling_rate}
        return {"noise_std": (one.noise_multiplier,), **steps}
    if isinstance(one, PureDP):
        return {"noise_std": (sigma_of(one.epsilon),)}
    mu = _mu(one)
    return {"noise_std": (1 / mu,) if mu else ()}


def _agrees(event: Event, row: QueryRow) -> bool:
    one = _worst(event)
    if (row.kind in _REPORTS) != isinstance(one, LocalReport):
        return False
    if (row.kind in _BOUNDED) != isinstance(one, ApproximateDP):
        return False
    if isinstance(one, ApproximateDP):
        return True
    if isinstance(one, LocalReport):
        return row.kind == one.part
    if isinstance(one, PoissonGaussian | PoissonRoots):
        return row.kind in _STEPS and (row.steps, [*row.noise_std]) == (one.steps, [one.noise_multiplier])
    if row.kind in _STEPS:  # of full batches, whose clipping norm the event does not contain
        return row.steps is not None
    if not row.noise_std or not all(0 < std < math.inf for std in row.noise_std):
        return False
    if isinstance(one, PureDP):  # which is divided among the counts that change, each by one
        changed = round(row.sensitivity**2)
        return math.isclose(row.noise_std[0], sigma_of(one.epsilon / changed), rel_tol=_ROUNDING)
    least, most = (row.sensitivity / std for std in (max(row.noise_std), min(row.noise_std)))
    return least * (1 - _ROUNDING) <= _mu(one) <= most * (1 + _ROUNDING)


def _worst(event: Event) -> Event:
    """Return what an event does to the group of records that it depends on most."""
    if not isinstance(event, ByGroup):
        return event
    touched = [part for part in event.events if part != Composed(())]
    return max(touched, key=_mu, default=Composed(()))


def _mu(event: Event) -> float:
    if isinstance(event, PairwiseGaussian):
        return math.sqrt(event.worst)
    return total_mu(event) or 0.0


# -- stages of a budget ------------------------------------------------------------------------------------


def stages_of(plan: ReleasePlan | None) -> tuple[QueryRow, ...]:
    """Return the stages of a plan with their costs, none for no plan; equal queries in a row are one stage.

    >>> from graphveil.core.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> (stage,) = stages_of(ReleasePlan(UndirectedEdge(), hops(0.2, 2, 16), delta=1e-7))
    >>> stage.name, stage.noise, round(stage.share, 6)
    ('sum over neighbors x 2', 'std 10', 1.0)
    """
    if plan is None:
        return ()
    if plan.alternatives:
        first = len(plan.queries) - sum(plan.alternatives)
        common = len(list(groupby(plan.queries[:first])))
        paths = [
            stages_of(replace(plan, queries=tuple(plan.queries[k] for k in path), alternatives=()))
            for path in plan.paths
        ]
        ends = [
            replace(stage, alternative=number)
            for number, stages in enumerate(paths, start=1)
            for stage in stages[common:]
        ]
        return (*paths[0][:common], *ends)
    runs = [list(equal) for _, equal in groupby(plan.queries)]
    costs = list[list[_Cost]]()
    for run in runs:  # a cost for each group of records, or one cost if all groups are alike
        events = [query.event(plan.unit) for query in run]
        grouped = [event.events for event in events if isinstance(event, ByGroup)]
        cases = [compose(*case) for case in zip(*grouped, strict=True)] or [compose(*events)]
        known = {case: _Cost.from_event(case, plan.delta) for case in dict.fromkeys(cases)}
        costs.append([known[case] for case in cases])
    shares = _shares(costs, plan)
    names = _LIST_STAGES if any(isinstance(query, ListProductQuery) for query in plan.queries) else {}
    return tuple(
        QueryRow(
            kind=names.get(described.stage, described.stage),
            count=len(run),
            noise_std=described.noise,
            steps=described.steps,
            sampling_rate=described.sampling_rate,
            sensitivity=run[0].sensitivity(plan.unit),
            pays=charged_groups(run[0].event(plan.unit), plan.unit),
            epsilon=max(cost.epsilon for cost in cost_by_group),
            share=share,
        )
        for run, cost_by_group, share in zip(runs, costs, shares, strict=True)
        for described in (run[0].describe(),)
    )


@dataclass(frozen=True)
class _Cost:
    """Cost of some events alone; a mu that is not exact is that of a Gaussian of the same epsilon."""

    epsilon: float = 0.0
    mu_squared: float = 0.0

    @classmethod
    def from_event(cls, event: Composed, delta: float) -> "_Cost":
        event = without_failures(event)
        mu = total_mu(event)
        if mu == 0:
            return cls()
        epsilon = privacy_curve(event).epsilon(delta)
        if mu is None and (not delta or any(isinstance(part, ApproximateDP) for part in event.events)):
            return cls(epsilon, epsilon)  # such events add up, and have shares of epsilon
        if mu is None:
            mu = mu_of(epsilon, delta) if epsilon else 0.0
        return cls(epsilon, mu**2)


def _shares(costs: list[list[_Cost]], plan: ReleasePlan) -> list[float]:
    """Return each stage's share: for the records that meet most stages, or else for those that it meets."""
    groups = max(map(len, costs))
    if not isinstance(plan.unit, NodeUnit) and groups == 1:
        worst = [stage[0].mu_squared for stage in costs]
        whole = plan.mu**2 or sum(worst)  # no mu is exact where steps are sampled
        return [stage / whole if whole else 0.0 for stage in worst]
    by_group = list(
        zip(*(stage if len(stage) == groups else [stage[0]] * groups for stage in costs), strict=True)
    )
    by_group.sort(key=lambda stages: sum(cost.mu_squared > 0 for cost in stages), reverse=True)
    totals = [sum(cost.mu_squared for cost in stages) for stages in by_group]
    shares = [
        [cost.mu_squared / total if total else 0.0 for cost in stages]
        for stages, total in zip(by_group, totals, strict=True)
    ]
    return [next((share for share in stage if share), 0.0) for stage in zip(*shares, strict=True)]


def unspent_budget_note(given: float | None, spent: float) -> str:
    """Return a note if a plan uses less than its budget, because more budget would not improve it.

    >>> unspent_budget_note(20.0, 16.0)
    'the plan uses less than epsilon 20, because more would not help; the rest stays unspent'
    >>> unspent_budget_note(1.0, 0.9999), unspent_budget_note(None, 3.0)
    ('', '')
    """
    if given is None or spent >= 0.98 * given:  # a search for the noise may leave the rest
        return ""
    return f"the plan uses less than epsilon {given:g}, because more would not help; the rest stays unspent"


def unequal_shares_note(stages: Sequence[QueryRow]) -> str:
    """Return why edges that several stages read may cost less than the sum of these costs; empty if not.

    >>> from graphveil.core.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> unequal_shares_note(stages_of(ReleasePlan(UndirectedEdge(), hops(0.2, 2, 16), delta=1e-7)))
    ''
    """
    of_records = any(stage.pays for stage in stages)
    if of_records or sum(stage.share for stage in stages) <= 1 + 1e-6:  # shares are rounded
        return ""
    return "no edge is charged the full cost of every stage: it depends on the public groups of its endpoints"
