"""Who spends what: a plan stage by stage, with what each costs alone and its share of the whole."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from graphveil.artifacts.snapshot import charged_groups, charged_to_text
from graphveil.privacy import ApproximateDP, ByGroup, Composed, NodeUnit, compose, privacy_curve, renyi
from graphveil.privacy.accountant import total_mu
from graphveil.privacy.gaussian import mu_of
from graphveil.release import Query, ReleasePlan

_UNEQUAL = "no edge pays for all of these in full: what it pays depends on the public groups of its ends"
_ROUNDING = 1e-6
_WHOLE = 0.98  # of a budget: a search for the noise may leave less than the rest


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One query of a plan, or several equal ones in a row.

    A push and a hop sum vectors along edges, a tally counts correct predictions, and outcomes are counts of
    correct and of wrong ones. ``noise_multiplier`` is that of training steps, ``noise_std`` that of
    everything else, by kind of row. ``pays`` names the public groups of records that the stage can touch; it
    is empty where edges are protected. ``epsilon`` is what the stage would cost alone, at the plan's delta,
    and ``epsilon_renyi`` the Renyi bound on that, a cross-check that lies above it. ``share`` is the part of
    one record's squared mu that goes here: of a record that meets most stages, or else of one that meets
    this. Sampled steps count by the mu of a Gaussian release of the same epsilon.
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
    epsilon_renyi: float
    share: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "noise_std": list(self.noise_std), "pays": list(self.pays)}

    @property
    def name(self) -> str:
        """What the stage is called where people read it."""
        return self.kind if self.count == 1 else f"{self.kind} x {self.count}"

    @property
    def noise(self) -> str:
        """The noise of each of its queries."""
        if self.kind == "tree":
            return "a random walk"
        if self.noise_multiplier is not None:
            return f"multiplier {self.noise_multiplier:.4g}"
        return f"std {', '.join(f'{std:.4g}' for std in dict.fromkeys(self.noise_std))}"

    @property
    def batches(self) -> str:
        """How often training looks at how many records; empty for everything else."""
        if self.steps is None:
            return ""
        return (
            f"{self.steps:,} on all"
            if self.sampling_rate == 1
            else f"{self.steps:,} at {self.sampling_rate:.3g}"
        )

    @property
    def charged_groups(self) -> str:
        """Who pays, in words; empty where edges are protected."""
        return charged_to_text(self.pays)


def stages_of(plan: ReleasePlan | None) -> tuple[Stage, ...]:
    """Return the stages of a plan, none for no plan.

    >>> from graphveil.release.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> (stage,) = stages_of(ReleasePlan(UndirectedEdge(), hops(0.2, 2, 16), delta=1e-7))
    >>> stage.name, stage.noise, round(stage.share, 6)
    ('hop x 2', 'std 10', 1.0)
    """
    if plan is None:
        return ()
    runs = [list(equal) for _, equal in groupby(plan.queries)]
    costs = [_costs(run, plan) for run in runs]
    shares = _shares(costs, plan)
    return tuple(
        Stage(
            kind=run[0].stage,
            count=len(run),
            **_noise_of(run[0]),
            sensitivity=run[0].sensitivity(plan.unit),
            pays=charged_groups(run[0].event(plan.unit), plan.unit),
            epsilon=max(cost.epsilon for cost in cost_by_group),
            epsilon_renyi=max(cost.epsilon_renyi for cost in cost_by_group),
            share=share,
        )
        for run, cost_by_group, share in zip(runs, costs, shares, strict=True)
    )


def unequal_shares_note(stages: Sequence[Stage]) -> str:
    """Return why edges that pay for several stages may pay less than these cost added up; empty if not.

    >>> from graphveil.release.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> unequal_shares_note(stages_of(ReleasePlan(UndirectedEdge(), hops(0.2, 2, 16), delta=1e-7)))
    ''
    """
    of_records = any(stage.pays for stage in stages)
    return _UNEQUAL if not of_records and sum(stage.share for stage in stages) > 1 + _ROUNDING else ""


def unspent_budget_note(given: float | None, spent: float) -> str:
    """Return that a plan asks for less than its budget, which some do where more would gain nothing.

    >>> unspent_budget_note(20.0, 16.0)
    'this plan has no use for all of the epsilon 20 that was given; what it leaves stays unspent'
    >>> unspent_budget_note(1.0, 0.9999), unspent_budget_note(None, 3.0)
    ('', '')
    """
    if given is None or spent >= _WHOLE * given:
        return ""
    return (
        f"this plan has no use for all of the epsilon {given:g} that was given; what it leaves stays unspent"
    )


@dataclass(frozen=True)
class _Cost:
    """What some events cost alone; a mu that is not exact is that of a Gaussian of the same epsilon."""

    epsilon: float = 0.0
    epsilon_renyi: float = 0.0
    mu_squared: float = 0.0

    @classmethod
    def from_event(cls, event: Composed, delta: float) -> "_Cost":
        if total_mu(event) == 0:
            return cls()
        epsilon, mu = privacy_curve(event).epsilon(delta), total_mu(event)
        if mu is None and (not delta or any(isinstance(part, ApproximateDP) for part in event.events)):
            return cls(epsilon, epsilon, epsilon)  # such events add up, and have shares of epsilon
        if mu is None:
            mu = mu_of(epsilon, delta) if epsilon else 0.0
        return cls(epsilon, renyi.epsilon_of_event(event, delta), mu**2)


def _costs(run: Sequence[Query], plan: ReleasePlan) -> list[_Cost]:
    """Return the cost for each group of records, or the one for all alike."""
    events = [query.event(plan.unit) for query in run]
    grouped = [event.events for event in events if isinstance(event, ByGroup)]
    cases = [compose(*case) for case in zip(*grouped, strict=True)] or [compose(*events)]
    known = {case: _Cost.from_event(case, plan.delta) for case in dict.fromkeys(cases)}
    return [known[case] for case in cases]


def _shares(costs: list[list[_Cost]], plan: ReleasePlan) -> list[float]:
    """Return each stage's share: for the records that meet most stages, or else for those that it meets."""
    if not isinstance(plan.unit, NodeUnit):
        worst = [max(cost.mu_squared for cost in stage) for stage in costs]
        whole = plan.mu**2 or sum(worst)  # no mu is exact where steps are sampled
        return [stage / whole if whole else 0.0 for stage in worst]
    groups = max(map(len, costs))
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


def _noise_of(query: Query) -> dict[str, Any]:
    description = query.describe()
    if description.steps is None:
        return {"noise_std": description.noise}
    (multiplier,) = description.noise
    return {
        "steps": description.steps,
        "sampling_rate": description.sampling_rate,
        "noise_multiplier": multiplier,
    }
