import numpy as np
import pytest
import torch

from graphveil.errors import ConfigError
from graphveil.graph import Adjacency
from graphveil.graph import blocks as engine
from graphveil.graph.blocks import Edges
from graphveil.release import InMemoryEngine


def star(leaves: int) -> Adjacency:
    """Edges from every leaf into node 0, and from node 0 into the first two leaves."""
    source = [*range(1, leaves + 1), 0, 0]
    target = [0] * leaves + [1, 2]
    return Adjacency.from_edges(source, target, num_nodes=leaves + 1, directed=True)


def sums(edges: Edges) -> torch.Tensor:
    """Sum the source ids of each row."""
    row = np.repeat(np.arange(len(edges)), edges.degrees.numpy())
    return torch.from_numpy(np.bincount(row, edges.sources.numpy(), len(edges))[:, None])


@pytest.mark.parametrize("block_rows", [1, 2, 3, 100])
def test_every_size_of_block_stacks_the_same_rows(block_rows: int) -> None:
    answer = InMemoryEngine(block_rows=block_rows).map(star(5), sums)
    assert answer.flatten().tolist() == [15, 0, 0, 0, 0, 0]


def test_a_block_holds_no_more_edges_than_offsets_can_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_EDGES", 3)
    seen: list[tuple[int, int, int]] = []

    def note(edges: Edges) -> torch.Tensor:
        seen.append((edges.start, edges.stop, len(edges.sources)))
        return sums(edges)

    graph = Adjacency.from_edges([1, 2, 3, 4, 0, 0, 1], [0, 0, 0, 0, 1, 2, 3], num_nodes=5, directed=True)
    assert InMemoryEngine().map(graph, note).flatten().tolist() == [10, 0, 0, 1, 0]
    assert seen == [(0, 1, 4), (1, 5, 3)]  # one row is never cut


def test_pieces_cover_a_block_in_order() -> None:
    block = next(engine.blocks(star(5), 100))
    for rows, edges in ((1, 100), (2, 1), (100, 100), (4, 6)):
        pieces = list(block.pieces(rows, edges))
        assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
        assert torch.cat([piece.sources for piece in pieces]).tolist() == block.sources.tolist()
        assert all(piece.offsets[0] == 0 and piece.offsets.dtype == torch.int32 for piece in pieces)
        assert torch.cat([piece.degrees for piece in pieces]).tolist() == [5, 1, 1, 0, 0, 0]


def test_a_graph_without_nodes_has_no_blocks() -> None:
    nothing = Adjacency.from_edges([], [], num_nodes=0, directed=False)
    assert InMemoryEngine().map(nothing, sums).numel() == 0


def test_a_block_of_no_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="block_rows=0"):
        InMemoryEngine(block_rows=0)


def test_the_edges_of_a_block_do_not_show() -> None:
    assert repr(next(engine.blocks(star(5), 100))) == "Edges(rows 0 to 6)"
