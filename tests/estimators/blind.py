"""Whether a method that learns from a released graph knows anything of the true one."""

from collections.abc import Callable

import pytest
import torch

from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.perturb import EdgeRand


def sees_the_released_graph_alone(graph: Graph, made: Callable[[], Estimator]) -> None:
    """With one and the same graph drawn, true edges make no difference to anything that comes out."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            EdgeRand, "sample_edges", lambda self, release, domain: torch.arange(0, domain.size, 37)
        )
        patch.setattr("graphveil.release.release.Release.close", lambda self: None)
        for kept in (1.0, 0.1):
            few = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(0)) < kept
            thinner = graph.replace(adjacency=graph.adjacency.without_crossing(few))
            found.append(made().fit(thinner).predict_proba())
    assert torch.equal(*found), "predictions know true edges"
