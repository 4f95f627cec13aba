"""How predictions compose: which ledgers a prediction is charged to, and their joint guarantee.

A release is charged to the ledgers of all edge sets that its edges may belong to. These are their own set
and those queried before, except sets that are known to be disjoint. For any edge, the ledger of the first
queried set that contains it therefore records every release of this model that may depend on the edge.
Proof: ``docs/privacy/proofs/ledger.md``. Under unit ``local-attributes`` an edge set represents the people
of its graph, and the same is true for each of them.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace

from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.unit import LocalAttributes
from graphveil.privacy import Guarantee

ASSERTED_EDGES = (
    "graphs that were asserted to share no edge count with the larger of their figures, not the sum"
)
ASSERTED_NODES = ASSERTED_EDGES.replace("no edge", "no person")


@dataclass(frozen=True)
class PredictionRelease:
    """One release of a prediction: its own cost, and the edge sets whose ledgers are charged for it."""

    guarantee: Guarantee
    charged: tuple[EdgeSet, ...]


class PredictionComposition:
    """What one fitted model released: its fit, and every prediction of another graph.

    >>> released, other = PredictionComposition(EdgeSet()), EdgeSet()
    >>> len(released.charged_edge_sets(other)), len(released.apart(other).charged_edge_sets(other))
    (2, 1)
    """

    def __init__(self, fitted: EdgeSet) -> None:
        """Begin with the edges that were fitted."""
        self.asserted = False
        self._fitted = self._queried = fitted.parts  # in order
        self._apart = frozenset[frozenset[EdgeSet]]()
        self._releases: tuple[PredictionRelease, ...] = ()

    def copy(self) -> "PredictionComposition":
        """Return the same ledger, to try what a further release would make of it."""
        return copy(self)

    def fitted(self, edge_set: EdgeSet) -> bool:
        """Whether edges of this set were fitted."""
        return any(part in self._fitted for part in edge_set.parts)

    def apart(self, edge_set: EdgeSet, others: Iterable[EdgeSet] | None = None) -> "PredictionComposition":
        """Mark the edges as disjoint from other edge sets; return itself.

        Args:
            others: All sets queried before by default; the caller asserts that they are disjoint.
        """
        self.asserted |= others is None
        from_all = self._queried if others is None else tuple(others)
        self._apart |= {frozenset((part, other)) for part in edge_set.parts for other in from_all}
        return self

    def charged_edge_sets(self, edge_set: EdgeSet) -> tuple[EdgeSet, ...]:
        """Return the edge sets whose ledgers record a release of these edges."""
        own = edge_set.parts
        also = [
            other
            for other in self._queried
            if any(frozenset((part, other)) not in self._apart for part in own)
        ]
        return tuple(dict.fromkeys((*own, *also)))

    def note(self, edge_set: EdgeSet, guarantee: Guarantee) -> None:
        """Add a recorded release of these edges."""
        self._releases = (*self._releases, PredictionRelease(guarantee, self.charged_edge_sets(edge_set)))
        self._queried = tuple(dict.fromkeys((*self._queried, *edge_set.parts)))

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
        # Entries of the ledger of each edge set, as indices of releases, -1 for the fit.
        held = {
            frozenset(
                ({-1} if part in self._fitted else set())
                | {place for place, release in enumerate(self._releases) if part in release.charged}
            )
            for part in self._queried
        }
        guarantees = []
        # A ledger whose entries are all in another one cannot be the worst.
        for places in sorted((one for one in held if not any(one < other for other in held)), key=min):
            first, *others = (fit if k < 0 else self._releases[k].guarantee for k in sorted(places))
            guarantees.append(Guarantee.compose([replace(first, delta=fit.delta), *others]))
        whole = Guarantee.compose_parallel(guarantees)
        counted = fit.releases + sum(release.guarantee.releases for release in self._releases)
        asserted = ASSERTED_NODES if fit.unit == LocalAttributes.name else ASSERTED_EDGES
        notes = (*fit.notes, asserted) if self.asserted else fit.notes
        everything = Guarantee.compose([fit, *(release.guarantee for release in self._releases)])
        notes, additional = tuple(dict.fromkeys(notes)), everything.additional if fit.additional else ()
        return replace(whole, notes=notes, releases=counted, additional=additional)
