"""Privacy cost of each stage of a query plan, and calibration: noise for a budget, or a budget for a noise.

Everything follows from the public configuration: no data are read and no budget is spent.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import check_delta
from graphveil.core.events import Composed
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import DirectedEdge, NodeUnit, NoUnit, Row, parse_unit
from graphveil.errors import CalibrationError, ConfigError, UnitError
from graphveil.estimators.public_sizes import TYPICAL_CLASSES, TYPICAL_NODES, PublicSizes
from graphveil.links import LINKS, RECOMMENDER
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow, stages_of
from graphveil.publish.results import LINK_METRICS
from graphveil.runs.parameters import check_names, model_class


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a budget buys: the noise standard deviation of each query, and what it implies."""

    method: str
    unit: str
    epsilon: float
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
            **{name: _finite(getattr(self, name)) for name in ("epsilon", "eps_x")},
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
    cls, pairs = model_class(method), method in LINK_METRICS
    check_names(cls, config)
    if not pairs and cls.is_local(unit):
        if noise_std is not None:
            raise ConfigError(
                f"{method} has separate budgets for features and labels. Pass eps_x and eps_y instead."
            )
        if dim is None or classes is None:
            raise ConfigError(
                f"The noise of {method} depends on the numbers of features and classes. Pass dim= "
                "(--features-count) and classes= (--classes-count)."
            )
        model = cls(unit=unit, epsilon=epsilon, delta=delta, **config)
        rows = model.config.report_config.rows(dim, classes)
        return _calibration(
            method,
            model.config.guarantee_for(dim, classes),
            [row.sensitivity for row in rows],
            noise_std=tuple(std for row in rows for std in row.noise_std),
            reports=tuple(f"{row.kind}: {row.words}" for row in rows),
        )
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
    sizes: PublicSizes | None = None  # of pairs no size affects the noise
    if pairs:
        _check_pairs(method, config, noise_std, classes=classes, dim=dim, training=training, labeled=labeled)
    else:
        sizes = PublicSizes(
            nodes=nodes or TYPICAL_NODES,
            classes=classes or TYPICAL_CLASSES,
            features=dim,
            train_records=training,
            labeled=labeled,
        )

    if epsilon is None:
        assert noise_std is not None
        protected = cls(epsilon=1.0, **config).protected_unit
        epsilon = _epsilon_of(
            noise_std,
            lambda at: _plan_of(cls(epsilon=at, **config), sizes),
            sampled=not pairs and isinstance(protected, NodeUnit),
        )
    model, more = cls(epsilon=epsilon, **config), dict[str, Any]()
    plan: ReleasePlan | None = _plan_of(model, sizes)
    if sizes is not None:
        complete = sizes.completed()
        left_out = [name for name, size in (("nodes", nodes), ("classes", classes)) if size is None]
        more["assumed"] = {name: getattr(complete, name) for name in (*left_out, *sizes.missing)}
        more |= _of_features(model, complete)
    if plan is None:
        assert sizes is not None
        delta = check_delta(model.protected_unit, delta, sizes.nodes)
        empty = Guarantee.from_event(model.protected_unit, Composed(()), delta=delta, releases=0)
        return _calibration(method, empty, [], **more)
    return _calibration(
        method,
        Guarantee.from_event(plan.unit, plan.event, delta=plan.delta, releases=1, slack=plan.slack),
        [query.sensitivity(plan.unit) for query in plan.queries],
        noise_std=tuple(plan.noise_std),
        sampler=plan.sampler.__name__,
        stages=stages_of(plan),
        **more,
    )


def _check_pairs(method: str, config: dict[str, Any], noise_std: float | None, **sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None:
            raise ConfigError(f"{name} does not affect the noise of {method}. Remove it.")
    if noise_std is not None and method == LINKS:
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


def _plan_of(model: Any, sizes: PublicSizes | None) -> Any:
    if sizes is None:
        return model.plan()
    return model.plan(
        num_nodes=sizes.nodes,
        num_classes=sizes.classes,
        num_features=sizes.features,
        num_training=sizes.train_records,
        num_labeled=sizes.labeled,
    )


def _of_features(model: Any, sizes: PublicSizes) -> dict[str, Any]:
    from graphveil.local.heterorr import HeteroMethod, HeteroRR

    if not isinstance(model, HeteroRR) or not isinstance(model.config, HeteroMethod):
        return {}
    rows = model.config.report_config.rows(sizes.width, sizes.classes)
    return {"eps_x": model.eps_x, "reports": tuple(f"{row.kind}: {row.words}" for row in rows)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _calibration(
    method: str, guarantee: Guarantee, sensitivities: Sequence[float], **more: Any
) -> Calibration:
    return Calibration(
        method=method,
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=total_mu(guarantee.event),
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
