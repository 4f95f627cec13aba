"""The same private training written with Opacus: an MLP on records, its accuracy, time and lines of code.

    python benchmarks/beside_opacus.py [--dataset amazon/photo] [--epsilons 4] [--splits 3]

Opacus comes with the extra ``dev``; it is no dependency of the library.

Records are features and labels; no edge is read, since Opacus cannot protect them. Both train the same
network (features-16-C, ReLU) by DP-Adam on the same training records: Poisson batches of 256 expected, 10
epochs, clipping norm 1, delta 1e-5, add or remove one record. Opacus calibrates by its PRV accountant and
draws float noise (its default); we calibrate by PLD and draw exact noise. Test accuracy is the mean over
splits made from ids, ± standard error; CPU seconds, medians, include the calibration, on one thread.
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
from graphveil.data import RECIPES, Graph, to_dense

BESIDE = Path(__file__).parents[2] / "shared" / "data"
DELTA, BATCH, EPOCHS, CLIP, RATE = 1e-5, 256, 10, 1.0, 0.01
Found = tuple[float, float]  # test accuracy, and the noise multiplier


def network(inputs: int, classes: int) -> nn.Module:
    """Return the network that both train."""
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, classes))


def ours(graph: Graph, epsilon: float, seed: int) -> Found:
    """Train with this library."""
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


def with_opacus(graph: Graph, epsilon: float, seed: int) -> Found:
    """Train with Opacus."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    x, train, test = to_dense(graph.x), graph.mask("train"), graph.mask("test")
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
        right = model(x[test]).argmax(dim=1) == graph.y[test]
    return float(right.float().mean()), optimizer.noise_multiplier


PREDICTION_RULES: dict[str, Callable[[Graph, float, int], Found]] = {"graphveil": ours, "Opacus": with_opacus}


def lines(way: Callable[..., Found]) -> int:
    """Return how many lines of code a function has, without head and docstring."""
    text = [line for line in inspect.getsource(way).splitlines() if line.strip()]
    return len(text) - 2


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="amazon/photo")
    parser.add_argument("--epsilons", default="4")
    parser.add_argument("--splits", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="opacus|torch")
    raw = gv.load_dataset(asked.dataset, root=Path(os.environ.get("GRAPHVEIL_DATA", BESIDE)))
    print("| | lines | epsilon | noise multiplier | test accuracy, % | CPU s |\n|---|---|---|---|---|---|")
    for epsilon in map(float, asked.epsilons.split(",")):
        for name, way in PREDICTION_RULES.items():
            found, seconds = [], []
            for split in range(asked.splits):
                graph = RECIPES["gap"].on_clients().split(raw, split)
                begun = time.process_time()
                found.append(way(graph, epsilon, split))
                seconds.append(time.process_time() - begun)
            accuracy = [100 * value for value, _ in found]
            error = statistics.stdev(accuracy) / len(accuracy) ** 0.5 if len(accuracy) > 1 else float("nan")
            print(
                f"| {name} | {lines(way)} | {epsilon:g} | {found[0][1]:.4g} | "
                f"{statistics.fmean(accuracy):.1f} ± {error:.1f} | {statistics.median(seconds):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
