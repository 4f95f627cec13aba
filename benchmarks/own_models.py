"""How accurate is a model of the user's own: a GraphSAGE on own stars, and an MLP on one released hop?

    python benchmarks/own_models.py --out runs.jsonl [--rows sage,sage-started,gat,gin,random,gap,rows]
        [--splits 3] [--epsilons 1,4,8,16] [--datasets facebook100/Berkeley13,amazon/computers,...]

One line of ``runs.jsonl`` a run; a run that is there is not made again, so the command resumes after a
kill. Then a table: mean test accuracy over the splits and its standard error, in percent.

Rows ``sage``, ``gat`` and ``gin``: one layer of torch_geometric of width 16 and a linear map,
``PrivateGNN`` without a start, unit node-record, delta 1e-5, recipe ``gap`` with splits made from ids.
``sage-started``: the same GraphSAGE by the defaults, where it corrects what the public codes say.
``sage-replaced``: the same GraphSAGE where it is hidden which of two records a node has. ``random``: the same
GraphSAGE where every list is a list of random people, and ``random-encoder`` the encoder of that same fit,
which reads no list. ``neighbors``: a GraphSAGE of the same size trained on exact trees (four own slots),
whose weights are released and nothing else; its figure is what the weights say to somebody who may read
every record, on the exact graph, and no release. ``promised``: the same under node-bounded-degree, where
stars are refused and exact trees are all there is, one slot, with the graph's own largest degree promised.
``mlp``, ``gap``, ``classcode`` and ``reading`` are this
library's methods on the same
splits (ClassCode with all rows released, and reading own edges). ``rows``: unit undirected-edge,
delta 1e-7, one hop of class codes (labels of training and validation nodes, posteriors of the tuned MLP
elsewhere) by ``private_hops``, then a plain MLP of 64 units trained in the clear on posteriors and rows,
its epoch chosen on validation labels.
"""

import argparse
import copy
import json
import os
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.data import RECIPES, Adjacency, Graph, to_dense
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.gnn.one_hop import TrainedOneHopGNN

with warnings.catch_warnings():  # of torch.jit, which torch_geometric still calls as it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATv2Conv, GINConv, SAGEConv

DATASETS = ("facebook100/Berkeley13", "amazon/computers", "facebook100/Rutgers89")
BESIDE = Path(__file__).parents[2] / "shared" / "data"
HIDDEN, EPOCHS, PATIENCE = 16, 200, 40


class OneLayer(nn.Module):
    """A convolution and a linear map."""

    def __init__(self, conv: nn.Module, classes: int) -> None:
        """Take the convolution."""
        super().__init__()
        self.conv, self.out = conv, nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits."""
        return self.out(torch.relu(self.conv(x, edge_index)))


def sage(inputs: int, classes: int) -> nn.Module:
    """Return GraphSAGE with means."""
    return OneLayer(SAGEConv(inputs, HIDDEN), classes)


def gat(inputs: int, classes: int) -> nn.Module:
    """Return attention without self-loops."""
    return OneLayer(GATv2Conv(inputs, HIDDEN, add_self_loops=False), classes)


def gin(inputs: int, classes: int) -> nn.Module:
    """Return GIN with a linear map."""
    return OneLayer(GINConv(nn.Linear(inputs, HIDDEN)), classes)


ALONE: dict[str, Any] = {"start": "none"}
MODULES: dict[str, tuple[Callable[[int, int], nn.Module], dict[str, Any]]] = {
    "sage": (sage, ALONE),
    "sage-started": (sage, {}),
    "sage-replaced": (sage, {**ALONE, "replace_one": True}),
    "gat": (gat, ALONE),
    "gin": (gin, ALONE),
    "random": (sage, ALONE),
}
METHODS: dict[str, tuple[Callable[..., Estimator], dict[str, Any]]] = {
    "mlp": (gv.MLP, {}),
    "gap": (gv.GAP, {"out_degree_bound": 20}),
    "classcode": (gv.ClassCode, {}),
    "reading": (gv.ClassCode, {"read_own_edges": True}),
}


def on_records(row: str, raw: Graph, epsilon: float, split: int) -> dict[str, float]:
    """Return test accuracies by row: of a module on own stars, or of a method, on protected records."""
    graph = RECIPES["gap"].on_clients().split(raw, split)
    budget: dict[str, Any] = {"unit": "node-record", "epsilon": epsilon, "delta": 1e-5, "seed": split}
    if row in METHODS:
        method, settings = METHODS[row]
        return {row: method(**budget, **settings).fit(graph).score(graph)}
    if row == "random":
        source = graph.adjacency.edge_index()[0]
        drawn = np.random.default_rng(split).integers(graph.num_nodes, size=len(source))
        graph = graph.replace(
            adjacency=Adjacency.from_edges(source, drawn, num_nodes=graph.num_nodes, directed=True)
        )
    if row == "neighbors":
        return {row: on_trees(graph, {**budget, "max_out_edges": 4})}
    if row == "promised":
        most = int(np.bincount(graph.adjacency.edge_index()[1]).max())
        return {row: on_trees(graph, {**budget, "unit": "node-bounded-degree", "max_degree": most})}
    module, settings = MODULES[row]
    model = gv.PrivateGNN(module=module, **budget, **settings).fit(graph)
    found = {row: model.score(graph)}
    return {**found, "random-encoder": _encoder_alone(model, graph)} if row == "random" else found


def on_trees(graph: Graph, budget: dict[str, Any]) -> float:
    """Return the test accuracy of released weights where every record may be read."""
    model = gv.PrivateGNN(module=sage, neighborhood="neighbors", **budget).fit(graph)
    edges = torch.as_tensor(graph.adjacency.edge_index()).long()
    with torch.no_grad():
        logits = model.module_(to_dense(graph.x), edges)
    test = graph.mask("test")
    return float((logits.argmax(dim=1) == graph.y)[test].float().mean())


def _encoder_alone(model: gv.PrivateGNN, graph: Graph) -> float:
    """Return the test accuracy of the encoder, which reads no list."""
    assert model._fit is not None
    trained = model._fit.trained  # what is measured here is a part, which has no public name
    assert isinstance(trained, TrainedOneHopGNN)
    told, test = trained.encoder.log_posteriors(graph.x).argmax(dim=1), graph.mask("test")
    return float((told[test] == graph.y[test]).float().mean())


def on_rows(raw: Graph, epsilon: float, split: int) -> float:
    """Return the test accuracy of an MLP of the user's own on one released hop."""
    graph = RECIPES["gap"].split(raw, split)
    posteriors = gv.MLP(unit="undirected-edge", seed=split).fit(graph).predict_proba().double()
    teaches = graph.mask("train") | graph.mask("val")
    codes = posteriors @ simplex_codes(graph.num_classes)
    codes[teaches] = simplex_codes(graph.num_classes)[graph.y[teaches]]
    told = gv.private_hops(graph, codes, unit="undirected-edge", epsilon=epsilon, delta=1e-7, normalize=False)
    noisy = told.rows / told.noise[0]
    length = noisy.norm(dim=1, keepdim=True).clamp_min(1e-9)
    logs = posteriors.clamp_min(1e-9).log().float()
    return float(_trained(torch.cat([logs, noisy / 3, noisy / length], dim=1), graph, split))


