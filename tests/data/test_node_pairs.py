"""Node pairs: every pair has one number, and public edges and unlisted nodes are not protected."""

from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import blocks
from graphveil.core.edges.node_pairs import Domain, NodePairIndex, PublicPart
from graphveil.errors import GraphError

# -- numbers of pairs ----


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("nodes", [0, 1, 2, 3, 9])
def test_every_pair_has_one_number_in_the_order_of_rows(nodes: int, directed: bool) -> None:
    index = NodePairIndex(nodes, directed)
    source, target = index.ends(np.arange(index.total))
    pairs = permutations(range(nodes), 2) if directed else combinations(range(nodes), 2)
    assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == sorted(pairs)
    assert index.number(source, target).tolist() == list(range(index.total))
    for row in range(nodes):
        assert (target[index.start(row) : index.start(row + 1)] == row).all()


@pytest.mark.parametrize("nodes", [100_000, 2**31 - 1])
def test_large_numbers_are_exact(nodes: int) -> None:
    index = NodePairIndex(nodes, directed=False)
    rows = np.array([1, 2, nodes // 3, nodes - 2, nodes - 1])
    edge = np.array([index.start(int(row)) for row in rows])  # where square roots are rounded
    for near in (edge - 1, edge, edge + 1):
        near = near[(near >= 0) & (near < index.total)]
        source, target = index.ends(near)
        assert (source < target).all() and (source >= 0).all()
        assert (index.number(source, target) == near).all()
    with pytest.raises(GraphError):
        NodePairIndex(2**31, directed=False)


def test_many_sorted_numbers_have_the_same_ends_as_unsorted_ones() -> None:
    index = NodePairIndex(40, directed=False)
    chosen = np.sort(np.random.default_rng(0).choice(index.total, 300, replace=False))
    shuffled = np.random.default_rng(1).permutation(300)
    for ordered, other in zip(index.ends(chosen), index.ends(chosen[shuffled]), strict=True):
        assert ordered[shuffled].tolist() == other.tolist()


# -- protected pairs ----
LISTED = torch.tensor([True, False, True, True, False, True])
VALID: list[Any] = [LISTED.tolist(), LISTED.numpy(), [0, 2, 3, 5], (5, 3, 2, 0), torch.tensor([0, 2, 3, 5])]
VALID += [np.array([0, 2, 3, 5], dtype=np.uint8)]
INVALID: list[Any] = [torch.ones(5, dtype=torch.bool), torch.ones(6), [1, 0, 1, 1, 0, 1], [0, 6], [-1, 2]]
INVALID += [[0.0, 2.0], "all", {0, 2}, [[0, 2], [3]], [[0, 2]], [None], 5, [10**30]]


def edges(*pairs: tuple[int, int], directed: bool = False) -> Adjacency:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Adjacency.from_edges(ends[:, 0], ends[:, 1], num_nodes=6, directed=directed)


def test_protected_pairs_are_those_of_listed_nodes_without_a_public_edge() -> None:
    domain = Domain.within(edges((0, 2), (1, 4), (3, 4)), LISTED)
    assert (domain.slots.total, domain.size) == (6, 5)
    source, target = domain.ends(np.arange(6))
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [
        (0, 2), (0, 3), (2, 3), (0, 5), (2, 5), (3, 5),
    ]  # fmt: skip
    assert domain.protects(np.arange(6)).tolist() == [False, True, True, True, True, True]


def test_without_a_list_every_pair_is_protected() -> None:
    for directed in (False, True):
        domain = Domain.whole(6, directed=directed)
        (block,) = blocks(edges((0, 2), (5, 1), directed=directed), 6)
        assert len(domain.pairs_in_block(block)[0]) == 2
        assert domain.size == (30 if directed else 15)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_blocks_partition_the_protected_pairs(rows: int) -> None:
    graph = edges((0, 2), (2, 3), (3, 5), (1, 2), (0, 5))
    domain, found, ranges = Domain.within(edges((0, 2)), LISTED), list[int](), []
    for block in blocks(graph, rows):
        own, start, stop = domain.pairs_in_block(block)
        assert ((own >= start) & (own < stop)).all()
        found += own.tolist()
        ranges.append((start, stop))
    assert found == [2, 3, 5]  # without the public edge and the edge to a node that is not listed
    assert ranges[0][0] == 0 and ranges[-1][1] == 6
    assert all(one[1] == other[0] for one, other in pairwise(ranges))


@pytest.mark.parametrize("listed", VALID)
def test_private_nodes_are_a_mask_or_node_numbers(listed: Any) -> None:
    assert Domain.within(edges(), listed).nodes.tolist() == [0, 2, 3, 5]
    assert PublicPart(edges(), listed).private_nodes.tolist() == LISTED.tolist()


def test_private_nodes_may_be_all_or_none() -> None:
    every: Any = range(6)
    none: Any = []
    assert PublicPart(edges(), every).num_private_nodes == 6
    assert PublicPart(edges(), none).num_private_nodes == 0


def test_rejects_invalid_private_nodes_and_public_edges() -> None:
    for listed in INVALID:
        with pytest.raises(
            GraphError, match=r"private_nodes must be a bool array .* or node indices from 0 to"
        ):
            Domain.within(edges(), listed)
    with pytest.raises(GraphError, match="directed=False"):
        Domain.within(edges(directed=True), LISTED)
    with pytest.raises(GraphError, match="must be an Adjacency, not a list"):
        PublicPart([(0, 1)], LISTED)  # type: ignore[arg-type]
