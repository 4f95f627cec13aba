"""Weights of pairs in ClassCode: what they read, and what a row with them is expected to be.

A weight is large where two nodes look alike, so a row's mean depends on the classes of its node and of its
neighbors, and on what its node looks like. All of that is known without an edge: the weights of pairs of
*any* two nodes say how much a node listens to each class.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphveil._util.random import PublicStreams
from graphveil.data import Features, Graph
from graphveil.estimators.classcode.codes import simplex_codes, soft_codes
from graphveil.estimators.classcode.edge.likelihood import Signal
from graphveil.estimators.gap.edge_weights import EdgeWeighting
from graphveil.estimators.method import State, networks_state, part_of
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward
from graphveil.release.neighbor_sums import Keys
from graphveil.release.weights import Similarity, weights_from

_SOURCES, _PAIRS = 512, 1 << 22  # nodes that all listen to, and the pairs that are looked at in all
_MIN_RELATIVE_WEIGHT = 1e-3  # of the bound: below it a node is taken to hear next to nothing


@dataclass(frozen=True)
class WeightMoments:
    """Mean and mean square of the weights into each node v, by the class j of the other end, each (N, C)."""

    mean: Tensor
    square: Tensor

    @staticmethod
    def averaged(several: list["WeightMoments"]) -> "WeightMoments":
        """Return the moments of rows that are averaged."""
        mean = torch.stack([one.mean for one in several]).mean(dim=0)
        return WeightMoments(mean, torch.stack([one.square for one in several]).mean(dim=0))

    def __getitem__(self, nodes: slice) -> "WeightMoments":
        """Return those of some nodes."""
        return WeightMoments(self.mean[nodes], self.square[nodes])


@dataclass(frozen=True)
class EdgeWeightModel:
    """A weight, and the network of ``learned_public`` if it is that.

    Its keys are functions of cross-fitted posteriors and of features: a labeled node's own label has no part
    in the weights into it, and thereby none in its row.
    """

    similarity: Similarity
    weight_network: FeedForward | None = None

    @torch.no_grad()
    def keys(self, x: Features, log_posteriors: Tensor) -> Keys:
        """Return what the weight reads: features, probabilities, what the network makes of them, or codes."""
        if self.similarity.reads == "features":
            return x
        probabilities = log_posteriors.exp()
        if self.weight_network is not None:
            learned: Tensor = self.weight_network.eval()(probabilities.float())
            return learned
        if self.similarity.reads == "posteriors":
            return probabilities
        return soft_codes(log_posteriors, simplex_codes(log_posteriors.shape[1]))

    def moments(self, keys: Keys, classes: Tensor, generator: torch.Generator) -> WeightMoments:
        """Estimate the moments from a sample of nodes that all others listen to, whatever the edges.

        Args:
            keys: what the weight reads.
            classes: what is publicly known of each node's class, probabilities of shape (N, C).
            generator: draws the sample.
        """
        count = len(classes)
        drawn = torch.randperm(count, generator=generator)[: min(_SOURCES, max(1, _PAIRS // count))]
        sources = drawn.sort().values
        member = classes[sources].to(torch.float64)
        total = member.sum(dim=0) + 1  # one more that is like all, for a class that the sample misses
        first, parts = 0, []
        for block in weights_from(self.similarity, keys, sources):
            w = block.to(torch.float64)
            own = sources == torch.arange(first, first + len(w))[:, None]
            w[own] = w.mean(dim=1, keepdim=True).expand_as(w)[own]  # nobody listens to itself
            both = [(p @ member + p.mean(dim=1, keepdim=True)) / total for p in (w, w.square())]
            parts.append(torch.stack(both))
            first += len(w)
        return WeightMoments(*torch.cat(parts, dim=1))


def fit_weight_model(
    edge_weighting: EdgeWeighting | None, graph: Graph, log_posteriors: Tensor, session: Session
) -> EdgeWeightModel | None:
    """Return the weights and what they learn from public labels; None for weights of one."""
    if edge_weighting is None:
        return None
    network = edge_weighting.weight_network(graph.num_classes, session.streams.torch("weights"))
    if network is not None:
        rows = log_posteriors.exp()
        state = session.load_or_compute(
            "weights", lambda: _state_of(edge_weighting.learned(graph, rows, session))
        )
        network.load_state_dict(state)
    return EdgeWeightModel(edge_weighting.similarity, network)


def weight_model_state(weight_model: EdgeWeightModel | None) -> State:
    """Return the weights of the network that weighs messages, if there is one."""
    network = None if weight_model is None else weight_model.weight_network
    return {} if network is None else networks_state("weights", [network])


def restore_weight_model(
    edge_weighting: EdgeWeighting | None, state: State, classes: int
) -> EdgeWeightModel | None:
    """Return what :func:`weight_model_state` was taken from."""
    if edge_weighting is None:
        return None
    network = edge_weighting.weight_network(classes, PublicStreams(0).torch("restore"))
    if network is not None:
        network.load_state_dict(part_of(state, "weights/0/"))
    return EdgeWeightModel(edge_weighting.similarity, network)


def _state_of(network: FeedForward | None) -> State:
    return {} if network is None else dict(network.state_dict())


def weighted(
    signal: Signal, neighbors: Tensor, codes: Tensor, moments: WeightMoments, bound: float
) -> Signal:
    """Return the signal of weighted rows: a neighbor of class j counts as much as its mean weight m_vj.

        b_vk = sum_j B_kj (m_vj / m_v) c_j,   D_v = m_v D,   q_v = (mean square) / m_v

    Args:
        signal: that of rows with weights of one.
        neighbors: B, the class shares among the neighbors of each class, (C, C).
        codes: c, what a neighbor of each class sends, (C, C-1), or (N, C, C-1).
        moments: those of the weights into each node.
        bound: the largest weight.
    """
    gain = moments.mean.mean(dim=1).clamp_min(_MIN_RELATIVE_WEIGHT * bound)
    relative = moments.mean / gain[:, None]
    means = torch.einsum("kj,njd->nkd", neighbors, relative[:, :, None] * codes)
    scatter = moments.square.mean(dim=1) / gain
    return replace(signal, length=signal.length * gain, means=means, scatter=scatter)
