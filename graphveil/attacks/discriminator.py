"""The attacker's own classifier: a small network that distinguishes two classes."""

from dataclasses import dataclass

import numpy as np
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.roc import Bools, Floats
from graphveil.core.noise.random import PublicStreams
from graphveil.nn.layers import FeedForward
from graphveil.training import TrainingSchedule, train

_MIN_SCALE = 1e-9


@checked
@dataclass(frozen=True, eq=False)
class Discriminator:
    """A trained binary classifier, with the scale of its inputs.

    Args:
        network: Network with two outputs.
        mean, scale: Mean and standard deviation of each input on the training cases.
    """

    network: FeedForward
    mean: Floats
    scale: Floats

    @torch.no_grad()
    @checked
    def scores(self, x: Floats) -> Floats:
        """Return the log-odds of the second class, one per row.

        Args:
            x: Features of each case (n, d).
        """
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
    """Train the attack model of GAP's membership inference: three layers with SELU and batch norm.

    Adam at 0.01 with full batches; the best epoch on a held-out part is kept.

    Args:
        x: Features of each case (n, d).
        kind: Binary label of each case.
        seed: Seed of the held-out part and of the parameters.
        validation: Share of held-out cases.
        hidden: Width of the hidden layers.
        epochs: Number of epochs.
        weight_decay: Weight decay of Adam.

    Returns:
        The trained classifier.

    Raises:
        ConfigError: If a shape or a setting does not fit.

    Privacy:
        Reads: the given rows and classes, exactly, without a guarantee. Charges: nothing. The result is
        internal.
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
