"""User errors are raised as such, and not by assertions, which ``python -O`` removes."""

from collections.abc import Callable
from typing import Any

import pytest

import graphveil as gv

CALLS: dict[str, Callable[[Any, gv.Graph], object]] = {
    "predict": lambda model, graph: model.predict(),
    "predict_proba": lambda model, graph: model.predict_proba(graph),
    "score": lambda model, graph: model.score(graph),
    "guarantee": lambda model, graph: model.guarantee,
    "privacy_cost": lambda model, graph: model.privacy_cost(graph),
    "is_fitted_graph": lambda model, graph: model.is_fitted_graph(graph),
    "guarantee_with_predictions": lambda model, graph: model.guarantee_with_predictions,
    "graph_fingerprint": lambda model, graph: model.graph_fingerprint,
    "save": lambda model, graph: model.save("folder"),
}


@pytest.mark.parametrize("call", CALLS)
def test_unfitted_models_raise_typed_errors(call: str) -> None:
    graph, model = gv.load_dataset("synthetic/tiny"), gv.ClassCode(unit="undirected-edge", epsilon=1.0)
    with pytest.raises(gv.errors.ConfigError, match=r"^The model is not fitted. Call fit\(graph\) first.$"):
        CALLS[call](model, graph)
