"""Attention that is learned from edges under a budget: queries, privacy cost, initialization and training."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import calibrate_mu, require_delta
from graphveil.core.clipping.dpsgd import Adam
from graphveil.core.noise.steps import public_rate
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.plan import calibrate_plan as calibrated
from graphveil.core.queries.edge_training import EdgeAttentionData, EdgeAttentionQuery
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.queries.weights import (
    CELLS,
    HALF,
    TANH_ONE,
    TANH_STEPS,
    NetworkWeights,
    PairWeights,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge, Unit
from graphveil.data import Graph
from graphveil.errors import CalibrationError, InputError
from graphveil.estimators.edge_weighting import EdgeTrainedWeight
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.release.weights import Values, quantize_weights

_SHARE = 0.1  # share of mu^2 for training, if no multiplier is given
_OFFSET = 3.0  # initial attention weights of 0.95: a plain sum
_HEAD_STEPS, _HEAD_RATE = 100, 0.1
_MULTIPLIER_GROWTH = 2.0  # an edge replaces a clipped gradient by another one
_REACH = 8.0  # maximum logit of the table
_ENTRIES = 1 << 17  # row entries per chunk: they fit into the cache
_UNIT = 1 << 8  # table entries per unit of the logit; the table ends at 8
_MAX_READOUT_WEIGHT = float(1 << 10)  # larger readout weights are clipped
_READOUT = 1 << 16  # maximum sum of absolute readout weights: logits stay below 2^31
_SHIFT = 17  # maximum shift from a logit to its table index, in bits
_HALVES = (1 << 15) - 1  # the largest half of a hidden unit


@dataclass(frozen=True)
class Attention(EdgeTrainedWeight):
    """w = sigmoid(tanh(A z_u + B z_v + b) . w + c), a two-layer network on both rows, at most sigmoid(8).

    The network's parameters are public or were released. The keys are values of one node or of none:
    (A z_u for all u, B z_v + b for all v, w, c), of shapes (N, h), (N, h), (h) and (). Logits and halves of
    hidden units are clipped to [-8, 8], in steps of 2^-8. The tangent is accurate to 0.027, which
    moves a weight by at most 0.007 |w|_1. Weights are in steps of 2^-5.

    >>> round(Attention().bound, 6)
    0.999665
    """

    parameters: ClassVar[tuple[str, ...]] = ("source", "target", "bias", "readout", "offset")

    @property
    def bound(self) -> float:
        """The logistic function at the largest logit."""
        return float(_sigmoid(np.array(_REACH)))

    def prepare(self, keys: tuple[Tensor, Tensor, Tensor, Tensor]) -> PairWeights:
        return network(*keys, values=_sigmoid(np.linspace(-_REACH, _REACH, CELLS)), bound=self.bound)

    def training(self, **settings: Any) -> "AttentionTraining":
        return AttentionTraining(**settings)

    def learn(self, view: Graph, rows: Tensor, release: Release, session: Session) -> dict[str, Tensor]:
        query, targets = session.query(0, EdgeAttentionQuery), nodes_of(view.labeled_in("train"))
        generator = session.streams.torch("attention")
        start = session.load_or_compute(
            "attention", lambda: {"start": attention_start(query, rows, view.y, targets, generator)}
        )["start"]
        on_step = session.epochs("attention", query.steps)
        return train_attention(release, query, start, rows, view.y, targets, on_step=on_step)

    def keys(self, learned: Mapping[str, Tensor], rows: Tensor) -> tuple[Tensor, ...]:
        return attention_keys(learned, rows)


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))


SIMILARITY = Attention()


def network(
    source: Tensor, target: Tensor, readout: Tensor, offset: Tensor, *, values: Values, bound: float
) -> NetworkWeights:
    """Return a two-layer network's parts as integers; ``values`` are weights indexed by the logit."""
    weights, shift = _finite(readout).clamp(-_MAX_READOUT_WEIGHT, _MAX_READOUT_WEIGHT), _SHIFT
    while True:
        steps = _UNIT * math.ldexp(1.0, shift) / TANH_ONE  # steps in a weight of one
        whole = (weights * steps).round()
        if whole.abs().sum() <= _READOUT and bool((whole.abs() < 1 << 15).all()):
            break
        shift -= 1
    if shift < 0:
        raise InputError(
            f"The attention network with {len(readout)} hidden units has output weights that are too "
            "large for integer arithmetic. Use fewer hidden units."
        )
    reach = float(weights.abs().sum()) * 1.01 + 9.0  # maximum absolute logit
    exact = min(max(float(_finite(offset)), -reach), reach) * _UNIT + HALF + 0.5
    return NetworkWeights(
        _halves(source),
        _halves(target),
        whole.to(torch.int16),
        math.floor(exact * (1 << shift)),
        shift,
        quantize_weights(values, bound),
    )


