"""Measure the test accuracy of custom modules: PrivateGNN on ego graphs, and an MLP on a released hop.

    python benchmarks/custom_models.py --out runs.jsonl [--rows sage,sage-codes,gat,gin,random-edges,hop-mlp]
        [--splits 3] [--epsilons 1,4,8,16] [--datasets facebook100/Berkeley13,amazon/computers,...]

The output file has one JSON line per run. Existing runs are not repeated, so an interrupted command resumes.
The table has the mean test accuracy over the splits and its standard error, in percent.

Unit node-record, delta 1e-5, recipe ``gap`` with hash-based splits, unless stated:

* ``sage``, ``gat``, ``gin``: one layer of torch_geometric of width 16 and a linear layer, with ``PrivateGNN``
  and ``start="none"``.
* ``sage-codes``: the same GraphSAGE with the default ``start="codes"``.
* ``sage-replace-one``: ``sage`` with the replace-one neighboring relation.
* ``random-edges``: ``sage`` on random out-edges. ``random-edges-encoder``: the encoder of that fit, which
  reads no edges.
* ``neighbors``: GraphSAGE on exact sampled trees (out-degree bound 4). Only the parameters are released. The
  accuracy is on the exact graph and is not a release.
* ``bounded-degree``: ``neighbors`` under node-bounded-degree, with the maximum degree of the graph.
* ``mlp``, ``gap``, ``classcode``, ``classcode-own-edges``: methods of this library on the same splits.
* ``hop-mlp``: unit undirected-edge, delta 1e-7. One hop of class codes (labels of training and validation
  nodes, posteriors of the tuned MLP elsewhere) from ``private_hops``, and an MLP of 64 units that is trained
  without further privacy cost. Validation labels choose the epoch.
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
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import to_dense
from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.data import RECIPES, Graph
from graphveil.estimators.base import Estimator
from graphveil.estimators.gnn.module_training import TrainedGNN

with warnings.catch_warnings():  # of torch.jit, which torch_geometric still calls as it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATv2Conv, GINConv, SAGEConv

DATASETS = ("facebook100/Berkeley13", "amazon/computers", "facebook100/Rutgers89")
DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
HIDDEN, EPOCHS, PATIENCE = 16, 200, 40


class OneLayer(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self, conv: nn.Module, classes: int) -> None:
        """Store the convolution."""
        super().__init__()
        self.conv, self.out = conv, nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits."""
        return self.out(torch.relu(self.conv(x, edge_index)))


def sage(inputs: int, classes: int) -> nn.Module:
    """Return GraphSAGE with mean aggregation."""
    return OneLayer(SAGEConv(inputs, HIDDEN), classes)


def gat(inputs: int, classes: int) -> nn.Module:
    """Return GATv2 without self-loops."""
    return OneLayer(GATv2Conv(inputs, HIDDEN, add_self_loops=False), classes)


def gin(inputs: int, classes: int) -> nn.Module:
    """Return GIN with a linear layer."""
    return OneLayer(GINConv(nn.Linear(inputs, HIDDEN)), classes)


NO_START: dict[str, Any] = {"start": "none"}
MODULES: dict[str, tuple[Callable[[int, int], nn.Module], dict[str, Any]]] = {
    "sage": (sage, NO_START),
    "sage-codes": (sage, {}),
    "sage-replace-one": (sage, {**NO_START, "replace_one": True}),
    "gat": (gat, NO_START),
    "gin": (gin, NO_START),
    "random-edges": (sage, NO_START),
}
METHODS: dict[str, tuple[Callable[..., Estimator], dict[str, Any]]] = {
    "mlp": (gv.MLP, {}),
    "gap": (gv.GAP, {"out_degree_bound": 20}),
    "classcode": (gv.ClassCode, {}),
    "classcode-own-edges": (gv.ClassCode, {"read_own_edges": True}),
}


def record_accuracies(row: str, raw: Graph, epsilon: float, split: int) -> dict[str, float]:
    """Return test accuracies by row, of a module or a method under node-record or node-bounded-degree."""
    graph = RECIPES["gap"].on_clients().split(raw, split)
    budget: dict[str, Any] = {"unit": "node-record", "epsilon": epsilon, "delta": 1e-5, "seed": split}
    if row in METHODS:
        method, settings = METHODS[row]
        return {row: method(**budget, **settings).fit(graph).score(graph)}
    if row == "random-edges":
        source = graph.adjacency.edge_index()[0]
        targets = np.random.default_rng(split).integers(graph.num_nodes, size=len(source))
        graph = graph.replace(
            adjacency=Adjacency.from_edges(source, targets, num_nodes=graph.num_nodes, directed=True)
        )
    if row == "neighbors":
        return {row: tree_accuracy(graph, {**budget, "max_out_edges": 4})}
    if row == "bounded-degree":
        degree = int(np.bincount(graph.adjacency.edge_index()[1]).max())
        bounded = {**budget, "unit": "node-bounded-degree", "max_degree": degree}
        return {row: tree_accuracy(graph, bounded)}
    module, settings = MODULES[row]
    model = gv.PrivateGNN(module=module, **budget, **settings).fit(graph)
    accuracies = {row: model.score(graph)}
    if row == "random-edges":
        accuracies["random-edges-encoder"] = _encoder_accuracy(model, graph)
    return accuracies


