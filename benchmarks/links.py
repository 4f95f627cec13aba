"""Link prediction: ROC-AUC and average precision of held-out edges, next to baselines.

    python benchmarks/links.py --out benchmarks/links.csv [--datasets cora twitch/ES]
    python benchmarks/links.py --out benchmarks/links.csv --summarize

A public hash holds out 10 % of all node pairs, differently for each seed. The test pairs are held-out edges
and as many random pairs that are no edges. Every fit uses default settings. Rows that the file already has
are not measured again. The summary prints means over splits and 95 % Student intervals.
"""

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.metrics import average_precision_score, roc_auc_score

import graphveil as gv
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.features import to_dense
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import NeighborCountData, NeighborCountQuery
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import ConfigError
from graphveil.estimators.method import PreparedFit
from graphveil.links.link_method import node_vectors

UNIT, DELTA, SEEDS, EPSILONS, SHARE = "undirected-edge", 1e-7, 5, (0.25, 0.5, 1.0, 4.0), 0.1
DATASETS = (
    "facebook_pages",
    "twitch/DE",
    "twitch/ES",
    "cora",
    "pubmed",
    "amazon/photo",
    "facebook100/Berkeley13",
)
MAX_EDGES = 6_000_000  # of a graph that randomized response releases
EPOCHS, HIDDEN, WIDTH = 150, 64, 32  # of the graph autoencoder
COMMON = "common neighbors, EdgeRand"
FIELDS = ("dataset", "method", "epsilon", "seed", "roc_auc", "average_precision", "cpu_seconds")
Floats = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.int64]
Score = Callable[[Pairs], Floats]


class WithoutNoise(gv.LinkPredictor):
    """The link predictor with zero noise, which has no privacy."""

    def prepare(self, graph: Any) -> PreparedFit:
        """Plan zero noise."""
        ready = super().prepare(graph)
        plan = ready.plan
        assert plan is not None
        silent = zero_noise_plan(plan.unit, plan.queries)
        return replace(ready, plan=silent)


def predictor(graph: gv.Graph, epsilon: float, seed: int) -> Score:
    """Return the scores of a fit."""
    model = gv.LinkPredictor(unit=UNIT, epsilon=epsilon, delta=DELTA, held_out=SHARE, seed=seed)
    return model.fit(graph).decision_function


def without_noise(graph: gv.Graph, seed: int) -> Score:
    """Return the scores of a fit without noise."""
    model = WithoutNoise(unit=UNIT, epsilon=4.0, delta=DELTA, held_out=SHARE, seed=seed, unsafe_noise_seed=0)
    return model.fit(graph).decision_function


def cosine(graph: gv.Graph) -> Score:
    """Return the cosine of public feature vectors."""
    vectors = node_vectors(graph, 128, np.random.default_rng(0)).numpy().astype(np.float64)
    return lambda pairs: np.einsum("pd,pd->p", vectors[pairs[0]], vectors[pairs[1]])


def degree_product(graph: gv.Graph, epsilon: float, held_out: HeldOutPairs) -> Score:
    """Return the product of noisy degrees, for which the whole budget is spent."""
    query = NeighborCountQuery("all", (0,), epsilon, 1, held_out)
    release = Release.open(
        ReleasePlan(UndirectedEdge(), (query,), DELTA), graph.adjacency, budget=MemoryLedger()
    )
    counts = release.answer(NeighborCountData(torch.zeros(graph.num_nodes, dtype=torch.int64)))[:, 0].numpy()
    logs = np.log(np.maximum(counts.astype(np.float64), 0.5))
    return lambda pairs: logs[pairs[0]] + logs[pairs[1]]


