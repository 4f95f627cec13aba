"""Releases: charge the complete plan to the privacy ledger, then answer each query once.

A ``Release`` records its plan first and then answers the plan's queries in order. For each query,
contributions are truncated toward zero to a grid, checked against their bound, and summed exactly. Integer
noise addressed by row is added before anything is returned. Docs: ``docs/privacy/proofs/noise.md``.
"""

import hashlib
import os
import threading
from dataclasses import asdict
from typing import Any, NoReturn, Self, TypeVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import AggregationBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import within_partition
from graphveil.core.journal import Journal, MemoryJournal
from graphveil.core.keys import NAMES_IN_KEYS, ReleaseKey, canonical, check_process, keyed_digest
from graphveil.core.ledger import Entry, PrivacyLedger, charge
from graphveil.core.plan import ReleasePlan
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.held_out import PAIR_PARTS
from graphveil.core.queries.out_edge_sums import exceeds_degree
from graphveil.core.queries.projected_sums import DegreeHIndexQuery
from graphveil.core.query import PublicInputs, Query, QueryData, are_numbers, outside
from graphveil.core.unit import NodeBoundedDegree, Unit
from graphveil.core.view import unwrapped_fields
from graphveil.errors import ConfigError, ReleaseError, UnitError

_VERSION = 2
Answer = TypeVar("Answer")


