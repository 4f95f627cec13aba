"""GCN, a reference that protects nothing."""

import pytest
import torch

from graphveil.errors import NotImplementedGuaranteeError
from graphveil.estimators.full_graph import GCN


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_private_units_are_refused_by_name(unit):
    with pytest.raises(
        NotImplementedGuaranteeError, match=f"gcn reads .*got unit '{unit}'; use 'classcode' or 'gap'"
    ):
        GCN(unit=unit, epsilon=1.0)


@pytest.mark.parametrize(
    "options", [{}, {"layers": 1}, {"layers": 3, "batch_norm": False, "activation": "relu"}]
)
@pytest.mark.parametrize("directed", [False, True])
def test_learns_from_neighbors(make_graph, options, directed):
    graph = make_graph(directed=directed)
    assert GCN(unit="none", seed=0, epochs=60, **options).fit(graph).score(graph) > 0.75


def test_comes_back_from_its_weights(graph, make_graph):
    model = GCN(unit="none", seed=0, epochs=2).fit(graph)
    fitted, other = model.fitted, make_graph(seed=1)
    again = fitted.method.restore(fitted.trained.state(), fitted.sizes, {})
    assert torch.equal(again.proba(other), model.predict_proba(other))
