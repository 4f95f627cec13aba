"""Canaries of local mechanisms: many people with one of the two worst records, and exact counts."""

import numpy as np

from graphveil.audit.bounds import CONFIDENCE, LowerBound, repeated_runs
from graphveil.mechanisms import FeatureMechanism, LabelMechanism, LocalNoise, MultiBit

PEOPLE = 1 << 18
_NUMBERS = 1 << 23  # of features that are drawn at a time


def plant_labels(
    mechanism: LabelMechanism,
    *,
    people: int = PEOPLE,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
) -> LowerBound:
    """Return the lower bound on a label mechanism's epsilon, from people of class 0 and people of class 1.

    The event is "says class 0, and not class 1", whose likelihood ratio is e^epsilon exactly.

    >>> from graphveil.mechanisms import LabelRR
    >>> found = plant_labels(LabelRR(epsilon=1.0, classes=4), noise=LocalNoise(unsafe_noise_seed=0))
    >>> 0.95 < found.epsilon <= 1.0
    True
    """
    labels = np.arange(2 * people) % 2
    said = mechanism.perturb(labels, stream=(noise or LocalNoise()).stream("labels"))
    members = mechanism.members(said)
    heard = members[:, 0] & ~members[:, 1]
    return _counted(heard, labels == 0, confidence)


def plant_features(
    mechanism: FeatureMechanism,
    *,
    people: int = PEOPLE,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
) -> LowerBound | None:
    """Return the lower bound on a feature mechanism's epsilon, or None where its event is too rare to count.

    One half has the highest value in every feature, the other the lowest. The event is that everything that
    is told is as high as it can be; for one bit a feature its likelihood ratio is e^epsilon exactly.
    """
    if not isinstance(mechanism, MultiBit) and mechanism.dim > 1:
        return None
    stream = (noise or LocalNoise()).stream("features")
    low, high = (
        np.broadcast_to(bound, mechanism.dim) for bound in (mechanism.bounds.low, mechanism.bounds.high)
    )
    heard, inside = [], []
    block = max(2, _NUMBERS // mechanism.dim)
    for start in range(0, 2 * people, block):
        rows = np.arange(start, min(2 * people, start + block))
        x = np.where((rows % 2 == 0)[:, None], high, low)
        told = mechanism.perturb(x, stream=stream, rows=rows).values
        heard.append((told >= told.max()).all(axis=1))
        inside.append(rows % 2 == 0)
    return _counted(np.concatenate(heard), np.concatenate(inside), confidence)


def _counted(heard: np.ndarray, inside: np.ndarray, confidence: float) -> LowerBound:
    hits, alarms = int(heard[inside].sum()), int(heard[~inside].sum())
    return repeated_runs(hits, int(inside.sum()), alarms, int((~inside).sum()), confidence=confidence)
