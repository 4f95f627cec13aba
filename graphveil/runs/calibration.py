"""Privacy cost of each stage of a query plan, and calibration: noise for a budget, or a budget for a noise.

Everything follows from the public configuration: no data are read and no budget is spent.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import check_delta
from graphveil.core.events import ApproximateDP, Composed, without_failures
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import DirectedEdge, NodeUnit, NoUnit, Row, Unit, parse_unit
from graphveil.errors import CalibrationError, ConfigError, UnitError
from graphveil.estimators.public_sizes import TYPICAL_CLASSES, TYPICAL_NODES, PublicSizes
from graphveil.links import LINKS, RECOMMENDER, link_model_class
from graphveil.privacy import Guarantee, renyi
from graphveil.publish.queries import QueryRow, stages_of
from graphveil.publish.results import LINK_METRICS
from graphveil.runs.parameters import check_names, method_class

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a budget buys: the noise standard deviation of each query, and what it implies."""

    method: str
    unit: str
    epsilon: float
    epsilon_renyi: float  # the Renyi bound of the same events: a cross-check, never the claim
    delta: float
    mu: float | None = None  # None with sampled training steps, which have no mu
    noise_std: tuple[float, ...] = ()
    sensitivity: float  # the largest of any release
    sensitivities: tuple[float, ...]
    releases: int  # as a privacy ledger counts them: one for all queries of a fit
    sampler: str | None = None
    max_tpr_at_1pct_fpr: float
    stages: tuple[QueryRow, ...] = ()
    assumed: dict[str, int] = field(default_factory=dict)  # sizes that were not given, as they were taken
    reports: tuple[str, ...] = ()  # what each node does to its features and its label, where it randomizes
    eps_x: float | None = None  # budget of features, if it is separate from that of edges

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            **{name: _finite(getattr(self, name)) for name in ("epsilon", "epsilon_renyi")},
            "eps_x": None if self.eps_x is None else _finite(self.eps_x),
            "reports": list(self.reports),
            "noise_std": list(self.noise_std),
            "sensitivities": list(self.sensitivities),
            "stages": [stage.as_stage() for stage in self.stages],
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
    """Return the noise for a budget or, given ``noise_std`` instead of ``epsilon``, the budget for a noise.

    Args:
        method: A name of ``METHODS``, or ``"links"`` or ``"recommender"``, whose noise depends on no size.
        unit: Privacy unit.
        epsilon: The budget.
        delta: A number, or ``"auto"``, which needs ``nodes`` or ``max_units``.
        noise_std: Noise of the first release, in units of a vector of norm one; for training steps the
            noise multiplier. Not for ``links``, whose first noise does not determine the others.
        nodes: N, if known; for a recommender the number of users.
        classes: C, if known.
        dim: d, the number of features, if known (``features`` is the local randomizer of features).
        training: Under node-level privacy units, number of training nodes; by default three quarters of N.
        labeled: At edge level, the number of nodes with a public label; classcode has a separate plan
            for few.
        config: Further constructor keywords of the method.

    Sizes that are left out are assumed, and listed in ``assumed``: a fit with other sizes has other noise.

    Raises:
        ConfigError: Both or neither of ``epsilon`` and ``noise_std`` are given, or delta has no bound.
        CalibrationError: No noise meets the budget.

    >>> [round(sigma, 3) for sigma in calibrate("gap", "directed-edge", 1.0, 1e-5, hops=2).noise_std]
    [5.276, 5.276]
    """
    epsilon, delta, noise_std = map(checks.plain, (epsilon, delta, noise_std))
    nodes, classes, dim, training, labeled = map(checks.plain, (nodes, classes, dim, training, labeled))
    if isinstance(parse_unit(unit, max_degree=config.get("max_degree")), NoUnit):
        raise UnitError(
            "Unit 'none' adds no noise, so no noise can be calibrated. Choose a unit that protects "
            "something, for example undirected-edge."
        )
    if method not in LINK_METRICS and method_class(method).is_local(unit):
        check_names(method_class(method), config)
        if noise_std is not None:
            raise ConfigError(
                f"{method} has separate budgets for features and labels. Pass eps_x and eps_y instead."
            )
        built = method_class(method)(unit=unit, epsilon=epsilon, delta=delta, **config)
        return _of_reports(built, dim, classes)
    if (epsilon is None) == (noise_std is None):
        what = "neither is given" if epsilon is None else "both are given"
        raise ConfigError(
            f"Exactly one of epsilon (--epsilon) and noise_std (--noise-std) is needed, and {what}."
        )
    if delta == "auto" and nodes is None and config.get("max_units") is None:
        raise ConfigError(
            "delta='auto' needs a public bound. Pass delta (--delta), nodes (--nodes-count) or "
            "max_units (--max-units)."
        )
    config = {"unit": unit, "delta": delta, "max_units": nodes or 1, **config}
    if method in LINK_METRICS:
        for name, size in (("classes", classes), ("dim", dim), ("training", training), ("labeled", labeled)):
            if size is not None:
                raise ConfigError(f"{name} does not affect the noise of {method}. Remove it.")
        return _of_pairs(method, epsilon, noise_std, config)
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


