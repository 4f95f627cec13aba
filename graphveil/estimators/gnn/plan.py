"""Query plan of a private GNN: encoder steps, one aggregation, the module's steps, and accuracy counts."""

import math
from dataclasses import dataclass

from graphveil.estimators.classcode.node_plan import BudgetSplit
from graphveil.estimators.public_sizes import GROUPS, OTHER, PARTITION, TRAIN, VAL
from graphveil.estimators.training.dpsgd import DPSGDTraining
from graphveil.estimators.training.record_plan import accuracy_count_query
from graphveil.privacy import NodeRecord
from graphveil.release import DPSGDQuery, OutEdgeSumQuery, Query
from graphveil.training import PrivateSchedule

_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the noise of the aggregates


def encoder_share(mu: float, parameters: int, records: int) -> float:
    """Return the encoder's share of mu^2: clip(0.1 (q / 0.0128)^1.7, 0.1, 0.4) with q = sqrt(p) / (mu n).

    q compares the noise of a linear model with p parameters to the information in n records. Ego graphs need
    little from the encoder. The constants were fitted to the test accuracy of two public graphs
    (``benchmarks/notes/055-stars.md``). Every input is public.

    >>> [round(encoder_share(0.268, *sizes), 2) for sizes in ((438 * 6, 15200), (768 * 10, 11450))]
    [0.1, 0.39]
    """
    wanted = 0.1 * math.pow(math.sqrt(parameters) / (mu * records) / 0.0128, 1.7)
    return min(max(wanted, 0.1), 0.4)


@dataclass(frozen=True, kw_only=True)
class OneHopPlan:
    """The queries of a fit, in order, for any scale; the queries of every record cost about that mu.

    Training records are charged for all queries. Validation records are charged in the same way, since
    nothing is selected on them. With ``metrics`` validation and other records are charged for one pair of
    noisy counts instead. Records outside of training are otherwise charged for their GNN message only, which
    may have a larger norm.

    Args:
        unit: ``node-record``; replace-one doubles every sensitivity.
        features: f.
        classes: C.
        parameters: p of the module.
        records: Number of training records, with or without a label.
        schedule: Schedule of the module's steps.
        shares: Shares of mu^2 for encoder and module; the aggregation has the rest. None for the encoder is
            ``encoder_share`` of the budget.
        metrics: Whether accuracies are released.
        out_degree_bound: D of the out-edge aggregation.

    >>> plan = OneHopPlan(unit=NodeRecord(), features=9, classes=3, parameters=50, records=500,
    ...                 schedule=PrivateSchedule(batch_size=25), shares=(0.1, 0.15))
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps', 'rows', 'steps']
    """

    unit: NodeRecord
    features: int
    classes: int
    parameters: int
    records: int
    schedule: PrivateSchedule
    shares: tuple[float | None, float]
    metrics: bool = False
    out_degree_bound: int = 1

    def budget_split(self, mu: float) -> BudgetSplit:
        """Return the division of a total mu, for every class of records."""
        encoder, module = self.shares
        if encoder is None:
            encoder = encoder_share(mu, (self.features + 1) * self.classes, self.records)
        return BudgetSplit(encoder=encoder, combiner=module, pushes=(1.0,))

    @property
    def training(self) -> DPSGDTraining:
        """The module's steps."""
        return DPSGDTraining(schedule=self.schedule, parameters=self.parameters, records=self.records)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the queries."""
        budget_split = self.budget_split(mu)
        noise = budget_split.noise(mu / self.unit.change)
        encoder = DPSGDQuery(
            parameters=(self.features + 1) * self.classes,
            steps=budget_split.encoder_steps,
            noise_multiplier=noise.encoder,
            partition=PARTITION,
            pays=self.pays,
        )
        training = self.training
        module = DPSGDQuery(
            parameters=training.parameters,
            steps=training.steps,
            noise_multiplier=training.multiplier(mu * math.sqrt(budget_split.combiner), self.unit),
            sampling_rate=training.rate,
            clip=self.schedule.clip,
            partition=PARTITION,
            pays=self.pays,
        )
        spare = mu * math.sqrt(1 - budget_split.aggregation)
        counts = tuple(
            accuracy_count_query(self.unit, group, spare) for group in (VAL, OTHER) if self.metrics
        )
        return (encoder, self._push(noise.pushes[0], noise.bound), module, *counts)

    def _push(self, sigma: float, longest: float) -> OutEdgeSumQuery:
        bounds = tuple(1.0 if pays or self.metrics else longest for pays in self.pays)
        return OutEdgeSumQuery(
            dim=self.classes - 1,
            sigma=sigma,
            out_degree_bound=self.out_degree_bound,
            partition=PARTITION,
            bounds=bounds,
            grid_bits=max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * max(bounds) / sigma))),
        )

    @property
    def pays(self) -> tuple[bool, ...]:
        """Whether the records of each group are used for training."""
        return tuple(group == TRAIN or (group == VAL and not self.metrics) for group in range(GROUPS))
