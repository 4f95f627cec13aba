"""Influences of LinkTeller: how far the features of a node change the predictions of others.

Wu, Long, Zhang and Li, LinkTeller: recovering private edges from graph neural networks, S&P 2022. Influences
are finite differences of a black-box model, or derivatives of a network with known parameters.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.pairs import Pairs
from graphveil.attacks.roc import Floats
from graphveil.audit.secret_edges import Integers
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import NoUnit
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.full_graph import TrainedFullGraph
from graphveil.estimators.session import Session
from graphveil.nn.layers import Batch, Linear, SparseRows
from graphveil.perturb.mechanism import adjacency_of

Matrix: TypeAlias = Any  # a float64 array or csr_array, (N, d)
Predict = Callable[[Matrix], Floats]  # all nodes' features in, all nodes' scores out, (N, d) to (N, C)
Nudge = Literal["scale", "add", "either"]
Direction = Literal["max", "later", "earlier", "mean"]
STEP = 1e-4  # LinkTeller's Delta; HeteroRR's is 0.01
_CLOSE = 1e-9


@checked
def influences(
    predict: Predict, x: Matrix, nodes: Integers, *, step: float = STEP, nudge: Nudge = "either"
) -> Floats:
    """Compute how far a perturbation of each node changes the others' predictions, by finite differences.

        I_vu = || (f(X_v)_u - f(X)_u) / step ||_2,    X_v = X with row v times 1 + step.

    This calls ``predict`` once for X and once per node. ``predict`` must compute in float64: in float32 the
    rounding of about 1e-7 / step dominates weak pairs.

    Args:
        predict: Deployed model, whose server has the edges; any deterministic function, such as one that
            queries an HTTP endpoint.
        x: Features that the attacker sends (N, d), an array or a SciPy csr_array.
        nodes: Nodes to perturb and to observe (n).
        step: Size of a perturbation.
        nudge: ``"scale"`` to multiply the row, which leaves zero rows unchanged; ``"add"`` to add the mean
            row of all nodes, times ``step``; ``"either"`` to add to zero rows and scale the others.

    Returns:
        The influences (n, n): row v has the influence of v on each node, including itself.

    Raises:
        ConfigError: If an argument is out of range, or ``predict`` does not return one row per node.

    Privacy:
        Reads: predictions only. Queries are charged by the server of the model, if at all.

    >>> path = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> influences(lambda x: path @ x, np.eye(3), np.arange(3)).round(6)
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    checks.positive(step=step)
    rows = as_float64(x)
    checks.places(rows.shape[0], nodes=nodes)
    base = _answer(predict, rows, rows.shape[0])
    found = np.zeros((len(nodes), len(nodes)))
    mean = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel()
    for place, node in enumerate(nodes.tolist()):
        row = dense_rows(rows, [node])[0]
        scaled = nudge == "scale" or (nudge == "either" and bool(row.any()))
        nudged = row * (1 + step) if scaled else row + step * mean
        moved = _answer(predict, with_row(rows, node, nudged), rows.shape[0])
        found[place] = np.linalg.norm((moved[nodes] - base[nodes]) / step, axis=1)
    return found


def _answer(predict: Predict, x: Matrix, nodes: int) -> Floats:
    scores = np.asarray(predict(x), dtype=np.float64)
    if scores.ndim != 2 or len(scores) != nodes:
        raise ConfigError(
            f"predict returned an array of shape {scores.shape} for {nodes} nodes. It must return one "
            "row of scores per node."
        )
    return scores


@checked
def link_scores(found: Floats, pairs: Pairs, direction: Direction = "max") -> Floats:
    """Compute one score per pair from the influences of its two ends on each other.

    Args:
        found: Influences of the pairs' nodes (n, n).
        pairs: Pairs to score.
        direction: ``"max"`` or ``"mean"`` of the two influences; ``"later"`` for that of the later drawn node
            on the earlier one, as in LinkTeller; ``"earlier"`` for the reverse.

    Returns:
        The scores (m).

    Raises:
        ConfigError: If the influences are not those of the pairs' nodes.

    Privacy:
        Reads: the given influences only. Charges: nothing. The result is internal.
    """
    if found.shape != (len(pairs.nodes),) * 2:
        raise ConfigError(
            f"influences have the shape {found.shape}, which does not match {len(pairs.nodes)} nodes"
        )
    later, earlier = found[pairs.other, pairs.one], found[pairs.one, pairs.other]
    choices = {"later": later, "earlier": earlier, "mean": (later + earlier) / 2}
    return np.maximum(later, earlier) if direction == "max" else choices[direction]


