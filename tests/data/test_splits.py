import numpy as np
import pytest
import torch

from graphveil.data import Graph, hash_split, random_split, split
from graphveil.errors import ConfigError, GraphError


def graph(nodes=1000, unlabeled=100, ids=None):
    y = np.arange(nodes) % 3
    y[:unlabeled] = -1
    return Graph.from_edges(torch.ones(nodes, 1), y, [0], [1], directed=False, ids=ids)


def parts(split):
    return split.train_mask, split.val_mask, split.test_mask


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(parts(first), parts(second), strict=True))


class TestRandom:
    def test_sizes_are_exact_and_only_labeled_nodes_take_part(self):
        split = random_split(graph(), train=0.75, val=0.10, seed=0)
        assert [int(part.sum()) for part in parts(split)] == [675, 90, 135]
        assert torch.equal(sum(parts(split)), split.labeled)

    def test_products_just_below_a_whole_number_round_to_it(self):
        split = random_split(graph(100, 0), train=0.29, val=0.28, seed=0)
        assert [int(part.sum()) for part in parts(split)] == [29, 28, 43]

    def test_the_seed_decides(self):
        first, again, other = (random_split(graph(), train=0.5, val=0.25, seed=seed) for seed in (1, 1, 2))
        assert same(first, again) and not same(first, other)

    def test_the_labels_do_not(self):
        shifted = graph().replace(y=torch.where(graph().labeled, (graph().y + 1) % 3, -1))
        splits = [random_split(one, train=0.5, val=0.25, seed=1) for one in (graph(), shifted)]
        assert same(*splits)

    @pytest.mark.parametrize("graph", [None, "graph", np.eye(3)])
    def test_only_graphs_are_split(self, graph):
        with pytest.raises(GraphError, match=f"not a {type(graph).__name__}"):
            split(graph)

    @pytest.mark.parametrize("shares", [(0.9, 0.2), (0.0, 0.5), (-0.1, 0.5), (0.5, -0.1)])
    def test_shares_must_make_sense(self, shares):
        with pytest.raises(ConfigError, match=r"train=|val="):
            random_split(graph(), train=shares[0], val=shares[1], seed=0)


class TestHash:
    def test_every_node_has_a_part_and_shares_hold_roughly(self):
        split = hash_split(graph(10_000), train=0.75, val=0.10, seed=0)
        sizes = [int(part.sum()) for part in parts(split)]
        assert sum(sizes) == 10_000
        assert abs(sizes[0] - 7500) < 200 and abs(sizes[1] - 1000) < 150

    def test_a_node_keeps_its_part_when_its_label_goes_or_others_leave(self):
        ids = np.array([f"user {number}" for number in range(1000)])
        whole = hash_split(graph(ids=ids), train=0.5, val=0.25, seed=3)
        nulled = hash_split(graph(unlabeled=101, ids=ids), train=0.5, val=0.25, seed=3)
        assert same(whole, nulled)
        keep = torch.arange(1000) % 2 == 0
        fewer = hash_split(graph(ids=ids).subgraph(keep), train=0.5, val=0.25, seed=3)
        assert torch.equal(fewer.train_mask, whole.train_mask[keep])

    def test_the_seed_decides(self):
        first, other = (hash_split(graph(), train=0.5, val=0.25, seed=seed) for seed in (1, 2))
        assert not same(first, other)
