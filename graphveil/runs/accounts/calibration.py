"""Noise for a budget, or a budget for a noise, from public configuration alone: nothing is read or spent."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.errors import CalibrationError, ConfigError, UnitError
from graphveil.estimators.public_sizes import TYPICAL_CLASSES, TYPICAL_NODES, PublicSizes
from graphveil.privacy import (
    ApproximateDP,
    Composed,
    Guarantee,
    NodeUnit,
    NoUnit,
    check_delta,
    compose,
    parse_unit,
    renyi,
)
from graphveil.privacy.accountant import total_mu
from graphveil.runs.accounts.budget_breakdown import Stage, stages_of
from graphveil.runs.parameters import check_names, method_class

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator
    from graphveil.release import ReleasePlan

_EPSILONS = (1e-2, 50.0)
_STRIDE = 1.5  # of the logarithm of epsilon, while looking for two that enclose the answer


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a budget buys: the noise standard deviation of each query, and what it implies."""

    method: str
    unit: str
    epsilon: float
    epsilon_renyi: float  # the Renyi bound of the same events: a cross-check, never the claim
    delta: float
    mu: float | None  # none with sampled training steps, which have no mu
    noise_std: tuple[float, ...]
    sensitivity: float  # the largest of any release
    sensitivities: tuple[float, ...]
    releases: int  # as a privacy ledger counts them: one for all queries of a fit
    sampler: str | None
    max_tpr_at_1pct_fpr: float
    stages: tuple[Stage, ...]
    assumed: dict[str, int] = field(default_factory=dict)  # sizes that were not given, as they were taken
    reports: tuple[str, ...] = ()  # what each node does to its features and its label, where it randomizes
    eps_x: float | None = None  # of features, where they have a budget beside that of edges

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **asdict(self),
            **{name: _finite(getattr(self, name)) for name in ("epsilon", "epsilon_renyi")},
            "eps_x": None if self.eps_x is None else _finite(self.eps_x),
            "reports": list(self.reports),
            "noise_std": list(self.noise_std),
            "sensitivities": list(self.sensitivities),
            "stages": [stage.as_dict() for stage in self.stages],
        }


@checked
def calibrate(
    method: str,
    unit: str,
    epsilon: float | None = None,
    delta: float | str = "auto",
    *,
    noise_std: float | None = None,
    nodes: int | None = None,
    classes: int | None = None,
    dim: int | None = None,
    training: int | None = None,
    labeled: int | None = None,
    **config: Any,
) -> Calibration:
    """Return the noise of a budget or, given ``noise_std`` in place of ``epsilon``, the budget of a noise.

    Args:
        method: a name of ``METHODS``.
        unit: what is protected.
        epsilon: the budget.
        delta: a number, or ``"auto"``, which needs ``nodes`` or ``max_units``.
        noise_std: the noise of the first release, in units of a vector of norm one; for training steps the
            noise multiplier.
        nodes: N, where it is known.
        classes: C, where it is known.
        dim: d, the number of features, where it is known (``features`` is how nodes randomize them).
        training: under node units, how many nodes are trained on; by default three quarters of N.
        labeled: at edge level, how many nodes have a public label; classcode has a plan of its own for few.
        config: further constructor keywords of the method.

    Sizes that are left out are assumed, and named in ``assumed``: a fit whose sizes differ has other noise.

    Raises:
        ConfigError: both or neither of ``epsilon`` and ``noise_std`` are given, or delta has no bound.
        CalibrationError: no noise meets the budget.

    >>> [round(sigma, 3) for sigma in calibrate("gap", "directed-edge", 1.0, 1e-5, hops=2).noise_std]
    [5.276, 5.276]
    """
    epsilon, delta, noise_std = map(checks.plain, (epsilon, delta, noise_std))
    nodes, classes, dim, training, labeled = map(checks.plain, (nodes, classes, dim, training, labeled))
    if isinstance(parse_unit(unit, max_degree=config.get("max_degree")), NoUnit):
        raise UnitError(
            "unit 'none' adds no noise, so there is nothing to calibrate; name the unit to protect"
        )
    if method_class(method).local:
        check_names(method_class(method), config)
        if noise_std is not None:
            raise ConfigError(f"{method} spends on features and on the label; give eps_x and eps_y instead")
        built = method_class(method)(unit=unit, epsilon=epsilon, delta=delta, **config)
        return _of_reports(built, dim, classes)
    if (epsilon is None) == (noise_std is None):
        what = "neither is given" if epsilon is None else "both are given"
        raise ConfigError(f"one of epsilon (--epsilon) and noise_std (--noise-std) is needed, and {what}")
    if delta == "auto" and nodes is None and config.get("max_units") is None:
        raise ConfigError(
            "delta='auto' needs a public bound: pass delta (--delta), nodes (--nodes-count) or max_units "
            "(--max-units)"
        )
    config = {"unit": unit, "delta": delta, "max_units": nodes or 1, **config}
    sizes = PublicSizes(
        nodes=nodes or TYPICAL_NODES,
        classes=classes or TYPICAL_CLASSES,
        features=dim,
        train_records=training,
        labeled=labeled,
    )
    left_out = [name for name, size in (("nodes", nodes), ("classes", classes)) if size is None]
    complete = sizes.completed()
    assumed = {name: getattr(complete, name) for name in (*left_out, *sizes.missing)}

    def model(at: float) -> "Estimator":
        return method_class(method)(epsilon=at, **config)

    check_names(method_class(method), config)
    if epsilon is None:
        assert noise_std is not None
        of_records = isinstance(model(1.0).protected_unit, NodeUnit)
        epsilon = _epsilon_of(noise_std, lambda at: _plan_of(model(at), sizes), sampled=of_records)
    found = _figures(model(epsilon), sizes)
    return replace(found, assumed=assumed, **_of_features(model(epsilon), complete))


