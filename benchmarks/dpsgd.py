"""Measure the CPU time of a DP-SGD step in multiples of a step without privacy.

    python benchmarks/dpsgd.py [--rounds 10]

The network 500-16-16-6 on N = 20,000 records, dense or one-hot (8 non-zeros per row), one thread. A step
without privacy is one of the ordinary training loop: a batch of fixed size, gather, forward, autograd, Adam.
A private step is Poisson sampling, gather, forward, backward, clipping, noise and Adam. It computes in
float64, so it is compared with steps in float32 and in float64. The steps alternate, and the minimum of
several rounds is printed.
"""

import argparse
from collections.abc import Callable
from itertools import count, cycle
from typing import Any

import numpy as np
import torch
from _measure import fastest
from scipy import sparse
from torch import Tensor

from graphveil.core.clipping.clipped_sums import GhostClippedSum
from graphveil.core.clipping.dpsgd import Adam, PrivateSchedule, _TrainingState
from graphveil.core.clipping.ghost_modules import Activation, Affine, GhostSequential
from graphveil.core.noise.random import PublicStreams
from graphveil.core.noise.steps import StepNoise
from graphveil.core.queries.training_steps import noisy_mean
from graphveil.nn.layers import FeedForward, SparseRows, batch_of
from graphveil.training.heads import MULTICLASS

N, CLASSES = 20_000, 6
WIDTHS = (500, 16, 16, CLASSES)
NON_ZEROS = 8
BATCHES = (256, 2048, 4096)
STEPS = 32  # consecutive steps of one measurement: noise and batches are drawn in blocks
RATE = 0.01
GOAL = 1.3  # times a float32 step without privacy


def records(kind: str, streams: PublicStreams) -> tuple[Any, Tensor]:
    """Return features and labels."""
    labels = torch.randint(0, CLASSES, (N,), generator=streams.torch("labels"))
    if kind == "dense":
        return torch.randn(N, WIDTHS[0], generator=streams.torch("features")), labels
    columns = streams.numpy("features").integers(0, WIDTHS[0] // NON_ZEROS, size=(N, NON_ZEROS))
    columns += np.arange(NON_ZEROS) * (WIDTHS[0] // NON_ZEROS)
    offsets = np.arange(N + 1, dtype=np.int32) * NON_ZEROS
    ones = np.ones(columns.size, dtype=np.float32)
    return sparse.csr_array((ones, columns.reshape(-1).astype(np.int32), offsets), (N, WIDTHS[0])), labels


def plain(x: Any, labels: Tensor, size: int, dtype: torch.dtype) -> Callable[[], None]:
    """Return a training step without privacy."""
    streams = PublicStreams(0)
    network = FeedForward(WIDTHS, generator=streams.torch("weights"), activation="selu").to(dtype)
    optimizer = Adam(network.parameters())
    order = torch.randperm(N, generator=streams.torch("order"))
    batches = cycle([batch for batch in torch.split(order, size) if len(batch) == size])
    x = x.to(dtype) if isinstance(x, Tensor) else x

    def step() -> None:
        batch = next(batches)
        rows = batch_of(x, batch)
        if isinstance(rows, SparseRows):
            rows = rows.with_values(rows.values.to(dtype))
        optimizer.zero_grad()
        MULTICLASS.loss(network(rows), labels[batch]).backward()
        optimizer.step(rate=RATE)

    return step


def private(x: Any, labels: Tensor, size: int) -> Callable[[], None]:
    """Return a private training step."""
    network = FeedForward(WIDTHS, generator=PublicStreams(0).torch("weights"), activation="selu")
    maps = [Affine(layer.weight, layer.bias) for layer in network._layers]
    selu = Activation("selu")
    schedule = PrivateSchedule(batch_size=size, learning_rate=RATE)
    gradients = GhostClippedSum(GhostSequential(maps[0], selu, maps[1], selu, maps[2]), x, labels)
    noise = StepNoise(
        bytes(32),
        parameters=len(gradients.weights),
        noise_multiplier=1.5,
        sampling_rate=schedule.sampling_rate(N),
    )
    state, steps = _TrainingState(gradients.weights, schedule), count()

    def step() -> None:
        state.move(noisy_mean(gradients, schedule.clip, noise, next(steps)), rate=RATE, last=False)

    return step


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    """Return a function that runs consecutive steps."""

    def run() -> None:
        for _ in range(STEPS):
            step()

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=10, help="number of rounds, of which the minimum is printed"
    )
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    columns = " ".join(f"{name:>9s}" for name in ("float32", "float64", "private"))
    print(f"{'ms per step':16s} {columns}   x float32  x float64   (goal: {GOAL})")
    for kind in ("dense", "one-hot"):
        x, labels = records(kind, PublicStreams(0))
        for size in BATCHES:
            steps = {
                "float32": plain(x, labels, size, torch.float32),
                "float64": plain(x, labels, size, torch.float64),
                "private": private(x, labels, size),
            }
            seconds = fastest({name: repeated(step) for name, step in steps.items()}, rounds)
            low, high, own = (seconds[name] / STEPS * 1e3 for name in steps)
            row = f"{kind:8s} {size:7d} {low:9.2f} {high:9.2f} {own:9.2f}"
            print(f"{row} {own / low:11.2f} {own / high:10.2f}", flush=True)


if __name__ == "__main__":
    main()
