"""Whether neighbors are of one class more often than chance would have it, from noisy counts."""

from dataclasses import dataclass

from torch import Tensor

_WEAK_HOMOPHILY = (
    0.05  # counts give nothing where there is 0.02 or less, and three points where there is 0.10
)


@dataclass(frozen=True)
class Homophily:
    """(h - e) / (1 - e): h is the share of neighbors of one's own class, e what it would be by chance.

    1 where all neighbors are alike, 0 where classes say nothing about edges (adjusted homophily: Platonov,
    Kuznedelev, Babenko, Prokhorenkova: Characterizing graph datasets for node classification, 2023). It
    follows from counts that were released, and so costs nothing more.

    Args:
        adjusted: the estimate.
        error: its standard error, from the noise of the counts alone.
    """

    adjusted: float
    error: float

    @classmethod
    def from_counts(cls, endpoint_counts: Tensor, variance: Tensor) -> "Homophily | None":
        """Estimate it; None where noise may have made all that was counted.

        Args:
            endpoint_counts: noisy counts of neighbors by the class that hears and the one that is heard, (C,
                C).
            variance: of each cell's noise, (C, C).

        >>> import torch
        >>> found = Homophily.from_counts(torch.tensor([[80.0, 20.0], [20.0, 80.0]]), torch.ones(2, 2))
        >>> round(found.adjusted, 6), round(found.error, 3)
        (0.6, 0.016)
        """
        total = float(endpoint_counts.sum())
        if total <= 3 * float(variance.sum()) ** 0.5:
            return None
        same, shares = (
            float(endpoint_counts.diagonal().sum()) / total,
            (endpoint_counts.sum(dim=0) + endpoint_counts.sum(dim=1)) / (2 * total),
        )
        chance = float(shares.square().sum())
        if chance >= 1:
            return None
        inside = float(variance.diagonal().sum())
        across = 2 * (float(variance.sum()) - inside)  # as if cells came in equal pairs, which some do
        error = (inside * (1 - same) ** 2 + across * same**2) ** 0.5 / total
        return cls((same - chance) / (1 - chance), error / (1 - chance))

    @property
    def is_weak(self) -> bool:
        """Whether neighbors surely say little about a class."""
        return abs(self.adjusted) + 2 * self.error < _WEAK_HOMOPHILY
