"""What recipes S and R ask of records: encoder steps, pushes, combiner steps, and counts for reporting."""

import math
from dataclasses import dataclass

from graphveil.estimators.classcode.owner.aggregation import FIRST_LEVELS, FLAT_LEVELS, LEVELS
from graphveil.estimators.classcode.owner.budget_split import BudgetSplit, encoder_share
from graphveil.estimators.classcode.owner.evidence_weights import WEIGHTS
from graphveil.estimators.public_sizes import GROUPS, OTHER, PARTITION, TRAIN, VAL
from graphveil.estimators.training.record_plan import accuracy_count_query
from graphveil.privacy import NodeRecord
from graphveil.release import DPSGDQuery, OutEdgeSumQuery, Query

_EVIDENCE_WEIGHTS_SHARE = 0.02  # of mu^2: two numbers need little
_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the noise of the rows that have least of it


@dataclass(frozen=True, kw_only=True)
class NodeLevelReleasePlan:
    """The questions of a fit, in order, for any total mu; every record's own questions cost at most that.

    Training records pay for everything. Validation records teach too if ``train_on_val``, since nothing is
    selected on them. Whoever does not teach pays for its messages alone, which may be longer, and with
    ``metrics`` for one pair of noisy counts instead.

    Args:
        unit: ``node-record``; replaced records double every shift.
        features: f.
        classes: C.
        records: the public number of labeled nodes, for the encoder's share.
        reads_own_edges: recipe R in place of S.
        fits_evidence_weights: whether S learns how much to trust rows; it needs the rows of labeled nodes.
        share: the encoder's share; None for what suits the recipe.
        unlabeled_send: whether nodes that do not teach send messages.
        train_on_val: whether validation labels are used like training labels.
        metrics: whether accuracies are released.
        out_degree_bound: D of the pushes.

    >>> plan = NodeLevelReleasePlan(unit=NodeRecord(), features=9, classes=3, records=500, share=0.1)
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps', 'rows', 'rows', 'rows', 'steps']
    """

    unit: NodeRecord
    features: int
    classes: int
    records: int
    reads_own_edges: bool = False
    fits_evidence_weights: bool = True
    share: float | None = None
    unlabeled_send: bool = True
    train_on_val: bool = True
    metrics: bool = False
    out_degree_bound: int = 1

    def budget_split(self, mu: float) -> BudgetSplit:
        """Return how a total mu is divided."""
        if self.reads_own_edges:
            return (
                BudgetSplit.neighborhood_sum()
                if self.share is None
                else BudgetSplit.neighborhood_sum(self.share)
            )
        suits = encoder_share(mu, (self.features + 1) * self.classes, self.records, self.classes)
        evidence_weights = _EVIDENCE_WEIGHTS_SHARE if self.fits_evidence_weights else 0.0
        return BudgetSplit.for_weighted_rows(suits if self.share is None else self.share, evidence_weights)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the questions."""
        budget_split = self.budget_split(mu)
        noise = budget_split.noise(mu / self.unit.change)
        first = self._steps((self.features + 1) * self.classes, budget_split.encoder_steps, noise.encoder)
        bounds = tuple(self._bound(group, noise.bound) for group in range(GROUPS))
        pushes = [self._push(number, sigma, bounds) for number, sigma in enumerate(noise.pushes)]
        weights = (4 * self.classes - 1) * self.classes if self.reads_own_edges else WEIGHTS
        last = [self._steps(weights, budget_split.combiner_steps, noise.combiner)] if noise.combiner else []
        return (
            first,
            *pushes,
            *last,
            *self._accuracy_count_queries(mu * math.sqrt(1 - budget_split.aggregation)),
        )

    def _steps(self, parameters: int, steps: int, noise_multiplier: float) -> DPSGDQuery:
        return DPSGDQuery(
            parameters=parameters,
            steps=steps,
            noise_multiplier=noise_multiplier,
            partition=PARTITION,
            pays=tuple(self._is_training_group(group) for group in range(GROUPS)),
        )

    def _push(self, number: int, sigma: float, bounds: tuple[float, ...]) -> OutEdgeSumQuery:
        alike = (
            self.reads_own_edges or not self.fits_evidence_weights
        )  # nobody waits for more than the others
        levels = LEVELS if number else FLAT_LEVELS if alike else FIRST_LEVELS
        loudest = math.sqrt(max(levels) / 16) * max(bounds)
        return OutEdgeSumQuery(
            dim=self.classes - 1,
            sigma=sigma,
            out_degree_bound=self.out_degree_bound,
            levels=levels,
            partition=PARTITION,
            bounds=bounds,
            grid_bits=max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * loudest / sigma))),
        )

    def _accuracy_count_queries(self, mu: float) -> tuple[Query, ...]:
        """Return counts of validation and of test nodes, at what teaching costs the others."""
        return tuple(accuracy_count_query(self.unit, counted, mu) for counted in (VAL, OTHER) if self.metrics)

    def _is_training_group(self, group: int) -> bool:
        return group == TRAIN or (group == VAL and self.train_on_val and not self.metrics)

    def _bound(self, group: int, longest: float) -> float:
        """Return the longest message of a group's records."""
        if self._is_training_group(group):
            return 1.0
        return float(self.unlabeled_send) * (1.0 if self.metrics else longest)