def _renyi_bound(guarantee: Guarantee) -> float:
    """Return the Renyi bound on everything; bounds that simply add up have none but their sum."""
    events = compose(guarantee.event).events
    if not guarantee.delta or any(isinstance(part, ApproximateDP) for part in events):
        return guarantee.epsilon
    return renyi.epsilon_of_event(guarantee.event, guarantee.delta)


def _of_features(model: "Estimator", sizes: PublicSizes) -> dict[str, Any]:
    """Return what each node does to its features where they have a budget of their own, which is given."""
    from graphveil.local.heterorr import HeteroRR

    if not isinstance(model, HeteroRR):
        return {}
    row = model.reported_feature_row(sizes.width)
    return {"eps_x": model.eps_x, "reports": (f"{row.kind}: {row.words}",)}


def _plan_of(model: "Estimator", sizes: PublicSizes) -> "ReleasePlan | None":
    return model.plan(
        num_nodes=sizes.nodes,
        num_classes=sizes.classes,
        num_features=sizes.features,
        num_training=sizes.train_records,
        num_labeled=sizes.labeled,
    )


def _finite(value: float) -> float | None:
    """Return a number that JSON has."""
    return value if math.isfinite(value) else None


def _of_reports(model: "Estimator", dim: int | None, classes: int | None) -> Calibration:
    """Return what each node does to its record; the budgets are given, so there is nothing to search for."""
    if dim is None or classes is None:
        raise ConfigError(
            f"{model.method} randomizes a record of so many features and classes: pass dim= "
            "(--features-count) and classes= (--classes-count)"
        )
    from graphveil.local.local_estimator import LocalEstimator

    assert isinstance(model, LocalEstimator)
    guarantee, rows = model.guarantee_for(dim, classes), model.reports_for(dim, classes)
    return Calibration(
        method=model.method,
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        epsilon_renyi=guarantee.epsilon,
        delta=guarantee.delta,
        mu=None,
        noise_std=tuple(std for row in rows for std in row.noise_std),
        sensitivity=max(row.sensitivity for row in rows),
        sensitivities=tuple(row.sensitivity for row in rows),
        releases=guarantee.releases,
        sampler=None,
        max_tpr_at_1pct_fpr=guarantee.max_tpr(),
        stages=(),
        reports=tuple(f"{row.kind}: {row.words}" for row in rows),
    )


def _figures(model: "Estimator", sizes: PublicSizes) -> Calibration:
    plan, unit = _plan_of(model, sizes), model.protected_unit
    queries = () if plan is None else plan.queries
    guarantee = Guarantee.from_event(
        unit,
        Composed(()) if plan is None else plan.event,
        delta=check_delta(unit, model.delta, sizes.nodes) if plan is None else plan.delta,
        releases=0 if plan is None else 1,
        slack=0.0 if plan is None else plan.slack,
    )
    sensitivities = tuple(query.sensitivity(unit) for query in queries)
    bound = _renyi_bound(guarantee) if queries else 0.0
    return Calibration(
        method=model.method,
        unit=unit.name,
        epsilon=guarantee.epsilon,
        epsilon_renyi=bound,
        delta=guarantee.delta,
        mu=total_mu(guarantee.event),
        noise_std=() if plan is None else tuple(plan.noise_std),
        sensitivity=max(sensitivities, default=0.0),
        sensitivities=sensitivities,
        releases=guarantee.releases,
        sampler=None if plan is None else plan.sampler.__name__,
        max_tpr_at_1pct_fpr=guarantee.max_tpr(),
        stages=stages_of(plan),
    )


def _epsilon_of(
    noise_std: float, plan_at: Callable[[float], "ReleasePlan | None"], *, sampled: bool
) -> float:
    """Return the epsilon whose calibration gives this noise to the first release.

    Where training may be sampled each plan takes a while, so a thousandth has to do; what is reported is
    certified for the noise that is reported with it.
    """
    from scipy.optimize import brentq

    checks.positive(noise_std=noise_std)

    @cache  # the ends of a bracket are asked for twice
    def excess(log_epsilon: float) -> float:
        plan = plan_at(math.exp(log_epsilon))
        if plan is None:
            raise ConfigError("this method asks nothing of the edges and has no noise; choose another one")
        return math.log(plan.noise_std[0] / noise_std)

    try:
        bracket = _bracket(excess)
    except CalibrationError:  # no plan has so much noise, or so little
        bracket = None
    if bracket is None:
        raise ConfigError(
            f"noise_std={noise_std:g} lies outside what an epsilon between {_EPSILONS[0]:g} and "
            f"{_EPSILONS[1]:g} needs; choose another noise"
        )
    return math.exp(float(brentq(excess, *bracket, xtol=1e-3 if sampled else 1e-10)))


def _bracket(excess: Callable[[float], float]) -> tuple[float, float] | None:
    """Return two logarithms of epsilon between which the excess changes its sign, walking from epsilon 1."""
    least, most = (math.log(edge) for edge in _EPSILONS)
    here, found = 0.0, excess(0.0)
    step = math.copysign(_STRIDE, found)  # noise falls as epsilon grows
    while least < here < most:
        there = min(max(here + step, least), most)
        beyond = excess(there)
        if beyond * found <= 0:
            return min(here, there), max(here, there)
        here, found = there, beyond
    return None
