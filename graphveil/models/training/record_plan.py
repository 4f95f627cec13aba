"""One budget over a method's questions to records: training steps, hops, and counts for reporting."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphveil.graph import Graph
from graphveil.models.membership import GROUPS, OTHER, PARTITION, VAL, members
from graphveil.models.training.private import Training
from graphveil.privacy import NodeOwner, NodeUnit
from graphveil.release import AccuracyCountQuery, GroupWeights, NeighborSumQuery, PushQuery, Query, Release

_REPORTED = {"val": VAL, "test": OTHER}  # parts of the split whose accuracy can be released, and their groups


@dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """What a method asks of records, and how the questions share one budget.

    In order: the first training if there are two, the hops, the last training, the counts for a selection,
    and the counts of the validation and of the test accuracy. At a scale m the trainings cost mu = m
    sqrt(share), each, and the hops together what is left of m^2. Records of the groups that train nothing
    have the trainings' part to spare, which pays for the counts about them.

    Args:
        unit: whose records.
        trainings: one or two, the last of them after the hops.
        shares: of mu^2, one a training.
        multiplier: the noise multiplier of all trainings instead; the scale is then the hops' mu.
        hops: K.
        dim: the width of their rows.
        degree_budget: D, for unit ``node-owner``.
        candidates: how many counts of correct validation nodes a selection asks for; 0 for none.
        metrics: whether accuracies are released.
    """

    unit: NodeUnit
    trainings: tuple[Training, ...]
    shares: tuple[float, ...]
    multiplier: float | None = None
    hops: int = 0
    dim: int = 1
    degree_budget: int | None = None
    candidates: int = 0
    metrics: bool = False

    def queries(self, scale: float) -> tuple[Query, ...]:
        """Return the questions, which cost more the larger the scale is."""
        steps = [
            training.query(self.multiplier or training.multiplier(scale * math.sqrt(share), self.unit))
            for training, share in zip(self.trainings, self.shares, strict=True)
        ]
        spare = math.hypot(
            *(
                training.mu(query.noise_multiplier, self.unit)
                for training, query in zip(self.trainings, steps, strict=True)
            )
        )
        left = scale if self.multiplier else scale * math.sqrt(1 - sum(self.shares))
        return (*steps[:-1], *self._hops(left), *steps[-1:], *self._tallies(spare))

    def equal_queries(self, multiplier: float) -> tuple[Query, ...]:
        """Return the questions when each hop has the trainings' noise multiplier, as in the papers."""
        return replace(self, multiplier=multiplier).queries(
            math.sqrt(self.hops) * self.unit.change / multiplier
        )

    def _hops(self, mu: float) -> tuple[Query, ...]:
        if not self.hops:
            return ()
        sigma = math.sqrt(self.hops) / mu  # for a change of one
        if isinstance(self.unit, NodeOwner):
            push = PushQuery(
                dim=self.dim, sigma=sigma * self.unit.change, degree_budget=self.degree_budget or 1
            )
            return (push,) * self.hops
        weights = GroupWeights.one()
        return (NeighborSumQuery(weights, (sigma * weights.sensitivity(self.unit),), self.dim),) * self.hops

    def _tallies(self, spare: float) -> tuple[Query, ...]:
        chosen = ((self.candidates, VAL),) if self.candidates else ()
        reported = tuple((1, group) for group in _REPORTED.values()) if self.metrics else ()
        return tuple(
            AccuracyCountQuery(
                candidates=count,
                sigma=math.sqrt(count * self._counted(group)) / spare,
                partition=PARTITION,
                pays=tuple(group == other for other in range(GROUPS)),
            )
            for count, group in chosen + reported
        )

    def _counted(self, group: int) -> int:
        """Return how many counts the records of a group that trains nothing pay for."""
        return int(self.metrics) + (group == VAL and self.candidates > 0)


def released_accuracies(release: Release, predicted: Tensor, graph: Graph) -> dict[str, float]:
    """Return the accuracy on validation and test nodes from noisy counts, the release's next two questions.

    Members without a label count as wrong, since the number of members is what is public.
    """
    found = {}
    for split in _REPORTED:
        nodes = members(graph, split)
        correct = predicted[nodes] == graph.y[nodes]
        count = float(release.tally(correct[:, None])[0])
        found[split] = min(1.0, max(0.0, count / max(1, len(nodes))))
    return found


def chosen_candidate(release: Release, correct: Tensor) -> int:
    """Return the candidate with the largest noisy count, from a table (M, candidates), the next question."""
    return int(torch.argmax(release.tally(correct)))
