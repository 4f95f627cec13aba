"""The encoder of protected records: how far it descends, and the release's question that trains it."""

import math

from torch import Tensor

from graphveil.data import Graph, rows
from graphveil.estimators.features.noisy_softmax import NoisySoftmax, fit_softmax
from graphveil.estimators.method import State
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import tensors_of
from graphveil.release import DPSGDData, DPSGDQuery, Release
from graphveil.training.descent import DescentSchedule
from graphveil.training.devices import device_tag

_RATE, _RATE_RANGE, _USUAL, _POWER = 5.0, (2.0, 60.0), 900.0, 1.3


def encoder_schedule(steps: int, noise_multiplier: float, records: int) -> DescentSchedule:
    """Return the encoder's schedule: the step size follows from how loud the noise is, a public figure.

    rate = clip(5 (m / 900)^1.3, 2, 60) with m = n sqrt(T) / z, the descent's mu times the records.

    >>> round(encoder_schedule(60, 91.3814, 11925).rate, 4)
    5.8148
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    rate = _RATE * (loudness / _USUAL) ** _POWER
    low, high = _RATE_RANGE
    return DescentSchedule(steps=steps, rate=min(max(rate, low), high), records=records)


def train_encoder(
    graph: Graph, query: DPSGDQuery, labeled: Tensor, release: Release, session: Session
) -> NoisySoftmax:
    """Train the encoder on labeled members as the release's next question, or take it from the workspace.

    Args:
        graph: features and labels.
        query: the steps.
        labeled: the public members that teach, bool (N).
        release: open, with the steps as its next question.
        session: where a finished stage is kept, and on which device gradients are formed.
    """
    nodes = labeled.nonzero()[:, 0]
    bound = (*tensors_of(rows(graph.x, nodes)), graph.y[nodes], *device_tag(session.private_device))
    noise = release.answer(DPSGDData(*bound))

    def train() -> State:
        return fit_softmax(
            graph.x,
            graph.y,
            labeled,
            graph.num_classes,
            descent=encoder_schedule(query.steps, query.noise_multiplier, len(nodes)),
            noise_multiplier=query.noise_multiplier,
            noise=noise,
            device=session.private_device,
        ).state()

    return NoisySoftmax.restore(session.load_or_compute("encoder", train))
