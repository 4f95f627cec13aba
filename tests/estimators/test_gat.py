"""GAT, a reference that protects nothing."""

import pytest
import torch

from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.full_graph import GAT


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "node-record"])
def test_private_units_are_refused_by_name(unit):
    with pytest.raises(
        NotImplementedGuaranteeError, match=f"gat reads .*got unit '{unit}'; use 'classcode' or 'gap'"
    ):
        GAT(unit=unit, epsilon=1.0)


def test_records_that_nodes_randomize_are_for_other_methods():
    with pytest.raises(UnitError, match="use 'lpgnn' or 'simgat'"):
        GAT(unit="local-attributes")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 8, "hidden": 4, "dropout": 0.3},
        {"layers": 3, "heads": 2, "batch_norm": False, "activation": "relu"},
    ],
)
@pytest.mark.parametrize("directed", [False, True])
def test_learns_from_neighbors(make_graph, options, directed):
    graph = make_graph(directed=directed)
    assert GAT(unit="none", seed=0, epochs=60, **options).fit(graph).score(graph) > 0.75


def test_comes_back_from_its_weights(graph, make_graph):
    model = GAT(unit="none", seed=0, epochs=2, heads=3).fit(graph)
    fitted, other = model.fitted, make_graph(seed=1)
    again = fitted.method.restore(fitted.trained.state(), fitted.sizes, {})
    assert torch.equal(again.proba(other), model.predict_proba(other))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 0}, "heads=0 must be a whole number of at least 1"),
        ({"heads": 1.5}, "heads=1.5 must be a whole number"),
        ({"heads": 128, "hidden": 1024}, r"heads \* hidden=131072 must be at most 16,384"),
    ],
)
def test_heads_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        GAT(unit="none", **wrong)
