"""What a private GNN asks of records: encoder steps, one push, the module's steps, and counts for
reporting."""

import math
from dataclasses import dataclass

from graphveil.models.classcode.owner.division import Division
from graphveil.models.membership import GROUPS, OTHER, PARTITION, TRAIN, VAL
from graphveil.models.training.private import Training
from graphveil.models.training.record_plan import outcome_counts
from graphveil.privacy import NodeOwner
from graphveil.release import DPSGDQuery, PushQuery, Query
from graphveil.train import PrivateSchedule

_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the noise of the rows


def encoder_share(mu: float, parameters: int, records: int) -> float:
    """Return the encoder's share of mu^2: clip(0.1 (q / 0.0128)^1.7, 0.1, 0.4) with q = sqrt(p) / (mu n).

    q compares the noise on a linear model of p weights with what n records say. Stars need little of the
    encoder as long as it can be read at all. The constants were fitted to the test accuracy of two public
    graphs (``docs/decisions/055-stars.md``). Every input is public.

    >>> [round(encoder_share(0.268, *sizes), 2) for sizes in ((438 * 6, 15200), (768 * 10, 11450))]
    [0.1, 0.39]
    """
    wanted = 0.1 * math.pow(math.sqrt(parameters) / (mu * records) / 0.0128, 1.7)
    return min(max(wanted, 0.1), 0.4)


@dataclass(frozen=True, kw_only=True)
class StarPlan:
    """The questions of a fit, in order, for any scale; every record's own questions cost about that mu.

    Training records pay for everything, and validation records with them, since nothing is selected on
    them; with ``metrics`` these and the others pay for one pair of noisy counts instead. Whoever does not
    teach pays for its message alone, which may be longer.

    Args:
        unit: ``node-owner``; replaced records double every shift.
        features: f.
        classes: C.
        parameters: p of the module.
        records: how many records teach, with or without a label.
        schedule: of the module's steps.
        shares: of mu^2, for encoder and module; the push has the rest. None for the encoder is
            :func:`encoder_share` of the budget.
        metrics: whether accuracies are released.
        degree_budget: D of the push.

    >>> plan = StarPlan(unit=NodeOwner(), features=9, classes=3, parameters=50, records=500,
    ...                 schedule=PrivateSchedule(batch_size=25), shares=(0.1, 0.15))
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps', 'rows', 'steps']
    """

    unit: NodeOwner
    features: int
    classes: int
    parameters: int
    records: int
    schedule: PrivateSchedule
    shares: tuple[float | None, float]
    metrics: bool = False
    degree_budget: int = 1

    def division(self, mu: float) -> Division:
        """Return how a total mu is divided, for every class of records."""
        encoder, module = self.shares
        if encoder is None:
            encoder = encoder_share(mu, (self.features + 1) * self.classes, self.records)
        return Division(encoder=encoder, combiner=module, pushes=(1.0,))

    @property
    def training(self) -> Training:
        """The module's steps."""
        return Training(schedule=self.schedule, parameters=self.parameters, records=self.records)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the questions."""
        division = self.division(mu)
        noise = division.noise(mu / self.unit.change)
        encoder = DPSGDQuery(
            parameters=(self.features + 1) * self.classes,
            steps=division.encoder_steps,
            noise_multiplier=noise.encoder,
            partition=PARTITION,
            pays=self.pays,
        )
        training = self.training
        module = DPSGDQuery(
            parameters=training.parameters,
            steps=training.steps,
            noise_multiplier=training.multiplier(mu * math.sqrt(division.combiner), self.unit),
            sampling_rate=training.rate,
            clip=self.schedule.clip,
            partition=PARTITION,
            pays=self.pays,
        )
        spare = mu * math.sqrt(1 - division.aggregation)
        counts = tuple(outcome_counts(self.unit, group, spare) for group in (VAL, OTHER) if self.metrics)
        return (encoder, self._push(noise.pushes[0], noise.bound), module, *counts)

    def _push(self, sigma: float, longest: float) -> PushQuery:
        bounds = tuple(1.0 if pays or self.metrics else longest for pays in self.pays)
        return PushQuery(
            dim=self.classes - 1,
            sigma=sigma,
            degree_budget=self.degree_budget,
            partition=PARTITION,
            bounds=bounds,
            grid_bits=max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * max(bounds) / sigma))),
        )

    @property
    def pays(self) -> tuple[bool, ...]:
        """By group, whether its records teach."""
        return tuple(group == TRAIN or (group == VAL and not self.metrics) for group in range(GROUPS))