class Release:
    """One release: the complete plan is charged first, then each query is answered once.

    It belongs to the process that opened it, and its threads query it one after the other. A query of the
    plan is answered once, and a forked copy answers none.

    >>> import torch
    >>> from graphveil.core.queries.neighbor_sums import NeighborSumData
    >>> from graphveil.core.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.ledger import MemoryLedger
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 2), delta=1e-5)
    >>> release = Release.open(plan, path, budget=MemoryLedger())
    >>> release.answer(NeighborSumData(torch.eye(3)[:, :2])).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        plan: ReleasePlan,
        private: PrivateEdges,
        public: PublicInputs,
        ledger: PrivacyLedger,
        *,
        key: ReleaseKey,
        journal: Journal,
        commitment: dict[str, object],
        alone: bool,
    ) -> None:
        self._plan, self._private, self._public = plan, private, public
        self._ledger, self._key, self._journal, self._alone = ledger, key, journal, alone
        self._commitment = commitment
        self._process, self._lock = os.getpid(), threading.RLock()
        self._position = 0
        # Without a choice only the queries before the alternatives can be answered.
        common = len(plan.queries) - sum(plan.alternatives)
        self._chosen: int | None = None if plan.alternatives else 0
        self._path = tuple(range(common))
        self._edges_digest = ""

    @classmethod
    def open(
        cls,
        plan: ReleasePlan,
        adjacency: Adjacency,
        groups: Tensor | None = None,
        *,
        budget: PrivacyLedger,
        key: ReleaseKey | None = None,
        backend: AggregationBackend | None = None,
        first_row: int = 0,
        journal: Journal | None = None,
        label: str = "rows",
    ) -> Self:
        """Record a new release, or resume the one in the journal.

        Args:
            key: Noise key, by default a new one; a reproducible key invalidates the guarantee.
            backend: Backend that schedules the destination blocks; it does not affect results.
            first_row: First row that answers with a row for each node have; the noise of rows is the same.

        Privacy:
            Unit: that of the plan. Charges: the whole plan, before any query is answered.
        """
        # Whatever can be rejected is rejected before the charge, so that a rejection spends no budget.
        private = PrivateEdges(adjacency, backend, first_row)
        _check_unit(plan, private)
        check_weights(plan, adjacency)
        groups = _checked_groups(plan, groups, adjacency.num_nodes)
        memory = journal or MemoryJournal()
        commitment = _public_commitment(plan, adjacency)
        resumed = memory.resume(commitment)
        release = cls(
            plan,
            private,
            PublicInputs(adjacency.num_nodes, groups, plan.sampler),
            budget,
            key=resumed or key or ReleaseKey.fresh(),
            journal=memory,
            commitment=commitment,
            alone=key is None and not memory.durable,
        )
        entry = release._entry(label)
        if resumed is None:
            charge(budget, entry, begin=lambda: memory.begin(release._key, commitment))
        # Edges or groups that differ from the first run's are rejected before a resumed run is recorded.
        of_groups = () if groups is None else (groups,)
        memory.check_fingerprint("edges", private.digest)
        memory.check_fingerprint("groups", lambda key: keyed_digest(key, *of_groups))
        if resumed is not None:
            charge(budget, entry)
        if not (release._alone or release._key.erased):
            release._edges_digest = private.digest(release._key.master)
        return release

    def __repr__(self) -> str:
        """Show public facts only."""
        return f"Release({self.release_id}, {self._position} of {len(self._path)} queries answered)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise instead of being copied: a copy could draw the same noise for other data."""
        raise ReleaseError("A release cannot be copied or pickled. Open a new one, which is charged again.")

    @property
    def release_id(self) -> str:
        return self._key.release_id

    @property
    def next_query(self) -> Query:
        """The query that is answered next; there must be one."""
        return self._plan.queries[self._path[self._position]]

    @property
    def reproducible(self) -> bool:
        """Whether the noise comes from a seed, which invalidates the guarantee."""
        return self._key.reproducible

    def choose(self, alternative: int) -> None:
        """Choose which alternative of the plan is answered next, after the queries before them.

        A resumed release rejects another choice, so that two alternatives are never both answered.

        Args:
            alternative: Number of the alternative. It must follow from answers of this release and from
                public values alone.

        Privacy:
            Charges: nothing, since the most expensive alternative was charged in ``open``.
        """
        check_process(self._process)
        with self._lock:
            if self._chosen is not None or self._position != len(self._path):
                raise ReleaseError(
                    "an alternative must be chosen once, after all queries before it are answered, and only "
                    "if the plan has alternatives; the release stays charged"
                )
            checks.within(0, len(self._plan.alternatives) - 1, alternative=alternative)
            self._journal.check_fingerprint(
                "alternative", lambda key: keyed_digest(key, torch.tensor([alternative]))
            )
            self._chosen, self._path = alternative, self._plan.paths[alternative]

    def answer(self, data: QueryData[Answer]) -> Answer:
        """Answer the plan's next query with its data, once.

        The query's descriptor, which binds its noise to the data, is committed before the first draw. A
        resumed release answers the same data with the same noise, and rejects other data.

        Privacy:
            The answer includes its noise and is charged in ``open``. It may be public.
        """
        check_process(self._process)
        with self._lock:
            if self._position >= len(self._path):
                raise ReleaseError(
                    "the plan goes on with alternatives; choose(number) one of them"
                    if self._chosen is None
                    else "every query of this release is answered; a new release is needed, which is charged "
                    "again"
                )
            query = self.next_query
            if type(data) is not query.data:
                raise ReleaseError(
                    f"the plan's next query is {type(query).__name__}; answer it with {query.data.__name__}"
                )
            prepared = query.prepare(unwrapped_fields(data), self._public)
            # The order matters. Other data are rejected first, and the query can be repeated. Then the ledger
            # records that noise is drawn, which ends refunds. The descriptor is on disk before the first
            # draw: a run that is interrupted while drawing resumes with the same noise, or not at all.
            index, arrays = self._path[self._position], prepared.arrays
            self._journal.check_fingerprint(str(index), lambda key: keyed_digest(key, *arrays))
            if self._position == 0:  # a closed release was drawn elsewhere, so it cannot be refunded here
                self._ledger.commit(self.release_id)
            self._position += 1
            descriptor = b"" if self._key.erased else self._descriptor(index, arrays)
            if descriptor:
                self._journal.commit(index, descriptor)
            stored: Any = self._journal.load(index)
            if stored is None and not descriptor:
                raise ReleaseError(
                    "This release is finished and its noise key is deleted, but an answer is missing from "
                    "the run's internal folder. Start a new run in a new folder, which is charged again."
                )
            if stored is None:
                stored = query.answer(self._private, prepared, self._key.query_key(descriptor))
                self._journal.store(index, stored)
            self._public = query.released(stored, self._public)
            answer: Answer = stored
            return answer

    def close(self) -> None:
        """Close the release and erase the noise key; every query must be answered."""
        check_process(self._process)
        with self._lock:
            if self._position != len(self._path) or self._chosen is None:
                raise ReleaseError(
                    f"only {self._position} of {len(self._path)} queries are answered, or no alternative of "
                    "the plan is chosen; all queries must be answered before publication"
                )
            self._journal.close()

    def _entry(self, label: str) -> Entry:
        # Parts of node pairs follow from the order of nodes, which another release may have changed.
        event, groups = within_partition(self._plan.event, self.release_id, PAIR_PARTS), self._public.groups
        if groups is not None:  # public, like the split it is derived from
            event = within_partition(event, hashlib.sha256(groups.numpy().tobytes()).hexdigest()[:16])
        return Entry(self.release_id, label, event, self._plan.slack, self._plan.unit)

    def _descriptor(self, index: int, data: tuple[Tensor, ...]) -> bytes:
        """Return everything that determines the exact integers and their scale, as canonical JSON."""
        groups = self._public.groups
        own = {
            "index": index,
            "edges": self._edges_digest,
            "input": self._digest(*data),
            "groups": "" if groups is None else self._digest(groups),
        }
        return canonical(self._commitment | own)

    def _digest(self, *arrays: Tensor) -> str:
        """Return the keyed digest of a query's inputs, if its key could be used with other inputs.

        A key that this object drew itself and that no journal stores cannot. It exists in one object, which
        is never copied and draws each query once.
        """
        return "" if self._alone or self._key.erased else self._key.digest(*arrays)


