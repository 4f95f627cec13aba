"""GCN, GAT and SAGE as non-private references."""

from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators import METHODS

OPTIONS = [
    ("gcn", {}),
    ("gcn", {"layers": 1}),
    ("gcn", {"layers": 3, "batch_norm": False, "activation": "relu"}),
    ("gat", {}),
    ("gat", {"heads": 8, "hidden": 4, "dropout": 0.3}),
    ("gat", {"layers": 3, "heads": 2, "batch_norm": False, "activation": "relu"}),
    ("gcn", {"residual": True, "layers": 3}),
    ("gat", {"residual": True, "layers": 3, "heads": 2}),
    ("sage", {"residual": True, "layers": 3, "dropout": 0.2, "activation": "relu"}),
]


@pytest.mark.parametrize("suffix", ["", "-paper"])
@pytest.mark.parametrize(
    ("method", "unit"),
    [(method, f"{kind}-edge") for method in ("gcn", "gat", "sage") for kind in ("undirected", "directed")]
    + [("gcn", "node-record"), ("gat", "node-record")],
)
def test_rejects_private_units(method: str, unit: str, suffix: str) -> None:
    words = f"{method}{suffix} reads .*but the unit is '{unit}'. Use method 'classcode' or 'gap'"
    with pytest.raises(NotImplementedGuaranteeError, match=words):
        METHODS[method + suffix](unit=unit, epsilon=1.0)


@pytest.mark.parametrize(("method", "options"), OPTIONS)
@pytest.mark.parametrize("directed", [False, True])
def test_learns_from_neighbors(make_graph: Any, method: str, options: dict[str, Any], directed: bool) -> None:
    graph = make_graph(directed=directed)
    assert METHODS[method](unit="none", seed=0, epochs=60, **options).fit(graph).score(graph) > 0.75


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("method", ["gcn", "gat", "sage"])
def test_is_restored_from_its_parameters(graph: Any, make_graph: Any, method: str, residual: bool) -> None:
    model = METHODS[method](unit="none", seed=0, epochs=2, residual=residual).fit(graph)
    fitted, other = model.fitted, make_graph(seed=1)
    restored: Any = fitted.method.restore(fitted.trained.state(), fitted.sizes, {})
    assert torch.equal(restored.proba(other), model.predict_proba(other))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 0}, "heads=0 must be a whole number of at least 1"),
        ({"heads": 1.5}, "heads=1.5 must be a whole number"),
        ({"heads": 128, "hidden": 1024}, r"heads \* hidden=131072 must be at most 16,384"),
    ],
)
def test_rejects_invalid_numbers_of_heads(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        METHODS["gat"](unit="none", **wrong)


@pytest.mark.parametrize("method", ["gcn", "gat", "sage"])
def test_residual_layers_read_one_hop_each(method: str) -> None:
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    path = gv.Graph.from_edges(torch.eye(6), y, range(5), range(1, 6), directed=False)
    settings: dict[str, Any] = {"unit": "none", "seed": 0, "epochs": 1, "layers": 2, "residual": True}
    model = METHODS[method](**settings).fit(gv.split(path, 0.5, 0.2, unit="none"))
    changed = path.replace(x=path.x + torch.eye(6)[0] * torch.eye(6)[0][:, None])  # the first node alone
    moved = (model.predict_proba(changed) - model.predict_proba(path)).abs().amax(dim=1)
    assert (moved[:3] > 0).all() and (moved[3:] == 0).all()


def test_residual_networks_use_layer_norm() -> None:
    with pytest.raises(ConfigError, match="Omit batch_norm"):
        METHODS["gcn"](unit="none", residual=True, batch_norm=True)
    with pytest.raises(ConfigError, match="perturbed graphs"):
        METHODS["sage-paper"](unit="node-record", epsilon=1.0, out_degree_bound=5, residual=True)
