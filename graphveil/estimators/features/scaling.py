"""Scaling of feature columns: one unscaled column would otherwise dominate every feature vector.

If features are public (edge-level units, or no unit), each column of large values is centered by its median.
It is then divided by a robust spread of the training graph. If records are protected, nothing may be read
from the data without a charge. Then a column with a public range (``feature_range``), or with a range that a
noisy query found, is mapped to [-1, 1]. Every other value beyond ``BOUND`` is compressed to
little more than the largest other value of its own record, so that it does not dominate the record. No other
record is read.

That query releases noisy histograms. The histogram of a column counts records by sign, power of two, and 32
equal parts between two powers. Zero and values below 1/64 have no cell, so a null record, whose features are
zero, is in none. Everything after the noise is post-processing: a range depends on noisy counts, their noise,
and public sizes alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.features import Features, to_dense
from graphveil.core.queries.record_counts import FeatureHistogramQuery
from graphveil.core.unit import Unit
from graphveil.data import Graph
from graphveil.data.recipes import columns_beyond
from graphveil.data.tables.encoding import ColumnRule, Encoding, Kind
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.public_sizes import PARTITION, training_groups

FeatureScalingMode = Literal["auto", "none"]
MAX_UNSCALED = 10.0  # columns whose values all lie within this keep them
LIMIT = 2.0  # scaled values are clipped here
BOUND = 3.0  # under units that protect records: values within this are kept, larger ones are compressed
_LEAST = 1.0  # compressed values grow from this value on, if a record's own values are smaller
_GROWTH = 0.05  # by which a compressed value grows per power of ten
_SHOWN = 6  # maximum number of columns in the text of a plan
_ADVICE = "for columns with large values, set feature_range, or --set feature_range=NAME=LOW:HIGH"
RANGE_SHARE = 0.02  # of mu^2, for the query of ranges
_KEPT_CENTER, _KEPT_SPREAD = 3.0, (0.1, 3.0)  # of a column that only has outliers, which are clipped at SANE

Values: TypeAlias = npt.NDArray[np.float64]
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ScaledColumn:
    """One column: ``v`` becomes ``clip((v - center) / scale, low, high)``.

    public: Whether the numbers come from ``feature_range`` and not from the training graph.
    """

    column: int
    center: float
    scale: float
    low: float
    high: float
    public: bool = False

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        scaled = (values.astype(np.float64) - self.center) / self.scale
        return np.clip(scaled, self.low, self.high).astype(values.dtype)


@dataclass(frozen=True, kw_only=True)
class FeatureScaling:
    """Scaling of the feature columns of every graph before a model reads them.

    Args:
        bound: Other values beyond it are compressed, independently per record; None keeps them.
        learned: Columns whose ranges are learned by the first query of a fit. Those of them that have values
            beyond the bound are among ``columns`` after the fit.

    >>> salaries = torch.tensor([[1.0, 52_000.0], [0.0, 48_000.0], [1.0, 50_000.0], [0.0, 50_000.0]])
    >>> scaling = FeatureScaling.from_public_features(salaries)
    >>> [column.column for column in scaling.columns], bool(scaling.apply(salaries).abs().max() <= LIMIT)
    ([1], True)
    """

    columns: tuple[ScaledColumn, ...] = ()
    bound: float | None = None
    learned: tuple[int, ...] = ()

    @classmethod
    def from_public_features(cls, x: Features, ranges: dict[int, Range] | None = None) -> "FeatureScaling":
        """Fit the scaling on public features; columns in ``ranges`` use their public range instead.

        Privacy:
            Reads all features. Only for units under which features are public.
        """
        given = ranges or {}
        filled = isinstance(x, Tensor)
        found = [_ranged(column, one, filled=filled) for column, one in given.items()]
        large = [column for column in columns_beyond(x, MAX_UNSCALED) if column not in given]
        found += [_fitted(x, column) for column in large]
        return cls(columns=tuple(sorted(found, key=lambda one: one.column)))

    @classmethod
    def from_public_ranges(cls, ranges: dict[int, Range], *, dense: bool) -> "FeatureScaling":
        """Return the scaling for protected records, dense or sparse: public ranges and constants."""
        given = sorted(ranges.items())
        return cls(columns=tuple(_ranged(*one, filled=dense) for one in given), bound=BOUND)

    def with_ranges(self, ranges: Sequence[Range | None], *, dense: bool) -> "FeatureScaling":
        """Return the scaling with the noisy ranges of the learned columns of dense or sparse records."""
        assert self.bound is not None
        known = zip(self.learned, ranges, strict=True)
        large = [(at, one) for at, one in known if one is not None and max(map(abs, one)) > self.bound]
        return replace(self, columns=tuple(_ranged(*each, filled=dense, public=False) for each in large))

    def apply(self, x: Features) -> Features:
        """Return the scaled features, in the same form. Features that do not change are not copied."""
        known = [one for one in self.columns if one.column < x.shape[1]]
        values = x.numpy() if isinstance(x, Tensor) else x.data
        if not known and (
            self.bound is None or not values.size or max(-values.min(), values.max()) <= self.bound
        ):
            return x
        scaled = values.copy()
        for one in known:
            place = np.s_[:, one.column] if isinstance(x, Tensor) else x.indices == one.column
            scaled[place] = one.of(values[place])
        found: Features = torch.from_numpy(scaled)
        if not isinstance(x, Tensor):
            found = sparse.csr_array((scaled, x.indices, x.indptr), shape=x.shape)
        return found if self.bound is None else compressed(found, self.bound)

    @property
    def compresses_only(self) -> bool:
        """Whether records are protected, and no column has a range."""
        return self.bound is not None and not (self.columns or self.learned)

    def graph(self, graph: Graph) -> Graph:
        return graph.map_features(self.apply)

    def as_plain(self) -> dict[str, Any] | None:
        return asdict(self) if self.columns or self.bound is not None else None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> "FeatureScaling":
        if plain is None:
            return cls()
        columns = tuple(ScaledColumn(**one) for one in plain["columns"])
        return cls(columns=columns, bound=plain["bound"], learned=tuple(plain["learned"]))

    def words(self, names: Sequence[str] = ()) -> str:
        fitted = [one.column for one in self.columns if not (one.public or self.learned)]
        ranged = [one.column for one in self.columns if one.public]
        parts = []
        if fitted:
            parts.append(f"{_named(fitted, names)} by median and spread, outliers clipped")
        if ranged:
            parts.append(f"{_named(ranged, names)} by the public range")
        if self.learned:
            parts.append(
                f"{_named(self.learned, names)} by ranges from noisy histograms, the first query, which has "
                f"{RANGE_SHARE:.0%} of mu^2"
            )
        if self.bound is not None:
            rest = "all other values" if ranged or self.learned else "values"
            advice = "" if self.learned else f" ({_ADVICE})"
            parts.append(
                f"{rest} beyond {self.bound:g} compressed, each record by its own values alone{advice}"
            )
        return "; ".join(parts)


def compressed(x: Features, bound: float) -> Features:
    """Return features in which values beyond the bound have about the size of the others in their own record.

    The result is the largest value within the bound, at least 1, and a small step more per power of ten.

    >>> compressed(torch.tensor([[0.0, 1.0, -3e5], [-2.0, 3.0, 3e10]]), 3.0)
    tensor([[ 0.0000,  1.0000, -1.2500],
            [-2.0000,  3.0000,  3.5000]])
    """
    if isinstance(x, Tensor):
        return _compressed(x, _own_size(x, bound).amax(dim=1, keepdim=True), bound)
    stored = torch.from_numpy(x.data)
    own = sparse.csr_array((_own_size(stored, bound).numpy(), x.indices, x.indptr), shape=x.shape)
    largest = torch.from_numpy(np.repeat(own.max(axis=1).toarray().ravel(), np.diff(x.indptr)))
    data = _compressed(stored, largest, bound).numpy()
    return sparse.csr_array((data, x.indices, x.indptr), shape=x.shape)


def _own_size(values: Tensor, bound: float) -> Tensor:
    size = values.abs()
    return torch.where(size <= bound, size, 0.0)


def _compressed(values: Tensor, largest: Tensor, bound: float) -> Tensor:
    size = values.abs()
    beyond = largest.clamp_min(_LEAST) + _GROWTH * torch.log10(size.clamp_min(bound) / bound)
    return torch.where(size <= bound, values, values.sign() * beyond)


def parse_range(text: str) -> dict[str, Range]:
    """Parse ``feature_range``: ``LOW:HIGH`` for all columns (key ``""``), or ``NAME=LOW:HIGH,...``.

    >>> parse_range("salary=0:2e5,born=1900:2020"), parse_range("0:255")
    ({'salary': (0.0, 200000.0), 'born': (1900.0, 2020.0)}, {'': (0.0, 255.0)})
    """
    found: dict[str, Range] = {}
    for part in text.split(","):
        name, _, both = part.rpartition("=")
        low, _, high = both.partition(":")
        try:
            one = float(low), float(high)
        except ValueError:
            one = math.nan, math.nan
        if name.strip() in found or not all(map(math.isfinite, one)) or not one[0] < one[1]:
            raise ConfigError(
                f"feature_range={text!r} is not a list of ranges. Write LOW:HIGH for all columns, or "
                "NAME=LOW:HIGH,NAME=LOW:HIGH with LOW below HIGH."
            )
        found[name.strip()] = one
    return found


def check_scaling(scaling: str, feature_range: str | None, method: str, *, scales: bool) -> None:
    """Reject a feature range without effect, since a reader would believe that it has one."""
    if feature_range is None:
        return
    parse_range(feature_range)
    if not scales:
        raise ConfigError(
            f"feature_range has no effect on {method}, where each node perturbs its own features. "
            "Set low= and high= instead."
        )
    if scaling == "none":
        raise ConfigError("feature_range has no effect with feature_scaling='none'. Drop one of the two.")


def ranges_of(text: str | None, names: Sequence[str], columns: int) -> dict[int, Range]:
    if text is None:
        return {}
    known = parse_range(text)
    called = list(names) if names else [str(number) for number in range(columns)]
    unknown = [name for name in known if name and name not in called]
    if unknown:
        how = "columns have no names here: use their positions, from 0" if not names else "check its spelling"
        raise GraphError(f"feature_range names the column {unknown[0]!r}, which is not in the graph; {how}.")
    whole = known.get("")
    found = {at: known.get(name, whole) for at, name in enumerate(called)}
    return {at: one for at, one in found.items() if one is not None}


def _fitted(x: Features, column: int) -> ScaledColumn:
    """Fit one column; sparse ones are not centered, so that zeros stay zeros."""
    if isinstance(x, Tensor):
        values: Values = x[:, column].numpy().astype(np.float64)
        center = float(np.median(values))
        low, high = np.quantile(values, (0.25, 0.75))
        spread = float(high - low)
    else:
        values = x.data[x.indices == column].astype(np.float64)
        values = values[values != 0]  # a stored zero counts as little as any other
        center, spread = 0.0, float(np.median(np.abs(values)))
    if spread <= 0:  # most values are the same: the others decide
        others = np.abs(values - center)
        others = others[others > 0]
        spread = float(np.median(others)) if len(others) else 1.0
    within = _KEPT_SPREAD[0] <= spread <= _KEPT_SPREAD[1]
    if within and abs(center) <= _KEPT_CENTER:
        return ScaledColumn(column=column, center=0.0, scale=1.0, low=-MAX_UNSCALED, high=MAX_UNSCALED)
    return ScaledColumn(column=column, center=center, scale=spread, low=-LIMIT, high=LIMIT)


def _ranged(column: int, given: Range, *, filled: bool, public: bool = True) -> ScaledColumn:
    low, high = given
    center = low / 2 + high / 2 if filled else 0.0
    scale = high / 2 - low / 2 if filled else max(abs(low), abs(high))
    ends = (low - center) / scale, (high - center) / scale
    return ScaledColumn(column=column, center=center, scale=scale, low=ends[0], high=ends[1], public=public)


def _named(columns: Sequence[int], names: Sequence[str]) -> str:
    called = [names[at] if at < len(names) else f"column {at}" for at in columns]
    called = list(dict.fromkeys(called))
    more = f" and {len(called) - _SHOWN:,} more" if len(called) > _SHOWN else ""
    return ", ".join(called[:_SHOWN]) + more


def aligned(graph: Graph, trained: Encoding | None) -> Graph:
    """Return a graph with the feature columns of training, matched by name.

    Columns that are not in training are dropped. A graph without column names is returned as it is.
    """
    own = graph.encoding
    if own is not None and own.constant and (trained is None or not trained.constant):
        columns = "" if trained is None else f" ({trained.words()})"
        raise GraphError(
            f"The graph has no features, but the model was trained on features{columns}. Give the "
            "nodes the same columns as in training. No privacy budget was spent."
        )
    if trained is not None and trained.constant and own is not None:
        return graph.replace(x=torch.ones(graph.num_nodes, 1), encoding=trained)
    if own is None or trained is None or _shapes(own) == _shapes(trained):
        return graph
    places, start = dict[str, range](), 0
    for rule in own.rules:
        places[rule.name] = range(start, start + rule.columns)
        start += rule.columns
    if start != graph.num_features:
        return graph
    missing = [rule.name for rule in trained.rules if rule.name not in places]
    if missing:
        raise GraphError(
            f"The graph has no feature column {missing[0]!r}, which the model was trained on. Add a "
            "column of this name. No privacy budget was spent."
        )
    rules = {rule.name: rule for rule in own.rules}
    changed = [rule.name for rule in trained.rules if _shape(rules[rule.name]) != _shape(rule)]
    if changed:
        raise GraphError(
            f"The column {changed[0]!r} was encoded differently than in training. Read the tables "
            "with encoding=model.encoding_. No privacy budget was spent."
        )
    order = [place for rule in trained.rules for place in places[rule.name]]
    return graph.map_features(
        lambda x: x[:, torch.tensor(order) if isinstance(x, Tensor) else order], encoding=trained
    )


def _shapes(encoding: Encoding) -> list[tuple[object, ...]]:
    return [_shape(rule) for rule in encoding.rules]


def _shape(rule: ColumnRule) -> tuple[object, ...]:
    kind = "number" if rule.kind in ("number", "bool") else rule.kind
    return rule.name, kind, rule.width, rule.values, rule.places, rule.indicator


MAX_COLUMNS = 256  # of more columns no range is learned, since the noise grows with their square root
MIN_RECORDS = 50.0  # training records for each standard deviation of the noise; with fewer, counts are noise
_FIRST, _POWERS, _PARTS = -6, 48, 32  # cells from 2^-6 to 2^42; larger values are in the last one
_SIDE = _POWERS * _PARTS
_TAIL = 0.02  # share of the values that may lie outside of a range, on each side
# In standard deviations of the noise: a block of cells that has records; one next to such a block; the
# smallest tail; and the smallest number of records that a range is learned from.
_FOUND, _NEXT, _LEAST_TAIL, _LEAST_TOTAL = 5.5, 2.5, 6.0, 12.0

_NUMBERS: tuple[Kind, ...] = ("number", "date", "duration")
Counts = npt.NDArray[np.float64]


def range_query(unit: Unit, columns: int, mu: float) -> FeatureHistogramQuery:
    """Return the query for column ranges, which uses 2 % of the squared mu of a budget."""
    query = FeatureHistogramQuery(
        columns=columns,
        cells=2 * _SIDE,
        sigma=1.0,
        partition=PARTITION,
        pays=training_groups(metrics=True),
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
        sigma: Standard deviation of the noise of each count.
        records: Public number of counted records.

    >>> ages = magnitude_cells(torch.arange(18.0, 70.0)[:, None])[:, 0].numpy()
    >>> counts = 100.0 * np.bincount(ages, minlength=2 * _SIDE)
    >>> [round(end) for end in noisy_range(counts, 1.0, 5200)]
    [19, 69]
    """
    mass = _denoised(counts, sigma)
    total = float(mass.sum())
    if total < _LEAST_TOTAL * sigma:
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
