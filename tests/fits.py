"""A small fit of every kind: all methods, links, recommendations, noisy graphs, and noisy sums."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.data.relational import TABLE_UNITS
from graphveil.privacy import Guarantee
from tests.estimators.relational.drawn import drawn

NODES, FEATURES, CLASSES, ITEMS = 90, 6, 3, 20
EDGES = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-6}
RECORDS = {"unit": "node-record", "epsilon": 1.0, "delta": 1e-5}
LOCAL = {"unit": "local-attributes", "eps_x": 2.0, "eps_y": 1.5}
SUBSET = {"unit": "edge-subset", "epsilon": 4.0, "eps_x": 2.0, "perturb": "edge-rr(rounds=5)"}
NONE = {"unit": "none"}
ROWS = {"unit": "row", "epsilon": 4.0}
PERSONS = {"unit": "person", "epsilon": 4.0, "delta": 1e-5}


class Root(nn.Module):
    """A module on ego graphs that reads the root alone."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", EDGES),
    "mlp": ("mlp", EDGES | {"epochs": 2}),
    "mlp of records": ("mlp", RECORDS | {"epochs": 1, "batch_size": 20}),
    "gap": ("gap", EDGES | {"epochs": 2}),
    "gap, attention": ("gap", EDGES | {"epochs": 2, "weights": "attention", "attention_steps": 3}),
    "gap of records": ("gap", RECORDS | {"epochs": 1, "batch_size": 20, "out_degree_bound": 4}),
    "sage": ("sage", EDGES | {"perturb": "edge-rand", "epochs": 2}),
    "gcn": ("gcn", EDGES | {"perturb": "edge-rand", "epochs": 2}),
    "gat": ("gat", EDGES | {"perturb": "lap-graph", "epochs": 2}),
    "gcn without privacy": ("gcn", NONE | {"epochs": 2}),
    "classcode": ("classcode", EDGES),
    "classcode of records": ("classcode", RECORDS | {"out_degree_bound": 4}),
    "relational of rows": ("relational", ROWS),
    "relational of persons": ("relational", PERSONS),
    "auto of persons": ("auto", PERSONS),
    "mlp of persons": ("mlp", PERSONS | {"epochs": 1, "batch_size": 20}),
    "spectral": ("spectral", EDGES),
    "lpgnet": ("lpgnet", EDGES | {"epochs": 2}),
    "lpgnn": ("lpgnn", LOCAL | {"epochs": 2}),
    "simgat": ("simgat", LOCAL | {"epochs": 2}),
    "heterorr": ("heterorr", SUBSET | {"epochs": 2}),
    "label-posterior": ("label-posterior", {"unit": "local-attributes", "eps_y": 1.5}),
    "gnn": ("gnn", RECORDS | {"module": Root, "epochs": 1}),
    "gnn, neighbors": ("gnn", RECORDS | {"module": Root, "neighborhood": "neighbors", "epochs": 1}),
    "module": ("module", RECORDS | {"module": nn.Linear, "epochs": 1, "batch_size": 20}),
}


@dataclass(frozen=True)
class Fitted:
    """Guarantee and numbers of a fit and its predictions."""

    guarantee: Guarantee | None
    numbers: tuple[npt.NDArray[Any], ...]


def graph(seed: int = 0) -> gv.Graph:
    """Return a graph with public edges for methods that need some."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((NODES, FEATURES), dtype=np.float32), np.arange(NODES) % CLASSES
    source, target = rng.integers(NODES, size=(2, 4 * NODES))
    share = torch.from_numpy(rng.permutation(NODES) / NODES)
    whole = gv.Graph.from_edges(x, y, source, target, directed=False, num_classes=CLASSES)
    whole = whole.with_public(whole.adjacency.without_crossing(share < 0.5), share >= 0)
    return whole.with_split(share < 0.6, (share >= 0.6) & (share < 0.8), share >= 0.8)


def table(seed: int = 0) -> gv.Interactions:
    """Return lists of items."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(NODES, size=8 * NODES), rng.integers(ITEMS, size=8 * NODES)
    return gv.Interactions.from_columns(users, items, item_ids=range(ITEMS))


def tables(seed: int = 4) -> gv.Tables:
    """Return persons and tables of rows."""
    return drawn(seed, mutual=False).built()


def of_method(name: str) -> Callable[..., Fitted]:
    """Return the fit of a method, with predictions for its graph."""
    method, given = METHODS[name]

    def run(data: Any, workspace: Path | None = None, **changes: Any) -> Fitted:
        model = gv.METHODS[method](**{"seed": 3, **given, **changes}).fit(data, workspace=workspace)
        if name == "gnn, neighbors":
            weights = [part.detach().numpy() for part in model.module_.state_dict().values()]
            return Fitted(model.guarantee_, tuple(weights))
        return Fitted(model.guarantee_, (model.predict_proba(data).numpy(), model.predict(data).numpy()))

    return run


def links(data: gv.Graph, workspace: Path | None = None, **changes: Any) -> Fitted:
    """Fit a predictor of links, and score pairs."""
    model = gv.LinkPredictor(**{"seed": 3, **EDGES, **changes}).fit(data, workspace=workspace)
    pairs = np.arange(NODES).reshape(2, -1)
    return Fitted(model.guarantee, (model.decision_function(pairs), *model.top_k([1, 2], k=3)))


def recommender(data: gv.Interactions, workspace: Path | None = None, **changes: Any) -> Fitted:
    """Fit a recommender, and recommend."""
    model = gv.Recommender(**{"seed": 3, **RECORDS, **changes}).fit(data, workspace=workspace)
    found = model.recommend([[3, 4]], k=5)
    return Fitted(model.guarantee, (np.asarray(found.scores), np.asarray(found.items)))


def noisy_graph(data: gv.Graph, **changes: Any) -> Fitted:
    """Release a graph."""
    made = gv.perturb.edge_rand(data, **{"unit": "undirected-edge", "epsilon": 4.0, **changes})
    return Fitted(made.guarantee, (made.graph.adjacency.edge_index().numpy(),))


def noisy_sums(data: gv.Graph, **changes: Any) -> Fitted:
    """Release sums over neighbors."""
    made = gv.private_hops(data, **{**EDGES, **changes})
    return Fitted(made.guarantee, (made.rows.numpy(), made.sent.numpy()))


# Each kind with a function that returns its data: with and without a folder from which a fit is resumed.
RESUMED: dict[str, tuple[Callable[[], Any], Callable[..., Fitted]]] = {
    **{
        name: (tables if given["unit"] in TABLE_UNITS else graph, of_method(name))
        for name, (_, given) in METHODS.items()
    },
    "links": (graph, links),
    "recommender": (table, recommender),
}
FITS = RESUMED | {"noisy graph": (graph, noisy_graph), "noisy sums": (graph, noisy_sums)}
