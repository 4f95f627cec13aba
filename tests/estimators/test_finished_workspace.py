"""A workspace whose fit is finished belongs to its graph: no other graph is answered from it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphveil import GAP, ClassCode
from graphveil.data import Adjacency, Graph
from graphveil.errors import GraphveilError
from graphveil.ledger import ledger_of

EDGE = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
FITS: dict[str, Callable[[], Any]] = {
    "gap": lambda: GAP(**EDGE, hops=2, epochs=3, encoder_epochs=3),
    "classcode": lambda: ClassCode(**EDGE, self_training=False),
}


def with_more(graph: Graph) -> Graph:
    """Return a graph with edges of its own: those of the graph, and one from the first node to the last."""
    source, target = graph.adjacency.edge_index()
    more = torch.tensor([0]), torch.tensor([graph.num_nodes - 1])
    ends = (torch.cat(pair) for pair in zip((source, target), more, strict=True))
    return replace(graph, adjacency=Adjacency.from_edges(*ends, num_nodes=graph.num_nodes, directed=False))


@pytest.mark.parametrize("method", FITS)
def test_a_finished_workspace_answers_its_own_graph_alone(
    make_graph: Callable[..., Any], tmp_path: Path, method: str
) -> None:
    graph = make_graph()
    first = FITS[method]().fit(graph, workspace=tmp_path)
    again = FITS[method]().fit(graph, workspace=tmp_path)
    assert torch.equal(again.predict_proba(), first.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1
    other = with_more(graph)
    with pytest.raises(GraphveilError, match="finished release of other data"):
        FITS[method]().fit(other, workspace=tmp_path)
    assert not ledger_of(other.edge_set).entries
