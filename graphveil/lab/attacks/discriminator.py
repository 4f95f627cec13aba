"""The attacker's own classifier: a small network that distinguishes two kinds."""

from dataclasses import dataclass

import numpy as np
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.lab.attacks.roc import Bools, Floats
from graphveil.nn.layers import FeedForward
from graphveil.training import TrainingSchedule, train

_MIN_SCALE = 1e-9


@checked
@dataclass(frozen=True, eq=False)
class Discriminator:
    """A trained classifier of two kinds, with the scale of its inputs.

    Args:
        network: of two outputs.
        mean, scale: of each input, on what it learned from.
    """

    network: FeedForward
    mean: Floats
    scale: Floats

    @torch.no_grad()
    @checked
    def scores(self, x: Floats) -> Floats:
        """Return log-odds of the second kind, one a row."""
        logits: torch.Tensor = self.network(_rows((x - self.mean) / self.scale))
        odds: Floats = (logits[:, 1] - logits[:, 0]).to(torch.float64).numpy()
        return odds


@checked
def fit_discriminator(
    x: Floats,
    kind: Bools,
    *,
    seed: int = 0,
    validation: float = 0.2,
    hidden: int = 64,
    epochs: int = 100,
    weight_decay: float = 0.0,
) -> Discriminator:
    """Train the attack model of GAP's membership inference: three layers, 64 hidden, SELU, batch norm.

    Adam at 0.01 for 100 epochs with full batches; the best epoch on a held-out part is kept.

    Args:
        x: Features of each case (n, d).
        kind: Binary label of each case.
        seed: Seed of the held-out part and of the parameters.
        validation: Share held out.
        hidden, epochs, weight_decay: Settings of the network and its training.
    """
    checks.shape((-1, -1), x=x)
    checks.shape((len(x),), kind=kind)
    checks.within(0, 1, validation=validation)
    checks.width(hidden=hidden)
    checks.integer_at_least(0, seed=seed)
    streams = PublicStreams(seed)
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), _MIN_SCALE)
    rows, labels = _rows((x - mean) / scale), torch.from_numpy(kind.astype(np.int64))
    order = torch.from_numpy(streams.numpy("held-out").permutation(len(x)))
    held = round(validation * len(x))
    generator = streams.torch("attack-model")
    network = FeedForward(
        [x.shape[1], hidden, hidden, 2], generator=generator, activation="selu", batch_norm=True
    )
    train(
        network,
        lambda index: network(rows[index]),
        labels,
        order[held:],
        order[:held],
        TrainingSchedule(epochs=epochs, learning_rate=0.01, weight_decay=weight_decay, select="likelihood"),
        generator=generator,
    )
    return Discriminator(network, mean, scale)


def _rows(x: Floats) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
