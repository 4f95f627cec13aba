"""SAGE and its round of messages."""

import pytest
import torch

from graphveil.errors import ConfigError, NotYetError
from graphveil.graph import Adjacency, load_dataset
from graphveil.models.layers import Hidden
from graphveil.models.sage import SAGE, SageLayer


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


@pytest.mark.parametrize("mode", ["strict", "paper"])
@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_private_units_are_refused_by_name(unit, mode):
    with pytest.raises(NotYetError, match=f"got unit '{unit}'; use 'classcode' or 'gap'"):
        SAGE(unit=unit, epsilon=1.0, mode=mode)


def test_runs_on_the_cpu():
    with pytest.raises(ConfigError, match="pass device='cpu' or 'auto'"):
        SAGE(unit="none", device="cuda")


@pytest.mark.parametrize("options", [{}, {"layers": 1, "pre_layers": 1}, {"post_layers": 2, "dropout": 0.2}])
@pytest.mark.parametrize("directed", [False, True])
def test_learns_from_neighbours(make_graph, options, directed):
    graph = make_graph(directed=directed)
    assert SAGE(unit="none", seed=0, epochs=60, **options).fit(graph).score(graph) > 0.85


def test_layers_are_at_least_one():
    for name in ("pre_layers", "post_layers", "layers"):
        with pytest.raises(ConfigError, match=f"{name}=0 must be a whole number of at least 1"):
            SAGE(unit="none", **{name: 0})


@pytest.mark.slow
def test_reference_accuracy(data_root):
    """The reference code reaches 75.9 on Berkeley13."""
    scores = []
    for seed in range(3):
        graph = load_dataset("facebook100/Berkeley13", data_root, seed=seed)
        scores.append(SAGE(unit="none", seed=seed).fit(graph).score(graph))
    assert 75.9 - 3 <= 100 * sum(scores) / 3 <= 75.9 + 4.5
