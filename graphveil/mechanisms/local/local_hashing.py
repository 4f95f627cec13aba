"""Local hashing with public hashes: a record says in which of a few public groups its class is."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms._draws import Draws, Floats, Integers, Words, row_blocks, shuffled
from graphveil.mechanisms.local.labels import MISSING, LabelMechanism, LabelRR

_DIGITS = 9  # of information: numbers of groups that differ in less are as good, on every machine


@dataclass(frozen=True, kw_only=True)
class LocalHashing(LabelMechanism):
    """Say which of g public groups the label's class is in, by randomized response (Wang et al. 2017, OLH).

    A public hash deals the c classes into g groups of c/g, rounded down or up, for each record anew. Its own
    group is said with probability p, each other one with q, and stands for all classes in it:

        p = e^epsilon / (e^epsilon + g - 1),   q = 1 / (e^epsilon + g - 1).

    g is the number that tells most, 3 for 7 classes at epsilon 1; for g = c it is randomized response. The
    paper's person draws the hash and sends it along. Here it follows from what is public about the record, so
    whoever lies chooses one of g groups and not which classes stand together: against one class a lie weighs
    as much as (e^epsilon + g - 1)/(e^epsilon - 1) honest answers, 2.7 instead of the 5.1 of randomized
    response (docs/attacks.md, "False clients"; Cheu, Smith, Ullman 2021).

    A record without a label says each group with probability 1/g, so that who has one is not told either.

    Guarantee: epsilon-LDP for the label, a missing one included, exactly and for every fixed hash: what is
    said is :class:`LabelRR` on g groups. The hash must not depend on the label. ``epsilon`` inf keeps labels,
    and missing ones missing.

    Shapes: labels int64 (records,), -1 for a missing one, to int64 (records, ceil(c/g)): the classes of the
    group that was said, ascending, with -1 after them where it is a smaller one.

    Args:
        epsilon: the budget of the label.
        classes: c, public.

    Raises:
        ConfigError: a parameter is outside its range.

    >>> law = LocalHashing(epsilon=1.0, classes=7)
    >>> law.groups, round(law.keep, 10), round(law.information, 4)
    (3, 0.5761168848, 0.1206)
    """

    @cached_property
    def groups(self) -> int:
        """g."""
        numbers = np.arange(2, self.classes + 1)
        return int(numbers[np.argmax(_information(self.epsilon, self.classes, numbers).round(_DIGITS))])

    @property
    def size(self) -> int:
        """The most classes that are said."""
        return -(-self.classes // self.groups)

    @property
    def among_groups(self) -> LabelRR:
        """The law of the group that is said."""
        return LabelRR(epsilon=self.epsilon, classes=self.groups)

    @property
    def keep(self) -> float:
        """p."""
        return self.among_groups.keep

    @property
    def change(self) -> float:
        """s p + (1 - s) q, with s the chance that two given classes share a group."""
        return self.among_groups.change + self._together * self.among_groups.gap

    @property
    def gap(self) -> float:
        """(1 - s)(p - q)."""
        return (1 - self._together) * self.among_groups.gap

    @property
    def blind(self) -> float:
        """1/g: how often a group drawn blindly holds a given class."""
        return 1 / self.groups

    @property
    def information(self) -> float:
        """What is said tells so many nats about a label of which each class is equally likely."""
        return float(_information(self.epsilon, self.classes, np.array([self.groups]))[0])

    def hashes(self, keys: Sequence[bytes]) -> Integers:
        """Return the group 0 .. g-1 of every class, by what is public about each record, (records, c).

        SHAKE-256 of a key gives the words of a shuffle, and the class at place i is in group i mod g.

        >>> np.bincount(LocalHashing(epsilon=1.0, classes=7).hashes([b"ann"])[0]).tolist()
        [3, 2, 2]
        """
        found = np.empty((len(keys), self.classes), dtype=np.int64)
        dealt = np.arange(self.classes) % self.groups
        for part in row_blocks(len(keys), self.classes):
            order = shuffled(_words(keys[part], self.classes - 1), self.classes)
            np.put_along_axis(found[part], order.astype(np.int64), dealt[None], axis=1)
        return found

    def hashes_of_rows(self, rows: Integers) -> Integers:
        """Return the groups of records that are known by their numbers, as :meth:`perturb` takes them."""
        return self.hashes([b"graphveil-row/1\0%d" % row for row in rows.tolist()])

    def perturb_with_hashes(
        self, labels: Integers, hashes: Integers, *, stream: Draws, rows: Integers | None = None
    ) -> Integers:
        """Return what records say, by hashes that somebody else has chosen.

        Args:
            labels: classes 0 .. c-1, or -1 for a missing one, whole numbers (records,).
            hashes: the group of every class for each record, (records, c), whatever its label is.
            stream: random words, of their own: features must not share them.
            rows: the records' numbers, which must differ; 0, 1, 2, ... if None.

        Raises:
            GraphError: the shape is wrong, or a label is none of the classes.
            ConfigError: two records have one number, or a hash is none of this mechanism.
            ReleaseError: the stream served a row before.
        """
        labels = self.checked(labels, missing=True)
        if hashes.shape != (len(labels), self.classes) or (np.sort(hashes) != np.sort(self._dealt)).any():
            raise ConfigError(
                f"a hash deals all {self.classes} classes into {self.groups} groups; take hashes()"
            )
        if math.isinf(self.epsilon):
            return self._as_they_are(labels)
        own = self._own_groups(hashes, labels)
        return self.classes_of_groups(hashes, self.among_groups.perturb(own, stream=stream, rows=rows))

    def classes_of_groups(self, hashes: Integers, groups: Integers) -> Integers:
        """Return what records say who say one group each: its classes, in the shape of :meth:`perturb`."""
        inside = hashes == groups[:, None]
        order = np.argsort(~inside, axis=1, kind="stable")[:, : self.size]
        return np.where(np.take_along_axis(inside, order, axis=1), order, MISSING)

    def groups_of(self, hashes: Integers, reported: Integers) -> Integers:
        """Return the group that each record said, (records,).

        Raises:
            GraphError: the shape is wrong, or somebody said what no record can.
        """
        reported = self.checked_reports(reported)
        found = np.take_along_axis(hashes, reported[:, :1], axis=1)[:, 0]
        if not np.array_equal(self.classes_of_groups(hashes, found), reported):
            raise GraphError("a record says the classes of one group of its hash, and no others")
        return found

    def checked_reports(self, reported: npt.ArrayLike) -> Integers:
        """Return what records said: the classes of a group, ascending, and -1 after those of a smaller one.

        Raises:
            GraphError: the shape is wrong, or somebody said what no record can.
        """
        found = self._classes(reported, 2, f"(records, {self.size})", missing=True)
        least = self.classes // self.groups
        rising = np.where(found == MISSING, self.classes, found)  # what is left out comes last
        if (
            found.shape[1] != self.size
            or (found[:, :least] == MISSING).any()
            or ((np.diff(rising, axis=1) <= 0) & (rising[:, 1:] < self.classes)).any()
        ):
            raise GraphError(
                f"each record says the classes of one of {self.groups} groups, {least} to {self.size} "
                "different ones in ascending order, and -1 after them"
            )
        return found

    @property
    def _together(self) -> float:
        """The chance that two given classes are in one group."""
        sizes = np.bincount(self._dealt)
        return float((sizes * (sizes - 1)).sum() / (self.classes * (self.classes - 1)))

    @property
    def _dealt(self) -> Integers:
        """The group at each place of a shuffled deck of classes."""
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


def _words(keys: Sequence[bytes], count: int) -> Words:
    drawn = b"".join(hashlib.shake_256(key).digest(8 * count) for key in keys)
    return np.frombuffer(drawn, dtype="<u8").reshape(len(keys), count)


def _information(epsilon: float, classes: int, groups: Integers) -> Floats:
    """Return the nats that numbers of groups tell about one of equally likely classes."""
    keep = 1 / (1 + (groups - 1) * math.exp(-epsilon))
    change = keep * math.exp(-epsilon)
    small, larger = classes // groups, classes % groups  # so many groups have a class more
    keep_probabilities = [(share / classes) * (keep - change) + change for share in (small, small + 1)]
    conditional_entropy = (groups - larger) * _entropy(keep_probabilities[0]) + larger * _entropy(
        keep_probabilities[1]
    )
    return np.asarray(conditional_entropy - _entropy(keep) - (groups - 1) * _entropy(change))


def _entropy(chance: Floats) -> Floats:
    return -chance * np.log(np.maximum(chance, np.finfo(float).tiny))
