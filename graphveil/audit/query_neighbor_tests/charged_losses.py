"""What the events of a plan charge for one pair of neighbors: by the public groups of what differs."""

import math
from dataclasses import dataclass

from graphveil.audit.laws import LossLowerBound
from graphveil.audit.report import PrivacyClaim
from graphveil.privacy import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
)
from graphveil.privacy.gaussian import epsilon_of

GRID = 1e-6  # relative: answers are float32
OF_MU = 1e-6  # at which delta a Gaussian part is said


@dataclass(frozen=True)
class ChargedLoss:
    """A Gaussian part, and a pure one beside it.

    >>> ChargedLoss(0.3) + ChargedLoss(0.4, 1.0)
    ChargedLoss(mu=0.5, pure=1.0)
    """

    mu: float = 0.0
    pure: float = 0.0

    def __add__(self, other: "ChargedLoss") -> "ChargedLoss":
        """Return the price of both."""
        return ChargedLoss(math.hypot(self.mu, other.mu), self.pure + other.pure)

    @property
    def at(self) -> tuple[float, float]:
        """An (epsilon, delta) that is compared."""
        return (epsilon_of(self.mu, OF_MU) if self.mu else 0.0) + self.pure, OF_MU

    @property
    def claim(self) -> PrivacyClaim:
        """What is claimed of all pairs where this is the worst price."""
        if not self.pure:
            return PrivacyClaim(mu=self.mu)
        return PrivacyClaim(epsilon=self.at[0], delta=OF_MU if self.mu else 0.0)

    def share(self, loss: LossLowerBound) -> float:
        """Return how much of the price a loss takes: of its larger part."""
        if loss.certain or loss.alone:
            return math.inf
        parts = ((loss.mu, self.mu), (loss.pure, self.pure))
        return max(
            math.inf if not privacy_cost else lost / privacy_cost
            for lost, privacy_cost in parts
            if lost or privacy_cost
        )

    def is_satisfied_by(self, loss: LossLowerBound) -> bool:
        """Whether the loss is paid for, but for the answers' rounding."""
        return loss.none or self.share(loss) <= 1 + GRID


def charged_loss(event: Event, groups: tuple[int, ...]) -> ChargedLoss:
    """Return what an event charges what differs, whose nodes are in these groups: a pair, or a record.

    Sampled steps are priced as if everything were in every batch.

    >>> charged_loss(PairwiseGaussian("split", ((0.0, 1.0), (1.0, 4.0))), (0, 1))
    ChargedLoss(mu=1.0, pure=0.0)
    """
    match event:
        case Gaussian():
            return ChargedLoss(event.mu)
        case PairwiseGaussian():
            row = event.mu_squared[groups[0] % len(event.mu_squared)]  # where groups are told apart
            return ChargedLoss(math.sqrt(row[groups[1] % len(row)] if len(groups) > 1 else max(row)))
        case ByGroup():
            return charged_loss(event.events[groups[0]], groups)
        case PureDP():
            return ChargedLoss(pure=event.epsilon)
        case ApproximateDP(delta=0.0):
            return ChargedLoss(pure=event.epsilon)
        case PoissonGaussian() | PoissonRoots():
            return ChargedLoss(math.sqrt(event.steps) * event.change / event.noise_multiplier)
        case Composed():
            return sum((charged_loss(part, groups) for part in event.events), ChargedLoss())
    raise NotImplementedError(f"no single pair has a price under {type(event).__name__}")
