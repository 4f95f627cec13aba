"""Canaries of local mechanisms: many people with one of the two worst records, and exact counts."""

import math
from dataclasses import replace

import numpy as np

from graphveil.audit.bounds import CONFIDENCE, LowerBound, repeated_runs
from graphveil.mechanisms import FeatureMechanism, FeatureRR, LabelMechanism, LocalNoise, MultiBit

PEOPLE = 1 << 18
_NUMBERS = 1 << 22  # of features that are drawn at a time
_FEWEST, _MOST = 1 << 16, 1 << 22  # features of one law, on either side
_NEEDED = 4000  # over epsilon squared: for a bound some 6 % below
_MOST_LAWS = 4


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
    is told is as high as it can be; for one bit a feature its likelihood ratio is e^epsilon exactly. Where
    every feature is told on its own (FeatureRR), that event is rare, and features of one law are counted
    together instead: they are independent, so their bounds add up.
    """
    if isinstance(mechanism, FeatureRR) and mechanism.dim > 1:
        return _by_feature(mechanism, confidence, noise or LocalNoise())
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


def _by_feature(mechanism: FeatureRR, confidence: float, noise: LocalNoise) -> LowerBound | None:
    """Add up the bounds of features: how often the highest bin is told by either of the worst records."""
    laws = list(dict.fromkeys(mechanism.features))
    if len(laws) > _MOST_LAWS:
        return None
    bounds = []
    for number, law in enumerate(laws):
        count = mechanism.features.count(law)
        alone = FeatureRR(epsilon=law.epsilon, dim=1, k=law.k, mode=law.mode, decode=law.decode)
        stream, heard = noise.stream(f"features {number}"), []
        people = min(_MOST, max(_FEWEST, math.ceil(_NEEDED / law.epsilon**2)))
        for start in range(0, 2 * people, _NUMBERS):
            rows = np.arange(start, min(2 * people, start + _NUMBERS))
            told = alone.perturb((rows % 2 == 0)[:, None].astype(float), stream=stream, rows=rows).values
            heard.append(told[:, 0] == law.k - 1)
        inside = np.arange(2 * people) % 2 == 0
        found = _counted(np.concatenate(heard), inside, 1 - (1 - confidence) / len(laws))
        bounds.append((count, found))
    return replace(
        bounds[0][1],
        epsilon=sum(count * bound.epsilon for count, bound in bounds),
        confidence=confidence,
        ceiling=sum(count * bound.ceiling for count, bound in bounds),
        how="counts of runs, feature by feature",
    )


def _counted(heard: np.ndarray, inside: np.ndarray, confidence: float) -> LowerBound:
    hits, alarms = int(heard[inside].sum()), int(heard[~inside].sum())
    return repeated_runs(hits, int(inside.sum()), alarms, int((~inside).sum()), confidence=confidence)