def common_neighbors(graph: gv.Graph, epsilon: float, fitted: Pairs) -> Score | None:
    """Return the number of common neighbors in a graph that EdgeRand releases; None if it is too large."""
    known = gv.Graph.from_edges(torch.ones(graph.num_nodes, 1), graph.y, *fitted, directed=False)
    try:
        released, _ = gv.perturb.edge_rand(known, epsilon=epsilon, unit=UNIT, max_edges=MAX_EDGES)
    except ConfigError:
        return None
    matrix = _matrix(released.adjacency.edge_index().numpy(), graph.num_nodes)

    def score(pairs: Pairs) -> Floats:
        parts = np.array_split(pairs, max(1, pairs.shape[1] // 2000), axis=1)
        common = [matrix[some[0]].multiply(matrix[some[1]]).sum(axis=1) for some in parts]
        return np.concatenate([np.asarray(one).ravel() for one in common])

    return score


def autoencoder(graph: gv.Graph, fitted: Pairs, seed: int) -> Score:
    """Return the scores of a graph autoencoder with two convolutions, which has no privacy."""
    nodes = graph.num_nodes
    both = np.concatenate([fitted, fitted[::-1]], axis=1)
    matrix = _matrix(both, nodes) + sparse.eye_array(nodes, format="csr", dtype=np.float32)
    root = 1 / np.sqrt(np.asarray(matrix.sum(axis=1)).ravel())
    adjacency = _torch_csr(sparse.csr_array(matrix.multiply(root[:, None]).multiply(root[None, :])))
    x = sparse.csr_array(to_dense(graph.x).numpy())
    length = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    features = _torch_csr(sparse.csr_array(x.multiply((1 / np.maximum(length, 1e-9))[:, None])))
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(x.shape[1], HIDDEN, generator=generator).mul_(0.1).requires_grad_()
    second = torch.randn(HIDDEN, WIDTH, generator=generator).mul_(0.1).requires_grad_()
    optimizer = torch.optim.Adam([first, second], lr=0.01)
    edges = torch.from_numpy(fitted)

    def embed() -> torch.Tensor:
        hidden: torch.Tensor = torch.relu(adjacency @ (features @ first))
        return adjacency @ (hidden @ second)

    for _ in range(EPOCHS):
        some = edges[:, torch.randint(edges.shape[1], (min(edges.shape[1], 100_000),), generator=generator)]
        others = torch.randint(nodes, tuple(some.shape), generator=generator)
        z = embed()
        dots = torch.cat([(z[pairs[0]] * z[pairs[1]]).sum(dim=1) for pairs in (some, others)])
        labels = torch.cat([torch.ones(some.shape[1]), torch.zeros(some.shape[1])])
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(dots, labels).backward()
        optimizer.step()
    z = embed().detach().double().numpy()
    return lambda pairs: np.einsum("pd,pd->p", z[pairs[0]], z[pairs[1]])


def _matrix(pairs: Pairs, nodes: int) -> Any:
    ones = np.ones(pairs.shape[1], dtype=np.float32)
    return sparse.csr_array((ones, (pairs[0], pairs[1])), shape=(nodes, nodes))


def _torch_csr(matrix: Any) -> torch.Tensor:
    parts = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return torch.sparse_csr_tensor(
        *parts, torch.from_numpy(matrix.data.astype(np.float32)), size=matrix.shape
    )


def test_pairs(edges: Pairs, nodes: int, held_out: HeldOutPairs, seed: int) -> tuple[Pairs, Floats]:
    """Return held-out edges and as many random pairs that are no edges, with their labels."""
    positive = edges[:, held_out.contains(*edges)]
    rng, known = np.random.default_rng(seed), edges[0] * nodes + edges[1]
    drawn = np.sort(rng.integers(nodes, size=(2, 3 * positive.shape[1])), axis=0)
    fits = (drawn[0] < drawn[1]) & ~np.isin(drawn[0] * nodes + drawn[1], known)
    negative = drawn[:, fits][:, : positive.shape[1]]
    labels = np.r_[np.ones(positive.shape[1]), np.zeros(negative.shape[1])]
    return np.concatenate([positive, negative], axis=1), labels


def lines(
    graph: gv.Graph, fitted: Pairs, held_out: HeldOutPairs, seed: int
) -> Iterator[tuple[str, str, Callable[[], Score | None]]]:
    """Yield the name, epsilon and scores of each line."""
    for epsilon in EPSILONS:
        text = f"{epsilon:g}"
        yield "LinkPredictor", text, lambda epsilon=epsilon: predictor(graph, epsilon, seed)
        yield "degree product", text, lambda epsilon=epsilon: degree_product(graph, epsilon, held_out)
        yield (
            "common neighbors, EdgeRand",
            text,
            lambda epsilon=epsilon: common_neighbors(graph, epsilon, fitted),
        )
    yield "LinkPredictor, no noise", "", lambda: without_noise(graph, seed)
    yield "cosine of features", "", lambda: cosine(graph)
    yield "graph autoencoder, no privacy", "", lambda: autoencoder(graph, fitted, seed)


def measure(out: Path, datasets: list[str]) -> None:
    """Append the rows that are missing."""
    new = not out.exists()
    done = set() if new else {tuple(row[:4]) for row in csv.reader(out.open())}
    with out.open("a", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        if new:
            rows.writerow(FIELDS)
        for dataset in datasets:
            graph = gv.load_dataset(dataset)
            pairs = graph.adjacency.edge_index().numpy().astype(np.int64)
            edges = pairs[:, pairs[0] < pairs[1]]
            for seed in range(SEEDS):
                held_out = HeldOutPairs(SHARE, PublicStreams(seed).derive("held-out pairs"))
                fitted = edges[:, ~held_out.contains(*edges)]
                test, labels = test_pairs(edges, graph.num_nodes, held_out, seed)
                for name, epsilon, build in lines(graph, fitted, held_out, seed):
                    if (dataset, name, epsilon, str(seed)) in done:
                        continue
                    start = time.process_time()
                    score = build()
                    if score is None:
                        continue
                    scores, used = score(test), time.process_time() - start
                    values = [metric(labels, scores) for metric in (roc_auc_score, average_precision_score)]
                    rows.writerow(
                        [dataset, name, epsilon, seed, *(f"{v:.4f}" for v in values), f"{used:.1f}"]
                    )
                    file.flush()


def summarize(out: Path) -> None:
    """Print a Markdown table of means and intervals of ROC-AUC, and of average precision at epsilon 1."""
    found: dict[tuple[str, str], dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(out.open()):
        values = [float(row["roc_auc"]), float(row["average_precision"])]
        found[row["method"], row["epsilon"]][row["dataset"]].append(values)
    print(f"| method | ε | {' | '.join(DATASETS)} |\n|---|---|{'---|' * len(DATASETS)}")
    for (name, epsilon), by_dataset in found.items():
        cells = []
        for dataset in DATASETS:
            runs = by_dataset.get(dataset, [])
            if len(runs) < SEEDS:
                cells.append("–")
                continue
            mean, half = (
                np.mean(runs, axis=0)[0],
                2.776 * np.std(runs, axis=0, ddof=1)[0] / math.sqrt(len(runs)),
            )
            cells.append(f"{mean:.3f} ± {half:.3f}")
        print(f"| {name} | {epsilon or '–'} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--summarize", action="store_true")
    given = parser.parse_args()
    if not given.summarize:
        measure(given.out, given.datasets)
    summarize(given.out)


if __name__ == "__main__":
    main()
