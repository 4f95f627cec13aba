"""Networks in the clear on a released graph: its noisy edges are all that they ever see."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.data.domain import Domain
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.full_graph import (
    FullGraphKeywords,
    NetworkArchitecture,
    NonPrivateFullGraph,
    TrainedFullGraph,
    reject_private_units,
    restored,
)
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import FitResult, Method, State
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.perturb import MECHANISMS, GraphMechanism, parse_mechanism
from graphveil.perturb.mechanism import MAX_EDGES, domain_of, public_edges_of
from graphveil.privacy import DirectedEdge, EdgeSubset, Guarantee, UndirectedEdge, Unit
from graphveil.release import ReleasePlan
from graphveil.training import TrainingSchedule
from graphveil.training.heads import MULTICLASS, TaskHead

_UNITS = (UndirectedEdge.name, DirectedEdge.name, EdgeSubset.name)
GRAPH_INPUT_NOTE = (
    "the model was trained on a released graph, drawn once by {mechanism}, and predicts on it alone: no "
    "prediction reads a true edge"
)


def check_perturbed(model: Estimator, given: FullGraphKeywords) -> None:
    """Refuse a private unit without a mechanism, and a mechanism without a unit of edges.

    Raises:
        NotImplementedGuaranteeError: a private unit, and the edges would be read as they are.
        UnitError, ConfigError: the mechanism is unknown, or the unit is not one of edges.
    """
    if given.perturb is None:
        if given.max_edges is not None:
            raise ConfigError("max_edges is for released graphs; name a mechanism with perturb= (--perturb)")
        reject_private_units(model)
        return
    parse_mechanism(given.perturb, MECHANISMS, mode=model.mode, epsilon=1.0)
    if model.unit not in _UNITS:
        raise UnitError(
            f"perturb={given.perturb!r} (--perturb) releases a graph whose edges are protected: use unit "
            f"{', '.join(map(repr, _UNITS[:-1]))} or {_UNITS[-1]!r}, got {model.unit!r}"
        )


def build_full_graph_method(
    model: Estimator,
    given: FullGraphKeywords,
    shape: NetworkArchitecture,
    schedule: TrainingSchedule,
    head: TaskHead = MULTICLASS,
) -> Method:
    """Return the frozen method: over the exact edges, or over those that a mechanism releases."""
    privacy_config = model._build_privacy_config()
    nonprivate = NonPrivateFullGraph(
        name=model.method,
        privacy_config=privacy_config,
        device=model.device,
        shape=shape,
        schedule=schedule,
        head=head,
    )
    if given.perturb is None:
        return nonprivate
    mechanism = build_graph_mechanism(privacy_config, given.perturb, given.max_edges)
    privacy_config = replace(privacy_config, paper_deviations=())  # the mechanism's own are said instead
    return PerturbedFullGraph(**vars(nonprivate) | {"privacy_config": privacy_config}, mechanism=mechanism)


def build_graph_mechanism(privacy_config: PrivacyConfig, name: str, max_edges: int | None) -> GraphMechanism:
    """Return the mechanism that a configuration names; its public randomness is the model's."""
    return parse_mechanism(
        name,
        MECHANISMS,
        mode=privacy_config.mode,
        epsilon=privacy_config.budget,
        max_edges=MAX_EDGES if max_edges is None else max_edges,
        seed=0 if privacy_config.seed is None else privacy_config.seed,
    )


@dataclass(frozen=True, kw_only=True)
class PerturbedFullGraph(NonPrivateFullGraph):
    """A network over the edges of one released graph.

    Args:
        mechanism: what releases it.
    """

    input_note: ClassVar[str] = GRAPH_INPUT_NOTE  # what it is that a prediction reads

    mechanism: GraphMechanism

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be released or learned from, before anything is spent."""
        super().check(graph)
        self.mechanism.check(graph, self.privacy_config.unit, domain_of(graph, self.privacy_config.unit))

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return what a plan for this graph depends on, which slots there are included."""
        return with_protected_pairs(super().sizes_of(graph), graph, self.privacy_config.unit)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the graph."""
        return plan_of(self.mechanism, self.privacy_config.unit, sizes)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of the released graph, with all that follows from it."""
        return replace(super().guarantee(plan, graph), graph=True)

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return why the release has no valid guarantee."""
        return (
            *self.mechanism.deviations(domain_of(graph, self.privacy_config.unit)),
            *super().deviations(graph),
        )

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what is said besides: what the model sees."""
        return (*super().notes(graph), self.input_note.format(mechanism=self.mechanism.name))

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Release the graph, and train on what came out."""
        slots, noisy = released(graph, self.mechanism, self.privacy_config.unit, session)
        outcome = super().fit(noisy, session)
        assert isinstance(outcome.trained, TrainedFullGraph)
        trained = TrainedPerturbed(
            outcome.trained.network, self.mechanism, self.privacy_config.unit, head=self.head
        )
        return FitResult(trained=trained, proba=outcome.proba, released={"graph": slots})

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedPerturbed":
        """Return the network with these weights."""
        network = restored(self.shape, state, sizes)
        return TrainedPerturbed(network, self.mechanism, self.privacy_config.unit, head=self.head)


@dataclass(frozen=True, eq=False)
class TrainedPerturbed(TrainedFullGraph):
    """A trained network, which another graph has to be released for."""

    network: nn.Module
    mechanism: GraphMechanism
    unit: Unit

    def sizes_for(self, graph: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return what the plan for another graph depends on: its own slots."""
        return with_protected_pairs(super().sizes_for(graph, fitted), graph, self.unit)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release of the other graph."""
        return plan_of(self.mechanism, self.unit, sizes)

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Release the other graph, and predict from what came out."""
        slots, noisy = released(graph, self.mechanism, self.unit, session)
        return CachedPrediction(session.plan, (slots,), self.proba(noisy))


def released(graph: Graph, mechanism: GraphMechanism, unit: Unit, session: Session) -> tuple[Tensor, Graph]:
    """Return the slots that a mechanism leaves under the session's plan, and the graph of them.

    Public edges stay, and everything in that graph is public.
    """
    domain, known = domain_of(graph, unit), public_edges_of(graph, unit)
    with session.stage("aggregate"):
        release = session.open(graph)
        slots = mechanism.sample_edges(release, domain)
        release.close()
    return slots, graph.replace(adjacency=mechanism.adjacency(slots, domain, known, ""), public=None)


def with_protected_pairs(sizes: PublicSizes, graph: Graph, unit: Unit) -> PublicSizes:
    """Return the sizes with the slots that a unit protects in a graph."""
    return replace(sizes, domain=domain_of(graph, unit))


def plan_of(mechanism: GraphMechanism, unit: Unit, sizes: PublicSizes) -> ReleasePlan:
    """Return the release; where slots are not known, every pair is taken to be one."""
    directed = isinstance(unit, DirectedEdge)
    return mechanism.plan(unit, sizes.domain or Domain.whole(sizes.nodes, directed=directed))
