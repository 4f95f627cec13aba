"""Classes that more people claim than neighbors bear out: what false clients add to everybody's counts."""

from typing import NamedTuple

import torch
from torch import Tensor

from graphveil.local.lpgnn.noisy_labels import NoisyLabels
from graphveil.local.lpgnn.posterior import class_shares
from graphveil.local.lpgnn.randomized_records import known

_MIN_Z_SCORE = 1.5  # standard errors; a claim that is taken for a false one costs nothing that was measured
_ROUNDS = 150
_INITIAL_SHARE = 0.1  # of all LDP reports, where expectation maximization begins
_TINY = 1e-9
_MAX_POISONED_SHARE = 0.5  # of LDP reports are false: beyond, nothing is known of the others


class PoisoningEstimate(NamedTuple):
    """The share of LDP reports that claim each class whatever their sender's is, (C), and standard errors."""

    shares: Tensor
    errors: Tensor

    @property
    def excess(self) -> Tensor:
        """The shares beyond their median, where that is more than chance would make, (C).

        What a guess is too sure of looks like claims of all classes alike, and the median takes that away.
        """
        beyond = self.shares - self.shares.median()
        kept: Tensor = torch.where(beyond > _MIN_Z_SCORE * self.errors, beyond, 0.0)
        return kept * min(1.0, _MAX_POISONED_SHARE / max(float(kept.sum()), _TINY))


def poisoning_estimate(noisy: NoisyLabels, predicted: Tensor) -> PoisoningEstimate:
    """Return how many LDP reports claim each class, whatever the class of their sender is.

    A share a_z of LDP reports says z, and the rest obeys the exact channel:

        P(said_v) = (1 - sum_z a_z) sum_c b_v(c) P(said_v | c) + sum_z a_z P(said_v | z is claimed),

    b_v(c) ~ g_c P_v(c), where P_v is what others' labels and public edges foretell of v. The weights g_c
    leave open how common a class is, so that counts alone show no claim: what shows it is that a class is
    said as often where neighbors are surely of another one. g and a are the likeliest ones (expectation
    maximization, iterative scaling). Errors are those of the observed information.

    Args:
        noisy: the told labels.
        predicted: P (N, C), of nodes that told a label by labels of others.
    """
    has_label = known(noisy.labels)
    likely, before = noisy.likelihood[has_label].double(), predicted[has_label].double().clamp(min=_TINY)
    report_ratio = noisy.reported[has_label].double() / _base_rate(noisy)
    scale = torch.ones(noisy.classes, dtype=torch.float64)
    shares = torch.full_like(scale, _INITIAL_SHARE / noisy.classes)
    for _ in range(_ROUNDS):
        guess = before * scale
        guess = guess / guess.sum(dim=1, keepdim=True)
        each = (1 - shares.sum()) * guess * likely
        genuine = each.sum(dim=1)
        total = genuine + report_ratio @ shares
        responsibilities = each / total[:, None]
        scale = scale * (responsibilities.sum(dim=0) + _TINY) / ((genuine / total) @ guess + _TINY)
        shares = shares * (report_ratio / total[:, None]).mean(dim=0)
    slope = (report_ratio - (guess * likely).sum(dim=1, keepdim=True)) / total[:, None]
    information = slope.t() @ slope + _TINY * torch.eye(noisy.classes, dtype=torch.float64)
    return PoisoningEstimate(shares.float(), torch.linalg.inv(information).diagonal().sqrt().float())


def shares_without_poisoning(poisoned_shares: Tensor, noisy: NoisyLabels, transition: Tensor) -> Tensor:
    """Return the shares of the classes among those who claim nothing.

    Said are f T by them and a A by the others, A[z, c] the chance that c is said along with a claim of z.
    """
    has_label = known(noisy.labels)
    blind = _base_rate(noisy)
    inside, outside = noisy.keep / blind, (1 - noisy.keep) / (1 - blind)
    along = (transition / blind - outside) / (inside - outside)
    reported = noisy.reported[has_label].mean(dim=0) - poisoned_shares @ along
    return class_shares(reported / (1 - poisoned_shares.sum()), transition)


def _base_rate(noisy: NoisyLabels) -> float:
    """Return how often what is said blindly holds a given class."""
    size = noisy.labels.reshape(len(noisy.labels), -1).shape[1]
    return size / noisy.classes if noisy.blind is None else noisy.blind
