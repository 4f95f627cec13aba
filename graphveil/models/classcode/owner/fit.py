"""A fit of recipe S or R: encoder, pushes, decoder, and weighing (S) or reading and combiner (R)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.errors import ConfigError, ReleaseError
from graphveil.graph import Features, Graph, rows
from graphveil.models.base import State
from graphveil.models.classcode.owner.encoder import Encoder, fit_encoder
from graphveil.models.classcode.owner.messages import Messages
from graphveil.models.classcode.owner.pushes import Heard, listen
from graphveil.models.classcode.owner.reader import (
    Combiner,
    combiner_inputs,
    fit_combiner,
    own_reading,
    reading_trust,
)
from graphveil.models.classcode.owner.weighing import WEIGHTS, Weighing, fit_weighing
from graphveil.models.session import Session
from graphveil.models.training.private import OTHER, members, record_groups
from graphveil.release import DPSGDQuery, PushQuery, Release, ReleasePlan
from graphveil.release.own_lists import read_own_lists

Targets = str | tuple[int | str, ...] | None


@dataclass(frozen=True)
class OwnerFit:
    """The public outcome of a fit: weights and merged rows."""

    encoder: Encoder
    decider: Weighing | Combiner
    rows: Tensor

    def state(self) -> State:
        """Return the weights."""
        return {**self.encoder.state(), "decider": self.decider.weights}

    @classmethod
    def restore(cls, state: State, rows: Tensor) -> "OwnerFit":
        """Return the outcome from its weights and rows."""
        weights = state["decider"]
        decider = Weighing(weights) if weights.shape == (WEIGHTS,) else Combiner(weights)
        return cls(Encoder.restore(state), decider, rows)


def fit_owner(
    graph: Graph,
    plan: ReleasePlan,
    release: Release,
    context: Session,
    released: Tensor,
    *,
    read_own_edges: bool = False,
) -> tuple[OwnerFit, Tensor]:
    """Ask the plan's questions in order, and predict every node from what is public and its own record.

    Returns what is public, and log-posteriors (N, C), of which row v is for those entitled to v's record.

    Recipe S weighs the features' log-posterior and the row's log-likelihood. Recipe R decides from features,
    row, and the rows on the node's own list.

    Guarantee: ``docs/guarantees.md``, section 9. Labels of nodes that do not teach are never read.

    Args:
        graph: records and lists.
        plan: made of an ``OwnerPlan``.
        release: open, with the plan's first question as its next one.
        context: progress and workspace.
        released: whose rows are released; see :func:`released_rows`.
        read_own_edges: recipe R; the plan is made for one of the two.
    """
    fit = _Fit(graph, plan, release, context)
    with context.stage("encoder"):
        encoder = fit.encoder()
        log_posteriors = encoder.log_posteriors(graph.x)
    with context.stage("aggregate"):
        messages = Messages(graph.y, fit.labelled, graph.num_classes, fit.pushes[0].bounds[OTHER])
        sigmas = [push.sigma for push in fit.pushes]
        heard = listen(release.push, sigmas, messages, log_posteriors, released)
    with context.stage("classifier"):
        if not read_own_edges:
            weighing = fit.weighing(log_posteriors, heard)
            decided = weighing.log_posteriors(log_posteriors, heard.log_likelihoods)
            return OwnerFit(encoder, weighing, heard.rows), decided
        inputs = fit.combiner_inputs(log_posteriors, heard, messages.first(log_posteriors))
        combiner = fit.combiner(inputs)
    return OwnerFit(encoder, combiner, heard.rows), combiner.log_posteriors(inputs)


def released_rows(graph: Graph, plan: ReleasePlan, targets: Targets) -> Tensor:
    """Return the public set of nodes whose rows are released, bool (N); ``"unlabelled"`` ones do not teach.

    Raises:
        ConfigError: an id is no node of the graph, or nothing is left.
    """
    if targets is None:
        return torch.ones(graph.num_nodes, dtype=torch.bool)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if targets == "test":
        chosen[members(graph, "test")] = True
    elif targets == "unlabelled":
        chosen = ~_teachers(graph, plan)
    else:
        chosen[_positions(graph, targets)] = True
    if not bool(chosen.any()):
        raise ConfigError(f"targets={targets!r} leaves no row to release; name some nodes, or drop it")
    return chosen


def _positions(graph: Graph, targets: Targets) -> list[int]:
    """Return the places of nodes that are given by their ids, or by row numbers in a graph without ids."""
    ids = range(graph.num_nodes) if graph.ids is None else graph.ids.tolist()
    places = {str(name): place for place, name in enumerate(ids)}
    wanted = [str(name) for name in targets or ()]
    if not all(name in places for name in wanted):
        raise ConfigError(
            "targets names a node that the graph does not have; give ids of its nodes, or 'unlabelled' or "
            "'test'"
        )
    return [places[name] for name in wanted]


def _teachers(graph: Graph, plan: ReleasePlan) -> Tensor:
    """Return the public members of the groups that teach, with or without a label, bool (N)."""
    pays = next(query.pays for query in plan.queries if isinstance(query, DPSGDQuery))
    return torch.tensor(pays)[record_groups(graph)]


class _Fit:
    """The steps of a fit that ask the release something, each once."""

    def __init__(self, graph: Graph, plan: ReleasePlan, release: Release, context: Session) -> None:
        """Check that the plan is one of ours."""
        self._graph, self._release, self._context = graph, release, context
        steps = [query for query in plan.queries if isinstance(query, DPSGDQuery)]
        self.pushes = [query for query in plan.queries if isinstance(query, PushQuery)]
        if not steps or not self.pushes:
            raise ReleaseError("a plan of ClassCode on records begins with steps and goes on with pushes")
        self.first, self.last = steps[0], steps[1] if len(steps) > 1 else None
        self.labelled = _teachers(graph, plan)
        self._nodes = self.labelled.nonzero()[:, 0]

    def encoder(self) -> Encoder:
        """Train the encoder, or take it from the workspace."""
        graph = self._graph
        noise = self._release.steps(*_tensors(rows(graph.x, self._nodes)), graph.y[self._nodes])

        def train() -> State:
            return fit_encoder(
                graph.x,
                graph.y,
                self.labelled,
                graph.num_classes,
                steps=self.first.steps,
                noise_multiplier=self.first.noise_multiplier,
                noise=noise,
            ).state()

        return Encoder.restore(self._context.once("encoder", train))

    def combiner_inputs(self, log_posteriors: Tensor, heard: Heard, sent: Tensor) -> Tensor:
        """Return what the combiner reads: for v, v's own record and published rows."""
        reading = own_reading(
            lambda published: read_own_lists(self._graph.adjacency, published),
            heard.rows,
            heard.sigma,
            reading_trust(heard.strengths, heard.sigma),
            sent,
            self.pushes[0].degree_budget,
        )
        return combiner_inputs(log_posteriors, reading, heard.log_likelihoods)

    def weighing(self, log_posteriors: Tensor, heard: Heard) -> Weighing:
        """Train the weights of features and rows, if the plan has steps for that."""
        query, labels = self.last, self._graph.y
        if query is None:
            return Weighing.even()
        read = (log_posteriors, heard.log_likelihoods)
        noise = self._release.steps(*(part[self._nodes] for part in read), labels[self._nodes])

        def train() -> State:
            fitted = fit_weighing(
                *read,
                labels,
                self.labelled,
                steps=query.steps,
                noise_multiplier=query.noise_multiplier,
                noise=noise,
            )
            return {"weights": fitted.weights}

        return Weighing(self._context.once("weighing", train)["weights"])

    def combiner(self, inputs: Tensor) -> Combiner:
        """Train the combiner, or take it from the workspace."""
        query, labels = self.last, self._graph.y
        if query is None:
            raise ReleaseError("a plan of recipe R ends with the combiner's steps")
        noise = self._release.steps(inputs[self._nodes], labels[self._nodes])

        def train() -> State:
            fitted = fit_combiner(inputs, labels, self.labelled, steps=query.steps, noise=noise)
            return {"weights": fitted.weights}

        return Combiner(self._context.once("combiner", train)["weights"])


def _tensors(x: Features) -> list[Tensor]:
    """Return all numbers that the features are made of."""
    if isinstance(x, Tensor):
        return [x]
    return [torch.from_numpy(part) for part in (x.data, x.indices, x.indptr)]
