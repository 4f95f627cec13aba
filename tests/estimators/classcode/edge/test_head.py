"""The gate can always fall back to the features, and the head starts at the likelihood's answer."""

import torch

from graphveil.estimators.classcode.edge_method import BatchedHeads, PosteriorHead, blend, fit_gate


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


def trained_together() -> BatchedHeads:
    heads = BatchedHeads(9, 3, small=True, generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        heads.alpha.copy_(torch.tensor([0.5, 1.0, 2.0])[:, None, None])
    return heads


def test_each_head_answers_alone_as_it_did_beside_the_others() -> None:
    heads = trained_together()
    start, inputs = torch.randn(5, 3), torch.randn(5, 9)
    alone = torch.stack([head(start, inputs) for head in heads.heads()])
    torch.testing.assert_close(alone, heads(start, inputs))


def test_a_restored_head_answers_as_before() -> None:
    head = trained_together().heads()[2]
    again = PosteriorHead.restore(dict(head.state_dict()))
    start, inputs = torch.randn(5, 3), torch.randn(5, 9)
    assert torch.equal(head(start, inputs), again(start, inputs))
