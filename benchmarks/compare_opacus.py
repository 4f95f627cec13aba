"""Compare the private training of an MLP in graphveil and in Opacus: accuracy, CPU time and lines of code.

    python benchmarks/compare_opacus.py [--dataset amazon/photo] [--epsilons 4] [--splits 3]

Opacus is part of the extra ``dev`` and no dependency of the library.

A record is features and a label. Edges are not read, because Opacus cannot protect them. Both train the same
network (features-16-C, ReLU) by DP-Adam on the same training records: Poisson batches of expected size 256,
10 epochs, clipping norm 1, delta 1e-5, add-or-remove. Opacus calibrates with its PRV accountant and draws
floating-point noise (its default). graphveil calibrates with privacy loss distributions and draws exactly
sampled discrete noise. Test accuracy is the mean over hash-based splits ± standard error. CPU seconds are
medians on one thread and include the calibration.
"""

import argparse
import inspect
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import graphveil as gv
from graphveil.core.features import to_dense
from graphveil.data import RECIPES, Graph

DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
DELTA, BATCH, EPOCHS, CLIP, RATE = 1e-5, 256, 10, 1.0, 0.01
Outcome = tuple[float, float]  # test accuracy, and the noise multiplier


def network(inputs: int, classes: int) -> nn.Module:
    """Return the network of both libraries."""
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, classes))


def with_graphveil(graph: Graph, epsilon: float, seed: int) -> Outcome:
    """Train with graphveil."""
    model = gv.PrivateModule(
        module=network,
        unit="node-record",
        epsilon=epsilon,
        delta=DELTA,
        epochs=EPOCHS,
        batch_size=BATCH,
        clip=CLIP,
        learning_rate=RATE,
        seed=seed,
    ).fit(graph)
    return model.score(graph), model.preview(graph).rows[0].noise_std[0]


def with_opacus(graph: Graph, epsilon: float, seed: int) -> Outcome:
    """Train with Opacus."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    x, train, test = to_dense(graph.x), graph.labeled_in("train"), graph.labeled_in("test")
    torch.manual_seed(seed)
    model = network(x.shape[1], graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    loader = DataLoader(TensorDataset(x[train], graph.y[train]), batch_size=BATCH)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=EPOCHS,
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for rows, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()
    with torch.no_grad():
        correct = model(x[test]).argmax(dim=1) == graph.y[test]
    return float(correct.float().mean()), optimizer.noise_multiplier


LIBRARIES: dict[str, Callable[[Graph, float, int], Outcome]] = {
    "graphveil": with_graphveil,
    "Opacus": with_opacus,
}


def count_lines(function: Callable[..., Outcome]) -> int:
    """Return the number of lines of a function, without signature and docstring."""
    text = [line for line in inspect.getsource(function).splitlines() if line.strip()]
    return len(text) - 2


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="amazon/photo", help="name of the dataset")
    parser.add_argument("--epsilons", default="4", help="values of epsilon, separated by commas")
    parser.add_argument("--splits", type=int, default=3, help="number of splits")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="opacus|torch")
    raw = gv.load_dataset(options.dataset, root=Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT)))
    print("| | lines | epsilon | noise multiplier | test accuracy, % | CPU s |\n|---|---|---|---|---|---|")
    for epsilon in map(float, options.epsilons.split(",")):
        for name, train in LIBRARIES.items():
            outcomes, seconds = [], []
            for split in range(options.splits):
                graph = RECIPES["gap"].on_clients().split(raw, split)
                start = time.process_time()
                outcomes.append(train(graph, epsilon, split))
                seconds.append(time.process_time() - start)
            accuracy = [100 * value for value, _ in outcomes]
            error = statistics.stdev(accuracy) / len(accuracy) ** 0.5 if len(accuracy) > 1 else float("nan")
            print(
                f"| {name} | {count_lines(train)} | {epsilon:g} | {outcomes[0][1]:.4g} | "
                f"{statistics.fmean(accuracy):.1f} ± {error:.1f} | {statistics.median(seconds):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
