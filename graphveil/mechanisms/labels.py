"""Mechanisms for a label: randomized response, subset selection, and local hashing with public hashes.

A record reports one class, several classes, or one of a few public groups of classes. Its own class is among
them more often than others.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.sampling import (
    Draws,
    Floats,
    Integers,
    Words,
    row_blocks,
    shuffled,
    subsets,
    uniform_below,
)
from graphveil.errors import ConfigError, GraphError, LDPReportError
from graphveil.mechanisms.features import LocalDPClaim, check_budget, distinct_rows

LabelName = Literal["rr", "subset", "hashing"]
MISSING = -1  # a record without a label
MAX_CLASSES = 1 << 16
TOTAL = 1 << 64
ROUNDING = 2.0**-46  # far above the relative error of a probability in float64


@dataclass(frozen=True, kw_only=True)
class LabelMechanism(ABC):
    """Base of mechanisms that report k of c classes, the record's own class more often than others.

        p = k / (k + (c - k) e^-epsilon)   that the own class is reported,
        q = (k - p) / (c - 1)              that any other given class is.

    All sets of k classes with the own class are equally likely. All sets without it are also equally likely,
    e^epsilon times less. A record without a label reports every set with equal probability, so the existence
    of a label is protected as well.

    Args:
        epsilon: Budget of the label; inf keeps labels, and missing ones missing.
        classes: Public number c of classes.

    Raises:
        ConfigError: If a parameter is outside its range.
    """

    name: ClassVar[LabelName]

    epsilon: float
    classes: int

    def __post_init__(self) -> None:
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
        """Number k of reported classes."""

    @property
    def keep(self) -> float:
        """Probability p that the own class is reported."""
        return self.size / (self.size + (self.classes - self.size) * math.exp(-self.epsilon))

    @property
    def change(self) -> float:
        """Probability q that any other given class is reported."""
        others = self.size - 1 + (self.classes - self.size) * math.exp(-self.epsilon)
        return self.keep * others / (self.classes - 1)

    @property
    def gap(self) -> float:
        """p - q."""
        return -math.expm1(-self.epsilon) * self.keep * (self.classes - self.size) / (self.classes - 1)

    @property
    def blind(self) -> float:
        """k/c: the probability that a uniformly random report contains a given class."""
        return self.size / self.classes

    @property
    def information(self) -> float:
        """Mutual information in nats between a report and a uniformly distributed label."""
        outcomes = zip((self.keep, 1 - self.keep), self.ratios(), strict=True)
        return sum(share * math.log(ratio) for share, ratio in outcomes if ratio)

    def keep_with(self, missing: float) -> float:
        """Return (1 - m) p + m k/c: how often the own class is reported if a share m has no label."""
        return (1 - missing) * self.keep + missing * self.blind

    def ratios(self, missing: float = 0.0) -> tuple[float, float]:
        """Return the likelihood of a set for a class in it, and for one outside, relative to a uniform set.

        A share m of the records has no label, and reports a uniform set.
        """
        keep = self.keep_with(missing)
        return keep / self.blind, (1 - keep) / (1 - self.blind)

    @property
    def transition(self) -> Floats:
        """T = q 1 1^T + (p - q) I: row y has the probabilities that each class is reported for y."""
        return self.transition_with(0.0)

    def transition_with(self, missing: float) -> Floats:
        """Return (1 - m) T + m k/c 1 1^T: the transition matrix if a share m of the labels is missing.

        It assumes that records without a label have the same class distribution as the others. Both matrices
        have the same form, so m cannot be estimated from the reports alone: for class shares f one
        observes k/c + (1 - m)(p - q)(f - 1/c). It has to be known.

        >>> LabelRR(epsilon=float("inf"), classes=2).transition_with(0.2).tolist()
        [[0.9, 0.1], [0.1, 0.9]]
        """
        checks.within(0, 1, missing=missing)
        reported = (1 - missing) * self.change + missing * self.blind
        return np.full((self.classes, self.classes), reported) + (1 - missing) * self.gap * np.eye(
            self.classes
        )

    def perturb(self, labels: Integers, *, stream: Draws, rows: Integers | None = None) -> Integers:
        """Return the perturbed labels of records, in the shape that the class documents.

        Args:
            labels: Classes 0 .. c-1, or -1 for a missing one, integers (records,).
            stream: Random words used only here: features must not share them.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If the shape is wrong, or a label is not one of the classes.
            ConfigError: If two records have the same number.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record's label. Reads: ``labels``. The perturbed labels may be public.
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
        """Return the entries for records that did not report: -1 everywhere."""
        return self._as_they_are(np.full(records, MISSING))

    def members(self, reported: Integers) -> npt.NDArray[np.bool_]:
        """Return which classes records reported, (records, c); none for a record that did not report (-1).

        >>> LabelRR(epsilon=1.0, classes=3).members(np.array([2, -1])).astype(int).tolist()
        [[0, 0, 1], [0, 0, 0]]
        """
        rows = reported.reshape(len(reported), -1)
        found = np.zeros((len(reported), self.classes + 1), dtype=bool)
        found[np.arange(len(reported))[:, None], rows] = True  # -1 is the spare last column
        return found[:, :-1]

    @property
    def limits(self) -> Integers:
        """The largest value of each number of an encoded report: here one bit for each class."""
        return np.ones(self.classes, dtype=np.int64)

    def to_fields(self, reported: Integers, hashes: Integers | None) -> Integers:
        """Return the numbers that encode reports, (records, numbers); ``hashes`` are for local hashing."""
        return self.members(reported).astype(np.int64)

    @abstractmethod
    def from_fields(self, fields: Integers, hashes: Integers | None) -> Integers:
        """Return the reports that numbers encode."""

    def frequencies(self, reported: Integers) -> Floats:
        """Return unbiased estimates of the share of each class from the reports; some may be negative.

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
        """Return labels as int64; ``missing`` allows missing ones.

        Raises:
            GraphError: If the shape is wrong, or a label is not one of the classes.
        """
        return self._classes(labels, 1, "(records,)", missing=missing)

    @abstractmethod
    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return reported classes as int64.

        Raises:
            GraphError: If the shape is wrong, or a reported value is impossible.
        """

    def _classes(self, given: npt.ArrayLike, dims: int, shape: str, *, missing: bool = False) -> Integers:
        found = np.asarray(given)
        if found.ndim != dims or found.dtype.kind not in "iu":
            raise GraphError(f"labels must be integers of shape {shape}")
        if found.size and not (found.min() >= (MISSING if missing else 0) and found.max() < self.classes):
            raise GraphError(
                f"labels must be classes from 0 to {self.classes - 1}"
                + (", or -1 for none" if missing else "")
            )
        return found.astype(np.int64)

    @abstractmethod
    def _as_they_are(self, labels: Integers) -> Integers:
        """Return the reports if nothing is randomized."""

    @property
    @abstractmethod
    def _words_and_width(self) -> tuple[int, int]:
        """The number of random words per record, and the number of temporary values per record."""

    @abstractmethod
    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        """Return the reports of records, some without a label, from one row of words each.

        Their numbers are used for the public random choices of each record.
        """