def _check_unit(plan: ReleasePlan, private: PrivateEdges) -> None:
    """Reject a graph that the unit's bounds are not valid for; edges that no query reads are not read."""
    for path in plan.paths:
        queries = [plan.queries[k] for k in path]
        bounded = [isinstance(query, DegreeHIndexQuery) for query in queries]
        if any(query.needs_degree_bound and not any(bounded[:k]) for k, query in enumerate(queries)):
            raise ConfigError(
                "The plan has a ProjectedSumQuery without a DegreeHIndexQuery before it, so its degree bound "
                "is not known. Start the plan with a DegreeHIndexQuery."
            )
    if any(query.reads_edges for query in plan.queries):
        _check_max_degree(private, plan.unit)
    for query in plan.queries:
        query.check_unit(plan.unit, directed=private.directed)


def check_max_degree(adjacency: Adjacency, unit: Unit) -> None:
    """Reject a graph in which some node has more edges than the data owner asserted, if the unit has a bound.

    A directed edge counts at both of its ends. The guarantee needs less: a release is opened if no node
    sends or receives more edges.

    The error message contains no number and no node. That it is raised reveals something about the graph,
    which is why the guarantee is conditional on the assumption.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> check_max_degree(path, NodeBoundedDegree(max_degree=2))
    """
    if isinstance(unit, NodeBoundedDegree):
        _check_max_degree(PrivateEdges(adjacency), unit, both_ends=adjacency.directed)


def _check_max_degree(private: PrivateEdges, unit: Unit, *, both_ends: bool = False) -> None:
    if isinstance(unit, NodeBoundedDegree) and exceeds_degree(private, unit.max_degree, both_ends=both_ends):
        raise UnitError(
            f"A node has a degree above max_degree={unit.max_degree}, so the assumption of unit "
            "'node-bounded-degree' is violated and no guarantee exists. Correct max_degree "
            "(--max-degree) from public knowledge, or use unit 'node-record'."
        )


def check_weights(plan: ReleasePlan, adjacency: Adjacency) -> None:
    """Reject a plan that would ignore edge weights, or that reads edge weights that do not exist."""
    reads = {query.reads_edge_weights for query in plan.queries if query.reads_edges}
    weighted = adjacency.max_weight is not None
    if weighted and False in reads:
        raise ConfigError(
            "The graph has edge weights, which this release would ignore. Use weights='given' if the "
            "method supports it, or remove them with adjacency.without_weights() (or without "
            "--weight)."
        )
    if not weighted and True in reads:
        raise ConfigError(
            "weights='given' needs edge weights, but the graph has none. Load it with weight= and "
            "max_weight= (--weight, --max-weight)."
        )


def _checked_groups(plan: ReleasePlan, groups: Tensor | None, num_nodes: int) -> Tensor | None:
    """Reject groups that do not fit the plan: a node outside every group would get no noise."""
    sizes = {query.groups for query in plan.queries if query.needs_groups}
    if not sizes:
        return None
    if not are_numbers(groups, num_nodes):
        raise ConfigError(f"groups must contain one integer for each of {num_nodes} nodes")
    if len(sizes) > 1 or outside(groups, min(sizes)):
        raise ConfigError(f"groups must be between 0 and {min(sizes) - 1}, the groups of the plan's queries")
    return groups.to(torch.int64)


def _public_commitment(plan: ReleasePlan, adjacency: Adjacency) -> dict[str, object]:
    """Return all public values that determine a release."""
    queries = [query.describe().parameters for query in plan.queries]
    return {
        "version": _VERSION,
        "unit": NAMES_IN_KEYS.get(plan.unit.name, plan.unit.name),
        **asdict(plan.unit),
        "queries": [{NAMES_IN_KEYS.get(name, name): one for name, one in query.items()} for query in queries],
        "sampler": plan.sampler.__name__,
        **({"alternatives": plan.alternatives} if plan.alternatives else {}),
        "nodes": adjacency.num_nodes,
        "directed": adjacency.directed,
        **({} if adjacency.max_weight is None else {"max_weight": adjacency.max_weight.hex()}),
    }
