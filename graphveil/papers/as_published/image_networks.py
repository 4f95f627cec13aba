"""Public embeddings of tables and images and their learned inverses, for the reconstruction attack."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from graphveil.attacks.reconstruction import Learner, Map
from graphveil.attacks.roc import Floats
from graphveil.core.noise.random import PublicStreams
from graphveil.training import TrainingSchedule, train

_CHANNELS = 16


def random_map(inputs: int, outputs: int, *, seed: int = 0) -> Map:
    """Return a frozen random network of two layers: a public embedding of tables."""
    rng = PublicStreams(seed).numpy("random-map")
    first = rng.normal(size=(inputs, 2 * outputs)) / np.sqrt(inputs)
    second = rng.normal(size=(2 * outputs, outputs)) / np.sqrt(2 * outputs)
    return lambda x: np.asarray(np.tanh(np.tanh(x @ first) @ second))


def in_unit_range(map: Map, public: Floats) -> Map:
    """Scale every output of a map to [0, 1] by its range over public records, and clip it."""
    seen = map(public)
    low, width = seen.min(axis=0), np.maximum(np.ptp(seen, axis=0), 1e-9)
    return lambda x: np.asarray(np.clip((map(x) - low) / width, 0, 1))


def principal_axes(public: Floats, outputs: int) -> Map:
    """Return the projection of records to the first principal components of public records.

    >>> line = np.outer([0.0, 1.0, 2.0], [3.0, 4.0])
    >>> np.abs(principal_axes(line, 1)(line)).ravel().round(6).tolist()
    [5.0, 0.0, 5.0]
    """
    mean = public.mean(axis=0)
    axes = np.linalg.svd(public - mean, full_matrices=False)[2][:outputs]
    return lambda x: np.asarray((x - mean) @ axes.T)


def image_encoder(public: Floats, side: int, outputs: int, *, seed: int = 0, epochs: int = 30) -> Map:
    streams = PublicStreams(seed)
    generator = streams.torch("encoder")
    encoder = _down_convolution(outputs, side, generator)
    both = nn.Sequential(encoder, _up_convolution(outputs, side, generator))
    images = _tensor(public)
    _fit(both, images, images, epochs, streams)
    return lambda x: _apply(encoder, x)


def up_convolution(side: int, *, seed: int = 0, epochs: int = 30) -> Learner:
    """Return a learner that fits up-convolutions from embeddings to images of ``side`` x ``side`` pixels.

    The network maps a row to a quarter of the side and doubles it twice. It minimizes the squared error: with
    noisy input the best answer is the mean of all images that may have caused it.
    """

    def learn(seen: Floats, records: Floats) -> Map:
        streams = PublicStreams(seed)
        network = _up_convolution(seen.shape[1], side, streams.torch("inverse"))
        mean, scale = seen.mean(axis=0), np.maximum(seen.std(axis=0), 1e-6)
        _fit(network, _tensor((seen - mean) / scale), _tensor(records), epochs, streams)
        return lambda x: _apply(network, (x - mean) / scale)

    return learn


def _down_convolution(outputs: int, side: int, generator: torch.Generator) -> nn.Module:
    """Return two convolutions that halve the side, and an affine map. (B, side^2) -> (B, outputs)."""
    network = nn.Sequential(
        *(nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, _CHANNELS, 3, 2, 1), nn.ReLU()),
        *(nn.Conv2d(_CHANNELS, 2 * _CHANNELS, 3, 2, 1), nn.ReLU(), nn.Flatten()),
        nn.Linear(2 * _CHANNELS * (side // 4) ** 2, outputs),
    )
    return _drawn(network, generator)


def _up_convolution(inputs: int, side: int, generator: torch.Generator) -> nn.Module:
    """Return an affine map, and two up-convolutions that double the side. (B, inputs) -> (B, side^2)."""
    start = side // 4
    network = nn.Sequential(
        *(nn.Linear(inputs, 2 * _CHANNELS * start**2), nn.ReLU()),
        *(
            nn.Unflatten(1, (2 * _CHANNELS, start, start)),
            nn.ConvTranspose2d(2 * _CHANNELS, _CHANNELS, 4, 2, 1),
        ),
        *(nn.ReLU(), nn.ConvTranspose2d(_CHANNELS, 1, 4, 2, 1), nn.Flatten()),
    )
    return _drawn(network, generator)


def _drawn(network: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw all weights from one generator, at He's scale."""
    with torch.no_grad():
        for weight in network.parameters():
            scale = (2 / max(1, weight[0].numel())) ** 0.5 if weight.ndim > 1 else 0.0
            weight.normal_(0.0, 1.0, generator=generator).mul_(scale)
    return network


def _fit(network: nn.Module, rows: Tensor, images: Tensor, epochs: int, streams: PublicStreams) -> None:
    train(
        network,
        lambda index: network(rows[index]),
        torch.zeros(len(rows), dtype=torch.long),  # no labels are used
        torch.arange(len(rows)),
        torch.empty(0, dtype=torch.long),
        TrainingSchedule(epochs=epochs, learning_rate=0.01, batch_size=64, decay="cosine", select="last"),
        generator=streams.torch("batches"),
        loss=lambda index: mse_loss(network(rows[index]), images[index]),
    )


@torch.no_grad()
def _apply(network: nn.Module, x: Floats) -> Floats:
    rows: Tensor = network(_tensor(x))
    return rows.to(torch.float64).numpy()


def _tensor(x: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
