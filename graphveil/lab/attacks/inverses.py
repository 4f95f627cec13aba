"""Public maps of records to embeddings, and the inverses that an attacker learns on public records."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, relu

from graphveil._util.random import PublicStreams
from graphveil.lab.attacks.roc import Floats
from graphveil.training import TrainingSchedule, train

Map: TypeAlias = Callable[[Floats], Floats]
Learner: TypeAlias = Callable[[Floats, Floats], Map]  # what was seen and the records behind it, to an inverse
_PENALTIES = 10.0 ** np.arange(-6, 7)
_HELD_OUT = 0.2
_CHANNELS = 16


def identity(x: Floats) -> Floats:
    """Return records as they are."""
    return x


def random_map(inputs: int, outputs: int, *, seed: int = 0) -> Map:
    """Return a frozen random network of two layers: a public embedding of tables."""
    rng = PublicStreams(seed).numpy("random-map")
    first = rng.normal(size=(inputs, 2 * outputs)) / np.sqrt(inputs)
    second = rng.normal(size=(2 * outputs, outputs)) / np.sqrt(2 * outputs)
    return lambda x: np.asarray(np.tanh(np.tanh(x @ first) @ second))


def in_unit_range(map: Map, public: Floats) -> Map:
    """Return the map with every output brought to [0, 1] by its range over public records, and cut there."""
    seen = map(public)
    low, width = seen.min(axis=0), np.maximum(np.ptp(seen, axis=0), 1e-9)
    return lambda x: np.asarray(np.clip((map(x) - low) / width, 0, 1))


def ridge(seen: Floats, records: Floats) -> Map:
    """Learn the best linear inverse; its penalty is chosen on held-out records."""
    held = round(_HELD_OUT * len(seen))
    mean, offset = seen.mean(axis=0), records.mean(axis=0)
    centered, wanted = seen - mean, records - offset
    values, basis = np.linalg.eigh(centered[held:].T @ centered[held:])
    turned, target = centered[held:] @ basis, wanted[held:]
    fitted = turned.T @ target

    def weights(penalty: float) -> Floats:
        size = np.maximum(values, 0) + penalty * len(target)
        return np.asarray(basis @ (fitted / size[:, None]))

    def loss(penalty: float) -> float:
        return float(((centered[:held] @ weights(penalty) - wanted[:held]) ** 2).mean())

    chosen = weights(min(_PENALTIES, key=loss))
    return lambda x: np.asarray((x - mean) @ chosen + offset)


def up_convolution(side: int, *, seed: int = 0, epochs: int = 30) -> Learner:
    """Return what learns to draw images of ``side`` x ``side`` pixels from embeddings, by up-convolutions.

    The network takes a row to a quarter of the side and doubles it twice; it lowers the squared error, which
    an attacker who sees noise does best by drawing the mean of all images that may lie behind it.
    """

    def learn(seen: Floats, records: Floats) -> Map:
        streams = PublicStreams(seed)
        network = UpConvolution(seen.shape[1], side, generator=streams.torch("inverse"))
        mean, scale = seen.mean(axis=0), np.maximum(seen.std(axis=0), 1e-6)
        rows = _tensor((seen - mean) / scale)
        _fit_images(network, rows, _tensor(records), epochs, streams)

        @torch.no_grad()
        def inverse(x: Floats) -> Floats:
            drawn: Tensor = network(_tensor((x - mean) / scale))
            return drawn.to(torch.float64).numpy()

        return inverse

    return learn


def principal_axes(public: Floats, outputs: int) -> Map:
    """Return the coordinates of records along the axes in which public ones differ most.

    >>> line = np.outer([0.0, 1.0, 2.0], [3.0, 4.0])
    >>> np.abs(principal_axes(line, 1)(line)).ravel().round(6).tolist()
    [5.0, 0.0, 5.0]
    """
    mean = public.mean(axis=0)
    axes = np.linalg.svd(public - mean, full_matrices=False)[2][:outputs]
    return lambda x: np.asarray((x - mean) @ axes.T)


def image_encoder(public: Floats, side: int, outputs: int, *, seed: int = 0, epochs: int = 30) -> Map:
    """Return a convolutional encoder that was trained on public images, as the half of an autoencoder."""
    streams = PublicStreams(seed)
    generator = streams.torch("encoder")
    encoder = DownConvolution(outputs, side, generator=generator)
    both = nn.Sequential(encoder, UpConvolution(outputs, side, generator=generator))
    images = _tensor(public)
    _fit_images(both, images, images, epochs, streams)

    @torch.no_grad()
    def encode(x: Floats) -> Floats:
        rows: Tensor = encoder(_tensor(x))
        return rows.to(torch.float64).numpy()

    return encode


class DownConvolution(nn.Module):
    """Two convolutions that halve the side, and an affine map. (B, side^2) -> (B, outputs)."""

    def __init__(self, outputs: int, side: int, *, generator: torch.Generator) -> None:
        """Draw the weights."""
        super().__init__()
        self._side = side
        self._layers = nn.ModuleList(
            [nn.Conv2d(1, _CHANNELS, 3, 2, 1), nn.Conv2d(_CHANNELS, 2 * _CHANNELS, 3, 2, 1)]
        )
        self._last = nn.Linear(2 * _CHANNELS * (side // 4) ** 2, outputs)
        _draw(self, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings."""
        h = x.view(-1, 1, self._side, self._side)
        for layer in self._layers:
            h = relu(layer(h))
        return torch.as_tensor(self._last(h.flatten(1)))


class UpConvolution(nn.Module):
    """An affine map, and two up-convolutions that double the side. (B, inputs) -> (B, side^2)."""

    def __init__(self, inputs: int, side: int, *, generator: torch.Generator) -> None:
        """Draw the weights."""
        super().__init__()
        self._start = side // 4
        self._first = nn.Linear(inputs, 2 * _CHANNELS * self._start**2)
        self._second = nn.ConvTranspose2d(2 * _CHANNELS, _CHANNELS, 4, 2, 1)
        self._last = nn.ConvTranspose2d(_CHANNELS, 1, 4, 2, 1)
        _draw(self, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return images as rows."""
        h = relu(self._first(x)).view(-1, 2 * _CHANNELS, self._start, self._start)
        return torch.as_tensor(self._last(relu(self._second(h))).flatten(1))


def _fit_images(
    network: nn.Module, rows: Tensor, images: Tensor, epochs: int, streams: PublicStreams
) -> None:
    """Lower the squared error of what a network draws."""
    generator = streams.torch("batches")
    train(
        network,
        lambda index: network(rows[index]),
        torch.zeros(len(rows), dtype=torch.long),  # nobody is classified
        torch.arange(len(rows)),
        torch.empty(0, dtype=torch.long),
        TrainingSchedule(epochs=epochs, learning_rate=0.01, batch_size=64, decay="cosine", select="last"),
        generator=generator,
        loss=lambda index: mse_loss(network(rows[index]), images[index]),
    )


def _draw(network: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights from one generator, at He's scale."""
    with torch.no_grad():
        for weight in network.parameters():
            scale = (2 / max(1, weight[0].numel())) ** 0.5 if weight.ndim > 1 else 0.0
            weight.normal_(0.0, 1.0, generator=generator).mul_(scale)


def _tensor(x: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