@dataclass(frozen=True, kw_only=True)
class LabelRR(LabelMechanism):
    """Keep a label of c classes with probability p, else report another (Warner 1965; Kairouz et al. 2016).

        p = e^epsilon / (e^epsilon + c - 1),   q = 1 / (e^epsilon + c - 1) for each other class.

    The noise is a shift of the class by 0 .. c-1, drawn from one word of 64 bits: each shift but 0 has
    ceil(2^64 q) words or one more, 0 the rest. So all q are equal and no ratio exceeds e^epsilon.

    A record without a label reports each class with probability 1/c, so the existence of a label is protected
    as well.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records,).

    Args:
        epsilon: Budget of the label. inf keeps labels, and missing ones missing.
        classes: Public number c of classes.

    Raises:
        ConfigError: If a parameter is outside its range.

    Privacy:
        epsilon-LDP for the label, exactly (p/q = e^epsilon), including a missing one: p c and 1/(q c)
        are at most e^epsilon (docs/privacy/proofs/noise.md).

    >>> law = LabelRR(epsilon=1.0, classes=3)
    >>> round(law.keep, 10), round(law.change, 10)
    (0.5761168848, 0.2119415576)
    """

    name: ClassVar[LabelName] = "rr"

    @property
    def size(self) -> int:
        """The number of reported classes: one."""
        return 1

    @property
    def change(self) -> float:
        """Probability q that any other given class is reported."""
        return math.exp(-self.epsilon) * self.keep

    @property
    def gap(self) -> float:
        """p - q."""
        return -math.expm1(-self.epsilon) * self.keep

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of the 2^64 words that keep a label, and that make each change."""
        if math.isinf(self.epsilon):
            return TOTAL, 0
        change = math.floor(TOTAL * self.change * (1 + ROUNDING)) + 1
        return TOTAL - (self.classes - 1) * change, change

    @property
    def limits(self) -> Integers:
        """One number, the class."""
        return np.array([self.classes - 1])

    def to_fields(self, reported: Integers, hashes: Integers | None) -> Integers:
        return reported[:, None]

    def from_fields(self, fields: Integers, hashes: Integers | None) -> Integers:
        return fields[:, 0]

    @property
    def inverse(self) -> Floats:
        """T^-1 = (I - q 1 1^T) / (p - q)."""
        return (np.eye(self.classes) - self.change) / self.gap

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return the reported classes, one per record."""
        return self.checked(reported)

    def _as_they_are(self, labels: Integers) -> Integers:
        return labels.copy()

    @property
    def _words_and_width(self) -> tuple[int, int]:
        return 1, 1

    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        words, (_, change) = words[:, 0], self.counts
        # The first words shift a label by one class, the next ones by two, and so on; most keep it.
        moved = words < np.uint64((self.classes - 1) * change)
        shifts = np.where(moved, words // np.uint64(change) + np.uint64(1), np.uint64(0)).astype(np.int64)
        outcomes = (labels + shifts) % self.classes
        return np.where(labels == MISSING, uniform_below(words, self.classes), outcomes)


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(LabelMechanism):
    """Report k of c classes, including the own class with probability p (Wang et al. 2016; Ye, Barg 2018).

        k = max(1, round(c / (e^epsilon + 1))),   p = k e^epsilon / (k e^epsilon + c - k).

    All sets with the own class are equally likely, and so are all without it. For k = 1 the law is that of
    randomized response. If there are many classes for the budget, a set has more information about the label
    than one class: 0.1215 nats instead of 0.0923 for 7 classes at epsilon 1.

    The first word of 64 bits decides whether the own class is included. Further words draw the other
    classes, numbered relative to the own one, so no class is special. A draw among n is uniform up to
    2^-64, hence a set up to a factor of 1 + k c 2^-64 or so. The count of words that leave the own class
    out is raised by more: no ratio exceeds e^epsilon (docs/methods/local-mechanisms.md, "Exact samplers").

    A record without a label reports every set with equal probability, so the existence of a label is
    protected as well.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records, k), ascending.

    Args:
        epsilon: Budget of the label. inf keeps labels, and missing ones missing.
        classes: Public number c of classes.

    Raises:
        ConfigError: If a parameter is outside its range.

    Privacy:
        epsilon-LDP for the label, including a missing one.

    >>> law = SubsetSelection(epsilon=1.0, classes=7)
    >>> law.size, round(law.keep, 10), round(law.information, 4)
    (2, 0.5209151054, 0.1215)
    """

    name: ClassVar[LabelName] = "subset"

    @property
    def size(self) -> int:
        """k."""
        share = math.exp(-self.epsilon)  # e^epsilon could overflow
        return max(1, round(self.classes * share / (1 + share)))

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of the 2^64 words that include the own class, and that leave it out."""
        if math.isinf(self.epsilon):
            return TOTAL, 0
        out = (self.classes - self.size) * math.exp(-self.epsilon) * self.keep / self.size
        uneven = 8 * self.size * self.classes / TOTAL  # bounds the difference of two sets' odds
        left_out = math.floor(TOTAL * out * (1 + ROUNDING + uneven)) + 1
        return TOTAL - left_out, left_out

    def from_fields(self, fields: Integers, hashes: Integers | None) -> Integers:
        if (fields.sum(axis=1) != self.size).any():
            raise LDPReportError(f"The LDP report does not have the {self.size} classes of the protocol.")
        return np.nonzero(fields)[1].reshape(-1, self.size)

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return the reported classes, k different ones per record, ascending.

        Raises:
            GraphError: If the shape is wrong, or a reported value is impossible.
        """
        found = self._classes(reported, 2, f"(records, {self.size})")
        if found.shape[1] != self.size or (np.diff(found, axis=1) <= 0).any():
            raise GraphError(f"each LDP report must contain {self.size} distinct classes in ascending order")
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
        """Return as many other classes of each record as it has words, in no particular order."""
        return (labels[:, None] + 1 + subsets(words, self.classes - 1)) % self.classes


_DIGITS = 9  # digits of information: smaller differences are ties, on every platform


@dataclass(frozen=True, kw_only=True)
class LocalHashing(LabelMechanism):
    """Report which public group contains the label's class, by randomized response (Wang et al. 2017, OLH).

    A public hash assigns the c classes to g groups of c/g, rounded down or up, with a different assignment
    for each record. The own group is reported with probability p, each other one with q, and represents all
    classes in it:

        p = e^epsilon / (e^epsilon + g - 1),   q = 1 / (e^epsilon + g - 1).

    g maximizes the mutual information, 3 for 7 classes at epsilon 1; for g = c it is randomized response. In
    the paper the client draws the hash and sends it. Here it is derived from public information about the
    record. A malicious client therefore chooses one of g groups, but not which classes share a group. Against
    one class, a false report weighs as much as (e^epsilon + g - 1)/(e^epsilon - 1) correct reports: 2.7
    instead of the 5.1 of randomized response (docs/privacy/attacks.md, "Malicious clients"; Cheu, Smith,
    Ullman 2021).

    A record without a label reports each group with probability 1/g, so the existence of a label is protected
    as well.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records, ceil(c/g)): the classes of the
    reported group, ascending, padded with -1 for a smaller group.

    Args:
        epsilon: Budget of the label. inf keeps labels, and missing ones missing.
        classes: Public number c of classes.

    Raises:
        ConfigError: If a parameter is outside its range.

    Privacy:
        epsilon-LDP for the label, including a missing one, exactly and for every fixed hash: the report
        is that of ``LabelRR`` on g groups. The hash must not depend on the label.

    >>> law = LocalHashing(epsilon=1.0, classes=7)
    >>> law.groups, round(law.keep, 10), round(law.information, 4)
    (3, 0.5761168848, 0.1206)
    """

    name: ClassVar[LabelName] = "hashing"

    @cached_property
    def groups(self) -> int:
        """g."""
        numbers = np.arange(2, self.classes + 1)
        return int(numbers[np.argmax(_information(self.epsilon, self.classes, numbers).round(_DIGITS))])

    @property
    def size(self) -> int:
        """The maximum number of reported classes."""
        return -(-self.classes // self.groups)

    @property
    def among_groups(self) -> LabelRR:
        """The law of the reported group."""
        return LabelRR(epsilon=self.epsilon, classes=self.groups)

    @property
    def keep(self) -> float:
        """p."""
        return self.among_groups.keep

    @property
    def change(self) -> float:
        """s p + (1 - s) q, with s the probability that two given classes share a group."""
        return self.among_groups.change + self._together * self.among_groups.gap

    @property
    def gap(self) -> float:
        """(1 - s)(p - q)."""
        return (1 - self._together) * self.among_groups.gap

    @property
    def blind(self) -> float:
        """1/g: the probability that a uniformly random group contains a given class."""
        return 1 / self.groups

    @property
    def information(self) -> float:
        """Mutual information in nats between a report and a uniformly distributed label."""
        return float(_information(self.epsilon, self.classes, np.array([self.groups]))[0])

    def hashes(self, keys: Sequence[bytes]) -> Integers:
        """Return the group 0 .. g-1 of every class, from a public key of each record, (records, c).

        SHAKE-256 of a key gives the words of a shuffle, and the class at place i is in group i mod g.

        >>> np.bincount(LocalHashing(epsilon=1.0, classes=7).hashes([b"ann"])[0]).tolist()
        [3, 2, 2]
        """
        found = np.empty((len(keys), self.classes), dtype=np.int64)
        for part in row_blocks(len(keys), self.classes):
            drawn = b"".join(hashlib.shake_256(key).digest(8 * (self.classes - 1)) for key in keys[part])
            words = np.frombuffer(drawn, dtype="<u8").reshape(-1, self.classes - 1)
            order = shuffled(words, self.classes)
            np.put_along_axis(found[part], order.astype(np.int64), self._dealt[None], axis=1)
        return found

    def hashes_of_rows(self, rows: Integers) -> Integers:
        """Return the groups of the records with these numbers, as used by ``perturb``."""
        return self.hashes([b"graphveil-row/1\0%d" % row for row in rows.tolist()])

    def perturb_with_hashes(
        self, labels: Integers, hashes: Integers, *, stream: Draws, rows: Integers | None = None
    ) -> Integers:
        """Return the perturbed labels of records, with hashes chosen by the caller.

        Args:
            labels: Classes 0 .. c-1, or -1 for a missing one, integers (records,).
            hashes: Group of every class for each record, (records, c), independent of its label.
            stream: Random words used only here: features must not share them.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If the shape is wrong, or a label is not one of the classes.
            ConfigError: If two records have the same number, or a hash does not fit this mechanism.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record's label. Reads: ``labels``. The perturbed labels may be public.
        """
        labels = self.checked(labels, missing=True)
        if hashes.shape != (len(labels), self.classes) or (np.sort(hashes) != np.sort(self._dealt)).any():
            raise ConfigError(
                f"each hash must assign all {self.classes} classes to {self.groups} groups. Use hashes()."
            )
        if math.isinf(self.epsilon):
            return self._as_they_are(labels)
        own = self._own_groups(hashes, labels)
        return self.classes_of_groups(hashes, self.among_groups.perturb(own, stream=stream, rows=rows))

    def classes_of_groups(self, hashes: Integers, groups: Integers) -> Integers:
        """Return the reports for one reported group per record: its classes, in the shape of ``perturb``."""
        inside = hashes == groups[:, None]
        order = np.argsort(~inside, axis=1, kind="stable")[:, : self.size]
        return np.where(np.take_along_axis(inside, order, axis=1), order, MISSING)

    def groups_of(self, hashes: Integers, reported: Integers) -> Integers:
        """Return the group that each record reported, (records,).

        Raises:
            GraphError: If the shape is wrong, or a reported value is impossible.
        """
        reported = self.checked_reports(reported)
        found = np.take_along_axis(hashes, reported[:, :1], axis=1)[:, 0]
        if not np.array_equal(self.classes_of_groups(hashes, found), reported):
            raise GraphError("each LDP report must contain the classes of one group of its hash")
        return found

    @property
    def limits(self) -> Integers:
        """One number, the group."""
        return np.array([self.groups - 1])

    def to_fields(self, reported: Integers, hashes: Integers | None) -> Integers:
        assert hashes is not None  # of the records
        return self.groups_of(hashes, reported)[:, None]

    def from_fields(self, fields: Integers, hashes: Integers | None) -> Integers:
        assert hashes is not None
        return self.classes_of_groups(hashes, fields[:, 0])

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return the reported classes of one group per record, ascending, padded with -1 for a smaller group.

        Raises:
            GraphError: If the shape is wrong, or a reported value is impossible.
        """
        found = self._classes(reported, 2, f"(records, {self.size})", missing=True)
        least = self.classes // self.groups
        rising = np.where(found == MISSING, self.classes, found)  # padding is sorted last
        if (
            found.shape[1] != self.size
            or (found[:, :least] == MISSING).any()
            or ((np.diff(rising, axis=1) <= 0) & (rising[:, 1:] < self.classes)).any()
        ):
            raise GraphError(
                f"each LDP report must contain the classes of one of {self.groups} groups: {least} to "
                f"{self.size} distinct classes in ascending order, followed by -1"
            )
        return found

    @property
    def _together(self) -> float:
        sizes = np.bincount(self._dealt)
        return float((sizes * (sizes - 1)).sum() / (self.classes * (self.classes - 1)))

    @property
    def _dealt(self) -> Integers:
        """The group at each place of a shuffled list of classes."""
        return np.arange(self.classes) % self.groups

    def _as_they_are(self, labels: Integers) -> Integers:
        reported = np.full((len(labels), self.size), MISSING)
        reported[:, 0] = labels
        return reported

    def _own_groups(self, hashes: Integers, labels: Integers) -> Integers:
        return np.where(labels == MISSING, MISSING, hashes[np.arange(len(labels)), labels])

    @property
    def _words_and_width(self) -> tuple[int, int]:
        return 1, self.classes

    def _randomize(self, labels: Integers, words: Words, rows: Integers) -> Integers:
        hashes = self.hashes_of_rows(rows)
        return self.classes_of_groups(
            hashes, self.among_groups._randomize(self._own_groups(hashes, labels), words, rows)
        )


def _information(epsilon: float, classes: int, groups: Integers) -> Floats:
    """Return the mutual information in nats with a uniformly distributed class, by number of groups."""
    keep = 1 / (1 + (groups - 1) * math.exp(-epsilon))
    change = keep * math.exp(-epsilon)
    small, larger = classes // groups, classes % groups  # the number of groups with one more class
    keep_probabilities = [(share / classes) * (keep - change) + change for share in (small, small + 1)]
    conditional_entropy = (groups - larger) * _entropy(keep_probabilities[0]) + larger * _entropy(
        keep_probabilities[1]
    )
    return np.asarray(conditional_entropy - _entropy(keep) - (groups - 1) * _entropy(change))


def _entropy(chance: Floats) -> Floats:
    return -chance * np.log(np.maximum(chance, np.finfo(float).tiny))


LabelLaw = LabelRR | SubsetSelection | LocalHashing
LABELS: dict[LabelName, type[LabelLaw]] = {law.name: law for law in (LabelRR, SubsetSelection, LocalHashing)}
