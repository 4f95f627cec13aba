"""Influences of LinkTeller: a node whose features change another node's prediction is linked to it.

Wu, Long, Zhang and Li, LinkTeller: recovering private edges from graph neural networks, S&P 2022. Influences
are finite differences of a black-box model, or derivatives of a network with known parameters.
"""

import copy
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.data import Adjacency, Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.lab.attacks.pairs import Integers, Pairs
from graphveil.lab.attacks.roc import Floats
from graphveil.nn.layers import Batch, Linear, SparseRows

Matrix: TypeAlias = Any  # a float64 array or csr_array, (N, d)
Predict = Callable[[Matrix], Floats]  # all nodes' features in, all nodes' scores out, (N, d) to (N, C)
Nudge = Literal["scale", "add", "either"]
NUDGES: tuple[Nudge, ...] = ("scale", "add", "either")
Direction = Literal["max", "later", "earlier", "mean"]
DIRECTIONS: tuple[Direction, ...] = ("max", "later", "earlier", "mean")
STEP = 1e-4  # LinkTeller's Delta; HeteroRR's is 0.01
_CLOSE = 1e-9


@checked
def influences(
    predict: Predict, x: Matrix, nodes: Integers, *, step: float = STEP, nudge: Nudge = "either"
) -> Floats:
    """Return how far a perturbation of each node changes the others' predictions, by finite differences.

        I_vu = || (f(X_v)_u - f(X)_u) / step ||_2,    X_v = X with row v times 1 + step.

    It calls ``predict`` once for X and once per node. ``predict`` must compute in float64: in float32 the
    rounding of about 1e-7 / step dominates weak pairs.

    Args:
        predict: The deployed model, whose server has the edges; any callable, such as a function around an
            HTTP endpoint. It must be deterministic.
        x: Features that the attacker sends, (N, d), an array or a SciPy csr_array.
        nodes: Nodes to perturb and to observe (n).
        step: Size of a perturbation.
        nudge: ``"scale"`` multiplies the row, which leaves zero rows unchanged; ``"add"`` adds the mean
            row of all nodes, times ``step``; ``"either"`` adds to zero rows and scales the others.

    Returns:
        (n, n): Row v contains the influence of v on each node; the diagonal is its influence on itself.

    >>> path = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> influences(lambda x: path @ x, np.eye(3), np.arange(3)).round(6)
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    checks.positive(step=step)
    checks.one_of(NUDGES, nudge=nudge)
    rows = as_float64(x)
    checks.places(rows.shape[0], nodes=nodes)
    base = _answer(predict, rows, rows.shape[0])
    found = np.zeros((len(nodes), len(nodes)))
    for place, node in enumerate(nodes.tolist()):
        moved = _answer(predict, with_row(rows, node, _nudged(rows, node, step, nudge)), rows.shape[0])
        found[place] = np.linalg.norm((moved[nodes] - base[nodes]) / step, axis=1)
    return found


def _answer(predict: Predict, x: Matrix, nodes: int) -> Floats:
    scores = np.asarray(predict(x), dtype=np.float64)
    if scores.ndim != 2 or len(scores) != nodes:
        raise ConfigError(
            f"predict returned an array of shape {scores.shape} for {nodes} nodes; it must return one row of "
            "scores per node"
        )
    return scores


def _nudged(x: Matrix, node: int, step: float, nudge: Nudge) -> Floats:
    """Return a node's row after a nudge."""
    row: Floats = dense_rows(x, [node])[0]
    if nudge == "scale" or (nudge == "either" and row.any()):
        return row * (1 + step)
    mean: Floats = np.asarray(x.mean(axis=0), dtype=np.float64).ravel()
    return row + step * mean


@checked
def link_scores(found: Floats, pairs: Pairs, direction: Direction = "max") -> Floats:
    """Return one score a pair from the influences of both of its ends.

    Args:
        found: as ``influences`` returns it for the pairs' nodes.
        pairs: which pairs.
        direction: ``"max"`` or ``"mean"`` of both; or only what nudging the ``"later"`` drawn does to the
            earlier one, which is what the source reads, or the reverse.
    """
    checks.one_of(DIRECTIONS, direction=direction)
    if found.shape != (len(pairs.nodes),) * 2:
        raise ConfigError(f"influences of shape {found.shape} are not those of {len(pairs.nodes)} nodes")
    later, earlier = found[pairs.other, pairs.one], found[pairs.one, pairs.other]
    choices = {"later": later, "earlier": earlier, "mean": (later + earlier) / 2}
    return np.maximum(later, earlier) if direction == "max" else choices[direction]


# -- the limit of small steps, with known parameters -------------------------------------------------------


