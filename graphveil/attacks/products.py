"""The attack on the released products of a link predictor by an attacker who knows all other edges."""

import numpy as np
from scipy import sparse

from graphveil._util.checks import checked
from graphveil.attacks.pairs import Integers, Pairs
from graphveil.attacks.roc import Floats
from graphveil.core.queries.pair_sums import EdgeProductQuery
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.links.link_predictor import LinkPredictor

_AT_ONCE = 1 << 14  # pairs per chunk
_MIN_NORM = 1e-12


@checked
def product_scores(model: LinkPredictor, graph: Graph, pairs: Pairs) -> Floats:
    """Score each pair by the released products, given all edges but the pair's own.

    The attacker subtracts the products of all other edges from the released sum W, and projects the rest on
    the change D that an edge between the two nodes makes. In standard deviations of the noise the result is
    normal with mean |D| / sigma for an edge, and 0 without one. This is the most powerful test of one pair
    on W, and every pair has the same distribution without an edge. A threshold for all pairs is therefore
    subject to the bound for one edge.

    Args:
        model: Fitted link predictor.
        graph: Training graph.
        pairs: Pairs to score.

    Returns:
        One score per pair. A pair that was held out of the sum has noise only.

    Raises:
        ConfigError: If the model was fitted to a graph of another size.

    Privacy:
        Reads: the exact edges. Charges: nothing. The result is internal.
    """
    if graph.num_nodes != model.num_nodes:
        raise ConfigError(
            f"The graph has {graph.num_nodes} nodes, but the model was trained on {model.num_nodes}. "
            "Pass the training graph."
        )
    query = next(one for one in model.plan_.queries if isinstance(one, EdgeProductQuery))
    vectors, released = model.products_
    x = np.trunc(vectors * 2.0**query.grid_bits) / 2.0**query.grid_bits
    edges = graph.adjacency.edge_index().numpy().astype(np.int64)
    edges = edges[:, ~query.held_out.contains(*edges)]
    ones = np.full(edges.shape[1], 0.5 if query.symmetric else 1.0)  # both directions of an edge are stored
    summed = sparse.csr_array((ones, tuple(edges)), shape=(len(x), len(x)))
    rest = released - x.T @ (summed @ x)
    sources, targets, inside = _directed(pairs, edges, graph.num_nodes)
    scores = np.zeros(len(sources))
    for first in range(0, len(sources), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        ours, theirs = x[sources[some]], x[targets[some]]
        size = (ours**2).sum(axis=1) * (theirs**2).sum(axis=1)
        if query.symmetric:
            size = (size + (ours * theirs).sum(axis=1) ** 2) / 2
        change = np.sqrt(np.maximum(size, _MIN_NORM**2))
        scores[some] = ((ours @ rest) * theirs).sum(axis=1) / change + inside[some] * change
    return scores / query.sigma[0]


def _directed(pairs: Pairs, edges: Integers, nodes: int) -> tuple[Integers, Integers, Floats]:
    """Return both ends of each pair in the direction of its edge, and 1 for pairs whose edge was summed.

    If both directions are edges, the attacker knows one of them.
    """
    keys, (one, other) = edges[0] * nodes + edges[1], pairs.ends
    there, back = np.isin(one * nodes + other, keys), np.isin(other * nodes + one, keys)
    turned = back & ~there
    ends = np.where(turned, other, one), np.where(turned, one, other)
    return *ends, (there | back).astype(np.float64)
