"""Canaries of local mechanisms: many records of the two worst kinds, and exact counts."""

import math
from dataclasses import replace

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import CONFIDENCE, LowerBound, _check_confidence, odds_of_runs, repeated_runs
from graphveil.mechanisms import FeatureMechanism, FeatureRR, LabelMechanism, LocalNoise, MultiBit

NUM_RECORDS = 1 << 18
_NUMBERS = 1 << 22  # of features that are drawn at a time
_MIN_REPORTS, MAX_REPORTS = 1 << 16, 1 << 28  # features of one law, on either side
_NEEDED, _NEEDED_OF_BITS = 4000, 1700  # over epsilon squared: for a bound some 8 % below
_MAX_LAWS = 4
_MAX_RECORDS = 1 << 32


@checked
def audit_label_mechanism(
    mechanism: LabelMechanism,
    *,
    num_records: int = NUM_RECORDS,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
) -> LowerBound:
    """Compute a lower bound on the epsilon of a label mechanism, from records of class 0 and of class 1.

    The event is "class 0 is among the reported classes, and class 1 is not". Its likelihood ratio is
    e^epsilon.

    Args:
        mechanism: Local randomizer of labels.
        num_records: Number of records of each class.
        confidence: Confidence of the bound.
        noise: Source of the noise; secret noise by default.

    Returns:
        The bound on epsilon at delta = 0.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: synthetic records only. Charges: nothing. The result is public.

    >>> from graphveil.mechanisms import LabelRR
    >>> found = audit_label_mechanism(LabelRR(epsilon=1.0, classes=4), noise=LocalNoise(unsafe_noise_seed=0))
    >>> 0.95 < found.epsilon <= 1.0
    True
    """
    _check_num_records(num_records, confidence)
    labels = np.arange(2 * num_records) % 2
    reported = mechanism.perturb(labels, stream=(noise or LocalNoise()).stream("labels"))
    members = mechanism.members(reported)
    detected = members[:, 0] & ~members[:, 1]
    return _counted(detected, labels == 0, confidence)


@checked
def audit_feature_mechanism(
    mechanism: FeatureMechanism,
    *,
    num_records: int = NUM_RECORDS,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
    most: int = MAX_REPORTS,
) -> LowerBound | None:
    """Compute a lower bound on the epsilon of a feature mechanism.

    Half of the records have the highest value in every feature, the others the lowest. The event is that
    every reported value is as high as possible; with one bit per feature its likelihood ratio is e^epsilon.
    If every feature is reported separately (FeatureRR), that event is rare. Features of one law are then
    counted together: they are independent, so their bounds add up. Features of two bins are counted by odds.
    All features high, and all low, are each at most e^epsilon more likely under one record, so the product
    of the features' odds ratios is at most e^(2 epsilon).

    Args:
        mechanism: Local randomizer of the features of a record.
        num_records: Number of records of each kind; not used for features that are reported separately.
        confidence: Confidence of the bound.
        noise: Source of the noise; secret noise by default.
        most: Largest number of reported features of one law, for each of the two worst records.

    Returns:
        The bound on epsilon at delta = 0; None if the event is too rare to count.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: synthetic records only. Charges: nothing. The result is public.
    """
    _check_num_records(num_records, confidence)
    checks.integer_at_least(1, most=most)
    if isinstance(mechanism, FeatureRR) and mechanism.dim > 1:
        return _by_feature(mechanism, confidence, noise or LocalNoise(), most)
    if not isinstance(mechanism, MultiBit) and mechanism.dim > 1:
        return None
    stream = (noise or LocalNoise()).stream("features")
    low, high = (
        np.broadcast_to(bound, mechanism.dim) for bound in (mechanism.bounds.low, mechanism.bounds.high)
    )
    detected, inside = [], []
    block = max(2, _NUMBERS // mechanism.dim)
    for start in range(0, 2 * num_records, block):
        rows = np.arange(start, min(2 * num_records, start + block))
        x = np.where((rows % 2 == 0)[:, None], high, low)
        outcome = mechanism.perturb(x, stream=stream, rows=rows).values
        detected.append((outcome >= outcome.max()).all(axis=1))
        inside.append(rows % 2 == 0)
    return _counted(np.concatenate(detected), np.concatenate(inside), confidence)


def _check_num_records(num_records: int, confidence: float) -> None:
    checks.within(1, _MAX_RECORDS, num_records=num_records)
    _check_confidence(confidence)


def _by_feature(mechanism: FeatureRR, confidence: float, noise: LocalNoise, most: int) -> LowerBound | None:
    """Add up the bounds of features, from how often the worst records report the highest bin."""
    laws = list(dict.fromkeys(mechanism.features))
    if len(laws) > _MAX_LAWS:
        return None
    which = np.array([laws.index(law) for law in mechanism.features])
    sizes = np.bincount(which)
    num_records = 0
    for law, size in zip(laws, sizes.tolist(), strict=True):
        needed = _MIN_REPORTS
        if law.epsilon:
            wanted = math.ceil((_NEEDED_OF_BITS if law.k == 2 else _NEEDED) / law.epsilon**2)
            needed = min(most, max(needed, wanted))
        num_records = max(num_records, math.ceil(needed / size))
    # How often the highest and the lowest record report a feature's highest bin.
    stream, top = noise.stream("features"), mechanism.sizes - 1
    low, high = (np.broadcast_to(end, mechanism.dim) for end in (mechanism.bounds.low, mechanism.bounds.high))
    reported = np.zeros((2, mechanism.dim), dtype=np.int64)
    block = max(2, _NUMBERS // mechanism.dim)
    for start in range(0, 2 * num_records, block):
        rows = np.arange(start, min(2 * num_records, start + block))
        for side, record in enumerate((high, low)):
            own = rows[rows % 2 == side]
            x = np.broadcast_to(record, (len(own), mechanism.dim))
            reported[side] += (mechanism.perturb(x, stream=stream, rows=own).values == top).sum(axis=0)
    detected = np.stack([np.bincount(which, weights=counts).astype(np.int64) for counts in reported])
    significance = (1 - confidence) / len(laws)
    bounds = [
        (odds_of_runs if law.k == 2 else repeated_runs)(
            tp, num_records * size, fp, num_records * size, confidence=1 - significance
        )
        for law, size, tp, fp in zip(laws, sizes.tolist(), *detected.tolist(), strict=True)
    ]
    return replace(
        bounds[0],
        epsilon=float(sum(size * bound.epsilon for size, bound in zip(sizes, bounds, strict=True))),
        confidence=confidence,
        max_certifiable=float(
            sum(size * bound.max_certifiable for size, bound in zip(sizes, bounds, strict=True))
        ),
        method="counts of runs, feature by feature",
    )


def _counted(detected: np.ndarray, inside: np.ndarray, confidence: float) -> LowerBound:
    tp, fp = int(detected[inside].sum()), int(detected[~inside].sum())
    return repeated_runs(tp, int(inside.sum()), fp, int((~inside).sum()), confidence=confidence)
