"""The gate can always fall back to the features, and the head starts at the likelihood's answer."""

import torch

from graphveil.models.classcode.edge.head import Head, blend, fit_gate


def test_the_gate_picks_the_expert_that_is_right() -> None:
    labels = torch.tensor([0, 1] * 50)
    right = torch.nn.functional.one_hot(labels, 2).double().mul(6).log_softmax(dim=1)
    wrong = right.flip(1)
    weights, log = fit_gate((wrong, right), labels, torch.arange(100))
    assert weights == (0.0, 1.0)
    torch.testing.assert_close(log, right)


def test_a_blend_of_log_posteriors_is_a_log_posterior() -> None:
    a = torch.randn(7, 3, dtype=torch.float64).log_softmax(dim=1)
    b = torch.randn(7, 3, dtype=torch.float64).log_softmax(dim=1)
    torch.testing.assert_close(blend((a, b), (0.5, 0.5)).exp().sum(dim=1), torch.ones(7, dtype=torch.float64))


def test_a_restored_head_answers_as_before() -> None:
    head = Head.build(9, 3, small=True, generator=torch.Generator().manual_seed(0)).eval()
    again = Head.restore(dict(head.state_dict()))
    start, inputs = torch.randn(5, 3), torch.randn(5, 9)
    assert torch.equal(head(start, inputs), again(start, inputs))
