"""Public class posteriors from the nodes' own features, cross-fitted: no node's label informs its own.

With in-sample posteriors a later network would learn to trust the features and ignore the graph. Validation
labels are public like the training labels and are fitted too; out of fold, they stay fit for model selection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import nll_loss, normalize

from graphveil.graph import Features, Graph, to_dense
from graphveil.models.base import State, nodes_of
from graphveil.models.context import FitContext
from graphveil.models.layers import FeedForward, batch_of
from graphveil.train import Schedule, train

FOLDS = 5
_HIDDEN, _DROPOUT, _BATCH, _RATE = 128, 0.5, 512, 0.01
_DENSE = 0.05  # share of non-zero features from which dense products are faster


@dataclass(frozen=True)
class Candidate:
    """One way to train the feature network; the best one is chosen on held-out public labels."""

    epochs: int
    input_dropout: float = 0.0
    weight_decay: float = 0.0
    unit_rows: bool = False  # features scaled to rows of norm one, as suits bags of words of unequal length


CANDIDATES = (
    Candidate(10),
    Candidate(30, input_dropout=0.4, unit_rows=True),
    Candidate(30, input_dropout=0.4, weight_decay=5e-3, unit_rows=True),
)


def cross_fitted_posteriors(graph: Graph, context: FitContext) -> tuple[Tensor, tuple[FeedForward, ...]]:
    """Return log-posteriors of all nodes, shape (N, C), and the networks that they come from.

    The labelled nodes are split in folds and one network is trained without each fold. A labelled node
    takes the posterior of the network that did not see it; every other node the mean of all.
    """
    folds = _Folds(graph, context)
    candidate = CANDIDATES[int(context.once("posterior-choice", folds.choose)["candidate"])]
    networks = tuple(
        restore_network(context.once(f"posterior-{k}", partial(folds.state, k, candidate)))
        for k in range(FOLDS)
    )
    x = prepared(graph.x, candidate)
    each = torch.stack([log_posterior(network.to(context.device), x) for network in networks])
    log = each.mean(dim=0).log_softmax(dim=1)
    log[folds.nodes] = each[folds.of_node, folds.nodes]
    return log, networks


def prepared(x: Features, candidate: Candidate) -> Features:
    """Return the features as the candidate's network takes them: dense where that is faster."""
    if isinstance(x, sparse.csr_array) and x.nnz > _DENSE * x.shape[0] * x.shape[1]:
        x = to_dense(x)
    return unit_rows(x) if candidate.unit_rows else x


def unit_rows(x: Features) -> Features:
    """Return the features with every row scaled to norm one; zero rows stay zero.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(x, Tensor):
        return normalize(x, dim=1)
    norms = np.sqrt(np.add.reduceat(np.append(x.data, 0.0) ** 2, x.indptr[:-1]) * (np.diff(x.indptr) > 0))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values = (x.data * np.repeat(scale, np.diff(x.indptr))).astype(np.float32)
    return sparse.csr_array((values, x.indices, x.indptr), shape=x.shape)


@torch.no_grad()
def log_posterior(network: FeedForward, x: Features) -> Tensor:
    """Return one network's log-posteriors, shape (N, C)."""
    device = next(network.parameters()).device
    network.eval()
    scores: Tensor = network(batch_of(x, device=device))
    return scores.log_softmax(dim=1).cpu()


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


class _Folds:
    """The folds of a graph's labelled nodes, and the networks trained without one of them."""

    def __init__(self, graph: Graph, context: FitContext) -> None:
        self._graph, self._context = graph, context
        self.nodes = nodes_of(graph.mask("train") | graph.mask("val"))
        shuffled = torch.randperm(len(self.nodes), generator=context.streams.torch("folds"))
        self.of_node = shuffled % FOLDS

    def choose(self) -> State:
        """Return the number of the candidate that explains the first fold's public labels best."""
        held_out = self.nodes[self.of_node == 0]
        losses = []
        for candidate in CANDIDATES:
            network = self.fit(0, candidate)
            log = log_posterior(network, prepared(self._graph.x, candidate))
            losses.append(nll_loss(log[held_out], self._graph.y[held_out]))
        return {"candidate": torch.stack(losses).argmin()}

    def state(self, fold: int, candidate: Candidate) -> State:
        """Return the weights of :meth:`fit`."""
        return dict(self.fit(fold, candidate).state_dict())

    def fit(self, fold: int, candidate: Candidate) -> FeedForward:
        """Return the network that does not see one fold."""
        graph, context = self._graph, self._context
        generator = context.streams.torch(f"posterior-{fold}")
        widths = [graph.num_features, _HIDDEN, graph.num_classes]
        network = build(widths, candidate.input_dropout, generator).to(context.device)
        x = prepared(graph.x, candidate)
        schedule = Schedule(
            epochs=candidate.epochs,
            learning_rate=_RATE,
            weight_decay=candidate.weight_decay,
            batch_size=_BATCH,
            decay="cosine",
            select="last",
        )
        train(
            network,
            lambda index: network(batch_of(x, index, context.device)).cpu(),
            graph.y,
            self.nodes[self.of_node != fold],
            self.nodes[:0],
            schedule,
            generator=generator,
            on_epoch=context.epochs(f"encoder {fold + 1} of {FOLDS}", candidate.epochs),
        )
        return network
