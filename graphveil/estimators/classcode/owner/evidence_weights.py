"""Recipe S: how much to trust rows beside features, two numbers learned from labeled nodes by noisy steps.

Features and rows are each read as if they told the truth, and neither quite does: friends may not be alike.
A row is written by others, so a labeled node's row does not carry its own label and may be judged by it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil.training.descent import DescentNoise, DescentSchedule, descend_weights

WEIGHTS = 2
_CLIP, _RATE, _MOST = 2.0, 1.0, 2.5
_MAX_NOISE_STEP = 0.25  # noise in a weight, as a standard deviation: fewer records take smaller steps instead


@dataclass(frozen=True)
class EvidenceWeights:
    """The weights of the features' log-posteriors and of the rows' log-likelihoods, (2)."""

    weights: Tensor

    @classmethod
    def even(cls) -> "EvidenceWeights":
        """Return weights of one: both are believed."""
        return cls(torch.ones(WEIGHTS, dtype=torch.float64))

    def log_posteriors(self, log_posteriors: Tensor, log_likelihoods: Tensor) -> Tensor:
        """Return the weighed sum as log-posteriors, (N, C)."""
        a, b = self.weights.tolist()
        weighed: Tensor = a * log_posteriors + b * log_likelihoods
        return weighed.log_softmax(dim=1)


def fit_evidence_weights(
    log_posteriors: Tensor,
    log_likelihoods: Tensor,
    labels: Tensor,
    labeled: Tensor,
    *,
    steps: int,
    noise_multiplier: float,
    noise: DescentNoise,
) -> EvidenceWeights:
    """Train on the labeled nodes, from weights of one; a member without a label (-1) is null.

    The result is cut to [0, 2.5]: rows may count for nothing, but not against what they say.
    """
    nodes = np.flatnonzero(labeled.numpy())
    experts = [part.numpy()[nodes] for part in (log_posteriors, log_likelihoods)]
    descent = evidence_weights_schedule(steps, noise_multiplier, len(nodes))
    weights = descend_weights(experts, labels.numpy()[nodes], np.ones(WEIGHTS), descent, noise, clip=_CLIP)
    return EvidenceWeights(torch.from_numpy(weights).clamp(0, _MOST))


def evidence_weights_schedule(steps: int, noise_multiplier: float, records: int) -> DescentSchedule:
    """Return the schedule: step size one, or less where the noise would move a weight by more than 0.25.

    >>> evidence_weights_schedule(20, 118.0, 14000).rate, round(evidence_weights_schedule(20, 118.0,
    ...     300).rate, 2)
    (1.0, 0.17)
    """
    unit = DescentSchedule(steps=steps, rate=1.0, records=records, momentum=0.0)
    wide = unit.averaged_noise * noise_multiplier / records
    return DescentSchedule(
        steps=steps, rate=min(_RATE, _MAX_NOISE_STEP / wide), records=records, momentum=0.0
    )
