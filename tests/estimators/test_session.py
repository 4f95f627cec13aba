from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from graphveil._util.random import PublicStreams
from graphveil.data import Adjacency, synthetic
from graphveil.data.blocks import EdgeBlock
from graphveil.data.recipes import RECIPES
from graphveil.estimators.session import Session
from graphveil.privacy import UndirectedEdge
from graphveil.release import InMemoryBackend, NeighborSumData, ReleasePlan
from graphveil.release.plan import hops


@dataclass(frozen=True)
class Watched(InMemoryBackend):
    rows: list[int] = field(default_factory=list)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        for block in super().blocks(adjacency, first):
            self.rows.append(block.start)
            yield block


def test_rows_that_are_known_are_left_out_by_the_engine_of_the_session_and_by_no_other() -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    backend = Watched()
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 2), delta=1e-3)
    session = Session(streams=PublicStreams(0), plan=plan, backend=backend)
    answer = session.open(graph, first=9).answer(NeighborSumData(torch.zeros(graph.num_nodes, 2)))
    assert (len(answer), backend.rows) == (graph.num_nodes - 9, [9])
