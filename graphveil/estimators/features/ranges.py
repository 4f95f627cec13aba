"""Ranges of feature columns under node-level units, from one query of noisy histograms.

The histogram of a column counts records by sign, power of two, and 32 equal parts between two powers. Zero
and values below 1/64 have no cell, so a null record, whose features are zero, is in none. Everything after
the noise is post-processing: a range depends on noisy counts, their noise, and public sizes alone.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.features import Features, to_dense
from graphveil.core.queries.record_histograms import FeatureHistogramQuery
from graphveil.core.unit import Unit
from graphveil.data import Graph
from graphveil.data.tables.encoding import Kind
from graphveil.estimators.features.scaling import RANGE_SHARE, Range
from graphveil.estimators.public_sizes import GROUPS, PARTITION, TRAIN

MAX_COLUMNS = 256  # of more columns no range is learned, since the noise grows with their square root
MIN_RECORDS = 50.0  # training records for each standard deviation of the noise; with fewer, counts are noise
_FIRST, _POWERS, _PARTS = -6, 48, 32  # cells from 2^-6 to 2^42; larger values are in the last one
_SIDE = _POWERS * _PARTS
_TAIL = 0.02  # share of the values that may lie outside of a range, on each side
# In standard deviations of the noise: a block of cells that has records; one next to such a block; the
# smallest tail; and the smallest number of records that a range is learned from.
_FOUND, _NEXT, _LEAST_TAIL, _LEAST = 5.5, 2.5, 6.0, 12.0

_NUMBERS: tuple[Kind, ...] = ("number", "date", "duration")
Counts = npt.NDArray[np.float64]


def range_query(unit: Unit, columns: int, mu: float) -> FeatureHistogramQuery:
    """Return the query for column ranges, which uses 2 % of the squared mu of a budget."""
    query = FeatureHistogramQuery(
        columns=columns,
        cells=2 * _SIDE,
        sigma=1.0,
        partition=PARTITION,
        pays=tuple(group == TRAIN for group in range(GROUPS)),
    )
    return replace(query, sigma=query.sensitivity(unit) / (mu * math.sqrt(RANGE_SHARE)))


def numeric_columns(graph: Graph) -> list[tuple[int, ...]]:
    """Return the positions of numeric columns, from public kinds of columns: all, and those without lists.

    Bools and categories are 0 or 1 and need no range. Without a table every column is numeric.
    """
    rules = () if graph.encoding is None else graph.encoding.rules
    if sum(rule.columns for rule in rules) != graph.num_features:
        return [tuple(range(graph.num_features))]
    starts = np.cumsum([0, *(rule.columns for rule in rules)]).tolist()
    return [
        tuple(
            start + place
            for rule, start in zip(rules, starts, strict=False)
            if rule.kind in kinds
            for place in range(rule.width)
        )
        for kinds in ((*_NUMBERS, "list"), _NUMBERS)
    ]


def learnable(choices: Sequence[tuple[int, ...]], unit: Unit, mu: float, records: int) -> tuple[int, ...]:
    """Return the first selection of columns with learnable ranges, by public sizes; None if there is none."""
    for columns in choices:
        few = 0 < len(columns) <= MAX_COLUMNS
        if few and records >= MIN_RECORDS * range_query(unit, len(columns), mu).sigma:
            return columns
    return ()


def magnitude_cells(x: Features) -> Tensor:
    """Return the cell of each value, int16, in ascending order of values; -1 for zero and tiny values.

    >>> magnitude_cells(torch.tensor([[0.0, 1.0, 1.04, -1.0, 1e30]])).tolist()
    [[-1, 1728, 1729, 1343, 3071]]
    """
    values = to_dense(x).numpy()
    mantissa, exponent = np.frexp(np.abs(values))
    place = (exponent - 1 - _FIRST) * _PARTS + ((2 * mantissa - 1) * _PARTS).astype(np.int32)
    place = np.minimum(place, _SIDE - 1)
    cells = np.where(values > 0, _SIDE + place, _SIDE - 1 - place)
    return torch.from_numpy(np.where((values == 0) | (place < 0), -1, cells).astype(np.int16))


def noisy_range(counts: Counts, sigma: float, records: int) -> Range | None:
    """Return the 2 % and 98 % quantiles of a column's nonzero values; None if too few of them are found.

    If there are zeros, the range is extended towards zero by at most its own width, so that they differ.

    Args:
        counts: Noisy histogram.
        sigma: Standard deviation of the noise of each count.
        records: Public number of counted records.

    >>> ages = magnitude_cells(torch.arange(18.0, 70.0)[:, None])[:, 0].numpy()
    >>> counts = 100.0 * np.bincount(ages, minlength=2 * _SIDE)
    >>> [round(end) for end in noisy_range(counts, 1.0, 5200)]
    [19, 69]
    """
    mass = _denoised(counts, sigma)
    total = float(mass.sum())
    if total < _LEAST * sigma:
        return None
    ends = 2.0 ** (_FIRST + np.arange(_SIDE) // _PARTS) * (1 + np.arange(_SIDE) % _PARTS / _PARTS)
    ends = np.append(ends, 2.0 ** (_FIRST + _POWERS))
    lows, highs = np.append(-ends[:0:-1], ends[:-1]), np.append(-ends[-2::-1], ends[1:])
    below, tail = mass.cumsum(), min(max(_TAIL * total, _LEAST_TAIL * sigma), total / 4)
    low, high = (
        float(lows[cell] + (highs[cell] - lows[cell]) * (wanted - below[cell] + mass[cell]) / mass[cell])
        for wanted in (tail, total - tail)
        for cell in [int(below.searchsorted(wanted))]
    )
    if records - total > max(_TAIL * records, _LEAST_TAIL * sigma):
        low, high = (
            max(min(low, 0.0), 2 * low - high) if low > 0 else low,
            min(max(high, 0.0), 2 * high - low) if high < 0 else high,
        )
    return low, high


def _denoised(counts: Counts, sigma: float) -> Counts:
    """Return the number of records in each cell; zero where no block of cells stands out from the noise.

    The cells between two powers of two are halved repeatedly. A power of two is kept if one of its blocks
    has more records than noise explains. Its records are divided over the halves by their noisy sums. Where
    neither half stands out, both have the same number.
    """
    sums = [counts.reshape(-1, _PARTS)]
    while sums[0].shape[1] > 1:
        sums.insert(0, sums[0][:, 0::2] + sums[0][:, 1::2])
    noise = [sigma * math.sqrt(_PARTS / each.shape[1]) for each in sums]
    found = [each > _FOUND * std for each, std in zip(sums, noise, strict=True)]
    for level in range(len(sums) - 2, -1, -1):
        found[level] |= found[level + 1].reshape(*found[level].shape, 2).any(axis=2)
    mass = np.zeros(len(counts) // _PARTS)
    for each, std in zip(reversed(sums), reversed(noise), strict=True):
        largest = each.max(axis=1)
        mass = np.where(largest > _FOUND * std, largest, mass)
    mass = mass[:, None]
    for each, std, stands_out in zip(sums[1:], noise[1:], found[1:], strict=True):
        weights = np.where(stands_out | (each > _NEXT * std), np.maximum(each, std), 0.0)
        halves = weights.reshape(*mass.shape, 2)
        halves = np.where(halves.any(axis=2, keepdims=True), halves, 1.0)
        mass = (mass[..., None] * halves / halves.sum(axis=2, keepdims=True)).reshape(each.shape)
    return mass.ravel()
