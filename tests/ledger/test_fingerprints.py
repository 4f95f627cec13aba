"""The parts that fingerprints are computed from: independent of row order, and read in pieces."""

import numpy as np
import torch

from graphveil.data import Graph
from graphveil.data.fingerprint import fingerprint_parts


def joined(graph: Graph) -> dict[str, bytes]:
    return {part: b"".join(pieces) for part, pieces in fingerprint_parts(graph).items()}


def test_parts_do_not_depend_on_the_order_of_nodes_and_edges() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    y, ids = np.array([0, 1, 1, 0]), np.array(["ann", "bob", "cem", "dan"], dtype=object)
    graph = Graph.from_edges(x, y, [0, 1], [1, 2], directed=False, ids=ids)
    order = np.array([2, 0, 3, 1])
    place = np.argsort(order)
    turned = Graph.from_edges(
        x[order], y[order], place[[1, 0]], place[[2, 1]], directed=False, ids=ids[order]
    )
    assert joined(turned) == joined(graph)
    moved = Graph.from_edges(x + 1, y, [0, 1], [1, 3], directed=False, ids=ids)
    changed = {part for part, content in joined(moved).items() if content != joined(graph)[part]}
    assert changed == {"edges", "records", "features"}


def test_large_features_are_read_a_few_rows_at_a_time() -> None:
    x = np.random.default_rng(0).normal(size=(5, 1 << 21)).astype(np.float32)
    graph = Graph.from_edges(x, np.arange(5) % 2, [0, 1], [1, 2], directed=False)
    shape, *pieces, labels = fingerprint_parts(graph)["records"]
    assert (shape, len(labels)) == (b"float32(5, 2097152)", 5 * graph.y.element_size())
    assert max(map(len, pieces)) == 2 * x[0].nbytes  # four million values at once
    rows = sorted(
        piece[at : at + x[0].nbytes] for piece in pieces for at in range(0, len(piece), x[0].nbytes)
    )
    assert rows == sorted(row.tobytes() for row in x)


def test_records_are_a_part_only_where_features_or_labels_are_known() -> None:
    graph = Graph.from_edges(torch.eye(4), [0, 1, 0, 1], [0, 1, 2], [1, 2, 3], directed=False)
    topology = graph.replace(x=torch.ones(4, 1), y=torch.full((4,), -1))
    assert "records" not in fingerprint_parts(topology)
    for known in ({"y": graph.y}, {"x": graph.x}, {"x": torch.zeros(4, 1)}):
        assert "records" in fingerprint_parts(topology.replace(**known))
    assert joined(graph)["edges"] == joined(topology)["edges"]