def _halves(rows: Tensor) -> Tensor:
    """Return halves of hidden units in steps of 16-bit arguments."""
    exact = _finite(rows).numpy()
    halves = np.empty(exact.shape, dtype=np.int16)
    at_once = max(1, _ENTRIES // max(1, exact.shape[1]))
    scratch = np.empty((min(len(exact), at_once), exact.shape[1]))
    for first in range(0, len(exact), at_once):
        some = exact[first : first + at_once]
        grid = np.multiply(some, TANH_STEPS, out=scratch[: len(some)])
        np.clip(np.rint(grid, out=grid), -_HALVES, _HALVES, out=grid)
        np.copyto(halves[first : first + at_once], grid, casting="unsafe")
    return torch.from_numpy(halves)


def _finite(part: Tensor) -> Tensor:
    exact = part.detach().to(torch.float64)
    if not bool(torch.isfinite(exact.sum())) and not bool(torch.isfinite(exact).all()):
        raise InputError("The attention network has NaN or infinite parameters.")
    return exact


@dataclass(frozen=True, kw_only=True)
class AttentionTraining:
    """Public configuration of attention that is learned from edges (Shpilevskiy, Mello, Liu, 2023).

    A network of two layers that halves its input computes the weight of each in-edge, w = sigmoid(w . tanh(A
    z_u + B z_v + b) + c). A sum over in-neighbors therefore has sensitivity one (sqrt 2 for an undirected
    edge) for all parameters. The network is trained with a linear head by DP-Adam on batches of target nodes
    (``EdgeAttentionQuery``). ``hops`` noisy sums follow.

    Guarantee (edge-level units): T Poisson-subsampled Gaussian steps under the replace-one relation and K
    Gaussian releases, composed in one privacy-loss distribution. Forward passes in training are not released,
    so they need no noise.

    Args:
        dim: d, the width of the vectors.
        hops: K.
        steps: T; None for 100.
        multiplier: z. None for one at which training uses about a tenth of mu^2.
        batch_size: Expected targets in a batch; None for 256.
        clip: C, the clipping norm of a target's gradient.

    >>> training = AttentionTraining(unit=UndirectedEdge(), dim=16, classes=4, targets=17_976, multiplier=2.0)
    >>> steps, hop = training.plan(1.0, 1e-5, num_nodes=22_470).queries
    >>> steps.steps, round(hop.sigma[0], 2)
    (100, 6.24)
    """

    unit: Unit
    dim: int
    classes: int
    targets: int
    hops: int = 1
    steps: int | None = None
    multiplier: float | None = None
    batch_size: int | None = None
    learning_rate: float = 0.02
    clip: float = 1.0

    oriented: ClassVar[bool] = True  # whether an undirected edge is used at one of its ends only

    def __post_init__(self) -> None:
        checks.depth(hops=self.hops)
        checks.integer_at_least(1, targets=self.targets)
        if self.batch_size is not None:
            checks.integer_at_least(1, batch_size=self.batch_size)
        self._attention_query(1.0, 1.0)

    def plan(self, epsilon: float, delta: float, *, num_nodes: int) -> ReleasePlan:
        require_delta(delta, "EdgeAttentionQuery")
        multiplier = self.multiplier
        if not multiplier:
            # The central limit mu = q sqrt(T (e^(4/z^2) - 1)) (Bu, Dong, Long, Su: Deep learning with
            # Gaussian differential privacy, 2020), solved for z. It is exact for q = 1, and otherwise only a
            # heuristic.
            mu = calibrate_mu(epsilon, delta) * math.sqrt(_SHARE)
            if self._rate == 1:
                multiplier = _MULTIPLIER_GROWTH * math.sqrt(self._steps) / mu
            else:
                exponent = math.log1p((mu / self._rate) ** 2 / self._steps)
                multiplier = _MULTIPLIER_GROWTH / math.sqrt(exponent)
        training = self._attention_query(multiplier, 0.0).event(self.unit)
        check_training_cost(privacy_curve(training).epsilon(delta), epsilon)
        return calibrated(
            self.unit, epsilon, delta, lambda mu: self._queries(multiplier, mu), num_nodes=num_nodes
        )

    def _queries(self, multiplier: float, mu: float) -> tuple[Query, ...]:
        hop_queries: tuple[NeighborSumQuery, ...] = hops(mu, self.hops, self.dim, self.unit, SIMILARITY)
        # Half of an undirected graph's edges are used in training: half the sum, half the noise.
        hop_noise = hop_queries[0].sigma[0] / (2 if isinstance(self.unit, UndirectedEdge) else 1)
        return (self._attention_query(multiplier, hop_noise), *hop_queries)

    def _attention_query(self, multiplier: float, hop_noise: float) -> EdgeAttentionQuery:
        return EdgeAttentionQuery(
            dim=self.dim,
            classes=self.classes,
            steps=self._steps,
            noise_multiplier=multiplier,
            sampling_rate=self._rate,
            learning_rate=self.learning_rate,
            clip=self.clip,
            oriented=isinstance(self.unit, UndirectedEdge) and self.oriented,
            forward_noise=hop_noise,
        )

    @property
    def _steps(self) -> int:
        return self.steps or 100

    @property
    def _batch(self) -> int:
        return self.batch_size or 256

    @property
    def _rate(self) -> float:
        return public_rate(min(self._batch, self.targets), self.targets)


def train_attention(
    release: Release,
    query: EdgeAttentionQuery,
    start: Tensor,
    rows: Tensor,
    labels: Tensor,
    targets: Tensor,
    *,
    on_step: Callable[[int], None] = lambda done: None,
) -> dict[str, Tensor]:
    """Execute a release's next query by DP-Adam, and return the network's parameters, now released."""

    def descend(first: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        weights = first.clone()
        optimizer = Adam([weights])
        for step in range(query.steps):
            weights.grad = gradient(weights)
            optimizer.step(rate=query.learning_rate)
            on_step(step + 1)
        return weights.detach()

    parts = query.parts(release.answer(EdgeAttentionData(rows, labels, targets, start, descend)))
    return {name: part.clone() for name, part in parts.items() if name in Attention.parameters}


def attention_keys(network: Mapping[str, Tensor], rows: Tensor) -> tuple[Tensor, ...]:
    exact = rows.to(torch.float64)
    return (
        exact @ network["source"],
        exact @ network["target"] + network["bias"],
        network["readout"],
        network["offset"][0],
    )


def attention_start(
    query: EdgeAttentionQuery, rows: Tensor, labels: Tensor, targets: Tensor, generator: torch.Generator
) -> Tensor:
    """Return the initial parameters: random hidden units, a readout of zero, and a trained head.

    All of them are public. Attention starts as a plain sum, and the head classifies the public vectors.
    """
    weights = torch.zeros(query.parameters, dtype=torch.float64)
    parts = query.parts(weights)
    for name in ("source", "target"):
        parts[name].normal_(generator=generator)
    parts["offset"].fill_(_OFFSET)
    matrix, bias = _public_head(rows[targets].to(torch.float64), labels[targets], query.classes)
    parts["head_own"].copy_(matrix)
    parts["head_sum"].copy_(matrix)
    parts["head_bias"].copy_(bias)
    return weights


def _public_head(rows: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    matrix = torch.zeros(rows.shape[1], classes, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = Adam([matrix, bias])
    for _ in range(_HEAD_STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(rows @ matrix + bias, labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step(rate=_HEAD_RATE)
    return matrix.detach(), bias.detach()


def check_training_cost(training: float, epsilon: float) -> None:
    if training >= epsilon:
        raise CalibrationError(
            f"Training the attention weights alone uses epsilon {format_upper_bound(training)} of "
            f"{format_upper_bound(epsilon)}, so no budget is left for the aggregation. Use fewer "
            "attention_steps, or a larger epsilon."
        )
