"""Check that a method that trains on a released graph does not read the true edges."""

from collections.abc import Callable

import pytest
import torch

from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.perturb import EdgeRand


def check_depends_on_released_graph_only(graph: Graph, made: Callable[[], Estimator]) -> None:
    """Check that predictions are equal for two graphs whose releases are equal."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            EdgeRand, "sample_edges", lambda self, release, domain: torch.arange(0, domain.size, 37)
        )
        patch.setattr("graphveil.core.release.Release.close", lambda self: None)
        for kept in (1.0, 0.1):
            few = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(0)) < kept
            thinner = graph.replace(adjacency=graph.adjacency.without_crossing(few))
            found.append(made().fit(thinner).predict_proba())
    assert torch.equal(*found), "predictions depend on true edges"
