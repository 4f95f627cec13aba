"""Message-passing layers against the same computation with dense matrices."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.nn.layers import Hidden, batch_of
from graphveil.nn.message_passing import GatNetwork, GraphAttention, InEdgeIndex, SageLayer, convolve

NODES, WIDTH, HEADS = 7, 3, 2
DIRECTED = pytest.mark.parametrize("directed", [False, True])


def some_edges(directed: bool = False) -> Adjacency:
    """Return edges that leave nodes 5 and 6 without any."""
    source, target = [0, 1, 2, 0, 4, 4], [1, 2, 0, 3, 3, 0]
    return Adjacency.from_edges(source, target, num_nodes=NODES, directed=directed)


def dense(adjacency: Adjacency) -> Tensor:
    """Return A^T: entry (v, u) is one if v receives from u."""
    source, target = adjacency.edge_index()
    matrix = torch.zeros(NODES, NODES)
    matrix[target, source] = 1
    return matrix


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@DIRECTED
@pytest.mark.parametrize("scale", [1.0, 300.0])  # scores whose exponentials alone would overflow
def test_attention_equals_a_masked_softmax_with_its_gradients(directed: bool, scale: float) -> None:
    generator, adjacency = stream(), some_edges(directed)
    layer = GraphAttention(4, WIDTH, HEADS, generator)
    sends, gets = layer._sends, layer._gets
    rows = (scale * torch.randn(NODES, HEADS * WIDTH, generator=generator)).requires_grad_()
    probe = torch.randn(NODES, HEADS * WIDTH, generator=generator)
    reached = (dense(adjacency) + torch.eye(NODES)).bool()
    expected = []
    for head, h in enumerate(rows.split(WIDTH, dim=1)):
        scores = torch.nn.functional.leaky_relu((h @ gets[head])[:, None] + (h @ sends[head])[None, :], 0.2)
        expected.append(scores.masked_fill(~reached, -torch.inf).softmax(dim=1) @ h)
    answers = [torch.cat(expected, dim=1) + layer._bias, layer(rows, InEdgeIndex.from_adjacency(adjacency))]
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(answers[1][5:], rows[5:] + layer._bias)  # without edges, only the node itself
    grads = [torch.autograd.grad((answer * probe).sum(), [rows, sends, gets]) for answer in answers]
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)


def test_attention_reads_sparse_features_like_dense_ones() -> None:
    style = {"activation": "relu", "batch_norm": False, "dropout": 0.0}
    network = GatNetwork(5, 4, hidden=WIDTH, heads=HEADS, depth=3, style=style, generator=stream())
    x = np.eye(NODES, 5, dtype=np.float32)
    answers = [network(batch_of(kind), some_edges()) for kind in (torch.from_numpy(x), sparse.csr_array(x))]
    assert answers[0].shape == (NODES, 4)
    torch.testing.assert_close(*answers)


@DIRECTED
def test_convolution_equals_the_normalized_matrix(directed: bool) -> None:
    adjacency = some_edges(directed)
    loops = dense(adjacency) + torch.eye(NODES)
    scale = loops.sum(1).rsqrt()
    x = torch.randn(NODES, 3, generator=stream())
    torch.testing.assert_close(convolve(adjacency, x), scale[:, None] * (loops * scale) @ x)


@DIRECTED
def test_sage_sums_in_neighbors_with_their_gradients(directed: bool) -> None:
    generator, adjacency = stream(), some_edges(directed)
    hidden = Hidden(2, generator=generator, activation="tanh", batch_norm=False, dropout=0.0)
    layer = SageLayer(2, hidden, generator=generator)
    x = torch.randn(NODES, 2, generator=generator, requires_grad=True)
    answers = [layer(x, adjacency), torch.tanh(layer._own(x) + layer._incoming(dense(adjacency) @ x))]
    torch.testing.assert_close(*answers)
    grads = [torch.autograd.grad(answer.square().sum(), x)[0] for answer in answers]
    torch.testing.assert_close(*grads)
