"""Claims that neighbours do not bear out: exact sums, shares that come back, and who is suspected."""

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.mechanisms import LabelMechanism, LabelRR, LocalHashing, LocalNoise, SubsetSelection
from graphveil.models.lpgnn.claims import Claims, claims, shares_without
from graphveil.models.lpgnn.drop import NoisyLabels
from graphveil.models.lpgnn.randomised import UNKNOWN

CLASSES, NODES, CLAIMED = 7, 40_000, 2
SHARES = [0.3, 0.2, 0.05, 0.15, 0.1, 0.1, 0.1]
LAWS: dict[str, LabelMechanism] = {
    "rr": LabelRR(epsilon=2.0, classes=CLASSES),
    "subset": SubsetSelection(epsilon=1.0, classes=CLASSES),
    "hashing": LocalHashing(epsilon=1.0, classes=CLASSES),
}


def told(law: LabelMechanism, share: float) -> tuple[NoisyLabels, Tensor]:
    """What people say of whom a share claims one class, and their own classes."""
    rng = np.random.default_rng(0)
    own = rng.choice(CLASSES, size=NODES, p=SHARES)
    said = law.perturb(own, stream=LocalNoise(unsafe_noise_seed=1).stream("labels"), rows=np.arange(NODES))
    liars = np.flatnonzero(rng.random(NODES) < share)
    if isinstance(law, LocalHashing):
        hashes = law.hashes_of_rows(liars)
        said[liars] = law.said_by(hashes, hashes[:, CLAIMED])
    elif isinstance(law, SubsetSelection):
        others = rng.permuted(np.tile(np.delete(np.arange(CLASSES), CLAIMED), (len(liars), 1)), axis=1)
        said[liars] = np.column_stack([np.full(len(liars), CLAIMED), others[:, : said.shape[1] - 1]])
    else:
        said[liars] = CLAIMED
    everybody = torch.arange(NODES)
    noisy = NoisyLabels(
        labels=torch.from_numpy(said),
        classes=CLASSES,
        train=everybody[::2],
        val=everybody[1::2],
        keep=law.keep,
        blind=law.blind,
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


def transition(law: LabelMechanism) -> Tensor:
    return torch.from_numpy(law.transition).float()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_a_share_that_claims_one_class_is_found_and_taken_out(name: str, share: float) -> None:
    law = LAWS[name]
    noisy, own = told(law, share)
    found = claims(noisy, foretold(own))
    assert float(found.shares[CLAIMED]) == pytest.approx(
        share, abs=max(4 * float(found.errors[CLAIMED]), 0.01)
    )
    others = found.false[torch.arange(CLASSES) != CLAIMED]
    assert float(others.max()) < 0.02
    plain = shares_without(torch.zeros(CLASSES), noisy, transition(law))
    mended = shares_without(found.false, noisy, transition(law))
    assert float(mended[CLAIMED]) == pytest.approx(0.05, abs=0.03)
    assert float(plain[CLAIMED]) - 0.05 > 0.9 * share - 0.01


@pytest.mark.parametrize("name", LAWS)
def test_without_claims_shares_are_those_of_what_was_told(name: str) -> None:
    law = LAWS[name]
    noisy, _ = told(law, 0.0)
    found = shares_without(torch.zeros(CLASSES), noisy, transition(law))
    assert torch.allclose(found, torch.tensor(SHARES), atol=0.02)


def test_guesses_that_are_too_sure_accuse_nobody() -> None:
    noisy, own = told(LAWS["hashing"], 0.0)
    guess = foretold(own)
    wrong = torch.randperm(NODES, generator=torch.Generator().manual_seed(0)) < NODES // 5
    guess[wrong] = guess[wrong].roll(1, 0)  # a fifth is foretold what somebody else is
    found = claims(noisy, guess)
    assert float(found.shares.median()) > 0.01  # as if everybody's class were claimed
    assert float(found.false.sum()) < 0.03


def test_no_more_than_half_of_all_messages_are_taken_for_false() -> None:
    found = Claims(torch.tensor([0.0, 0.0, 0.9]), torch.full((3,), 0.01))
    assert found.false.tolist() == pytest.approx([0.0, 0.0, 0.5])
    assert Claims(torch.tensor([0.0, 0.0, 0.014]), torch.full((3,), 0.01)).false.tolist() == [0.0] * 3


def test_who_told_nothing_is_not_heard() -> None:
    noisy, own = told(LAWS["hashing"], 0.05)
    silent = torch.arange(NODES) % 2 == 0
    labels, guess = noisy.labels.clone(), foretold(own)
    labels[silent] = UNKNOWN
    guess[silent] = torch.rand(int(silent.sum()), CLASSES, generator=torch.Generator().manual_seed(0))
    one = claims(NoisyLabels(**{**vars_of(noisy), "labels": labels}), guess)
    guess[silent] = 1 / CLASSES
    other = claims(NoisyLabels(**{**vars_of(noisy), "labels": labels}), guess)
    assert torch.equal(one.shares, other.shares)


def vars_of(noisy: NoisyLabels) -> dict[str, object]:
    return {name: getattr(noisy, name) for name in ("classes", "train", "val", "keep", "blind")}
