"""Randomised response on a label, and what it does to classes."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil import _check
from graphveil.errors import GraphError
from graphveil.mechanisms._draws import Draws, Floats, Integers, Words, below, row_blocks
from graphveil.mechanisms.claim import Claim, check_budget
from graphveil.mechanisms.local.features import distinct_rows

MISSING = -1  # a record without a label

_TOTAL = 1 << 64
MAX_CLASSES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class LabelRR:
    """Keep a label of c classes with probability p, else say another one (Warner 1965; Kairouz et al. 2016).

        p = e^epsilon / (e^epsilon + c - 1),   q = 1 / (e^epsilon + c - 1) for each other class.

    The noise is a shift of the class by 0 .. c-1, drawn from one word of 64 bits: each shift but 0 has
    ceil(2^64 q) words or one more, 0 the rest. So all q are equal and no ratio exceeds e^epsilon.

    A record without a label says each class with probability 1/c, so that who has one is not told either.

    Guarantee: epsilon-LDP for the label, exactly (p/q = e^epsilon), a missing one included: p c and 1/(q c)
    are at most e^epsilon (docs/guarantees.md, section 6). ``epsilon`` inf keeps labels, and missing ones
    missing.

    Shapes: labels int64 (records,), -1 for a missing one.

    Args:
        epsilon: the budget of the label.
        classes: c, public.

    Raises:
        ConfigError: a parameter is outside its range.

    >>> law = LabelRR(epsilon=1.0, classes=3)
    >>> round(law.keep, 10), round(law.change, 10)
    (0.5761168848, 0.2119415576)
    """

    epsilon: float
    classes: int

    def __post_init__(self) -> None:
        """Check every field."""
        check_budget(epsilon=self.epsilon)
        _check.integer_at_least(2, classes=self.classes)
        _check.within(2, MAX_CLASSES, classes=self.classes)

    @property
    def claim(self) -> Claim:
        """What a record's label promises."""
        return Claim(self.epsilon)

    @property
    def keep(self) -> float:
        """p."""
        return 1 / (1 + (self.classes - 1) * math.exp(-self.epsilon))

    def keep_with(self, missing: float) -> float:
        """Return (1 - m) p + m/c: how often a record says its class if a share m has none to say."""
        return (1 - missing) * self.keep + missing / self.classes

    @property
    def change(self) -> float:
        """q."""
        return math.exp(-self.epsilon) * self.keep

    @property
    def counts(self) -> tuple[int, int]:
        """How many of the 2^64 words keep a label, and how many make each change."""
        if math.isinf(self.epsilon):
            return _TOTAL, 0
        change = math.floor(_TOTAL * self.change * (1 + 2.0**-46)) + 1
        return _TOTAL - (self.classes - 1) * change, change

    @property
    def transition(self) -> Floats:
        """T = q 1 1^T + (p - q) I: row y is the law of what is said for y."""
        return self.transition_with(0.0)

    def transition_with(self, missing: float) -> Floats:
        """Return (1 - m) T + m/c 1 1^T: what is said for y if a share m of the labels is missing.

        It is how a label of class y would have to be randomised for what all records say, if those without a
        label were like the others. Both have the same form, so m cannot be told from what is said alone: of
        shares f of the classes one sees 1/c + (1 - m)(p - q)(f - 1/c). It has to be known.

        >>> LabelRR(epsilon=float("inf"), classes=2).transition_with(0.2).tolist()
        [[0.9, 0.1], [0.1, 0.9]]
        """
        _check.within(0, 1, missing=missing)
        gap, said = (1 - missing) * self._gap, (1 - missing) * self.change + missing / self.classes
        return np.full((self.classes, self.classes), said) + gap * np.eye(self.classes)

    @property
    def inverse(self) -> Floats:
        """T^-1 = (I - q 1 1^T) / (p - q)."""
        return (np.eye(self.classes) - self.change) / self._gap

    def perturb(self, labels: Integers, *, stream: Draws, rows: Integers | None = None) -> Integers:
        """Return the randomised labels of records.

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
        if math.isinf(self.epsilon):
            return labels
        stream.serve(rows)
        said = np.empty_like(labels)
        for part in row_blocks(len(labels), 1):
            words = stream.words(rows[part], words_per_row=1)[:, 0]
            told = (labels[part] + self._shifts(words)) % self.classes
            said[part] = np.where(labels[part] == MISSING, below(words, self.classes), told)
        return said

    def frequencies(self, labels: Integers) -> Floats:
        """Return unbiased estimates of the share of each class, from randomised labels; some may be negative.

        >>> LabelRR(epsilon=float("inf"), classes=2).frequencies(np.array([0, 1, 1, 1]))
        array([0.25, 0.75])
        """
        labels = self.checked(labels)
        said = np.bincount(labels, minlength=self.classes) / max(1, len(labels))
        return (said - self.change) / self._gap

    def frequency_variance(self, frequencies: Floats, records: int) -> Floats:
        """Return r (1 - r) / (n (p-q)^2), r = q + (p-q) f: the variances for independent labels."""
        _check.integer_at_least(1, records=records)
        said = self.change + self._gap * frequencies
        return said * (1 - said) / (records * self._gap**2)

    @property
    def _gap(self) -> float:
        """p - q."""
        return -math.expm1(-self.epsilon) * self.keep

    def _shifts(self, words: Words) -> Integers:
        _, change = self.counts
        moved = words < np.uint64((self.classes - 1) * change)
        return np.where(moved, words // np.uint64(change) + np.uint64(1), np.uint64(0)).astype(np.int64)

    def checked(self, labels: npt.ArrayLike, *, missing: bool = False) -> Integers:
        """Return labels as int64, of which some may be missing if it is said so.

        Raises:
            GraphError: the shape is wrong, or a label is none of the classes.
        """
        said = np.asarray(labels)
        if said.ndim != 1 or said.dtype.kind not in "iu":
            raise GraphError("labels must be whole numbers of shape (records,)")
        if said.size and not (said.min() >= (MISSING if missing else 0) and said.max() < self.classes):
            raise GraphError(
                f"labels must be classes from 0 to {self.classes - 1}"
                + (", or -1 for none" if missing else "")
            )
        return said.astype(np.int64)
