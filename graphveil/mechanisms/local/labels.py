"""What mechanisms for a label have in common, and randomized response."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.errors import GraphError
from graphveil.mechanisms._draws import Draws, Floats, Integers, Words, row_blocks, uniform_below
from graphveil.mechanisms.claim import LocalDPClaim, check_budget
from graphveil.mechanisms.local.features import distinct_rows

MISSING = -1  # a record without a label
MAX_CLASSES = 1 << 16
TOTAL = 1 << 64
ROUNDING = 2.0**-46  # far above the relative error of a probability in float64


@dataclass(frozen=True, kw_only=True)
class LabelMechanism(ABC):
    """Base of mechanisms that say k of c classes, the record's own more often than others.

        p = k / (k + (c - k) e^-epsilon)   that the own class is said,
        q = (k - p) / (c - 1)              that any other given one is.

    All sets of k classes with the own one are equally likely, and so are all without it, e^epsilon times
    less. A record without a label says every set alike, so that who has one is not told either.

    Args:
        epsilon: the budget of the label; inf keeps labels, and missing ones missing.
        classes: c, public.

    Raises:
        ConfigError: a parameter is outside its range.
    """

    epsilon: float
    classes: int

    def __post_init__(self) -> None:
        """Check every field."""
        check_budget(epsilon=self.epsilon)
        checks.integer_at_least(2, classes=self.classes)
        checks.within(2, MAX_CLASSES, classes=self.classes)

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a record's label."""
        return LocalDPClaim(self.epsilon)

    @property
    @abstractmethod
    def size(self) -> int:
        """k."""

    @property
    def keep(self) -> float:
        """p."""
        return self.size / (self.size + (self.classes - self.size) * math.exp(-self.epsilon))

    @property
    def change(self) -> float:
        """q."""
        others = self.size - 1 + (self.classes - self.size) * math.exp(-self.epsilon)
        return self.keep * others / (self.classes - 1)

    @property
    def gap(self) -> float:
        """p - q."""
        return -math.expm1(-self.epsilon) * self.keep * (self.classes - self.size) / (self.classes - 1)

    @property
    def blind(self) -> float:
        """k/c: how often what is said blindly holds a given class."""
        return self.size / self.classes

    @property
    def information(self) -> float:
        """What is said tells so many nats about a label of which each class is equally likely."""
        outcomes = zip((self.keep, 1 - self.keep), self.ratios(), strict=True)
        return sum(share * math.log(ratio) for share, ratio in outcomes if ratio)

    def keep_with(self, missing: float) -> float:
        """Return (1 - m) p + m k/c: how often a record says its class if a share m has none to say."""
        return (1 - missing) * self.keep + missing * self.blind

    def ratios(self, missing: float = 0.0) -> tuple[float, float]:
        """Return how likely a set is for a class in it, and for one outside, relative to a set drawn blindly.

        A share m of the records has no label, and draws blindly.
        """
        keep = self.keep_with(missing)
        return keep / self.blind, (1 - keep) / (1 - self.blind)

    @property
    def transition(self) -> Floats:
        """T = q 1 1^T + (p - q) I: row y has the probabilities that each class is said for y."""
        return self.transition_with(0.0)

    def transition_with(self, missing: float) -> Floats:
        """Return (1 - m) T + m k/c 1 1^T: what is said for y if a share m of the labels is missing.

        It is how a label of class y would have to be randomized for what all records say, if those without a
        label were like the others. Both have the same form, so m cannot be told from what is said alone: of
        shares f of the classes one sees k/c + (1 - m)(p - q)(f - 1/c). It has to be known.

        >>> LabelRR(epsilon=float("inf"), classes=2).transition_with(0.2).tolist()
        [[0.9, 0.1], [0.1, 0.9]]
        """
        checks.within(0, 1, missing=missing)
        reported = (1 - missing) * self.change + missing * self.blind
        return np.full((self.classes, self.classes), reported) + (1 - missing) * self.gap * np.eye(
            self.classes
        )

    def perturb(self, labels: Integers, *, stream: Draws, rows: Integers | None = None) -> Integers:
        """Return what records say, in the shape that the class documents.

        Args:
            labels: classes 0 .. c-1, or -1 for a missing one, whole numbers (records,).
            stream: random words, of their own: features must not share them.
            rows: the records' numbers, which must differ; 0, 1, 2, ... if None.

        Raises:
            GraphError: the shape is wrong, or a label is none of the classes.
            ConfigError: two records have one number.
            ReleaseError: the stream served a row before.
        """
        labels = self.checked(labels, missing=True)
        rows = distinct_rows(rows, len(labels))
        reported = self._as_they_are(labels)
        if math.isinf(self.epsilon):
            return reported
        stream.reserve_rows(rows)
        count, width = self._words_and_width
        for part in row_blocks(len(labels), width):
            reported[part] = self._randomize(
                labels[part], stream.words(rows[part], words_per_row=count), rows[part]
            )
        return reported

    def missing_reports(self, records: int) -> Integers:
        """Return what stands for records that were not asked: -1 everywhere."""
        return self._as_they_are(np.full(records, MISSING))

    def members(self, reported: Integers) -> npt.NDArray[np.bool_]:
        """Return which classes records said, (records, c); of one that said nothing (-1), none.

        >>> LabelRR(epsilon=1.0, classes=3).members(np.array([2, -1])).astype(int).tolist()
        [[0, 0, 1], [0, 0, 0]]
        """
        rows = reported.reshape(len(reported), -1)
        found = np.zeros((len(reported), self.classes + 1), dtype=bool)
        found[np.arange(len(reported))[:, None], rows] = True  # -1 is the spare last column
        return found[:, :-1]

    def frequencies(self, reported: Integers) -> Floats:
        """Return unbiased estimates of the share of each class, from what was said; some may be negative.

        >>> LabelRR(epsilon=float("inf"), classes=2).frequencies(np.array([0, 1, 1, 1]))
        array([0.25, 0.75])
        """
        reported = self.checked_reports(reported)
        shares = np.bincount(reported[reported >= 0], minlength=self.classes) / max(1, len(reported))
        return (shares - self.change) / self.gap

    def frequency_variance(self, frequencies: Floats, records: int) -> Floats:
        """Return r (1 - r) / (n (p-q)^2), r = q + (p-q) f: the variances for independent labels."""
        checks.integer_at_least(1, records=records)
        reported = self.change + self.gap * frequencies
        return reported * (1 - reported) / (records * self.gap**2)

    def checked(self, labels: npt.ArrayLike, *, missing: bool = False) -> Integers:
        """Return labels as int64, of which some may be missing if it is said so.

        Raises:
            GraphError: the shape is wrong, or a label is none of the classes.
        """
        return self._classes(labels, 1, "(records,)", missing=missing)

    @abstractmethod
    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return what records said as int64.

        Raises:
            GraphError: the shape is wrong, or somebody said what no record can.
        """

    def _classes(self, given: npt.ArrayLike, dims: int, shape: str, *, missing: bool = False) -> Integers:
        found = np.asarray(given)
        if found.ndim != dims or found.dtype.kind not in "iu":
            raise GraphError(f"labels must be whole numbers of shape {shape}")
        if found.size and not (found.min() >= (MISSING if missing else 0) and found.max() < self.classes):
            raise GraphError(
                f"labels must be classes from 0 to {self.classes - 1}"
                + (", or -1 for none" if missing else "")
            )
        return found.astype(np.int64)

    @abstractmethod
    def _as_they_are(self, labels: Integers) -> Integers:
        """Return what records say if nothing is randomized."""

    @property
    @abstractmethod
    def _words_and_width(self) -> tuple[int, int]:
        """How many random words a record takes, and how many numbers it needs while it is randomized."""

    @abstractmethod
    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        """Return what records say, of which some have no label, from a row of words each.

        Their numbers are for what is chosen in public about each.
        """


@dataclass(frozen=True, kw_only=True)
class LabelRR(LabelMechanism):
    """Keep a label of c classes with probability p, else say another one (Warner 1965; Kairouz et al. 2016).

        p = e^epsilon / (e^epsilon + c - 1),   q = 1 / (e^epsilon + c - 1) for each other class.

    The noise is a shift of the class by 0 .. c-1, drawn from one word of 64 bits: each shift but 0 has
    ceil(2^64 q) words or one more, 0 the rest. So all q are equal and no ratio exceeds e^epsilon.

    A record without a label says each class with probability 1/c, so that who has one is not told either.

    Guarantee: epsilon-LDP for the label, exactly (p/q = e^epsilon), a missing one included: p c and 1/(q c)
    are at most e^epsilon (docs/guarantees.md, section 6). ``epsilon`` inf keeps labels, and missing ones
    missing.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records,).

    Args:
        epsilon: the budget of the label.
        classes: c, public.

    Raises:
        ConfigError: a parameter is outside its range.

    >>> law = LabelRR(epsilon=1.0, classes=3)
    >>> round(law.keep, 10), round(law.change, 10)
    (0.5761168848, 0.2119415576)
    """

    @property
    def size(self) -> int:
        """One class is said."""
        return 1

    @property
    def change(self) -> float:
        """q."""
        return math.exp(-self.epsilon) * self.keep

    @property
    def gap(self) -> float:
        """p - q."""
        return -math.expm1(-self.epsilon) * self.keep

    @property
    def counts(self) -> tuple[int, int]:
        """How many of the 2^64 words keep a label, and how many make each change."""
        if math.isinf(self.epsilon):
            return TOTAL, 0
        change = math.floor(TOTAL * self.change * (1 + ROUNDING)) + 1
        return TOTAL - (self.classes - 1) * change, change

    @property
    def inverse(self) -> Floats:
        """T^-1 = (I - q 1 1^T) / (p - q)."""
        return (np.eye(self.classes) - self.change) / self.gap

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return what records said, a class each."""
        return self.checked(reported)

    def _as_they_are(self, labels: Integers) -> Integers:
        return labels.copy()

    @property
    def _words_and_width(self) -> tuple[int, int]:
        return 1, 1

    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        words = words[:, 0]
        outcomes = (labels + self._shifts(words)) % self.classes
        return np.where(labels == MISSING, uniform_below(words, self.classes), outcomes)

    def _shifts(self, words: Words) -> Integers:
        _, change = self.counts
        moved = words < np.uint64((self.classes - 1) * change)
        return np.where(moved, words // np.uint64(change) + np.uint64(1), np.uint64(0)).astype(np.int64)
