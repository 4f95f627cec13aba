"""Privacy unit and budget of a method, and the guarantee that follows from them."""

import math
from dataclasses import dataclass
from functools import partial

from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import check_delta
from graphveil.core.events import Gaussian, compose, without_failures
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import Queries, ReleasePlan, calibrate_plan
from graphveil.core.queries.list_products import ListProductQuery
from graphveil.core.queries.out_edge_sums import OutDegreeSumQuery, OutEdgeSumQuery
from graphveil.core.queries.projected_sums import ProjectedSumQuery
from graphveil.core.query import Query
from graphveil.core.unit import DirectedEdge, Node, NodeUnit, NoUnit, Unit
from graphveil.data import Graph
from graphveil.data.recipes import CLASSES_PUBLIC, about_edges
from graphveil.errors import ConfigError
from graphveil.estimators.features.scaling import range_query
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.privacy import Guarantee


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """Privacy unit and budget of a method; see ``Estimator`` for each parameter.

    >>> from graphveil.privacy import UndirectedEdge
    >>> terms = PrivacyConfig(unit=UndirectedEdge(), epsilon=1.0)
    >>> terms.on_records, terms.budget, terms.delta_for(10_000)
    (False, 1.0, 1e-07)
    """

    unit: Unit
    epsilon: float | None = None
    delta: float | str = "auto"
    max_units: int | None = None
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    private_metrics: bool = False
    deviations: tuple[str, ...] = ()

    @property
    def on_records(self) -> bool:
        """Whether the unit protects the records that networks are trained on."""
        return isinstance(self.unit, NodeUnit)

    @property
    def protects(self) -> bool:
        return not isinstance(self.unit, NoUnit)

    @property
    def budget(self) -> float:
        """Epsilon. Every unit except ``none`` was checked to have one."""
        if self.epsilon is None:
            raise ConfigError(
                f"epsilon is missing: unit {self.unit.name!r} needs a privacy budget. Pass epsilon=1.0 "
                "(--epsilon 1.0)."
            )
        return self.epsilon

    def delta_for(self, nodes: int) -> float:
        """Return delta: as configured, or from the public bound on the number of units."""
        return check_delta(self.unit, self.delta, self.max_units or nodes)

    def calibrated(
        self, sizes: PublicSizes, queries: Queries, alternatives: tuple[int, ...] = ()
    ) -> ReleasePlan:
        """Return the plan of a fit on protected records: the query of ranges if there is one, then queries.

        Args:
            queries: Function that maps a scale to the other queries.
        """
        return calibrate_plan(
            self.unit,
            self.budget,
            self.delta_for(sizes.nodes),
            queries,
            num_nodes=sizes.nodes,
            alternatives=alternatives,
            fixed=partial(self.range_queries, sizes),
        )

    def range_queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        """Return the query of ranges of feature columns, of 2 % of the squared mu; empty for no column."""
        columns = sizes.learned_columns
        return (range_query(self.unit, columns, mu),) if columns else ()


SEEDED = "the noise is reproducible from a seed"


def data_notes(privacy_config: PrivacyConfig, view: Graph) -> tuple[str, ...]:
    if privacy_config.on_records:
        return tuple(dict.fromkeys((CLASSES_PUBLIC, *view.notes)))
    return tuple(note for note in view.notes if about_edges(note))


def coalition_mu(plan: ReleasePlan) -> float | None:
    """Return the mu under unit ``node`` for graphs in which a node keeps its edges with some people.

    It is larger than that of the release if sums along edges are released. None without a bound. Releases
    whose predictions read no list also have it: it counts next to a release whose predictions do.
    """
    if not isinstance(plan.unit, Node):
        return None
    mus = list[float]()
    for path in plan.paths:
        events = [
            Gaussian(query.coalition_sensitivity(plan.unit) / query.sigma)
            if isinstance(query, ProjectedSumQuery)
            else query.event(plan.unit)
            for query in (plan.queries[k] for k in path)
        ]
        mu = total_mu(without_failures(compose(*events)))
        if mu is None:  # as with sampled steps
            return None
        mus.append(mu)
    return max(mus)


def plan_guarantee(
    privacy_config: PrivacyConfig,
    plan: ReleasePlan,
    view: Graph,
    *,
    deviations: tuple[str, ...],
    notes: tuple[str, ...],
    edge_use: EdgeUse = "queried",
) -> Guarantee:
    """Return the guarantee of one release under a plan. Only public properties of the graph are read.

    Args:
        deviations: Reasons of the method why the guarantee is invalid; those of the graph are added.
    """
    # A mutual edge is in the out-edges of both nodes, so it changes each hop by the shift of an edge. Steps
    # and counts are the same for both graphs, given what was released before them.
    edge_mus = list[float]()
    for path in plan.paths:
        queries = [plan.queries[k] for k in path]
        shifts = [
            (one.edge_shift(view.num_nodes) if isinstance(one, OutEdgeSumQuery) else one.edge_shift)
            / one.sigma
            for one in queries
            if isinstance(one, OutEdgeSumQuery | OutDegreeSumQuery | ListProductQuery)
        ]
        edge_mus += [math.hypot(*shifts)] if shifts else []
    guarantee = Guarantee.from_event(
        privacy_config.unit,
        plan.event,
        delta=plan.delta,
        releases=1,
        slack=plan.slack,
        deviations=deviations + view.deviations,
        notes=notes,
        linear_group_scaling=plan.linear_group_scaling,
        edge_use=edge_use,
        edge_mu=max(edge_mus, default=None),
        coalition_mu=coalition_mu(plan),
    )
    if guarantee.unit != DirectedEdge.name or view.directed:
        return guarantee
    return guarantee.with_deviations(
        "an undirected edge is stored twice and the claim is about one stored edge: an undirected edge is "
        f"protected at eps = {format_upper_bound(guarantee.mutual_epsilon)} only"
    )
