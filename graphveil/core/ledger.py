"""The privacy ledger: every release is recorded here before it is computed.

A ledger belongs to one protected edge set. The default lives in memory; a durable one can be attached.
"""

import math
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol
from weakref import WeakKeyDictionary

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.accountant import Curve, privacy_curve
from graphveil.core.accounting.gaussian import check_proved_delta
from graphveil.core.events import Event, compose
from graphveil.core.unit import Unit
from graphveil.errors import BudgetError, ConfigError

# One lock for all ledgers in memory: a check stays true until the release is recorded, and
# a release that is charged to several ledgers is recorded in all of them or none.
_RECORDING = threading.RLock()


@dataclass(frozen=True)
class Entry:
    """One recorded release: its id, its kind, and its event.

    It contains no private data.

    Args:
        release_id: Id of the release; a ledger records it once.
        label: Kind of the release, for people.
        event: Event that is charged.
        slack: Part of delta that covers the finite resolution of the noise.
        unit: Privacy unit that the event is accounted for.
    """

    release_id: str
    label: str
    event: Event
    slack: float = 0.0
    unit: Unit | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "slack", checks.real(checks.plain(self.slack)))
        checks.within(0, 1, slack=self.slack)


class PrivacyLedger(Protocol):
    """The interface between a release and the ledger of the data that it reads.

    A release is recorded before anything is computed, and committed before its noise is first drawn. Until
    then it can be refunded. A commit and a refund are both final.

    Privacy:
        Every release of protected data is recorded here before it is computed. A ledger stores events and
        never the data.
    """

    def record(self, entry: Entry) -> None:
        """Record a release.

        Args:
            entry: Release to record.

        Raises:
            BudgetError: If it exceeds the limit. Nothing is recorded.
        """

    def check(self, entry: Entry) -> None:
        """Raise the error that ``record`` would raise, and record nothing.

        Args:
            entry: Release to check.

        Raises:
            BudgetError: If it exceeds the limit.
        """

    def contains(self, release_id: str) -> bool:
        """Return whether a release is recorded and was not refunded.

        Args:
            release_id: Id of the release.
        """

    def commit(self, release_id: str) -> None:
        """Record that noise is about to be drawn; the release can no longer be refunded.

        Args:
            release_id: Id of the release.

        Raises:
            BudgetError: If the release is not recorded.
        """

    def refund(self, release_id: str) -> bool:
        """Refund a release that was never committed.

        Args:
            release_id: Id of the release.

        Returns:
            Whether the release was refunded.
        """

    def __len__(self) -> int:
        """Return the number of recorded releases."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded so far, in order."""


def charge(
    ledger: PrivacyLedger,
    entry: Entry,
    *,
    begin: Callable[[], object] | None = None,
    drawn: bool = False,
) -> None:
    """Charge a release to a ledger, once: nothing else in the package records an entry.

    A fit, a prediction, a collection, a sweep and a request to a server are all charged here, each to the
    ledger that ``joint_ledger`` or the caller has chosen, before anything of the data is computed.

    Args:
        begin: For a new release: stores its id where a resumed run finds it. Called after the check, so that
            a rejection leaves nothing to resume, and before the entry is recorded, so that an interrupted run
            is charged once. Without it the release may be a repetition, which is charged unless the ledger
            has it: a ledger in memory is a new one after a resume, or the run was interrupted before this.
        drawn: Whether noise is drawn next, or was drawn elsewhere, so that no refund is possible.
    """
    if begin is not None:
        # Durable ledgers would treat it as a repetition of the same entry, and charge nothing.
        if ledger.contains(entry.release_id):
            raise BudgetError(
                f"Release {entry.release_id} is already recorded under this key. A key can be used for "
                "one release only. Use another key for each release."
            )
        ledger.check(entry)
        begin()
        ledger.record(entry)
    elif not ledger.contains(entry.release_id):
        ledger.record(entry)
    if drawn:
        ledger.commit(entry.release_id)