@checked
@torch.no_grad()
def exact_influences(network: nn.Module, x: Matrix, adjacency: Adjacency, nodes: Integers) -> Floats:
    """Return the influences of ``influences`` with ``nudge="scale"`` in the limit of small steps.

        I_vu = || J_f(X)[e_v x_v]_u ||_2,

    by one Jacobian-vector product per node. The network's first layer is affine, x W + b, so a perturbation
    of x_v by step x_v changes it by step x_v W. The other layers are differentiated in rows of its width, and
    features may be sparse. Nodes more hops apart than the network has layers have influence exactly zero.

    Args:
        network: A GCN or SAGE network in the style of ``graphveil.nn``, mapping a batch and an
            adjacency to logits; f are its probabilities.
        x: Features (N, d).
        adjacency: Edges of the message passing.
        nodes: Nodes to perturb and to observe (n).

    Returns:
        (n, n), as in ``influences``.

    Raises:
        NotImplementedGuaranteeError: The network does not begin with an affine map of its input.
    """
    checks.shape((adjacency.num_nodes, -1), x=as_float64(x))
    checks.places(adjacency.num_nodes, nodes=nodes)
    whole = copy.deepcopy(network).double().eval()
    batch = float64_batch(x)
    first = next(module for module in whole.modules() if isinstance(module, Linear))
    rows, rest = _split(whole, first, batch)
    if not torch.allclose(_proba(rest, rows, adjacency), _proba(whole, batch, adjacency), atol=_CLOSE):
        raise NotImplementedGuaranteeError(
            f"{type(network).__name__} does not begin with an affine map of its input, so its derivative is "
            "not available; use influences(), which queries the network as a black box"
        )
    push = _pushforward(rest, rows, adjacency)
    found = np.zeros((len(nodes), len(nodes)))
    watched = torch.from_numpy(nodes)
    for place, node in enumerate(nodes.tolist()):
        direction = torch.zeros_like(rows)
        direction[node] = rows[node]
        found[place] = push(direction)[watched].norm(dim=1).numpy()
    return found


def _split(whole: nn.Module, first: Linear, batch: Any) -> tuple[Tensor, nn.Module]:
    """Return x W, and the remaining network: its first affine map only adds the bias."""
    bias = first.bias.detach().clone()
    first.bias.zero_()
    rows = first(batch).detach().contiguous()
    first.bias.copy_(bias)
    rest = copy.deepcopy(whole)
    begin = next(module for module in rest.modules() if isinstance(module, Linear))
    begin.weight = nn.Parameter(torch.eye(rows.shape[1], dtype=torch.float64))
    return rows, rest


@torch.enable_grad()
def _pushforward(network: nn.Module, rows: Tensor, adjacency: Adjacency) -> Callable[[Tensor], Tensor]:
    """Return v -> J v at some rows: u -> J^T u is linear, and its own transpose is J."""
    start = rows.clone().requires_grad_()
    proba = _proba(network, start, adjacency)
    dual = torch.zeros_like(proba, requires_grad=True)
    (pulled,) = torch.autograd.grad(proba, start, dual, create_graph=True)

    def push(direction: Tensor) -> Tensor:
        with torch.enable_grad():
            (moved,) = torch.autograd.grad(pulled, dual, direction, retain_graph=True)
        return moved

    return push


def _proba(network: nn.Module, batch: Any, adjacency: Adjacency) -> Tensor:
    logits: Tensor = network(batch, adjacency)
    return logits.softmax(dim=1)


# -- features: float64, an array or a SciPy csr_array ------------------------------------------------------


def is_sparse(x: Matrix) -> bool:
    """Return whether a matrix stores its non-zero entries alone."""
    return bool(sparse.issparse(x))


def as_float64(x: Matrix) -> Matrix:
    """Return a matrix in float64, in compressed rows if it is sparse."""
    if is_sparse(x):
        return x.tocsr().astype(np.float64)
    rows = checks.fitting("x", x, Floats)
    checks.shape((-1, -1), x=rows)
    return rows


def features_of(graph: Graph) -> Matrix:
    """Return a graph's features in float64."""
    return as_float64(graph.x)


def dense_rows(x: Matrix, nodes: Any) -> Floats:
    """Return some rows as a float64 array."""
    rows = as_float64(x)
    checks.places(rows.shape[0], nodes=nodes)
    return np.asarray(rows[nodes].toarray() if is_sparse(x) else rows[nodes], dtype=np.float64)


def with_row(x: Matrix, node: int, row: Floats) -> Matrix:
    """Return a matrix with another row of one node."""
    if not is_sparse(x):
        changed = x.copy()
        changed[node] = row
        return changed
    start, stop = x.indptr[node : node + 2]
    places = np.flatnonzero(row)
    if not np.array_equal(places, x.indices[start:stop]):
        stacked: Any = sparse.vstack([x[:node], sparse.csr_array(row[None]), x[node + 1 :]])
        return stacked.tocsr()
    data = x.data.copy()
    data[start:stop] = row[places]
    parts: Any = (data, x.indices, x.indptr)
    return sparse.csr_array(parts, shape=x.shape)


def float64_batch(x: Matrix) -> Batch:
    """Return features as a network's input, in float64."""
    x = as_float64(x)
    if not is_sparse(x):
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))
    columns, offsets = (torch.from_numpy(part.astype(np.int32)) for part in (x.indices, x.indptr))
    values = torch.from_numpy(np.asarray(x.data, dtype=np.float64))
    return SparseRows(columns, values, offsets, int(x.shape[1]))
