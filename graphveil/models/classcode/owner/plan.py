"""What recipes S and R ask of records: encoder steps, pushes, combiner steps, and counts for reporting."""

import math
from dataclasses import dataclass

from graphveil.models.classcode.owner.division import Division, encoder_share
from graphveil.models.classcode.owner.pushes import FIRST_LEVELS, FLAT_LEVELS, LEVELS
from graphveil.models.classcode.owner.weighing import WEIGHTS
from graphveil.models.membership import GROUPS, OTHER, PARTITION, TRAIN, VAL
from graphveil.models.training.record_plan import outcome_counts
from graphveil.privacy import NodeOwner
from graphveil.release import DPSGDQuery, PushQuery, Query

_WEIGHING_SHARE = 0.02  # of mu^2: two numbers need little
_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the noise of the rows that have least of it


@dataclass(frozen=True, kw_only=True)
class OwnerPlan:
    """The questions of a fit, in order, for any total mu; every record's own questions cost at most that.

    Training records pay for everything. Validation records teach too if ``val_teaches``, since nothing is
    selected on them. Whoever does not teach pays for its messages alone, which may be longer, and with
    ``metrics`` for one pair of noisy counts instead.

    Args:
        unit: ``node-owner``; replaced records double every shift.
        features: f.
        classes: C.
        records: the public number of labelled nodes, for the encoder's share.
        reads_own_edges: recipe R in place of S.
        weighs: whether S learns how much to trust rows; it needs the rows of labelled nodes.
        share: the encoder's share; None for what suits the recipe.
        unlabelled_send: whether nodes that do not teach send messages.
        val_teaches: whether validation labels are used like training labels.
        metrics: whether accuracies are released.
        degree_budget: D of the pushes.

    >>> plan = OwnerPlan(unit=NodeOwner(), features=9, classes=3, records=500, share=0.1)
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps', 'rows', 'rows', 'rows', 'steps']
    """

    unit: NodeOwner
    features: int
    classes: int
    records: int
    reads_own_edges: bool = False
    weighs: bool = True
    share: float | None = None
    unlabelled_send: bool = True
    val_teaches: bool = True
    metrics: bool = False
    degree_budget: int = 1

    def division(self, mu: float) -> Division:
        """Return how a total mu is divided."""
        if self.reads_own_edges:
            return Division.reading() if self.share is None else Division.reading(self.share)
        suits = encoder_share(mu, (self.features + 1) * self.classes, self.records, self.classes)
        weighing = _WEIGHING_SHARE if self.weighs else 0.0
        return Division.strict(suits if self.share is None else self.share, weighing)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the questions."""
        division = self.division(mu)
        noise = division.noise(mu / self.unit.change)
        first = self._steps((self.features + 1) * self.classes, division.encoder_steps, noise.encoder)
        bounds = tuple(self._bound(group, noise.bound) for group in range(GROUPS))
        pushes = [self._push(number, sigma, bounds) for number, sigma in enumerate(noise.pushes)]
        weights = (4 * self.classes - 1) * self.classes if self.reads_own_edges else WEIGHTS
        last = [self._steps(weights, division.combiner_steps, noise.combiner)] if noise.combiner else []
        return (first, *pushes, *last, *self._tallies(mu * math.sqrt(1 - division.aggregation)))

    def _steps(self, parameters: int, steps: int, noise_multiplier: float) -> DPSGDQuery:
        return DPSGDQuery(
            parameters=parameters,
            steps=steps,
            noise_multiplier=noise_multiplier,
            partition=PARTITION,
            pays=tuple(self._teaches(group) for group in range(GROUPS)),
        )

    def _push(self, number: int, sigma: float, bounds: tuple[float, ...]) -> PushQuery:
        alike = self.reads_own_edges or not self.weighs  # nobody waits for more than the others
        levels = LEVELS if number else FLAT_LEVELS if alike else FIRST_LEVELS
        loudest = math.sqrt(max(levels) / 16) * max(bounds)
        return PushQuery(
            dim=self.classes - 1,
            sigma=sigma,
            degree_budget=self.degree_budget,
            levels=levels,
            partition=PARTITION,
            bounds=bounds,
            grid_bits=max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * loudest / sigma))),
        )

    def _tallies(self, mu: float) -> tuple[Query, ...]:
        """Return counts of validation and of test nodes, at what teaching costs the others."""
        return tuple(outcome_counts(self.unit, counted, mu) for counted in (VAL, OTHER) if self.metrics)

    def _teaches(self, group: int) -> bool:
        return group == TRAIN or (group == VAL and self.val_teaches and not self.metrics)

    def _bound(self, group: int, longest: float) -> float:
        """Return the longest message of a group's records."""
        if self._teaches(group):
            return 1.0
        return float(self.unlabelled_send) * (1.0 if self.metrics else longest)