@checked
class MemoryLedger:
    """A ledger in memory, with an optional limit. Its entries are lost when the process ends.

    Privacy:
        Stores events and never the data. Charges: what is recorded.

    >>> MemoryLedger()
    MemoryLedger(0 releases; forgotten when this process ends: attach a ledger to keep them)
    >>> from graphveil.core.events import Gaussian
    >>> ledger = MemoryLedger(epsilon=1.0, delta=1e-7)
    >>> ledger.record(Entry("a", "rows", Gaussian(0.2)))
    >>> ledger.record(Entry("b", "rows", Gaussian(0.2)))
    Traceback (most recent call last):
    graphveil.errors.BudgetError: The release 'rows' would bring the total to epsilon 1.349 at delta \
1e-07, above the limit of 1 (spent so far: 0.9318). Use a smaller epsilon, or raise the limit.
    """

    def __init__(
        self, *, epsilon: float | None = None, delta: float | None = None, entries: Iterable[Entry] = ()
    ) -> None:
        """Create a ledger.

        Args:
            epsilon: Limit of epsilon; None for no limit.
            delta: Delta of the limit. Required with ``epsilon``. With 0, only pure ε-DP releases fit.
            entries: Releases that were recorded elsewhere before. They may exceed the limit.

        Raises:
            ConfigError: If only one of the two numbers is given, or a number is out of range.
        """
        if (epsilon is None) != (delta is None):
            raise ConfigError("A limit needs both epsilon= and delta=. Pass both, or omit both for no limit.")
        if epsilon is not None and delta is not None:
            checks.non_negative(epsilon=epsilon)
            checks.within(0, 1, delta=delta)
            if delta:
                check_proved_delta(delta)
        self._epsilon, self._delta = epsilon, delta
        self._entries = list(entries)
        self._committed: set[str] = set()
        self._process = os.getpid()

    def __repr__(self) -> str:
        count = len(self._entries)
        return (
            f"MemoryLedger({count} release{'' if count == 1 else 's'}; forgotten when this process ends: "
            "attach a ledger to keep them)"
        )

    def record(self, entry: Entry) -> None:
        """Record a release that is within the limit."""
        with _RECORDING:
            self.check(entry)
            self._entries.append(entry)

    def check(self, entry: Entry) -> None:
        """Raise the error that ``record`` would raise, and record nothing."""
        self._check_process()
        with _RECORDING:
            if self.contains(entry.release_id):
                raise BudgetError(
                    f"Release {entry.release_id} is already recorded. Use a new id for a new release."
                )
            if self._epsilon is None or self._delta is None:
                return
            after = _epsilon([*self._entries, entry], self._delta)
            if not after <= self._epsilon:  # not `>`: NaN fits no limit
                spent = _epsilon(self._entries, self._delta)
                raise BudgetError(
                    f"The release {entry.label!r} would bring the total to epsilon "
                    f"{format_upper_bound(after)} at delta {self._delta:g}, above the limit of "
                    f"{self._epsilon:g} (spent so far: {format_upper_bound(spent)}). Use a smaller epsilon, "
                    "or raise the limit."
                )

    def contains(self, release_id: str) -> bool:
        """Return whether a release is recorded."""
        return any(known.release_id == release_id for known in self._entries)

    def commit(self, release_id: str) -> None:
        """Note that noise is about to be drawn; the release can no longer be refunded."""
        self._check_process()
        with _RECORDING:
            if not self.contains(release_id):
                raise BudgetError(
                    f"The ledger no longer has release {release_id}, so no noise may be drawn for it. Open a "
                    "new release."
                )
            self._committed.add(release_id)

    def refund(self, release_id: str) -> bool:
        """Refund a release that was never committed."""
        self._check_process()
        with _RECORDING:
            if release_id in self._committed or not self.contains(release_id):
                return False
            self._entries = [entry for entry in self._entries if entry.release_id != release_id]
            return True

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded so far, in order."""
        return tuple(self._entries)

    def curve(self) -> Curve:
        """Return the privacy curve of all recorded releases.

        Raises:
            BudgetError: If the entries have different privacy units, whose costs do not add up.
        """
        return _curve(self._entries)

    def _check_process(self) -> None:
        """Raise an error in another process: a fork has a copy of the ledger, and would count separately."""
        if os.getpid() != self._process:
            raise BudgetError(
                "This ledger is an in-memory copy in a forked process, so its releases would not be "
                "added to the original. Attach a ledger in a file (graphveil.ledger.Ledger). No privacy "
                "budget was spent."
            )


class JointLedger:
    """Several ledgers that one release is recorded in, in all or none: it may read the data of each of them.

    >>> ledgers = MemoryLedger(), MemoryLedger(epsilon=0.1, delta=1e-7)
    >>> from graphveil.core.events import Gaussian
    >>> JointLedger(ledgers).record(Entry("a", "rows", Gaussian(0.2)))
    Traceback (most recent call last):
    graphveil.errors.BudgetError: The release 'rows' would bring the total to epsilon 0.9318 at delta \
