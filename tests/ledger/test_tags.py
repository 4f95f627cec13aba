"""What a graph is recognized by is read in parts, and says the same however many there are."""

import numpy as np
import pytest
import torch

from graphveil.data import Graph
from graphveil.ledger import tags


@pytest.mark.parametrize("at_once", [1, 3, 8, 24])
def test_features_are_read_a_few_rows_at_a_time(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    graph = Graph.from_edges(x, np.arange(8) % 2, [0, 1], [1, 2], directed=False)
    whole = list(tags.fingerprint_parts(graph)["records"])
    order = np.argsort(tags._names(graph), kind="stable")
    assert whole == [b"float32(8, 3)", x[order].tobytes(), graph.y.numpy()[order].tobytes()]
    monkeypatch.setattr(tags, "_BLOCK", at_once)
    parts = list(tags.fingerprint_parts(graph)["records"])
    assert b"".join(parts) == b"".join(whole)
    assert max(len(part) for part in parts[1:-1]) <= max(4 * at_once, 12)


def test_who_is_connected_is_all_that_is_known_where_nothing_else_was_read() -> None:
    graph = Graph.from_edges(torch.eye(4), [0, 1, 0, 1], [0, 1, 2], [1, 2, 3], directed=False)
    topology = graph.replace(x=torch.ones(4, 1), y=torch.full((4,), -1))
    assert "records" not in tags.fingerprint_parts(topology)
    for known in ({"y": graph.y}, {"x": graph.x}, {"x": torch.zeros(4, 1)}):
        assert "records" in tags.fingerprint_parts(topology.replace(**known))
    same = [b"".join(tags.fingerprint_parts(one)["edges"]) for one in (graph, topology)]
    assert same[0] == same[1]
