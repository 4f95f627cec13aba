"""The largest noisy cells of a graph in two tiers: each has its own noise."""

import numpy as np
import pytest
import torch

from graphveil.data import Adjacency
from graphveil.data.node_pairs import Domain
from graphveil.ledger import MemoryLedger
from graphveil.mechanisms.node_pair_noise import TOTAL, NoisyCells
from graphveil.privacy import UndirectedEdge
from graphveil.release import Release, ReleaseKey, ReleasePlan, TopNodePairsData, TopNodePairsQuery

NODES, WANTED, EPSILON = 250, 6200, 3.0
DOMAIN = Domain.whole(NODES, directed=False)


@pytest.mark.parametrize("seed", range(3))
def test_a_second_tier_has_noise_of_its_own(seed: int) -> None:
    """Five edges where 6200 are wanted: some 6900 cells without an edge pass the bound of one of the tiers.

    If the second tier reused the words of the first, cells that did not pass there would be less likely to
    pass here, and some 5000 would be found.
    """
    cells = NoisyCells(EPSILON, DOMAIN.size, WANTED)
    assert cells.tiers == 2
    often = TOTAL // 16  # from here on every cell has a word of its own, which is the same in both tiers
    assert all(ladder.total > often for ladder in cells.zeros)
    adjacency = Adjacency.from_edges(range(5), range(5, 10), num_nodes=NODES, directed=False)
    plan = ReleasePlan(UndirectedEdge(), (TopNodePairsQuery(EPSILON),), delta=0.0)
    key = ReleaseKey.from_seed(seed, "tiers")
    release = Release.open(plan, adjacency, budget=MemoryLedger(), key=key)
    found = release.answer(TopNodePairsData(DOMAIN, WANTED))
    assert len(found) == WANTED and bool((torch.diff(found) > 0).all())
    assert int(found.min()) >= 0 and int(found.max()) < DOMAIN.size
    spread = np.histogram(found.numpy(), bins=10, range=(0, DOMAIN.size))[0]
    assert spread.min() > WANTED / 20