1e-07, above the limit of 0.1 (spent so far: 0). Use a smaller epsilon, or raise the limit.
    >>> ledgers[0].entries
    ()
    """

    def __init__(self, ledgers: Iterable[PrivacyLedger], *, reference: str | None = None) -> None:
        """Store the ledgers.

        Args:
            ledgers: Ledgers that are charged, each once and in this order.
            reference: Id that replaces the release id, for a request that may be repeated. It is then charged
                once and never refunded, even if a later ledger fails: the next request with this reference
                uses the charge.
        """
        self._ledgers = tuple({id(ledger): ledger for ledger in ledgers}.values())
        self._reference = reference

    def record(self, entry: Entry) -> None:
        """Record a release in every ledger that lacks it, if all of them admit it."""
        entry = replace(entry, release_id=self._id_of(entry.release_id))
        with _RECORDING:
            self.check(entry)
            recorded: list[PrivacyLedger] = []
            try:
                for ledger in self._ledgers_without(entry):
                    ledger.record(entry)
                    recorded.append(ledger)
            except BaseException:  # another process may have spent the rest, or a database is gone
                for ledger in recorded:
                    self._refund(ledger, entry.release_id)
                raise

    def check(self, entry: Entry) -> None:
        """Raise the error of the first ledger that rejects a release."""
        entry = replace(entry, release_id=self._id_of(entry.release_id))
        missing = self._ledgers_without(entry)
        # If all have it, the first one decides whether the release may be repeated.
        for ledger in missing or self._ledgers[:1]:
            ledger.check(entry)

    def contains(self, release_id: str) -> bool:
        """Return whether a release is recorded in all of the ledgers."""
        return all(ledger.contains(self._id_of(release_id)) for ledger in self._ledgers)

    def commit(self, release_id: str) -> None:
        """Note in every ledger that noise is about to be drawn."""
        for ledger in self._ledgers:
            ledger.commit(self._id_of(release_id))

    def refund(self, release_id: str) -> bool:
        """Refund a release in every ledger."""
        refunded = [self._refund(ledger, release_id) for ledger in self._ledgers]
        return all(refunded)

    @property
    def parts(self) -> tuple[PrivacyLedger, ...]:
        """The ledgers."""
        return self._ledgers

    def _id_of(self, release_id: str) -> str:
        return release_id if self._reference is None else self._reference

    def _refund(self, ledger: PrivacyLedger, release_id: str) -> bool:
        return self._reference is None and ledger.refund(release_id)

    def __len__(self) -> int:
        return max(len(ledger) for ledger in self._ledgers)

    def __bool__(self) -> bool:
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that are in all of the ledgers, in the order of the first."""
        first, *others = (ledger.entries for ledger in self._ledgers)
        everywhere = [{entry.release_id for entry in entries} for entries in others]
        return tuple(entry for entry in first if all(entry.release_id in ids for ids in everywhere))

    def _ledgers_without(self, entry: Entry) -> list[PrivacyLedger]:
        """Return the ledgers without the entry: an interrupted recording has reached some of them only."""
        return [ledger for ledger in self._ledgers if not ledger.contains(entry.release_id)]


def _epsilon(entries: list[Entry], delta: float) -> float:
    """Return the epsilon of some entries together, at the delta that their slack leaves.

    At delta 0 this is the sum of epsilons if all releases have pure ε-DP: given the earlier outputs, each
    likelihood ratio is at most e^epsilon, so their product is at most e to the sum, for adaptive releases as
    well. Randomized response attains it. Any Gaussian, sampled or non-private release has no epsilon there.
    """
    left = Fraction(delta) - sum((Fraction(entry.slack) for entry in entries), Fraction(0))
    return _curve(entries).epsilon(float(left)) if left >= 0 else math.inf


