"""Public class posteriors from the nodes' own features, cross-fitted: no node's label informs its own.

Why so: everything that comes later weighs these posteriors against noisy rows, and learns to do so on nodes
with a label, to do it on nodes without one. A network is surer of the nodes that it was trained on, and right
more often, than of any others. Posteriors in sample would teach likelihood, heads and gate that features know
the answer and that rows add nothing, which is wrong where it counts. So each labelled node is judged by the
one of five networks that did not see it, and a target by the mean of all five, whose errors are of the same
kind. Out of fold, validation labels may teach too, and stay fit for choosing the gate. Candidates are
compared on one held-out fold, at one network each, and a network keeps its last epoch, at a step size that
has fallen to nothing: to choose the best one would take labels that are neither learned from nor used to
judge later. No edge is read, so all of it is free. What each part brings is measured in
``docs/decisions/007-classcode-choices.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from graphveil.graph import Features, Graph
from graphveil.models.features.rows import as_fast, unit_rows
from graphveil.models.features.similarity import with_similar_nodes
from graphveil.models.membership import nodes_of
from graphveil.models.method import State
from graphveil.models.session import Session
from graphveil.networks.layers import FeedForward, batch_of
from graphveil.train import Schedule, train

FOLDS = 5
_DROPOUT, _BATCH, _RATE = 0.5, 512, 0.01


@dataclass(frozen=True)
class Candidate:
    """One way to train the feature network; the best one is chosen on held-out public labels."""

    epochs: int
    hidden: int = 128
    input_dropout: float = 0.0
    weight_decay: float = 0.0
    unit_rows: bool = False  # features scaled to rows of norm one, as suits bags of words of unequal length

    @property
    def schedule(self) -> Schedule:
        """The training schedule; the last epoch is kept, since the choice is made between candidates."""
        return Schedule(
            epochs=self.epochs,
            learning_rate=_RATE,
            weight_decay=self.weight_decay,
            batch_size=_BATCH,
            decay="cosine",
            select="last",
        )


CANDIDATES = (
    Candidate(10),
    Candidate(60, hidden=512, input_dropout=0.4, unit_rows=True),
    Candidate(30, input_dropout=0.4, weight_decay=5e-3, unit_rows=True),
)


@dataclass(frozen=True)
class Posteriors:
    """Log-posteriors of all nodes (N, C), the candidate that was chosen, and the networks behind them."""

    log: Tensor
    candidate: Candidate
    networks: tuple[FeedForward, ...]


def public_posteriors(graph: Graph, session: Session) -> Posteriors:
    """Return posteriors cross-fitted on the public labels: training and validation, no edges."""
    nodes = nodes_of(graph.mask("train") | graph.mask("val"))
    fit = CrossFit(graph, session, "posterior", nodes, graph.y)
    candidate = CANDIDATES[int(session.once("posterior-choice", fit.choose)["candidate"])]
    trained = fit.posteriors(candidate)
    return replace(trained, log=with_similar_nodes(trained.log, graph))


def prepared(x: Features, candidate: Candidate) -> Features:
    """Return the features as the candidate's network takes them."""
    return unit_rows(as_fast(x)) if candidate.unit_rows else as_fast(x)


@torch.no_grad()
def log_posterior(network: FeedForward, x: Features) -> Tensor:
    """Return one network's log-posteriors, shape (N, C)."""
    device = next(network.parameters()).device
    network.eval()
    scores: Tensor = network(batch_of(x, device=device))
    return scores.log_softmax(dim=1).cpu()


def mean_posterior(networks: Sequence[FeedForward], x: Features, *, unit: bool) -> Tensor:
    """Return the networks' mean log-posteriors, normalised, shape (N, C); ``unit`` asks for unit rows."""
    fast = unit_rows(as_fast(x)) if unit else as_fast(x)
    return torch.stack([log_posterior(network, fast) for network in networks]).mean(dim=0).log_softmax(dim=1)


def build(widths: Sequence[int], input_dropout: float, generator: torch.Generator) -> FeedForward:
    """Return an untrained feature network."""
    return FeedForward(
        widths, generator=generator, batch_norm=True, dropout=_DROPOUT, input_dropout=input_dropout
    )


def restore_network(state: State) -> FeedForward:
    """Return a trained feature network from its weights."""
    widths = [len(state["_layers.0.weight"]), *(len(state[f"_layers.{k}.bias"]) for k in (0, 1))]
    network = build(widths, 0.0, torch.Generator())
    network.load_state_dict(state)
    network.eval()
    return network


def ends_of(network: FeedForward) -> tuple[int, int]:
    """Return how many features a feature network reads, and how many classes it tells apart."""
    first, *_, last = network.affines()
    return first.weight.shape[0], last.weight.shape[1]


class CrossFit:
    """Feature networks, each trained without one fold of the nodes.

    A node of a fold takes the posterior of the network that did not see it; every other node the mean of all.
    """

    def __init__(self, graph: Graph, session: Session, name: str, nodes: Tensor, targets: Tensor) -> None:
        """Split ``nodes`` in folds; ``targets`` are classes (N) or probabilities (N, C)."""
        self._graph, self._session, self._name = graph, session, name
        self._nodes, self._targets = nodes, targets
        shuffled = torch.randperm(len(nodes), generator=session.streams.torch(f"{name}-folds"))
        self._fold_of = shuffled % FOLDS

    def choose(self) -> State:
        """Return the number of the candidate that explains the first fold's classes best."""
        held_out = self._nodes[self._fold_of == 0]
        losses = []
        for candidate in CANDIDATES:
            log = log_posterior(self._train(0, candidate), prepared(self._graph.x, candidate))
            losses.append(nll_loss(log[held_out], self._targets[held_out]))
        return {"candidate": torch.stack(losses).argmin()}

    def posteriors(self, candidate: Candidate) -> Posteriors:
        """Return the cross-fitted posteriors of all nodes."""
        stages = [(f"{self._name}-{k}", partial(self._state, k, candidate)) for k in range(FOLDS)]
        networks = tuple(restore_network(self._session.once(*stage)) for stage in stages)
        x = prepared(self._graph.x, candidate)
        each = torch.stack([log_posterior(network.to(self._session.device), x) for network in networks])
        log = each.mean(dim=0).log_softmax(dim=1)
        log[self._nodes] = each[self._fold_of, self._nodes]
        return Posteriors(log, candidate, networks)

    def _state(self, fold: int, candidate: Candidate) -> State:
        return dict(self._train(fold, candidate).state_dict())

    def _train(self, fold: int, candidate: Candidate) -> FeedForward:
        """Return the network that does not see one fold."""
        graph, session = self._graph, self._session
        generator = session.streams.torch(f"{self._name}-{fold}")
        widths = [graph.num_features, candidate.hidden, graph.num_classes]
        network = build(widths, candidate.input_dropout, generator).to(session.device)
        x = prepared(graph.x, candidate)
        train(
            network,
            lambda index: network(batch_of(x, index, session.device)).cpu(),
            self._targets,
            self._nodes[self._fold_of != fold],
            self._nodes[:0],
            candidate.schedule,
            generator=generator,
            on_epoch=session.epochs(f"{self._name} {fold + 1} of {FOLDS}", candidate.epochs),
        )
        return network
