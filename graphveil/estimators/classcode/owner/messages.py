"""What a node sends: the code of its label or of its likely class, bounded by the budget of its group."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.estimators.classcode.codes import simplex_codes

_SAFETY = 1 + 1e-6  # a message stays below its bound in spite of rounding


@dataclass(frozen=True)
class NodeMessages:
    """Who sends what: labeled nodes their class's code, of norm one; the others a soft code, or nothing.

    A record without a label pays for nothing but its messages and may use the whole budget for them: its
    bound B is above one, so that its messages cost as much as a labeled record's everything.

    Args:
        labels: class numbers (N); those outside ``labeled`` are not read, and -1 is null: it sends nothing.
        labeled: the public members of the labeled group, bool (N).
        classes: C.
        bound: B, the unlabeled records' norm bound; 0 makes them send nothing.
    """

    labels: Tensor
    labeled: Tensor
    classes: int
    bound: float

    def first(self, log_posteriors: Tensor) -> Tensor:
        """Return messages by the features' posteriors: soft codes of norm at most B, shape (N, C-1).

        >>> sent = NodeMessages(torch.tensor([1, -1]), torch.tensor([True, False]), 2, 1.5)
        >>> [round(v, 4) for v in sent.first(torch.zeros(2, 2)).flatten().abs().tolist()]
        [1.0, 0.0]
        """
        return self._with_labels(self._soft(log_posteriors))

    def later(self, log_posteriors: Tensor) -> Tensor:
        """Return messages by better posteriors: an unsure node too speaks at full voice B."""
        soft = self._soft(log_posteriors)
        return self._with_labels(soft / soft.norm(dim=1, keepdim=True).clamp_min(1e-12))

    def _soft(self, log_posteriors: Tensor) -> Tensor:
        soft: Tensor = log_posteriors.to(torch.float64).softmax(dim=1) @ simplex_codes(self.classes)
        return soft

    def _with_labels(self, soft: Tensor) -> Tensor:
        sent = soft * (self.bound / _SAFETY)
        nodes = self.labeled.nonzero()[:, 0]
        known = self.labels[nodes]
        codes = simplex_codes(self.classes)[known.clamp_min(0)] / _SAFETY
        sent[nodes] = torch.where((known >= 0)[:, None], codes, 0.0)
        return sent
