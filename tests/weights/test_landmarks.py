import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import blocks
from graphveil.core.queries import weights as _pairs
from graphveil.core.queries.weights import Similarity
from graphveil.errors import ConfigError
from graphveil.papers.weights import HalfCos, Landmarks, SigmoidCos, _landmarks, _nearest
from graphveil.release.weights import DotWeight, parse_weight

NODES = 60
COMPLETE = Adjacency.from_edges(*np.nonzero(~np.eye(NODES, dtype=bool)), num_nodes=NODES, directed=True)


class Apart(DotWeight):
    """The first entry of the source times the second of the target."""

    def transform(self, dots: np.ndarray) -> np.ndarray:
        return dots

    def phi(self, rows: Tensor) -> Tensor:
        return rows[:, :1].abs()

    def psi(self, rows: Tensor) -> Tensor:
        return rows[:, 1:2].abs()


def weights_of(weight: Similarity, keys: Tensor) -> Tensor:
    (block,) = blocks(COMPLETE, NODES)
    return weight.prepare(keys).of(block)


@pytest.mark.parametrize("weight", [HalfCos(), SigmoidCos(), Apart()])
def test_as_many_landmarks_as_distinct_rows_lose_nothing(weight: DotWeight) -> None:
    distinct = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 3)))
    keys = distinct / distinct.norm(dim=1, keepdim=True)
    keys = keys.repeat(NODES // 5, 1)
    assert torch.equal(weights_of(Landmarks(weight, NODES), keys), weights_of(weight, keys))


def test_fewer_landmarks_come_close() -> None:
    rng = np.random.default_rng(1)
    keys = torch.from_numpy(np.eye(4)[np.arange(NODES) % 4] + 0.2 * rng.normal(size=(NODES, 4)))
    coarse, exact = weights_of(Landmarks(HalfCos(), 4), keys), weights_of(HalfCos(), keys)
    assert float((coarse - exact).abs().mean()) / _pairs.FULL < 0.1


def test_landmarks_are_means_of_the_rows_nearest_to_them() -> None:
    rows = torch.tensor([[0.0, 10.0], [100.0, 0.0], [2.0, 10.0], [104.0, 0.0], [4.0, 10.0]])
    assert _landmarks(rows, 2).tolist() == [[2.0, 10.0], [102.0, 0.0]]
    assert _nearest(rows, _landmarks(rows, 2)).tolist() == [0, 1, 0, 1, 0]
    assert _nearest(torch.zeros(1, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == [0]


def test_landmarks_keep_the_bound_and_inputs_of_their_weight() -> None:
    assert Landmarks(SigmoidCos(), 8).bound == SigmoidCos().bound
    assert parse_weight("posterior_dot@8").reads == "posteriors"
    described = Landmarks(SigmoidCos(), 8).describe()
    assert described == {"weight": "Coarse", "of": SigmoidCos().describe(), "landmarks": 8}


@pytest.mark.parametrize("text", ["jaccard@8", "class_agree(0.2)@8", "half_cos@0", "half_cos@129", "one@8"])
def test_rejects_weights_without_landmarks(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_weight(text)