def _of_pairs(
    method: str, epsilon: float | None, noise_std: float | None, config: dict[str, Any]
) -> Calibration:
    cls: Any = link_model_class(method)
    check_names(cls, config)
    if epsilon is None and method == LINKS:
        raise ConfigError(
            "noise_std (--noise-std) does not determine the budget of links: its queries have several kinds "
            "of noise, in shares that change with epsilon. Set epsilon (--epsilon) instead; `graphveil "
            "calibrate links --unit undirected-edge --epsilon 1 --delta 1e-6` prints the noise of each query."
        )
    if (
        method == RECOMMENDER
        and config["delta"] == "auto"
        and config["unit"] in (DirectedEdge.name, Row.name)
    ):
        raise ConfigError(
            "delta='auto' needs a public bound on the number of entries of all lists, which the number of "
            "users does not give. Pass delta (--delta)."
        )

    def plan_at(at: float) -> ReleasePlan:
        plan: ReleasePlan = cls(epsilon=at, **config).plan()
        return plan

    if epsilon is None:
        assert noise_std is not None
        epsilon = _epsilon_of(noise_std, plan_at, sampled=False)
    plan = plan_at(epsilon)
    return _calibration_of(method, plan.unit, plan, plan.delta)


def _of_features(model: "Estimator", sizes: PublicSizes) -> dict[str, Any]:
    from graphveil.local.heterorr import HeteroMethod, HeteroRR

    if not isinstance(model, HeteroRR) or not isinstance(model.config, HeteroMethod):
        return {}
    rows = model.config.report_config.rows(sizes.width, sizes.classes)
    return {"eps_x": model.eps_x, "reports": tuple(f"{row.kind}: {row.words}" for row in rows)}


def _plan_of(model: "Estimator", sizes: PublicSizes) -> ReleasePlan | None:
    return model.plan(
        num_nodes=sizes.nodes,
        num_classes=sizes.classes,
        num_features=sizes.features,
        num_training=sizes.train_records,
        num_labeled=sizes.labeled,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _of_reports(model: "Estimator", dim: int | None, classes: int | None) -> Calibration:
    """Return what each node does to its record; the budgets are given, so there is nothing to search for."""
    if dim is None or classes is None:
        raise ConfigError(
            f"The noise of {model.method} depends on the numbers of features and classes. Pass dim= "
            "(--features-count) and classes= (--classes-count)."
        )
    from graphveil.local.local_method import LocalMethod

    method = model.config
    assert isinstance(method, LocalMethod)
    guarantee, rows = method.guarantee_for(dim, classes), method.report_config.rows(dim, classes)
    return _calibration(
        model.method,
        guarantee,
        guarantee.epsilon,
        [row.sensitivity for row in rows],
        noise_std=tuple(std for row in rows for std in row.noise_std),
        reports=tuple(f"{row.kind}: {row.words}" for row in rows),
    )


def _figures(model: "Estimator", sizes: PublicSizes) -> Calibration:
    plan, unit = _plan_of(model, sizes), model.protected_unit
    delta = check_delta(unit, model.delta, sizes.nodes) if plan is None else plan.delta
    return _calibration_of(model.method, unit, plan, delta)


def _calibration_of(method: str, unit: Unit, plan: ReleasePlan | None, delta: float) -> Calibration:
    if plan is None:
        guarantee = Guarantee.from_event(unit, Composed(()), delta=delta, releases=0)
        return _calibration(method, guarantee, 0.0, [], mu=total_mu(guarantee.event))
    guarantee = Guarantee.from_event(unit, plan.event, delta=delta, releases=1, slack=plan.slack)
    event = without_failures(guarantee.event)
    if not guarantee.delta or any(isinstance(part, ApproximateDP) for part in event.events):
        bound = guarantee.epsilon  # bounds that simply add up have no Renyi bound but their sum
    else:
        bound = renyi.epsilon_of_event(event, guarantee.delta - guarantee.additive_delta)
    return _calibration(
        method,
        guarantee,
        bound,
        [query.sensitivity(unit) for query in plan.queries],
        mu=total_mu(guarantee.event),
        noise_std=tuple(plan.noise_std),
        sampler=plan.sampler.__name__,
        stages=stages_of(plan),
    )


def _calibration(
    method: str, guarantee: Guarantee, renyi_bound: float, sensitivities: Sequence[float], **more: Any
) -> Calibration:
    return Calibration(
        method=method,
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        epsilon_renyi=renyi_bound,
        delta=guarantee.delta,
        sensitivity=max(sensitivities, default=0.0),
        sensitivities=tuple(sensitivities),
        releases=guarantee.releases,
        max_tpr_at_1pct_fpr=guarantee.max_tpr(),
        **more,
    )


_EPSILONS = (1e-2, 50.0)
_STRIDE = 1.5  # of the logarithm of epsilon, while looking for two that enclose the answer


def _epsilon_of(noise_std: float, plan_at: Callable[[float], ReleasePlan | None], *, sampled: bool) -> float:
    """Return the epsilon whose calibration gives this noise to the first release.

    Where training may be sampled each plan is slow, so the search stops at a relative error of 0.001. The
    reported epsilon is certified for the noise that is reported with it.
    """
    from scipy.optimize import brentq

    checks.positive(noise_std=noise_std)

    @cache  # the ends of a bracket are evaluated twice
    def excess(log_epsilon: float) -> float:
        plan = plan_at(math.exp(log_epsilon))
        if plan is None:
            raise ConfigError(
                "This method does not query edges and adds no noise, so it cannot be calibrated. Choose "
                "another method."
            )
        return math.log(plan.noise_std[0] / noise_std)

    try:
        bracket = _bracket(excess)
    except CalibrationError:  # no plan has so much noise, or so little
        bracket = None
    if bracket is None:
        raise ConfigError(
            f"noise_std={noise_std:g} corresponds to an epsilon outside {_EPSILONS[0]:g} to "
            f"{_EPSILONS[1]:g}. Choose another noise_std."
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
