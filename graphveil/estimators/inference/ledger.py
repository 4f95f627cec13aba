"""What a fitted model has told about which edges: its fit, and every prediction of another graph.

A release is charged to the ledgers of all edge sets that its edges may belong to, as far as is known: their
own, and those of the edge sets asked before, unless the two are known to share no edge. For any edge, the
ledger of the first of its sets to be asked then holds every release of this model that may have told about
it. Proof: ``docs/guarantees.md``, section 4. Under unit ``local-attributes`` an edge set stands for the
people of its graph, and the same holds for each of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from graphveil.data import EdgeSet
from graphveil.privacy import Guarantee, LocalAttributes

ASSERTED_EDGES = (
    "graphs that were asserted to share no edge count with the larger of their figures, not the sum"
)
ASSERTED_NODES = ASSERTED_EDGES.replace("no edge", "no person")


@dataclass(frozen=True)
class PredictionRelease:
    """One release of a prediction: what it costs alone, and the edge sets on whose records it stands."""

    guarantee: Guarantee
    charged: tuple[EdgeSet, ...]


class PredictionLedger:
    """The ledger of one fitted model.

    >>> told = PredictionLedger(EdgeSet())
    >>> other = EdgeSet()
    >>> len(told.charged_edge_sets(other)), len(told.apart(other).charged_edge_sets(other))
    (2, 1)
    """

    def __init__(self, fitted: EdgeSet) -> None:
        """Begin with the edges that were fitted."""
        self.asserted = False
        self._fitted = fitted.parts
        self._queried = dict.fromkeys(fitted.parts)  # in order
        self._apart: set[frozenset[EdgeSet]] = set()
        self._releases: list[PredictionRelease] = []

    def copy(self) -> "PredictionLedger":
        """Return the same ledger, to try what a further release would make of it."""
        copied = PredictionLedger(EdgeSet(parts=self._fitted))
        copied.asserted = self.asserted
        copied._queried, copied._apart = dict(self._queried), set(self._apart)
        copied._releases = list(self._releases)
        return copied

    def fitted(self, edge_set: EdgeSet) -> bool:
        """Whether edges of this set were fitted."""
        return any(part in self._fitted for part in edge_set.parts)

    def apart(self, edge_set: EdgeSet, others: Iterable[EdgeSet] | None = None) -> "PredictionLedger":
        """Take note that the edges are in none of the others; return itself.

        Args:
            others: by default all that was asked before, on the caller's word.
        """
        self.asserted |= others is None
        from_all = tuple(self._queried if others is None else others)
        self._apart |= {frozenset((part, other)) for part in edge_set.parts for other in from_all}
        return self

    def charged_edge_sets(self, edge_set: EdgeSet) -> tuple[EdgeSet, ...]:
        """Return the edge sets on whose records a release of these edges belongs."""
        own = edge_set.parts
        also = [other for other in self._queried if any(self._may_share(part, other) for part in own)]
        return tuple(dict.fromkeys((*own, *also)))

    def note(self, edge_set: EdgeSet, guarantee: Guarantee) -> None:
        """Take note of a release of these edges that was recorded."""
        self._releases.append(PredictionRelease(guarantee, self.charged_edge_sets(edge_set)))
        self._queried |= dict.fromkeys(edge_set.parts)

    @property
    def releases(self) -> int:
        """How many releases were noted."""
        return len(self._releases)

    @property
    def last(self) -> PredictionRelease:
        """The release that was noted last."""
        return self._releases[-1]

    def total_guarantee(self, fit: Guarantee) -> Guarantee:
        """Return the guarantee of the fit and of all predictions together: that of the worst ledger."""
        if not self._releases:
            return fit
        whole = Guarantee.compose_parallel(
            [self._together(charged_releases, fit) for charged_releases in self._maximal_release_sets()]
        )
        counted = fit.releases + sum(release.guarantee.releases for release in self._releases)
        asserted = ASSERTED_NODES if fit.unit == LocalAttributes.name else ASSERTED_EDGES
        notes = (*fit.notes, asserted) if self.asserted else fit.notes
        everything = Guarantee.compose([fit, *(release.guarantee for release in self._releases)])
        notes, additional = tuple(dict.fromkeys(notes)), everything.additional if fit.additional else ()
        return replace(whole, notes=notes, releases=counted, additional=additional)

    def _maximal_release_sets(self) -> list[frozenset[int]]:
        """Return what the ledgers hold, as places among the releases, -1 for the fit; no part of another."""
        charged_edge_sets = {self._releases_charged_to(part) for part in self._queried}
        return sorted(
            (
                charged_releases
                for charged_releases in charged_edge_sets
                if not any(charged_releases < other for other in charged_edge_sets)
            ),
            key=min,
        )

    def _releases_charged_to(self, part: EdgeSet) -> frozenset[int]:
        fit = {-1} if part in self._fitted else set()
        return frozenset(fit | {k for k, release in enumerate(self._releases) if part in release.charged})

    def _together(self, charged_releases: frozenset[int], fit: Guarantee) -> Guarantee:
        """Return the guarantee of what one ledger holds, at the fit's delta."""
        first, *others = (fit if k < 0 else self._releases[k].guarantee for k in sorted(charged_releases))
        return Guarantee.compose([replace(first, delta=fit.delta), *others])

    def _may_share(self, part: EdgeSet, other: EdgeSet) -> bool:
        return frozenset((part, other)) not in self._apart
