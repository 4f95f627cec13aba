"""Subset selection: a record says several classes, among which its own is more often than others."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil.errors import GraphError
from graphveil.mechanisms._draws import Integers, Words, subsets
from graphveil.mechanisms.local.labels import MISSING, ROUNDING, TOTAL, LabelMechanism


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(LabelMechanism):
    """Say k of c classes, the record's own among them with probability p (Wang et al. 2016; Ye, Barg 2018).

        k = max(1, round(c / (e^epsilon + 1))),   p = k e^epsilon / (k e^epsilon + c - k).

    All sets with the own class are equally likely, and so are all without it. For k = 1 the law is that of
    randomized response; where labels have many classes for the budget, a set tells more about the label than
    one class does: 0.1215 nats instead of 0.0923 for 7 classes at epsilon 1.

    The first word of 64 bits decides whether the own class is among them; further ones draw the other
    classes, numbered from the own one on, so that no class is special. A draw among n is uniform up to
    2^-64, hence a set up to a factor of 1 + k c 2^-64 or so, and the count of words that leave the own class
    out is raised by more: no ratio exceeds e^epsilon (docs/local.md, "Exact samplers").

    A record without a label says every set alike, so that who has one is not told either.

    Guarantee: epsilon-LDP for the label, a missing one included. ``epsilon`` inf keeps labels, and missing
    ones missing.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records, k), ascending.

    Args:
        epsilon: the budget of the label.
        classes: c, public.

    Raises:
        ConfigError: a parameter is outside its range.

    >>> law = SubsetSelection(epsilon=1.0, classes=7)
    >>> law.size, round(law.keep, 10), round(law.information, 4)
    (2, 0.5209151054, 0.1215)
    """

    @property
    def size(self) -> int:
        """k."""
        share = math.exp(-self.epsilon)  # an e^epsilon could overflow
        return max(1, round(self.classes * share / (1 + share)))

    @property
    def counts(self) -> tuple[int, int]:
        """How many of the 2^64 words say the own class, and how many leave it out."""
        if math.isinf(self.epsilon):
            return TOTAL, 0
        out = (self.classes - self.size) * math.exp(-self.epsilon) * self.keep / self.size
        uneven = 8 * self.size * self.classes / TOTAL  # a bound on how unlike two sets' chances are, and more
        left_out = math.floor(TOTAL * out * (1 + ROUNDING + uneven)) + 1
        return TOTAL - left_out, left_out

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return what records said, k different classes each, ascending.

        Raises:
            GraphError: the shape is wrong, or somebody said what no record can.
        """
        found = self._classes(reported, 2, f"(records, {self.size})")
        if found.shape[1] != self.size or (np.diff(found, axis=1) <= 0).any():
            raise GraphError(f"each record says {self.size} different classes, in ascending order")
        return found

    def _as_they_are(self, labels: Integers) -> Integers:
        return np.repeat(labels[:, None], self.size, axis=1)

    @property
    def _words_and_width(self) -> tuple[int, int]:
        return 1 + self.size, self.classes

    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        reported = np.empty((len(labels), self.size), dtype=np.int64)
        missing = labels == MISSING
        inside = ~missing & (words[:, 0] < np.uint64(self.counts[0]))
        outside = ~missing & ~inside
        reported[missing] = subsets(words[missing, 1:], self.classes)
        reported[outside] = self._others(labels[outside], words[outside, 1:])
        reported[inside, :1] = labels[inside, None]
        reported[inside, 1:] = self._others(labels[inside], words[inside, 2:])
        return np.sort(reported, axis=1)

    def _others(self, labels: Integers, words: Words) -> Integers:
        """Return as many other classes of each record as it has words, in no order."""
        return (labels[:, None] + 1 + subsets(words, self.classes - 1)) % self.classes
