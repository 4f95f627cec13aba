"""Predicting graphs that were not fitted: their nodes randomise their features first, and tell no label.

An edge set stands for the people of its graph, and has the book of what they told. The new nodes of a graph
that has grown are people who were not there before: they tell once, and what the others told is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from graphveil.errors import ConfigError
from graphveil.graph import EdgeSet, Graph, rows
from graphveil.graph.adjacency import Step
from graphveil.graph.features import stacked
from graphveil.models.inference.cache import Answer
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.inference.requests import booking
from graphveil.models.lpgnn.records import Randomised
from graphveil.models.session import Session
from graphveil.networks.inputs import Estimates
from graphveil.privacy import Guarantee

if TYPE_CHECKING:
    from graphveil.models.base import Estimator


@dataclass(frozen=True, eq=False)
class Heard(Answer):
    """What is known about one graph, with the randomised records behind it."""

    records: Randomised


@dataclass(frozen=True, eq=False)
class Collection:
    """One collection of features: whose, at what price, and what was told before.

    Args:
        graph: the graph to predict.
        price: the guarantee of this collection alone.
        steps: those by which the graph has grown since ``before``; none if all of its nodes are asked.
        before: what the nodes of the graph told that it has grown from.
        disjoint: the caller's word that nobody here was asked before.
        hear: asks, and returns what is known then.
    """

    graph: Graph
    price: Guarantee
    steps: tuple[Step, ...]
    before: Heard | None
    disjoint: bool
    hear: Callable[["Collection", Session], Heard]

    @property
    def people(self) -> EdgeSet:
        """The edge sets of those who are asked."""
        return EdgeSet(parts=[step.added.edge_set for step in self.steps] or [self.graph.edge_set])

    @property
    def first(self) -> int:
        """The number of the first node that is asked."""
        return 0 if self.before is None else len(self.before.records.labels)

    def enter(self, told: PredictionLedger) -> PredictionLedger:
        """Enter the collection into a model's ledger, and return it."""
        for step in self.steps:
            told.apart(step.added.edge_set, step.apart)
        if self.disjoint:
            told.apart(self.people)
        told.note(self.people, self.price)
        return told

    def ask(self, model: "Estimator") -> None:
        """Have the nodes randomise their features, which is booked, and keep what is known then."""
        heard = self.hear(self, booking(model, self))
        model._answers.keep(self.graph.adjacency.version, self.graph.x, heard)


def collection_of(
    model: "Estimator",
    graph: Graph,
    price: Guarantee,
    disjoint: bool,
    hear: Callable[[Collection, Session], Heard],
) -> Collection:
    """Return what predicting a graph collects: of a graph that has grown, from its new nodes alone.

    Raises:
        ConfigError: the caller's word cannot be true.
    """
    steps, before = _grown(model, graph)
    found = Collection(graph, price, steps, before, disjoint, hear)
    if disjoint and model._told.fitted(found.people):
        raise ConfigError(
            "disjoint_people (--disjoint-people) does not hold: the graph is of the people that the model "
            "was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )
    return found


def _grown(model: "Estimator", graph: Graph) -> tuple[tuple[Step, ...], Heard | None]:
    """Return the steps of growth since the last state whose reports are kept, and those; or nothing."""
    pending = list[Step]()
    for step in reversed(graph.adjacency.history):
        pending.insert(0, step)
        kept = model._answers.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))
        if isinstance(kept, Heard):
            return tuple(pending), kept
    return (), None


def joined(before: Heard | None, new: Randomised) -> Randomised:
    """Return the records that were kept with those of further nodes after them."""
    if before is None:
        return new
    old = before.records
    deviations = stacked(old.features.deviations, new.features.deviations)
    return Randomised(
        Estimates(deviations, old.features.middle),
        torch.cat([old.labels, new.labels]),
        new.release_id,
        old.reproducible or new.reproducible,
    )