# -- the limit of small steps, with known parameters -------------------------------------------------------


@checked
@torch.no_grad()
def exact_influences(network: nn.Module, x: Matrix, adjacency: Adjacency, nodes: Integers) -> Floats:
    """Compute the limit of ``influences`` with ``nudge="scale"`` for small steps, by derivatives.

        I_vu = || J_f(X)[e_v x_v]_u ||_2,

    with one Jacobian-vector product per node. The network's first layer is affine, x W + b, so a perturbation
    of x_v by step x_v changes it by step x_v W. The other layers are differentiated in rows of its width, and
    features may be sparse. Nodes more hops apart than the network has layers have influence zero.

    Args:
        network: GCN or SAGE network of ``graphveil.nn``, from a batch and an adjacency to logits; f are its
            probabilities.
        x: Features (N, d).
        adjacency: Edges of the message passing.
        nodes: Nodes to perturb and to observe (n).

    Returns:
        The influences (n, n), as in ``influences``.

    Raises:
        NotImplementedGuaranteeError: If the network does not begin with an affine map of its input.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    checks.shape((adjacency.num_nodes, -1), x=as_float64(x))
    checks.places(adjacency.num_nodes, nodes=nodes)
    whole = copy.deepcopy(network).double().eval()
    batch = float64_batch(x)
    # The first layer as x W, and the remaining network, whose first affine map only adds the bias.
    first = next(module for module in whole.modules() if isinstance(module, Linear))
    bias = first.bias.detach().clone()
    first.bias.zero_()
    rows = first(batch).detach().contiguous()
    first.bias.copy_(bias)
    rest = copy.deepcopy(whole)
    begin = next(module for module in rest.modules() if isinstance(module, Linear))
    begin.weight = nn.Parameter(torch.eye(rows.shape[1], dtype=torch.float64))
    if not torch.allclose(_proba(rest, rows, adjacency), _proba(whole, batch, adjacency), atol=_CLOSE):
        raise NotImplementedGuaranteeError(
            f"{type(network).__name__} does not start with an affine layer, so its derivative is not "
            "available. Use influences(), which queries the network as a black box."
        )
    found, watched = np.zeros((len(nodes), len(nodes))), torch.from_numpy(nodes)
    with torch.enable_grad():
        # u -> J^T u is linear, and its own transpose is J: one graph gives all products v -> J v.
        start = rows.clone().requires_grad_()
        proba = _proba(rest, start, adjacency)
        dual = torch.zeros_like(proba, requires_grad=True)
        (pulled,) = torch.autograd.grad(proba, start, dual, create_graph=True)
        for place, node in enumerate(nodes.tolist()):
            direction = torch.zeros_like(rows)
            direction[node] = rows[node]
            (moved,) = torch.autograd.grad(pulled, dual, direction, retain_graph=True)
            found[place] = moved[watched].norm(dim=1).numpy()
    return found


def _proba(network: nn.Module, batch: Any, adjacency: Adjacency) -> Tensor:
    logits: Tensor = network(batch, adjacency)
    return logits.softmax(dim=1)


# -- features: float64, an array or a SciPy csr_array ------------------------------------------------------


def is_sparse(x: Matrix) -> bool:
    """Return whether a matrix is sparse, without narrowing its type as ``scipy.sparse.issparse`` does."""
    return bool(sparse.issparse(x))


def as_float64(x: Matrix) -> Matrix:
    if is_sparse(x):
        return x.tocsr().astype(np.float64)
    rows = checks.fitting("x", x, Floats)
    checks.shape((-1, -1), x=rows)
    return rows


def dense_rows(x: Matrix, nodes: Any) -> Floats:
    rows = as_float64(x)
    checks.places(rows.shape[0], nodes=nodes)
    return np.asarray(rows[nodes].toarray() if is_sparse(x) else rows[nodes], dtype=np.float64)


def with_row(x: Matrix, node: int, row: Floats) -> Matrix:
    if not is_sparse(x):
        changed = x.copy()
        changed[node] = row
        return changed
    stacked: Any = sparse.vstack([x[:node], sparse.csr_array(row[None]), x[node + 1 :]])
    return stacked.tocsr()


def float64_batch(x: Matrix) -> Batch:
    x = as_float64(x)
    if not is_sparse(x):
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))
    return replace(SparseRows.from_scipy(x), values=torch.from_numpy(x.data))


EXACT, RELEASED_GRAPH, RELEASED_ROWS = "exact edges", "a released graph", "released rows"


@checked
@dataclass(frozen=True, eq=False)
class ServedModel:
    """A fitted model as its users observe it.

    Args:
        predict: Function from features to probabilities; the server has the edges.
        edge_source: Source of a prediction: exact edges, a released graph, or released aggregates. In the
            last case aggregates are stored, and other features are another query with its own privacy cost.
            Perturbations then change no prediction, and every influence is zero by construction.
        proba: Probabilities for the graph's own features.
        released: Additional published aggregates by name.

    Privacy:
        Contains a fitted model and, if it predicts from edges, access to them. Internal. Use it to measure
        attacks.
    """

    predict: Predict
    edge_source: str
    proba: Floats
    released: dict[str, Floats]


@checked
def serve_model(model: Estimator, graph: Graph) -> ServedModel:
    """Return the predictions of a fitted model on its training graph, as a function of the features.

    A network over edges runs in float64 and in evaluation mode. Features are scaled as for the model's own
    predictions.

    Args:
        model: Fitted estimator.
        graph: Training graph.

    Returns:
        The served model.

    Privacy:
        Reads: the exact edges, if the model does. Charges: nothing. The result is internal.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.ClassCode(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph)
    >>> serve_model(model, graph).edge_source
    'released rows'
    """
    fitted = model.fitted
    proba = fitted.own_proba.to(torch.float64).numpy()
    trained = fitted.trained
    if isinstance(trained, TrainedFullGraph):
        edges, noisy = graph.adjacency, trained.method.mechanism is not None
        if noisy:  # a fit keeps the numbers of the released node pairs
            domain = Domain.whole(graph.num_nodes, directed=graph.directed)
            edges = adjacency_of(fitted.released["graph"], domain, None, "")
        answered, source = network_predict(trained.network, edges), RELEASED_GRAPH if noisy else EXACT
        return ServedModel(lambda x: answered(_scaled(fitted.scaling, x)), source, proba, {})
    if isinstance(model.protected_unit, NoUnit) and fitted.method.reads_edges:

        def recomputed(x: Matrix) -> Floats:
            sent = _scaled(fitted.scaling, x)
            queried_graph = graph.replace(x=sent if is_sparse(sent) else torch.from_numpy(np.asarray(sent)))
            session = Session(streams=PublicStreams(fitted.method.privacy_config.seed))
            return trained.answer(queried_graph, session, None).proba.to(torch.float64).numpy()

        return ServedModel(recomputed, EXACT, proba, {})
    rows = {name: part.to(torch.float64).numpy() for name, part in fitted.released.items()}
    of_nodes = {name: part for name, part in rows.items() if part.ndim == 2 and len(part) == graph.num_nodes}
    return ServedModel(lambda x: proba, RELEASED_ROWS, proba, of_nodes)


@checked
def network_predict(network: nn.Module, adjacency: Adjacency) -> Predict:
    """Return the predictions of a trained network over some edges, in float64.

    Args:
        network: Network from a batch and an adjacency to logits.
        adjacency: Edges of the message passing.

    Returns:
        Function from features to probabilities.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    exact = copy.deepcopy(network).double().eval()
    return torch.no_grad()(lambda x: _proba(exact, float64_batch(x), adjacency).numpy())


def _scaled(scaling: FeatureScaling, x: Matrix) -> Matrix:
    """Return features scaled as for a model's own predictions, in their own precision."""
    if is_sparse(x):
        return scaling.apply(sparse.csr_array(x))
    scaled: Any = scaling.apply(torch.from_numpy(np.asarray(x)))
    return np.asarray(scaled.numpy())
