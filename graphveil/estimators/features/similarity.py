"""Public posteriors from the labeled nodes whose features are most alike: a second opinion on few labels."""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import nll_loss

from graphveil.data import Features, Graph, to_dense
from graphveil.estimators.features.rows import densify_if_dense, unit_rows
from graphveil.estimators.membership import nodes_of

NEIGHBORS = 20
_ALL_PAIRS = 1 << 26  # node-label pairs up to which comparing them all is cheap
_CHUNK = 1 << 22  # similarities held at once
_MIN_PROBABILITY = 0.01  # of a similarity of one: keeps every class possible
_WEIGHTS, _TEMPERS = (0.0, 0.1, 0.2, 0.4, 0.8), (0.6, 0.8, 1.0)


def blend_similar_nodes(log_posteriors: Tensor, graph: Graph) -> Tensor:
    """Return log-posteriors (N, C) blended with those of similar nodes, by likelihood on the public labels.

    Both opinions of a labeled node leave its own label out, so the blend is chosen without bias. Large
    graphs, where the networks have labels enough, come back as they are.
    """
    labeled = nodes_of(graph.mask("train") | graph.mask("val"))
    if graph.num_nodes * len(labeled) > _ALL_PAIRS:
        return log_posteriors
    similar = similar_nodes_posterior(graph, labeled)
    best, best_loss = log_posteriors, float("inf")
    for weight in _WEIGHTS:
        for temper in _TEMPERS:
            blend = (temper * log_posteriors + weight * similar).log_softmax(dim=1)
            loss = float(nll_loss(blend[labeled], graph.y[labeled]))
            if loss < best_loss:
                best, best_loss = blend, loss
    return best


def similar_nodes_posterior(graph: Graph, labeled: Tensor) -> Tensor:
    """Return each node's log-posterior from its most similar labeled nodes, itself left out, (N, C).

    Similarity is the cosine of features weighted by inverse document frequency; a neighbor votes with it.
    """
    rows = _weighted_unit_rows(graph.x)
    votes = torch.full((graph.num_nodes, graph.num_classes), _MIN_PROBABILITY)
    k = min(NEIGHBORS, len(labeled) - 1)
    for nodes in torch.arange(graph.num_nodes).tensor_split(-(-graph.num_nodes * len(labeled) // _CHUNK)):
        similarity = _products(rows, nodes, labeled)
        similarity[nodes[:, None] == labeled[None, :]] = -1.0
        value, index = similarity.topk(k, dim=1)
        votes[nodes] = votes[nodes].scatter_add(1, graph.y[labeled][index], value.clamp_min(0.0))
    return (votes / votes.sum(dim=1, keepdim=True)).log()


def _products(rows: Features, some: Tensor, others: Tensor) -> Tensor:
    """Return all inner products between two sets of rows, dense."""
    if isinstance(rows, Tensor):
        return rows[some] @ rows[others].T
    return torch.from_numpy((rows[some.numpy()] @ rows[others.numpy()].T).toarray())


def _weighted_unit_rows(x: Features) -> Features:
    """Return rows of norm one whose common columns count less: dense where products are faster so."""
    matrix = sparse.csr_array(to_dense(x).numpy()) if isinstance(x, Tensor) else x
    used = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rarity = np.log((1 + matrix.shape[0]) / (1 + used)) + 1
    places = matrix.indices, matrix.indptr
    weighted = sparse.csr_array(
        ((matrix.data * rarity[matrix.indices]).astype(np.float32), *places), shape=matrix.shape
    )
    return unit_rows(densify_if_dense(weighted))
