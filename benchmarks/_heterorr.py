"""The grid of HeteroRR over the budgets of features and of private edges, for ``topology.py``.

A cell has three accuracies from one release of features: ``accuracy`` of HeteroRR, ``public`` of the same
network on the public edges only, and ``no_edges`` of a network without edges. The references are GCN on exact
features and edges, and the tuned MLP on exact features.
"""

import argparse
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from graphveil import GCN, MLP, HeteroRR, perturb
from graphveil.data import RECIPES, Graph, load_dataset

DATASETS, FRACTION = ("facebook_pages", "twitch/DE"), 0.2
EPS_X, EPS_EDGES = (1.0, 3.0, 9.0), (0.5, 2.0, 8.0)
FEATURES = ("feature-rr", "multi-bit")
NETWORK: dict[str, Any] = {"hidden": 32, "activation": "relu", "epochs": 100, "patience": 20}
NONE = 0.0  # epsilon of cells without randomization
Record = dict[str, Any]


def cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells, seed by seed."""
    for seed in range(options.runs):
        for data in options.datasets or DATASETS:
            for method in ("gcn", "mlp"):
                yield _cell(data, method, NONE, NONE, seed)
            for features in options.mechanisms or FEATURES:
                for eps_x in EPS_X:
                    for epsilon in EPS_EDGES:
                        yield _cell(data, features, eps_x, epsilon, seed)


def run(cell: Record, _cache: object) -> Record:
    """Return the test accuracies of a cell."""
    graph = RECIPES["gap"].split(load_dataset(cell["data"]), cell["seed"])
    seed = cell["seed"]
    if cell["mechanism"] == "gcn":
        return {"accuracy": GCN(unit="none", seed=seed, **NETWORK).fit(graph).score(graph)}
    if cell["mechanism"] == "mlp":
        return {"accuracy": MLP(unit="none", seed=seed).fit(graph).score(graph)}
    public = perturb.sample_public_edges(graph, FRACTION, seed=seed)
    graph = graph.with_public(public, torch.ones(graph.num_nodes, dtype=torch.bool))
    model = HeteroRR(
        unit="edge-subset",
        epsilon=cell["epsilon"],
        eps_x=cell["eps_x"],
        features=cell["mechanism"],
        seed=seed,
        **NETWORK,
    ).fit(graph)
    return {"accuracy": model.score(graph)} | _references(model, model.with_reported_features(graph), seed)


def _references(model: HeteroRR, reported: Graph, seed: int) -> Record:
    """Return the accuracies without private edges, on the same reported features."""
    assert reported.public is not None
    known = reported.replace(adjacency=reported.public.edges, public=None)
    network = GCN(unit="none", seed=seed, **NETWORK).fit(known)
    baseline = model.no_graph_baseline().fit(reported)
    return {"public": network.score(known), "no_edges": baseline.score(reported)}


def table(records: Iterable[Record]) -> Iterator[str]:
    """Yield a row for each dataset, feature mechanism and eps_x, with a column for each epsilon."""
    rows: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        rows.setdefault((record["data"], record["mechanism"], record["eps_x"]), []).append(record)
    heads = [f"epsilon {epsilon:g}" for epsilon in EPS_EDGES]
    yield f"| data | features | eps_x | {' | '.join(heads)} | public edges only | no edges |"
    yield f"|{'---|' * (5 + len(heads))}"
    for (data, mechanism, eps_x), found in sorted(rows.items()):
        exact = eps_x == NONE
        values_of_row = [
            _mean(one["accuracy"] for one in found if one["epsilon"] == (NONE if exact else epsilon))
            for epsilon in ((NONE,) if exact else EPS_EDGES)
        ]
        values_of_row += [""] * (len(EPS_EDGES) - len(values_of_row))
        values_of_row += [_mean(one[name] for one in found if name in one) for name in ("public", "no_edges")]
        yield f"| {data} | {mechanism} | {'exact' if exact else f'{eps_x:g}'} | {' | '.join(values_of_row)} |"


def _cell(data: str, mechanism: str, eps_x: float, epsilon: float, seed: int) -> Record:
    return {
        "data": data,
        "fraction": FRACTION,
        "mechanism": mechanism,
        "eps_x": eps_x,
        "epsilon": epsilon,
        "seed": seed,
    }


def _mean(accuracies: Iterable[float]) -> str:
    """Return the mean in percent with its standard error, or the value of a single run."""
    values = [100 * value for value in accuracies]
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"
