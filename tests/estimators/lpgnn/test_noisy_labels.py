"""Drop: targets, forward correction, selection on noisy labels."""

import math

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.local.posterior_mixture import EpochScore, NoisyLabels
from graphveil.mechanisms import LabelRR
from graphveil.nn.message_passing import k_prop

# Two triangles with a bridge 2-3; node 6 has no edge.
EDGES = Adjacency.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3], num_nodes=7, directed=False)
LABELS = torch.tensor([0, 0, 1, 1, 1, -1, 1])
TRAIN, VAL = torch.tensor([0, 1, 2, 3, 6]), torch.tensor([4])
LAW = LabelRR(epsilon=1.0, classes=2)


def noisy(steps: int = 0, *, correct: bool = True) -> NoisyLabels:
    return NoisyLabels(
        labels=LABELS,
        law=LAW,
        train=TRAIN,
        val=VAL,
        corrected=correct,
        smoothing=k_prop(EDGES, steps) if steps else None,
    )


def test_unknown_labels_are_zero_rows() -> None:
    assert noisy().reported[5].tolist() == [0.0, 0.0]
    assert noisy().reported[2].tolist() == [0.0, 1.0]


def test_targets_are_the_largest_propagated_labels() -> None:
    assert noisy().targets().tolist() == [0, 0, 1, 1, 1]
    assert noisy(steps=1).targets().tolist() == [0, 0, 0, 1, 1]  # node 2 lies among zeros; node 6 is alone


@pytest.mark.parametrize("correct", [True, False])
def test_the_loss_without_smoothing_is_that_of_the_report(correct) -> None:
    logits = torch.linspace(-1, 1, 14).reshape(7, 2).flip(0)
    proba = logits.softmax(dim=1).numpy()
    reported = proba @ LAW.transition if correct else proba
    expected = -np.log(reported[TRAIN, LABELS[TRAIN]]).mean()
    case = noisy(correct=correct)
    assert float(case.loss(logits, case.targets())) == pytest.approx(expected, rel=1e-5)


def test_the_loss_with_steps_is_that_of_the_propagated_softmax() -> None:
    logits = torch.linspace(-2, 2, 14).reshape(7, 2)
    case = noisy(steps=2)
    smooth = k_prop(EDGES, 2).apply(logits.softmax(dim=1) @ case.transition)
    expected = -smooth.log_softmax(dim=1)[TRAIN].gather(1, case.targets()[:, None]).mean()
    assert float(case.loss(logits, case.targets())) == pytest.approx(float(expected), rel=1e-5)


def test_forward_correction_prefers_the_true_law() -> None:
    """In expectation over the noise, the corrected loss is least where P(y|x) is the truth."""
    law = LabelRR(epsilon=0.5, classes=3)
    transition = torch.from_numpy(law.transition).float()
    sure = torch.eye(3)[:1]  # P(y|x) puts everything on class 0
    unsure = torch.full((1, 3), 1 / 3)

    def expected(proba: torch.Tensor) -> float:
        reported = (proba @ transition)[0].log()
        return -float((transition[0] * reported).sum())

    assert expected(sure) < expected(unsure)


@pytest.mark.parametrize(
    ("val_loss", "val", "train", "kept"),
    [
        (1.0, 0.5, 0.5, True),
        (1.3, 0.5, 0.5, False),  # the loss rose
        (1.0, 0.4, 0.5, False),  # no better on validation labels
        (1.0, 0.61, 0.5, False),  # above what is possible without the noise
        (1.0, 0.5, 0.64, False),
        (1.0, 0.5, 0.62, True),  # five in a hundred more are allowed on training labels
    ],
)
def test_an_epoch_is_selected_if_all_scores_improve_within_bounds(val_loss, val, train, kept) -> None:
    assert EpochScore(val_loss, val, train).improves_on(EpochScore(1.2, 0.4, 0.4), keep=0.6) is kept


def test_the_first_epoch_is_selected() -> None:
    assert EpochScore(math.inf, 1.0, 1.0).improves_on(None, keep=0.1)