def tree_accuracy(graph: Graph, budget: dict[str, Any]) -> float:
    """Return the test accuracy of released parameters on the exact graph."""
    model = gv.PrivateGNN(module=sage, neighborhood="neighbors", **budget).fit(graph)
    edges = torch.as_tensor(graph.adjacency.edge_index()).long()
    with torch.no_grad():
        logits = model.module_(to_dense(graph.x), edges)
    test = graph.labeled_in("test")
    return float((logits.argmax(dim=1) == graph.y)[test].float().mean())


def _encoder_accuracy(model: gv.PrivateGNN, graph: Graph) -> float:
    """Return the test accuracy of the encoder, which reads no edges."""
    assert model._fit is not None
    trained = model._fit.trained  # the encoder has no public name
    assert isinstance(trained, TrainedGNN) and trained.encoder is not None
    predicted, test = trained.encoder.log_posteriors(graph.x).argmax(dim=1), graph.labeled_in("test")
    return float((predicted[test] == graph.y[test]).float().mean())


def hop_accuracy(raw: Graph, epsilon: float, split: int) -> float:
    """Return the test accuracy of an MLP on one released hop."""
    graph = RECIPES["gap"].split(raw, split)
    posteriors = gv.MLP(unit="undirected-edge", seed=split).fit(graph).predict_proba().double()
    labeled = graph.labeled_in("train", "val")
    codes = posteriors @ simplex_codes(graph.num_classes)
    codes[labeled] = simplex_codes(graph.num_classes)[graph.y[labeled]]
    hops = gv.private_hops(graph, codes, unit="undirected-edge", epsilon=epsilon, delta=1e-7, normalize=False)
    noisy = hops.rows / hops.noise[0]
    length = noisy.norm(dim=1, keepdim=True).clamp_min(1e-9)
    logs = posteriors.clamp_min(1e-9).log().float()
    return float(_trained(torch.cat([logs, noisy / 3, noisy / length], dim=1), graph, split))


def _trained(x: Tensor, graph: Graph, seed: int) -> float:
    """Train an MLP, and return the test accuracy of the epoch with the best validation accuracy."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        network = nn.Sequential(
            nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, graph.num_classes)
        )
        train, val, test = (graph.labeled_in(part) for part in ("train", "val", "test"))
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-5)
        best, kept, since = -1.0, network.state_dict(), 0
        for _ in range(EPOCHS):
            network.train()
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[train]), graph.y[train]).backward()
            optimizer.step()
            accuracy, since = _accuracy(network, x, graph, val), since + 1
            if accuracy > best:
                best, kept, since = accuracy, copy.deepcopy(network.state_dict()), 0
            if since > PATIENCE:
                break
        network.load_state_dict(kept)
        return _accuracy(network, x, graph, test)


@torch.no_grad()
def _accuracy(network: nn.Module, x: Tensor, graph: Graph, mask: Tensor) -> float:
    network.eval()
    return float((network(x[mask]).argmax(dim=1) == graph.y[mask]).float().mean())


Key = tuple[str, str, float, int]  # row, dataset, epsilon, split


def main() -> None:
    """Run the missing cells, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file of results; is continued")
    parser.add_argument("--rows", default="sage", help="rows, separated by commas")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names of datasets")
    parser.add_argument("--epsilons", default="1,4,8,16", help="values of epsilon")
    parser.add_argument("--splits", type=int, default=3, help="number of splits")
    parser.add_argument("--summary", type=Path, help="CSV file to write means and standard errors to")
    options = parser.parse_args()
    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    done = _read(options.out)
    epsilons = [float(text) for text in options.epsilons.split(",")]
    for name in options.datasets.split(","):
        raw = RECIPES["gap"].prepare(gv.load_dataset(name, root=root), paper=False)
        for key in product(options.rows.split(","), [name], epsilons, range(options.splits)):
            if key not in done:
                _run(raw, key, options.out)
    lines = list(_summary(_read(options.out)))
    print("\n".join(lines))
    if options.summary:
        options.summary.write_text("\n".join(lines) + "\n")


def _read(path: Path) -> dict[Key, float]:
    """Return the accuracies in a file, or none if it does not exist."""
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(run["row"], run["dataset"], run["epsilon"], run["split"]): run["accuracy"] for run in runs}


def _run(raw: Graph, key: Key, out: Path) -> None:
    """Run one cell and append its accuracies, which may be of several rows."""
    row, name, epsilon, split = key
    start = time.process_time()
    if row == "hop-mlp":
        accuracies = {row: hop_accuracy(raw, epsilon, split)}
    else:
        accuracies = record_accuracies(row, raw, epsilon, split)
    seconds = round(time.process_time() - start, 1)
    with out.open("a") as file:
        for name_of_row, accuracy in accuracies.items():
            run = {"row": name_of_row, "dataset": name, "epsilon": epsilon, "split": split}
            file.write(json.dumps({**run, "accuracy": accuracy, "seconds": seconds}) + "\n")


def _summary(runs: dict[Key, float]) -> Iterator[str]:
    """Yield CSV lines: mean and standard error over the splits for each dataset, row and epsilon."""
    yield "dataset,row,epsilon,splits,accuracy,standard_error"
    cells = defaultdict[tuple[str, str, float], list[float]](list)
    for (row, name, epsilon, _), accuracy in sorted(runs.items()):
        cells[name, row, epsilon].append(100 * accuracy)
    for (name, row, epsilon), values in sorted(cells.items()):
        error = f"{statistics.stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
        yield f"{name},{row},{epsilon:g},{len(values)},{statistics.fmean(values):.2f},{error}"


if __name__ == "__main__":
    main()
