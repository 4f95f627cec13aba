"""Claims that neighbors do not bear out: exact sums, shares that come back, and who is suspected."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.local.posterior_mixture import (
    NoisyLabels,
    PoisoningEstimate,
    poisoning_estimate,
    shares_without_poisoning,
)
from graphveil.local.reports import UNKNOWN
from graphveil.mechanisms import LabelMechanism, LabelRR, LocalHashing, LocalNoise, SubsetSelection

CLASSES, NODES, CLAIMED = 7, 40_000, 2
SHARES = [0.3, 0.2, 0.05, 0.15, 0.1, 0.1, 0.1]
LAWS: dict[str, LabelMechanism] = {
    "rr": LabelRR(epsilon=2.0, classes=CLASSES),
    "subset": SubsetSelection(epsilon=1.0, classes=CLASSES),
    "hashing": LocalHashing(epsilon=1.0, classes=CLASSES),
}


def reports_of(law: LabelMechanism, share: float) -> tuple[NoisyLabels, Tensor]:
    """Return labels of which a share is poisoned with one class, and the true labels."""
    rng = np.random.default_rng(0)
    own = rng.choice(CLASSES, size=NODES, p=SHARES)
    reported = law.perturb(
        own, stream=LocalNoise(unsafe_noise_seed=1).stream("labels"), rows=np.arange(NODES)
    )
    liars = np.flatnonzero(rng.random(NODES) < share)
    if isinstance(law, LocalHashing):
        hashes = law.hashes_of_rows(liars)
        reported[liars] = law.classes_of_groups(hashes, hashes[:, CLAIMED])
    elif isinstance(law, SubsetSelection):
        others = rng.permuted(np.tile(np.delete(np.arange(CLASSES), CLAIMED), (len(liars), 1)), axis=1)
        reported[liars] = np.column_stack([np.full(len(liars), CLAIMED), others[:, : reported.shape[1] - 1]])
    else:
        reported[liars] = CLAIMED
    everybody = torch.arange(NODES)
    noisy = NoisyLabels(
        labels=torch.from_numpy(reported),
        law=law,
        train=everybody[::2],
        val=everybody[1::2],
    )
    return noisy, torch.from_numpy(own)


def foretold(own: Tensor) -> Tensor:
    """Four nodes in five are foretold, nine of ten of them rightly, and of the fifth nothing is known."""
    rng = np.random.default_rng(5)
    moved = torch.from_numpy(np.where(rng.random(NODES) < 0.9, 0, rng.integers(1, CLASSES, size=NODES)))
    sure = torch.full((NODES, CLASSES), 0.1 / (CLASSES - 1))
    sure[torch.arange(NODES), (own + moved) % CLASSES] = 0.9
    sure[::5] = 1 / CLASSES
    return sure


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_estimates_and_removes_a_poisoned_share(name: str, share: float) -> None:
    law = LAWS[name]
    noisy, own = reports_of(law, share)
    found = poisoning_estimate(noisy, foretold(own))
    assert float(found.shares[CLAIMED]) == pytest.approx(
        share, abs=max(4 * float(found.errors[CLAIMED]), 0.01)
    )
    others = found.excess[torch.arange(CLASSES) != CLAIMED]
    assert float(others.max()) < 0.02
    plain = shares_without_poisoning(torch.zeros(CLASSES), noisy)
    mended = shares_without_poisoning(found.excess, noisy)
    assert float(mended[CLAIMED]) == pytest.approx(0.05, abs=0.03)
    assert float(plain[CLAIMED]) - 0.05 > 0.9 * share - 0.01


@pytest.mark.parametrize("name", LAWS)
def test_without_poisoning_shares_are_unbiased(name: str) -> None:
    law = LAWS[name]
    noisy, _ = reports_of(law, 0.0)
    found = shares_without_poisoning(torch.zeros(CLASSES), noisy)
    assert torch.allclose(found, torch.tensor(SHARES), atol=0.02)


def test_overconfident_predictions_are_no_evidence_of_poisoning() -> None:
    noisy, own = reports_of(LAWS["hashing"], 0.0)
    guess = foretold(own)
    wrong = torch.randperm(NODES, generator=torch.Generator().manual_seed(0)) < NODES // 5
    guess[wrong] = guess[wrong].roll(1, 0)  # a fifth is foretold what somebody else is
    found = poisoning_estimate(noisy, guess)
    assert float(found.shares.median()) > 0.01  # as if everybody's class were claimed
    assert float(found.excess.sum()) < 0.03


def test_the_poisoned_share_is_at_most_half() -> None:
    found = PoisoningEstimate(torch.tensor([0.0, 0.0, 0.9]), torch.full((3,), 0.01))
    assert found.excess.tolist() == pytest.approx([0.0, 0.0, 0.5])
    assert (
        PoisoningEstimate(torch.tensor([0.0, 0.0, 0.014]), torch.full((3,), 0.01)).excess.tolist()
        == [0.0] * 3
    )


def test_nodes_without_a_report_are_not_read() -> None:
    noisy, own = reports_of(LAWS["hashing"], 0.05)
    silent = torch.arange(NODES) % 2 == 0
    labels, guess = noisy.labels.clone(), foretold(own)
    labels[silent] = UNKNOWN
    guess[silent] = torch.rand(int(silent.sum()), CLASSES, generator=torch.Generator().manual_seed(0))
    one = poisoning_estimate(replace(noisy, labels=labels), guess)
    guess[silent] = 1 / CLASSES
    other = poisoning_estimate(replace(noisy, labels=labels), guess)
    assert torch.equal(one.shares, other.shares)
