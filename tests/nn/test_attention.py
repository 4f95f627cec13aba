"""Attention over in-edges, against the same thing with an entry for each pair of nodes."""

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.data import Adjacency
from graphveil.nn.attention import GraphAttention, InEdgeIndex
from graphveil.nn.gat import GatArchitecture
from graphveil.nn.layers import batch_of

NODES, WIDTH, HEADS = 7, 3, 2
SOURCE, TARGET = [0, 1, 2, 0, 4, 4], [1, 2, 0, 3, 3, 0]  # nodes 5 and 6 have no edge


def dense(round: GraphAttention, rows: Tensor, adjacency: Adjacency) -> Tensor:
    """Return the round with a matrix of weights, zero where there is no edge."""
    heard = torch.eye(NODES, dtype=torch.bool)
    source, target = adjacency.edge_index()
    heard[target, source] = True
    out = []
    for head, h in enumerate(rows.split(WIDTH, dim=1)):
        sends, gets = h @ round._sends[head], h @ round._gets[head]
        scores = torch.nn.functional.leaky_relu(gets[:, None] + sends[None, :], 0.2)
        out.append(scores.masked_fill(~heard, -torch.inf).softmax(dim=1) @ h)
    return torch.cat(out, dim=1) + round._bias


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("scale", [1.0, 300.0])  # scores whose exponentials alone would overflow
def test_a_round_is_the_dense_one_with_its_gradients(directed: bool, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    adjacency = Adjacency.from_edges(SOURCE, TARGET, num_nodes=NODES, directed=directed)
    round = GraphAttention(4, WIDTH, HEADS, generator)
    rows = (scale * torch.randn(NODES, HEADS * WIDTH, generator=generator)).requires_grad_()
    probe = torch.randn(NODES, HEADS * WIDTH, generator=generator)
    learned = [rows, round._sends, round._gets]
    answers = [dense(round, rows, adjacency), round(rows, InEdgeIndex.from_adjacency(adjacency))]
    grads = [torch.autograd.grad((answer * probe).sum(), learned) for answer in answers]
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_graph_without_edges_leaves_rows_as_they_are() -> None:
    round = GraphAttention(4, WIDTH, HEADS, torch.Generator().manual_seed(0))
    nobody = Adjacency.from_edges([], [], num_nodes=NODES, directed=False)
    rows = torch.randn(NODES, HEADS * WIDTH, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(round(rows, InEdgeIndex.from_adjacency(nobody)), rows)


def test_sparse_features_are_read_as_dense_ones() -> None:
    from scipy import sparse

    style = {"activation": "relu", "batch_norm": False, "dropout": 0.0}
    network = GatArchitecture(hidden=WIDTH, heads=HEADS, depth=3, style=style).build(
        5, 4, generator=torch.Generator().manual_seed(0)
    )
    adjacency = Adjacency.from_edges(SOURCE, TARGET, num_nodes=NODES, directed=False)
    x = np.eye(NODES, 5, dtype=np.float32)
    answers = [network(batch_of(kind), adjacency) for kind in (torch.from_numpy(x), sparse.csr_array(x))]
    assert answers[0].shape == (NODES, 4)
    torch.testing.assert_close(*answers)
