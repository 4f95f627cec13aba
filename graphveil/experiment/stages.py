"""Who spends what: a plan stage by stage, with what each costs alone and its share of the whole."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from graphveil.aggregate import CellQuery, HopQuery, PushQuery, ReleasePlan, StepsQuery, TallyQuery
from graphveil.aggregate.plan import Query
from graphveil.privacy import ByGroup, Composed, Event, NodeUnit, Unit, compose, privacy_curve
from graphveil.privacy.accountant import total_mu
from graphveil.privacy.gaussian import mu_of

_KINDS: dict[type[Query], str] = {
    StepsQuery: "training steps",
    PushQuery: "push along own edges",
    HopQuery: "sum over neighbours",
    CellQuery: "counts of edges",
    TallyQuery: "counts of correct predictions",
}
_PARTS = ("train", "val", "other")  # public groups of records, unless the partition's name says otherwise


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One query of a plan, or several equal ones in a row.

    ``noise_multiplier`` is that of training steps, ``noise_std`` that of everything else, by kind of row.
    ``pays`` names the public groups of records that the stage can touch; it is empty where edges are
    protected. ``epsilon`` is what the stage would cost alone, at the plan's delta. ``share`` is the largest
    part of the squared mu of one record (or edge) that goes here; sampled steps count by the mu of a Gaussian
    release of the same epsilon.
    """

    kind: str
    count: int
    steps: int | None = None
    sampling_rate: float | None = None
    noise_multiplier: float | None = None
    noise_std: tuple[float, ...] = ()
    sensitivity: float
    pays: tuple[str, ...]
    epsilon: float
    share: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "noise_std": list(self.noise_std), "pays": list(self.pays)}

    @property
    def name(self) -> str:
        """What the stage is called where people read it."""
        return self.kind if self.count == 1 else f"{self.kind}, {self.count} times"

    @property
    def noise(self) -> str:
        """The noise of each of its queries in words."""
        if self.noise_multiplier is not None:
            rate = "all records a step" if self.sampling_rate == 1 else f"sampling {self.sampling_rate:.4g}"
            return f"{self.steps:,} steps, {rate}, noise multiplier {self.noise_multiplier:.4g}"
        return f"noise standard deviation {', '.join(f'{s:.4g}' for s in dict.fromkeys(self.noise_std))}"


def stages_of(plan: ReleasePlan | None) -> tuple[Stage, ...]:
    """Return the stages of a plan, none for no plan.

    >>> from graphveil.aggregate.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> (stage,) = stages_of(ReleasePlan(UndirectedEdge(), hops(0.2, 2, 16), delta=1e-7))
    >>> stage.name, stage.noise, round(stage.share, 6)
    ('sum over neighbours, 2 times', 'noise standard deviation 10', 1.0)
    """
    if plan is None:
        return ()
    runs = [list(equal) for _, equal in groupby(plan.queries)]
    events = [compose(*(query.event(plan.unit) for query in run)) for run in runs]
    costs = [_squared_mu(event, plan.delta) for event in events]
    whole = plan.mu**2 or max(map(sum, zip(*_by_group(costs), strict=True)))
    return tuple(
        _stage(run[0], len(run), event, max(cost) / whole if whole else 0.0, plan)
        for run, event, cost in zip(runs, events, costs, strict=True)
    )


def _stage(query: Query, count: int, event: Event, share: float, plan: ReleasePlan) -> Stage:
    return Stage(
        kind=_KINDS[type(query)],
        count=count,
        **_noise_of(query),
        sensitivity=query.sensitivity(plan.unit),
        pays=_payers(query, plan.unit),
        epsilon=privacy_curve(event).epsilon(plan.delta),
        share=share,
    )


def _noise_of(query: Query) -> dict[str, Any]:
    if not isinstance(query, StepsQuery):
        return {"noise_std": query.noise}
    return {name: getattr(query, name) for name in ("steps", "sampling_rate", "noise_multiplier")}


def _payers(query: Query, unit: Unit) -> tuple[str, ...]:
    """Return the names of the groups that the query can touch."""
    if not isinstance(unit, NodeUnit):
        return ()
    event = query.event(unit)
    if not isinstance(event, ByGroup):
        return ("every record",)
    names = _names(event.partition, len(event.events))
    return tuple(name for name, part in zip(names, event.events, strict=True) if total_mu(part) != 0)


def _names(partition: str, groups: int) -> Sequence[str]:
    said = partition.split("/")
    if len(said) == groups:
        return said
    return _PARTS if groups == len(_PARTS) else [f"group {group}" for group in range(1, groups + 1)]


def _squared_mu(event: Composed, delta: float) -> list[float]:
    """Return each group's squared mu, or that of all alike."""
    parts = event.events
    grouped = [part for part in parts if isinstance(part, ByGroup)]
    cases = [list(case) for case in zip(*(part.events for part in grouped), strict=True)] or [list(parts)]
    return [_equivalent_mu(compose(*case), delta) ** 2 for case in cases]


def _equivalent_mu(event: Event, delta: float) -> float:
    exact = total_mu(event)
    if exact is not None:
        return exact
    epsilon = privacy_curve(event).epsilon(delta)
    return mu_of(epsilon, delta) if epsilon else 0.0


def _by_group(costs: list[list[float]]) -> list[list[float]]:
    """Repeat what concerns everybody alike for each group."""
    groups = max(map(len, costs))
    return [cost if len(cost) == groups else [max(cost)] * groups for cost in costs]
