"""Which slots are protected: between listed nodes, without public edges, whatever block asks."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.data import Adjacency
from graphveil.data.blocks import blocks
from graphveil.data.node_pairs import Domain, PublicPart
from graphveil.errors import GraphError

LISTED = torch.tensor([True, False, True, True, False, True])
LISTS = [LISTED.tolist(), LISTED.numpy(), [0, 2, 3, 5], (5, 3, 2, 0), torch.tensor([0, 2, 3, 5])]
LISTS += [np.array([0, 2, 3, 5], dtype=np.uint8)]
NO_LISTS = [torch.ones(5, dtype=torch.bool), torch.ones(6), [1, 0, 1, 1, 0, 1], [0, 6], [-1, 2], [0.0, 2.0]]
NO_LISTS += ["all", {0, 2}, [[0, 2], [3]], [[0, 2]], [None], 5, [10**30]]


def edges(*pairs: tuple[int, int], directed: bool = False) -> Adjacency:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Adjacency.from_edges(ends[:, 0], ends[:, 1], num_nodes=6, directed=directed)


def test_slots_are_pairs_of_listed_nodes() -> None:
    domain = Domain.within(edges((0, 2), (1, 4), (3, 4)), LISTED)
    assert (domain.slots.total, domain.size) == (6, 5)
    source, target = domain.ends(np.arange(6))
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [
        (0, 2), (0, 3), (2, 3), (0, 5), (2, 5), (3, 5),
    ]  # fmt: skip
    assert domain.protects(np.arange(6)).tolist() == [False, True, True, True, True, True]


@pytest.mark.parametrize("listed", LISTS)
def test_a_list_is_a_mask_or_numbers_of_nodes(listed: Any) -> None:
    assert Domain.within(edges(), listed).nodes.tolist() == [0, 2, 3, 5]
    assert PublicPart(edges(), listed).private_nodes.tolist() == LISTED.tolist()
    assert PublicPart(edges(), range(6)).num_private_nodes == 6  # type: ignore[arg-type]  # it takes more
    assert PublicPart(edges(), []).num_private_nodes == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_blocks_hold_their_own_slots_once(rows: int) -> None:
    graph = edges((0, 2), (2, 3), (3, 5), (1, 2), (0, 5))
    domain, found, ranges = Domain.within(edges((0, 2)), LISTED), [], []
    for block in blocks(graph, rows):
        own, start, stop = domain.pairs_in_block(block)
        assert ((own >= start) & (own < stop)).all()
        found += own.tolist()
        ranges.append((start, stop))
    assert found == [2, 3, 5]  # without the public edge, and the one to a node that is not listed
    assert ranges[0][0] == 0 and ranges[-1][1] == 6
    assert all(one[1] == other[0] for one, other in pairwise(ranges))


def test_without_a_list_every_pair_is_a_slot() -> None:
    for directed in (False, True):
        domain = Domain.whole(6, directed=directed)
        (block,) = blocks(edges((0, 2), (5, 1), directed=directed), 6)
        assert len(domain.pairs_in_block(block)[0]) == 2
        assert domain.size == (30 if directed else 15)


def test_a_list_that_does_not_fit_is_refused() -> None:
    for listed in NO_LISTS:
        with pytest.raises(GraphError, match=r"private_nodes must be bool .* or numbers of nodes from 0 to"):
            Domain.within(edges(), listed)
    with pytest.raises(GraphError, match="directed=False"):
        Domain.within(edges(directed=True), LISTED)
    with pytest.raises(GraphError, match="must be an Adjacency, not a list"):
        PublicPart([(0, 1)], LISTED)  # type: ignore[arg-type]