def _trained(x: Tensor, graph: Graph, seed: int) -> float:
    """Train an MLP in the clear, and return the test accuracy of the epoch that is best on validation
    nodes."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        network = nn.Sequential(
            nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, graph.num_classes)
        )
        train, val, test = (graph.mask(part) for part in ("train", "val", "test"))
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-5)
        best, kept, since = -1.0, network.state_dict(), 0
        for _ in range(EPOCHS):
            network.train()
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[train]), graph.y[train]).backward()
            optimizer.step()
            found, since = _accuracy(network, x, graph, val), since + 1
            if found > best:
                best, kept, since = found, copy.deepcopy(network.state_dict()), 0
            if since > PATIENCE:
                break
        network.load_state_dict(kept)
        return _accuracy(network, x, graph, test)


@torch.no_grad()
def _accuracy(network: nn.Module, x: Tensor, graph: Graph, mask: Tensor) -> float:
    network.eval()
    return float((network(x[mask]).argmax(dim=1) == graph.y[mask]).float().mean())


Key = tuple[str, str, float, int]  # row, data set, epsilon, split


def main() -> None:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", default="sage")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--epsilons", default="1,4,8,16")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--summary", type=Path, help="write means and standard errors here, as CSV")
    asked = parser.parse_args()
    root = Path(os.environ.get("GRAPHVEIL_DATA", BESIDE))
    done = _read(asked.out)
    epsilons = [float(text) for text in asked.epsilons.split(",")]
    for name in asked.datasets.split(","):
        raw = RECIPES["gap"].prepare(gv.load_dataset(name, root=root), paper=False)
        for key in product(asked.rows.split(","), [name], epsilons, range(asked.splits)):
            if key not in done:
                _make(raw, key, asked.out)
    lines = list(_summary(_read(asked.out)))
    print("\n".join(lines))
    if asked.summary:
        asked.summary.write_text("\n".join(lines) + "\n")


def _read(path: Path) -> dict[Key, float]:
    """Return the accuracies of a file; none if it is not there."""
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(run["row"], run["dataset"], run["epsilon"], run["split"]): run["accuracy"] for run in runs}


def _make(raw: Graph, key: Key, out: Path) -> None:
    """Make one run, which may answer several rows, and write it down."""
    row, name, epsilon, split = key
    begun = time.process_time()
    found = {row: on_rows(raw, epsilon, split)} if row == "rows" else on_records(row, raw, epsilon, split)
    seconds = round(time.process_time() - begun, 1)
    with out.open("a") as file:
        for told, accuracy in found.items():
            run = {"row": told, "dataset": name, "epsilon": epsilon, "split": split}
            file.write(json.dumps({**run, "accuracy": accuracy, "seconds": seconds}) + "\n")


def _summary(runs: dict[Key, float]) -> Iterator[str]:
    """Yield a line of CSV for each data set, row and epsilon: the mean over the splits and its error."""
    yield "dataset,row,epsilon,splits,accuracy,standard_error"
    cells = defaultdict[tuple[str, str, float], list[float]](list)
    for (row, name, epsilon, _), accuracy in sorted(runs.items()):
        cells[name, row, epsilon].append(100 * accuracy)
    for (name, row, epsilon), values in sorted(cells.items()):
        error = f"{statistics.stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
        yield f"{name},{row},{epsilon:g},{len(values)},{statistics.fmean(values):.2f},{error}"


if __name__ == "__main__":
    main()
