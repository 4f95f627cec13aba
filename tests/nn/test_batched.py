"""Networks that are trained together: the same as one by one, and independent of each other."""

import math

import torch
from scipy import sparse

from graphveil.nn.layers import BatchedFeedForward, SparseRows, dropout_factors


def three(**given: float) -> BatchedFeedForward:
    return BatchedFeedForward([6, 4, 5, 2], 3, generator=torch.Generator().manual_seed(1), **given)


def test_networks_return_the_same_together_one_by_one_and_for_sparse_rows() -> None:
    networks, x = three(dropout=0.5, input_dropout=0.5), torch.randn(7, 6).relu()
    networks(x)  # moves the running means of the batch norm
    networks.eval()
    torch.testing.assert_close(torch.stack([one(x) for one in networks.networks()]), networks(x))
    rows = SparseRows.from_scipy(sparse.csr_array(x.numpy()))
    torch.testing.assert_close(networks(rows), networks(x))


def test_the_loss_of_one_network_has_no_gradient_in_the_others() -> None:
    networks = three()
    networks(torch.randn(7, 6))[1].square().sum().backward()
    first = networks._first.weight.grad
    assert first is not None
    moved = first.view(6, 3, 4).abs().sum(dim=(0, 2))
    assert moved[1] > 0 and moved[0] == moved[2] == 0


def test_dropout_keeps_its_share_and_the_mean() -> None:
    factors = dropout_factors((1000, 401), 0.3, torch.Generator().manual_seed(0))
    share = float((factors > 0).to(torch.float64).mean())
    assert abs(share - 0.7) < 5 * math.sqrt(0.21 / factors.numel())
    torch.testing.assert_close(factors.unique(), torch.tensor([0.0, 1 / 0.7]))
