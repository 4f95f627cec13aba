"""Messages: labeled codes of norm one, soft codes of norm B, and nothing of a null record."""

import pytest
import torch

from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.node_method import NodeMessages

LABELED = torch.tensor([True, True, False, False])
LOG = torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [30.0, 0.0, 0.0], [0.0, 0.4, 0.0]]).log_softmax(dim=1)


def messages(labels: list[int], bound: float = 1.4) -> NodeMessages:
    return NodeMessages(torch.tensor(labels), LABELED, 3, bound)


def test_labeled_nodes_send_their_label_whatever_their_features_say() -> None:
    sent = messages([0, 1, 2, 2])
    for vectors in (sent.first(LOG), sent.later(LOG)):
        torch.testing.assert_close(vectors[:2], simplex_codes(3)[:2], rtol=2e-6, atol=2e-6)


def test_norms_stay_below_their_bounds() -> None:
    sent = messages([0, 1, 2, 2])
    first, later = (vectors.norm(dim=1) for vectors in (sent.first(LOG), sent.later(LOG)))
    assert (first[:2] < 1).all() and (first[2:] < 1.4).all()
    assert (later[:2] < 1).all() and (later[2:] < 1.4).all()
    assert first[3] < 0.3  # an unsure node speaks softly at first,
    torch.testing.assert_close(later[2:], torch.full((2,), 1.4).double(), rtol=2e-6, atol=0)  # not later


def test_labels_outside_the_group_are_not_read() -> None:
    torch.testing.assert_close(messages([0, 1, 2, 2]).later(LOG), messages([0, 1, -1, 0]).later(LOG))


def test_a_member_without_a_label_sends_nothing() -> None:
    sent = messages([0, -1, 2, 2])
    assert (sent.first(LOG)[1] == 0).all() and (sent.later(LOG)[1] == 0).all()


@pytest.mark.parametrize("log", [LOG, torch.zeros(4, 3)])
def test_with_bound_zero_unlabeled_nodes_are_invisible(log: torch.Tensor) -> None:
    sent = messages([0, 1, 2, 2], bound=0.0)
    assert (sent.first(log)[2:] == 0).all() and (sent.later(log)[2:] == 0).all()
