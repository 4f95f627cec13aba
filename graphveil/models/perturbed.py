"""Networks in the clear on a released graph: its noisy edges are all that they ever see."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from graphveil import _check
from graphveil.errors import ConfigError, UnitError
from graphveil.graph import Graph
from graphveil.graph.domain import Domain
from graphveil.models.base import Estimator
from graphveil.models.full_graph import (
    ClearFullGraph,
    FullGraphKeywords,
    Shape,
    TrainedFullGraph,
    refuse_private,
    restored,
)
from graphveil.models.inference.cache import Answer
from graphveil.models.method import Method, Outcome, State
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.perturb import MECHANISMS, GraphMechanism, of_mode
from graphveil.perturb.mechanism import MAX_EDGES
from graphveil.privacy import DirectedEdge, Guarantee, UndirectedEdge, Unit
from graphveil.release import ReleasePlan
from graphveil.train import Schedule

SEES = (
    "the model was trained on a released graph, drawn once by {mechanism}, and predicts on it alone: no "
    "prediction reads a true edge"
)


def check_perturbed(model: Estimator, given: FullGraphKeywords) -> None:
    """Refuse a private unit without a mechanism, and a mechanism without a unit of edges.

    Raises:
        NotYetError: a private unit, and the edges would be read as they are.
        UnitError, ConfigError: the mechanism is unknown, or the unit is not one of edges.
    """
    if given.perturb is None:
        if given.max_edges is not None:
            raise ConfigError("max_edges is for released graphs; name a mechanism with perturb= (--perturb)")
        refuse_private(model)
        return
    _check.one_of(tuple(MECHANISMS), perturb=given.perturb)
    if model.unit not in (UndirectedEdge.name, DirectedEdge.name):
        raise UnitError(
            f"perturb={given.perturb!r} (--perturb) releases a graph whose edges are protected: use unit "
            f"'undirected-edge' or 'directed-edge', got {model.unit!r}"
        )


def over_edges(model: Estimator, given: FullGraphKeywords, shape: Shape, schedule: Schedule) -> Method:
    """Return the frozen method: over the exact edges, or over those that a mechanism releases."""
    terms = model._terms()
    clear = ClearFullGraph(
        name=model.method, terms=terms, device=model.device, shape=shape, schedule=schedule
    )
    if given.perturb is None:
        return clear
    most = MAX_EDGES if given.max_edges is None else given.max_edges
    kind = of_mode(MECHANISMS[given.perturb], terms.mode)
    mechanism = kind(epsilon=terms.budget, max_edges=most)
    terms = replace(terms, paper_deviations=())  # the mechanism's own are said instead
    return PerturbedFullGraph(**vars(clear) | {"terms": terms}, mechanism=mechanism)


@dataclass(frozen=True, kw_only=True)
class PerturbedFullGraph(ClearFullGraph):
    """A network over the edges of one released graph.

    Args:
        mechanism: what releases it.
    """

    mechanism: GraphMechanism

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be released or learned from, before anything is spent."""
        super().check(graph)
        self.mechanism.check(graph, self.terms.unit, _whole(graph))

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the graph."""
        return _plan(self.mechanism, self.terms.unit, sizes)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return what the released graph promises, with all that follows from it."""
        return replace(super().guarantee(plan, graph), graph=True)

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return why the release keeps no promise."""
        return (*self.mechanism.deviations(_whole(graph)), *super().deviations(graph))

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what is said besides: what the model sees."""
        return (*super().notes(graph), SEES.format(mechanism=self.mechanism.name))

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Release the graph, and train on what came out."""
        slots, noisy = released(graph, self.mechanism, session)
        outcome = super().fit(noisy, session)
        assert isinstance(outcome.trained, TrainedFullGraph)
        trained = TrainedPerturbed(outcome.trained.network, self.mechanism, self.terms.unit)
        return Outcome(trained=trained, proba=outcome.proba, released={"graph": slots})

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedFullGraph:
        """Return the network with these weights."""
        return TrainedPerturbed(restored(self.shape, state, sizes), self.mechanism, self.terms.unit)


@dataclass(frozen=True, eq=False)
class TrainedPerturbed(TrainedFullGraph):
    """A trained network, which another graph has to be released for."""

    network: nn.Module
    mechanism: GraphMechanism
    unit: Unit

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the other graph."""
        return _plan(self.mechanism, self.unit, sizes)

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Release the other graph, and predict from what came out."""
        slots, noisy = released(graph, self.mechanism, session)
        return Answer(session.plan, (slots,), self.proba(noisy))


def released(graph: Graph, mechanism: GraphMechanism, session: Session) -> tuple[Tensor, Graph]:
    """Return the slots that a mechanism leaves under the session's plan, and the graph of them."""
    domain = _whole(graph)
    with session.stage("aggregate"):
        release = session.open(graph)
        slots = mechanism.ask(release, domain)
        release.close()
    return slots, graph.replace(adjacency=mechanism.adjacency(slots, domain, None, ""))


def _plan(mechanism: GraphMechanism, unit: Unit, sizes: PublicSizes) -> ReleasePlan:
    directed = isinstance(unit, DirectedEdge)
    return mechanism.plan(unit, Domain.whole(sizes.nodes, directed=directed))


def _whole(graph: Graph) -> Domain:
    return Domain.whole(graph.num_nodes, directed=graph.directed)
