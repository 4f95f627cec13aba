"""LinkTeller with the weights at hand: the derivative itself, instead of a quotient of differences."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.data import Adjacency
from graphveil.errors import NotImplementedGuaranteeError
from graphveil.lab.attacks.matrices import Matrix, as_float64, float64_batch
from graphveil.lab.attacks.roc import Floats
from graphveil.lab.attacks.secret_edges import Integers
from graphveil.nn.layers import Linear

_CLOSE = 1e-9


@checked
@torch.no_grad()
def exact_influences(network: nn.Module, x: Matrix, adjacency: Adjacency, nodes: Integers) -> Floats:
    """Return the influences of :func:`influences` with ``nudge="scale"`` in the limit of small steps.

        I_vu = || J_f(X)[e_v x_v]_u ||_2,

    by one product with the derivative a node. The network's first layer is affine, x W + b, so a nudge of
    x_v by step x_v moves it by step x_v W: what follows is differentiated in rows of its width, and features
    may be sparse. Nodes more hops apart than the network has layers have influence exactly zero.

    Args:
        network: a GCN or SAGE network in the manner of ``graphveil.nn``, mapping a batch and an
            adjacency to logits; f are its probabilities.
        x: features (N, d).
        adjacency: the edges that it sends along.
        nodes: whom to nudge, and to watch (n).

    Returns:
        (n, n), as of :func:`influences`.

    Raises:
        NotImplementedGuaranteeError: the network does not begin with an affine map of its input.
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
            "not available; use influences(), which asks the network as a black box"
        )
    push = _pushforward(rest, rows, adjacency)
    found = np.zeros((len(nodes), len(nodes)))
    watched = torch.from_numpy(nodes)
    for place, node in enumerate(nodes.tolist()):
        direction = torch.zeros_like(rows)
        direction[node] = rows[node]
        found[place] = push(direction)[watched].norm(dim=1).numpy()
    return found


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


def _split(whole: nn.Module, first: Linear, batch: Any) -> tuple[Tensor, nn.Module]:
    """Return x W, and the network that goes on from it: its first affine map only adds the bias."""
    bias = first.bias.detach().clone()
    first.bias.zero_()
    rows = first(batch).detach().contiguous()
    first.bias.copy_(bias)
    rest = copy.deepcopy(whole)
    begin = next(module for module in rest.modules() if isinstance(module, Linear))
    begin.weight = nn.Parameter(torch.eye(rows.shape[1], dtype=torch.float64))
    return rows, rest


def _proba(network: nn.Module, batch: Any, adjacency: Adjacency) -> Tensor:
    logits: Tensor = network(batch, adjacency)
    return logits.softmax(dim=1)
