"""LinkTeller: who moves whose prediction is joined to it (Wu, Long, Zhang, Li, S&P 2022)."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.errors import ConfigError
from graphveil.lab.attacks.matrices import Matrix, as_float64, dense_rows, with_row
from graphveil.lab.attacks.pairs import Pairs
from graphveil.lab.attacks.roc import Floats
from graphveil.lab.attacks.secret_edges import Integers

Predict = Callable[[Matrix], Floats]  # all nodes' features in, all nodes' scores out, (N, d) to (N, C)
Nudge = Literal["scale", "add", "either"]
NUDGES: tuple[Nudge, ...] = ("scale", "add", "either")
Direction = Literal["max", "later", "earlier", "mean"]
DIRECTIONS: tuple[Direction, ...] = ("max", "later", "earlier", "mean")
STEP = 1e-4  # LinkTeller's Delta; HeteroRR's is 0.01


@checked
def influences(
    predict: Predict, x: Matrix, nodes: Integers, *, step: float = STEP, nudge: Nudge = "either"
) -> Floats:
    """Return how far a nudge of each node moves the predictions of the others, by finite differences.

        I_vu = || (f(X_v)_u - f(X)_u) / step ||_2,    X_v = X with row v times 1 + step.

    It asks ``predict`` once for X and once for each node. ``predict`` must compute in float64: in float32 the
    rounding of about 1e-7 / step drowns weak pairs.

    Args:
        predict: the deployed model, whose server holds the edges; anything callable, a function around an
            HTTP endpoint too. It must always answer alike.
        x: the features that the attacker sends, (N, d), an array or a SciPy csr_array.
        nodes: whom to nudge, and to watch (n).
        step: the size of a nudge.
        nudge: ``"scale"`` multiplies the row, which leaves rows of zeros as they are; ``"add"`` adds the mean
            row of all nodes, times ``step``; ``"either"`` adds to rows of zeros and scales the others.

    Returns:
        (n, n): row v is what nudging v does, the diagonal its own.

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
        moved = _answer(predict, with_row(rows, node, nudged(rows, node, step, nudge)), rows.shape[0])
        found[place] = np.linalg.norm((moved[nodes] - base[nodes]) / step, axis=1)
    return found


def nudged(x: Matrix, node: int, step: float, nudge: Nudge) -> Floats:
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
        found: as :func:`influences` returns it for the pairs' nodes.
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


def _answer(predict: Predict, x: Matrix, nodes: int) -> Floats:
    scores = np.asarray(predict(x), dtype=np.float64)
    if scores.ndim != 2 or len(scores) != nodes:
        raise ConfigError(
            f"predict returned an array of shape {scores.shape} for {nodes} nodes; it must return one row of "
            "scores per node"
        )
    return scores