def _curve(entries: list[Entry]) -> Curve:
    units = {entry.unit for entry in entries if entry.unit is not None}
    if len(units) > 1:
        raise BudgetError(
            f"The recorded releases have different privacy units ({', '.join(sorted(map(str, units)))}), "
            "so their costs cannot be added. Use one unit for this data, or attach a ledger without "
            "a limit and account for each unit separately."
        )
    return privacy_curve(compose(*(entry.event for entry in entries)))


def own_releases(ledger: PrivacyLedger) -> frozenset[str]:
    """Return the ids of releases that were recorded through this object.

    Other processes may charge a durable ledger at the same time. Their releases are not included, and neither
    are those of an interrupted run that this process resumes.

    Args:
        ledger: Ledger of this process.

    Privacy:
        Reads: no protected data. Charges: nothing.
    """
    if isinstance(ledger, JointLedger):
        return frozenset[str]().union(*map(own_releases, ledger.parts))
    recorded: frozenset[str] | None = getattr(ledger, "recorded", None)  # of a durable ledger
    return frozenset(entry.release_id for entry in ledger.entries) if recorded is None else recorded


_ledgers: WeakKeyDictionary[object, PrivacyLedger] = WeakKeyDictionary()


def ledger_of(edge_set: object) -> PrivacyLedger:
    """Return the ledger of a graph or of an edge set.

    At first it is in memory, without a limit. For a union of edge sets, as of a graph that has grown, it is
    the joint ledger of all of them.

    Args:
        edge_set: Graph, adjacency or edge set.

    Raises:
        ConfigError: If the argument has no edges.

    Privacy:
        Reads: no protected data. Charges: nothing.
    """
    return joint_ledger([edge_set])


@checked
def joint_ledger(edge_sets: Iterable[object]) -> PrivacyLedger:
    """Return one ledger for a release that may query any of these edge sets.

    Args:
        edge_sets: Graphs or edge sets.

    Raises:
        ConfigError: If an argument has no edges.

    Privacy:
        Reads: no protected data. Charges: nothing.
    """
    parts = dict.fromkeys(part for edge_set in edge_sets for part in _parts(edge_set))
    with _RECORDING:
        ledgers = [_ledgers.setdefault(part, MemoryLedger()) for part in parts]
    return ledgers[0] if len(ledgers) == 1 else JointLedger(ledgers)


def attach_ledger(edge_set: object, ledger: PrivacyLedger) -> None:
    """Attach a ledger to a graph or edge set that has not been charged yet.

    A graph shares its edge set with its copies, so all of them are charged to this ledger.

    Args:
        edge_set: Graph, adjacency or edge set.
        ledger: Ledger with a limit, or a durable one.

    Raises:
        ConfigError: If there are no edges to attach a ledger to, or the argument is not a ledger.
        BudgetError: If the edges are charged already, or are a union of sets with a ledger each.

    Privacy:
        Reads: no protected data. Charges: nothing. Later releases of these edges are charged to the ledger.
    """
    edge_set = _edges(edge_set)
    if not all(hasattr(ledger, name) for name in ("record", "check", "contains", "commit", "refund")):
        raise ConfigError(
            f"ledger must be a ledger, not a {type(ledger).__name__}. Use MemoryLedger(), for example."
        )
    if len(_parts(edge_set)) > 1:
        raise BudgetError(
            "These edges combine several edge sets, each with its own ledger, as in a graph that has "
            "grown. Attach a ledger to each of edge_set.parts."
        )
    with _RECORDING:
        current = _ledgers.get(edge_set)
        if current is not None and len(current):
            raise BudgetError(
                "Releases of these edges are already recorded. Attach a ledger before the first fit."
            )
        _ledgers[edge_set] = ledger


def _parts(edge_set: object) -> tuple[object, ...]:
    edge_set = _edges(edge_set)
    return tuple(getattr(edge_set, "parts", (edge_set,)))


def _edges(given: object) -> object:
    found = getattr(given, "edge_set", given)
    if (
        not hasattr(found, "__weakref__") or type(found).__hash__ is None
    ):  # a number, a text: nothing that is the same edges tomorrow
        raise ConfigError(
            f"A ledger is attached to an edge set, but a {type(given).__name__} was given. Pass "
            "graph.edge_set."
        )
    return found
