"""SAGE's round of messages."""

import pytest
import torch

from graphveil.data import Adjacency
from graphveil.nn.layers import Hidden
from graphveil.nn.sage import SageLayer


def test_a_round_of_messages_by_hand():
    """A path 0 - 1 - 2 with features 1, 2, 4: sums 2, 5, 2."""
    generator = torch.Generator().manual_seed(0)
    hidden = Hidden(1, generator=generator, activation="relu", batch_norm=False, dropout=0.0)
    layer = SageLayer(1, hidden, generator=generator)
    for linear, weight, bias in ((layer._own, 10.0, 0.5), (layer._incoming, -3.0, 0.0)):
        torch.nn.init.constant_(linear.weight, weight)
        torch.nn.init.constant_(linear.bias, bias)
    path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    out = layer(torch.tensor([[1.0], [2.0], [4.0]]), path)
    assert out.flatten().tolist() == [4.5, 5.5, 34.5]


@pytest.mark.parametrize("directed", [False, True])
def test_gradients_flow_along_the_edges(directed):
    """The messages' gradient, against a dense adjacency matrix."""
    generator = torch.Generator().manual_seed(0)
    hidden = Hidden(2, generator=generator, activation="tanh", batch_norm=False, dropout=0.0)
    layer = SageLayer(2, hidden, generator=generator)
    edges = Adjacency.from_edges([0, 1, 1], [1, 2, 3], num_nodes=4, directed=directed)
    incoming = torch.zeros(4, 4)
    source, target = edges.edge_index()
    incoming[target, source] = 1
    x = torch.randn(4, 2, generator=generator, requires_grad=True)
    layer(x, edges).square().sum().backward()
    found, x.grad = x.grad, None
    torch.tanh(layer._own(x) + layer._incoming(incoming @ x)).square().sum().backward()
    torch.testing.assert_close(found, x.grad)
