"""ClassCode under unit ``node-record``: codes aggregated along the sources' own out-edges.

A fit (``NodeLevelClassCode.fit``) has three steps, and each is charged to the records that it reads:

1. The encoder: a linear classifier of features, trained by noisy steps on labeled nodes.
2. Noisy out-edge aggregations of codes. Each is weighted by the results of the previous ones, and a mixture
   fitted to the published aggregates alone computes likelihoods from them (``likelihoods.py``).
3. The decision. Recipe S weights features and aggregates with two learned numbers. Recipe R also reads the
   published aggregates of a node's out-neighbors. The aggregates of v's d out-neighbors have independent
   noise, and their sum has sqrt(d) times less noise. Reading them does not spend privacy budget
   (``core/queries/out_edge_sums.py``), since the prediction for v depends on v's own record and published
   values. Training the combiner is charged.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphveil.core.clipping.clipped_sums import LogitWeightsClippedSum
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import (
    LEVEL,
    OutEdgeCodeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    own_list_sums,
    replaced_change,
    simplex_codes,
)
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.classcode.likelihoods import DecodedRows, decode, decoding_memory
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.method import (
    FitResult,
    FittedGraphModel,
    Method,
    PreparedFit,
    State,
    check_fits,
    unknown_training_nodes_error,
)
from graphveil.estimators.private_training import (
    NoisySoftmax,
    descend_softmax,
    fit_softmax,
    full_batch_steps,
    metric_queries,
)
from graphveil.estimators.public_sizes import (
    OTHER,
    PARTITION,
    PublicSizes,
    charged_members,
    members,
    record_groups,
    training_groups,
)
from graphveil.estimators.session import Session

# Squared weights in sixteenths. Level 0 is not released; from there on factors of sqrt 2.
LEVELS = (0, *(round(16 * 2 ** (k / 2)) for k in range(20)))
FLAT_LEVELS = LEVELS[:2]  # released at weight one, or not
FIRST_LEVELS = LEVELS[:10]  # up to weight four
WEIGHTS = 2  # of recipe S: number of weights of features and aggregates
WEIGHTS_CLIP = 2.0  # clipping norm of a record's gradient by them
_EVIDENCE_WEIGHTS_SHARE = 0.02  # of mu^2, in recipe S: two numbers need little
_READING_SHARE, _COMBINER_SHARE = 0.2, 0.1  # of mu^2, for the encoder and the combiner of recipe R
_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the smallest noise of the aggregates
_MAX_CODE_BITS = 4  # finer grids make float32 sums of many contributions slow
_SHARE_RANGE, _RISE, _CLASSES = (0.1, 0.6), 0.2, 6
Targets = str | tuple[int | str, ...] | None
Push = Callable[[Any, Tensor], Tensor]  # vectors (N, d) and levels (N) to noisy aggregates (N, d)
_ENCODER_RATE, _RATE_RANGE, _USUAL, _POWER = 5.0, (2.0, 60.0), 900.0, 1.3  # of the encoder's step size
_SAFETY = 1 + 1e-6  # a GNN message stays below its bound in spite of rounding
_FLAT, _PREFERRED = 1, 8  # level of weight one, and levels up to four times that
_LATER = 64.0  # squared factor of prioritized aggregates from the second aggregation on
_UNCERTAINTY_FLOOR = 0.05
_WEIGHTS_RATE, _MAX_WEIGHT = 1.0, 2.5
_COMBINER_RATE, _COMBINER_MOMENTUM = 8.0, 0.9
_MAX_NOISE_STEP = 0.25  # standard deviation of the noise in a parameter: with fewer records steps are smaller
_TINY = 1e-12
_SUM_SCALE, _SUM_LENGTH, _LIKELY_SCALE, _LIKELY_RANGE = 3.0, 2.0, 3.0, 2.0
_FROM_SUM, _FROM_LIKELY = 3.0, 2.0  # initial weights of the sums and of the log-likelihoods

# -- the query plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseScales:
    """The noise at which a labeled record and an unlabeled one have the same privacy cost mu.

    ``encoder`` and ``combiner`` are noise multipliers of single steps (0 without such steps). ``pushes`` are
    standard deviations for labeled messages of norm one. ``bound`` is the norm bound of unlabeled messages.
    """

    encoder: float
    pushes: tuple[float, ...]
    combiner: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class BudgetSplit:
    """Shares of mu^2: a labeled record is charged for all queries, an unlabeled one for its messages only.

    With mu^2 = sum of the steps' (shift / noise)^2, a labeled record's shares are fe for T1 encoder steps, fc
    for T2 combiner steps (recipe S: steps that weight aggregates) and fa = 1 - fe - fc for the aggregations.
    An unlabeled record takes part in the same aggregations with messages of norm at most B = 1 / sqrt(fa).
    With B^2 fa = 1 this is the whole budget.

    Args:
        encoder: fe; ``encoder_share`` suggests one.
        combiner: fc; 0 without a combiner.
        pushes: Shares of fa, one per aggregation; they sum to one.
    """

    encoder: float = 0.1
    combiner: float = 0.0
    pushes: tuple[float, ...] = (0.4, 0.3, 0.3)
    encoder_steps: int = 60
    combiner_steps: int = 40

    @property
    def aggregation(self) -> float:
        return 1 - self.encoder - self.combiner

    def noise(self, mu: float) -> NoiseScales:
        """Return the noise for a total mu under nulled records; divide mu by the unit's change first.

        z1 = sqrt(T1 / fe) / mu, sigma_k = 1 / (mu sqrt(fa f_k)), z2 = sqrt(T2 / fc) / mu.

        >>> noise = BudgetSplit(encoder=0.1).noise(0.26805112)
        >>> round(noise.encoder, 4), [round(sigma, 4) for sigma in noise.pushes], round(noise.bound, 6)
        (91.3814, [6.2177, 7.1796, 7.1796], 1.054093)
        """
        return NoiseScales(
            math.sqrt(self.encoder_steps / self.encoder) / mu,
            tuple(1 / (mu * math.sqrt(self.aggregation * share)) for share in self.pushes),
            math.sqrt(self.combiner_steps / self.combiner) / mu if self.combiner else 0.0,
            1 / math.sqrt(self.aggregation),
        )


def code_push(
    unit: NodeRecord,
    classes: int,
    sigma: float,
    bounds: tuple[float, ...],
    out_degree_bound: int,
    levels: tuple[int, ...] = (LEVEL,),
) -> OutEdgeSumQuery:
    """Return a push of codes, with the maximum norm of a message by group, and the squared weights of rows.

    ``sigma`` is the standard deviation of the noise if a record moves the rows by ``unit.change`` bounds.
    Replaced codes of more than two classes differ by less, and the noise is smaller by the same factor.

    >>> pushes = [code_push(NodeRecord(replace_one=True), classes, 4.0, (1.0,), 1) for classes in (2, 6)]
    >>> [(push.wire_name, round(push.sigma, 4)) for push in pushes]
    [('PushQuery', 4.0), ('OutEdgeCodeSumQuery', 3.0984)]
    """
    loudest = math.sqrt(max(levels) / LEVEL) * max(bounds)
    bits = max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * loudest / sigma)))
    query: type[OutEdgeSumQuery] = OutEdgeSumQuery
    if unit.replace_one and classes > 2:
        query, sigma = OutEdgeCodeSumQuery, sigma * replaced_change(classes) / unit.change
        # Truncation reduces factors by up to (C-1)^1.5 steps.
        bits += min(math.ceil(1.5 * math.log2(classes - 1)), _MAX_CODE_BITS)
    return query(
        dim=classes - 1,
        sigma=sigma,
        out_degree_bound=out_degree_bound,
        levels=levels,
        partition=PARTITION,
        bounds=bounds,
        grid_bits=bits,
    )


def encoder_share(mu: float, parameters: int, records: int, classes: int = 6) -> float:
    """Return the encoder's share fe in recipe S: clip(6.5 k q^0.7, 0.1 k, 0.6) with q = sqrt(p) / (mu n).

    q compares the noise of a linear model with p parameters to the information in n records. With a small
    budget the features have more of it, since they need less; with a larger one the aggregates, which are
    more informative. Aggregates of few classes have few coordinates and tolerate more noise: k = max(1, 6 /
    C). Where 6.5 k q^0.7 is above 1, the features could use more than there is, and the bound 0.6 rises, to
    0.8 at 2. The constants were fitted to the test accuracy of four public graphs at epsilon 1 to 16, k and
    the rise to validation nodes of PubMed and Cora. Every input is public.

    >>> [round(encoder_share(mu, 438 * 6, 14235), 2) for mu in (0.268, 0.925, 2.905)]
    [0.32, 0.13, 0.1]
    >>> round(encoder_share(0.268, 501 * 3, 14777, classes=3), 2)
    0.51
    """
    low, high = _SHARE_RANGE
    wanted, few = wanted_share(mu, parameters, records, classes), max(1.0, _CLASSES / classes)
    return min(max(wanted, low * few), high + _RISE * min(max(wanted - 1, 0.0), 1.0))


def wanted_share(mu: float, parameters: int, records: int, classes: int) -> float:
    """Return the share of mu^2 that the encoder could use, which may be more than there is."""
    few = max(1.0, _CLASSES / classes)
    return 6.5 * few * math.pow(math.sqrt(parameters) / (mu * records), 0.7)


# -- the steps of a fit ------------------------------------------------------------------------------------


def released_rows(view: Graph, labeled: Tensor, targets: Targets) -> Tensor:
    """Return the public set of nodes whose aggregates are released, bool (N).

    ``"unlabeled"`` selects the nodes outside of training.
    """
    if targets is None:
        return torch.ones(view.num_nodes, dtype=torch.bool)
    chosen = torch.zeros(view.num_nodes, dtype=torch.bool)
    if targets == "test":
        chosen[members(view, "test")] = True
    elif targets == "unlabeled":
        chosen = ~labeled
    else:
        ids = range(view.num_nodes) if view.ids is None else view.ids.tolist()  # without ids: row numbers
        places = {str(name): place for place, name in enumerate(ids)}
        wanted = [str(name) for name in targets]
        if not all(name in places for name in wanted):
            raise ConfigError(
                "targets names a node that is not in the graph. Use ids of the graph's nodes, "
                "'unlabeled' or 'test'."
            )
        chosen[[places[name] for name in wanted]] = True
    if not bool(chosen.any()):
        raise ConfigError(f"targets={targets!r} selects no node. Name at least one node, or omit targets.")
    return chosen


def encoder_schedule(steps: int, noise_multiplier: float, records: int) -> PrivateSchedule:
    """Return the encoder's schedule; the step size is a function of the noise multiplier and public sizes.

    rate = clip(5 (m / 900)^1.3, 2, 60) with m = n sqrt(T) / z, the descent's mu times the records.

    >>> round(encoder_schedule(60, 91.3814, 11925).learning_rate, 4)
    5.8148
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    rate = _ENCODER_RATE * (loudness / _USUAL) ** _POWER
    low, high = _RATE_RANGE
    return PrivateSchedule.full_batch(steps=steps, learning_rate=min(max(rate, low), high))


def train_encoder(
    view: Graph, targets: Any, query: DPSGDQuery, labeled: Tensor, release: Release
) -> NoisySoftmax:
    """Train the encoder on labeled members as the release's next query.

    ``labeled`` are the public members of the training groups, bool (N).
    """
    nodes = labeled.nonzero()[:, 0]
    return fit_softmax(
        release,
        query,
        rows(view.x, nodes),
        rows(targets, nodes),
        view.num_classes,
        encoder_schedule(query.steps, query.noise_multiplier, len(nodes)),
    )


@dataclass(frozen=True)
class NodeMessages:
    """The GNN messages of all nodes: labeled nodes send their class's code of norm one, others a soft code.

    An unlabeled record is charged for its messages only and may use the whole budget for them. Its norm bound
    B is above one, so that its messages cost as much as all queries of a labeled record.

    Messages are handles if labels or posteriors are.

    Args:
        labels: Class numbers (N). Those outside ``labeled`` are not read, and -1 is null: it sends nothing.
        labeled: Public members of the labeled group, bool (N).
        bound: B; with 0 unlabeled records send nothing.
        in_hull: Whether messages stay in the convex hull of the codes of norm B, as ``OutEdgeCodeSumQuery``
            requires.
    """

    labels: Any
    labeled: Tensor
    classes: int
    bound: float
    in_hull: bool = False

    def first(self, log_posteriors: Any) -> Any:
        """Return messages by the features' posteriors: soft codes of norm at most B, shape (N, C-1).

        >>> sent = NodeMessages(torch.tensor([1, -1]), torch.tensor([True, False]), 2, 1.5)
        >>> [round(v, 4) for v in sent.first(torch.zeros(2, 2)).flatten().abs().tolist()]
        [1.0, 0.0]
        """
        return self._sent(self._soft, log_posteriors)

    def later(self, log_posteriors: Any) -> Any:
        """Return messages by better posteriors: an uncertain node also sends a vector of norm B.

        In the hull, its vector is scaled up to the boundary. It is the soft code of the posterior minus its
        smallest probability, normalized.

        >>> sent = NodeMessages(torch.tensor([-1]), torch.tensor([False]), 3, 1.0, in_hull=True)
        >>> even, sure = torch.tensor([[0.4, 0.4, 0.2]]), torch.tensor([[0.6, 0.2, 0.2]])
        >>> [round(float(sent.later(each.log()).norm()), 4) for each in (even, sure)]
        [0.5, 1.0]
        """
        return self._sent(self._extreme, log_posteriors)

    def _extreme(self, log_posteriors: Tensor) -> Tensor:
        if self.in_hull:
            probabilities = log_posteriors.to(torch.float64).softmax(dim=1)
            above = probabilities - probabilities.min(dim=1, keepdim=True).values
            extreme: Tensor = above / above.sum(dim=1, keepdim=True).clamp_min(_TINY)
            return torch.matmul(extreme, simplex_codes(self.classes))
        soft = self._soft(log_posteriors)
        return torch.div(soft, soft.norm(dim=1, keepdim=True).clamp_min(_TINY))

    def _soft(self, log_posteriors: Tensor) -> Tensor:
        soft: Tensor = log_posteriors.to(torch.float64).softmax(dim=1) @ simplex_codes(self.classes)
        return soft

    def _sent(self, soft: Callable[[Tensor], Tensor], log_posteriors: Any) -> Any:
        def of(log_posteriors: Tensor, labels: Tensor, labeled: Tensor) -> Tensor:
            known = labels.clamp(0, self.classes - 1)
            codes = torch.where((labels >= 0)[:, None], simplex_codes(self.classes)[known] / _SAFETY, 0.0)
            return torch.where(labeled[:, None], codes, soft(log_posteriors) * (self.bound / _SAFETY))

        return map_records(of, log_posteriors, self.labels, self.labeled)


@dataclass(frozen=True)
class AggregatedCodes:
    """The decoded aggregates of each node; zero if no aggregate is released.

    Shapes: ``log_likelihoods`` (N, C), ``strengths`` (N), ``rows`` (N, C-1): all aggregations combined, with
    noise of standard deviation ``sigma``.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    rows: Tensor
    sigma: float


def aggregate_and_decode(
    push: Push,
    sigmas: Sequence[float],
    messages: NodeMessages,
    log_posteriors: Any,
    released: Tensor,
    prioritized: Tensor,
) -> AggregatedCodes:
    """Aggregate once for every sigma and decode all aggregates together.

    The first aggregation gives prioritized nodes four times the weight of others, since nodes with known
    classes need less information. The next ones give more of every source's bounded weight to weak and
    uncertain aggregates: g_v = E[s_v]^-1/2 (H_v + 0.05)^1/2, rounded to public levels, and eight times that
    for prioritized nodes, whose strengths are larger because of their weight. Sources of unknown class send
    an improved posterior each time. Aggregates are combined by their precision.

        push: Executes one query. It bounds every source's weights and adds noise.
    """
    codes = simplex_codes(messages.classes)
    vectors = messages.first(log_posteriors)
    levels = torch.where(released, torch.where(prioritized, _FLAT + _PREFERRED, _FLAT), 0)
    total, precision = torch.zeros(len(released), codes.shape[1], dtype=torch.float64), 0.0
    for number, sigma in enumerate(sigmas, start=1):
        total += push(vectors, levels).to(torch.float64) / sigma**2
        precision += sigma**-2
        decoded = decode((total / precision)[released], precision**-0.5, codes)
        likely = torch.zeros(len(released), messages.classes, dtype=torch.float64)
        likely[released] = decoded.log_likelihoods
        if number < len(sigmas):
            vectors = messages.later(map_records(torch.add, log_posteriors, likely))
            levels[released] = allocate_levels(decoded, prioritized[released])
    strengths = torch.zeros(len(released), dtype=torch.float64)
    strengths[released] = decoded.strengths
    return AggregatedCodes(likely, strengths, total / precision, precision**-0.5)


def allocate_levels(decoded: DecodedRows, prioritized: Tensor) -> Tensor:
    """Return the level of each decoded aggregate, the smallest weight being one.

    >>> even, faint = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.25])
    >>> nobody = torch.zeros(2, dtype=torch.bool)
    >>> allocate_levels(DecodedRows(torch.zeros(2, 3), faint, even), nobody).tolist()
    [1, 5]
    """
    if not len(prioritized):
        return torch.zeros(0, dtype=torch.int64)
    factors = torch.where(prioritized, _LATER, 1.0)
    squared = (decoded.uncertainties + _UNCERTAINTY_FLOOR) / decoded.strengths * factors
    # The nearest level on a logarithmic scale: levels are factors of sqrt 2.
    steps = (2 * (squared / squared.min()).log2()).round()
    return steps.clamp(0, len(LEVELS) - 1 - _FLAT).to(torch.int64) + _FLAT


def weigh_evidence(weights: Tensor, log_posteriors: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Return log-posteriors (N, C) from those of features and log-likelihoods of aggregates, weighted (2)."""
    a, b = weights.tolist()
    weighed: Tensor = a * log_posteriors + b * log_likelihoods
    return weighed.log_softmax(dim=1)


def fit_evidence_weights(
    log_posteriors: Any, log_likelihoods: Tensor, labels: Any, query: DPSGDQuery, release: Release
) -> Tensor:
    """Train weights on labeled nodes from weights of one, as the release's next query.

    The result is clipped to [0, 2.5], so aggregates can be ignored but not inverted. A member without a label
    (-1) is a null record.
    """
    gradients = LogitWeightsClippedSum((log_posteriors, log_likelihoods), labels)
    schedule = limited_schedule(query, len(labels), rate=_WEIGHTS_RATE, momentum=0.0)
    weights = release.answer(DPSGDData(gradients=gradients, schedule=schedule))
    return weights.clamp(0, _MAX_WEIGHT)


def limited_schedule(query: DPSGDQuery, records: int, *, rate: float, momentum: float) -> PrivateSchedule:
    """Return a schedule with this step size, or less if noise would change a parameter by more than 0.25.

    Both are in clipping norms. The step size is a function of the noise multiplier and public sizes.

    >>> query = DPSGDQuery(parameters=2, steps=20, noise_multiplier=118.0, clip=2.0)
    >>> schedules = [limited_schedule(query, records, rate=1.0, momentum=0.0) for records in (14000, 300)]
    >>> [round(query.clip * schedule.learning_rate, 2) for schedule in schedules]
    [1.0, 0.17]
    """
    unit = PrivateSchedule.full_batch(steps=query.steps, learning_rate=1.0, momentum=momentum)
    wide = unit.averaged_noise * query.noise_multiplier / records
    return PrivateSchedule.full_batch(
        steps=query.steps,
        learning_rate=min(rate, _MAX_NOISE_STEP / wide) / query.clip,
        momentum=momentum,
        clip=query.clip,
    )


def own_neighborhood_sum(
    adjacency: Adjacency, rows: Tensor, sigma: float, shrinkage: Tensor, sent: Any, out_degree_bound: float
) -> Any:
    """Return the sum over each node's out-neighbors in noise units: float64 (N, d), zero without out-edges.

    With d_v the out-degree of v and w_v = 1 / sqrt(max(d_v, D)) the weight of its messages,

        r_v = sum over the out-edges of b_u (Z_u - w_v c_v), divided by sigma sqrt(sum of b_u^2).

    A node's own contribution is subtracted, so a labeled node does not receive its own label. Node v's sum
    reads v's own out-edges only.

    Args:
        rows: Z, the result of one aggregation with weights of one, (N, d).
        sigma: Its noise.
        shrinkage: b, a function of published aggregates, (N); see ``row_shrinkage``.
        sent: c, the vector that each node sent, (N, d).
        out_degree_bound: D of the aggregation.
    """
    trusted = shrinkage.to(torch.float64)[:, None]
    published = torch.cat([trusted * rows, trusted, trusted.square()], dim=1)

    def of(sums: Tensor, degrees: Tensor, sent: Tensor) -> Tensor:
        weights = degrees.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
        others = sums[:, :-2] - weights[:, None] * sums[:, -2:-1] * sent
        length = sums[:, -1:].clamp_min(0).sqrt()
        return torch.where(length > 0, others / (sigma * length.clamp_min(_TINY)), 0.0)

    return map_records(of, *own_list_sums(adjacency, published), sent)


def row_shrinkage(strengths: Tensor, sigma: float) -> Tensor:
    """Return the weight of an aggregate in a sum: s / (sigma^2 + s^2), up to a factor.

    An aggregate of strength s is s f + noise, and only its direction f is informative. Aggregates below the
    noise count by their strength, those above it by their direction alone. Otherwise a few nodes of high
    degree would determine the sums of all their neighbors.

    >>> row_shrinkage(torch.tensor([0.5, 1.0, 2.0]), 1.0)
    tensor([0.4000, 0.5000, 0.4000])
    """
    return strengths * sigma / (strengths.square() + sigma**2)


def combiner_inputs(log_posteriors: Tensor, neighborhood_sum: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Return [lp, r/3 of norm at most 2, r/|r|, lk/3 within 2], float64, shape (N, 4 C - 2)."""
    length = neighborhood_sum.norm(dim=1, keepdim=True).clamp_min(_TINY)
    shortened = neighborhood_sum * (_SUM_LENGTH * _SUM_SCALE / length).clamp_max(1.0) / _SUM_SCALE
    likely = (log_likelihoods / _LIKELY_SCALE).clamp(-_LIKELY_RANGE, _LIKELY_RANGE)
    centered = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
    return torch.cat([centered, shortened, neighborhood_sum / length, likely], dim=1).to(torch.float64)


def prior_combiner_weights(classes: int) -> Tensor:
    """Return the combiner's initial parameters, shape (4 C - 1, C): a public homophily prior."""
    codes, eye = simplex_codes(classes), torch.eye(classes, dtype=torch.float64)
    directions = torch.zeros(classes - 1, classes, dtype=torch.float64)
    bias = torch.zeros(1, classes, dtype=torch.float64)
    return torch.cat([eye, _FROM_SUM * codes.T, directions, _FROM_LIKELY * eye, bias])


def combine(weights: Tensor, inputs: Tensor) -> Tensor:
    """Return log-posteriors (N, C) by a linear classifier; weights (4 C - 1, C), the last row the bias."""
    return (inputs @ weights[:-1] + weights[-1]).log_softmax(dim=1)


def fit_combiner(inputs: Any, labels: Any, query: DPSGDQuery, release: Release) -> Tensor:
    """Train the weights on labeled nodes from the public start, as the release's next query.

    Inputs are (n, 4 C - 2). A member without a label (-1) is a null record.
    """
    start = prior_combiner_weights((inputs.shape[1] + 2) // 4)
    schedule = limited_schedule(query, len(labels), rate=_COMBINER_RATE, momentum=_COMBINER_MOMENTUM)
    return descend_softmax(release, inputs, labels, start, schedule)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedNodeLevelClassCode(FittedGraphModel):
    """The encoder of features, and the decision on features and aggregates: weights, or a combiner (R)."""

    encoder: NoisySoftmax
    decider: Tensor

    @classmethod
    def restore(
        cls, state: State, sizes: PublicSizes, *shapes: tuple[int, ...]
    ) -> "TrainedNodeLevelClassCode":
        """Return the model of a state, whose decision has one of these shapes."""
        known = state["decider"].shape in shapes
        check_fits(known and state["encoder"].shape == (sizes.width + 1, sizes.classes), sizes)
        return cls(encoder=NoisySoftmax.restore(state), decider=state["decider"])

    def other_graph_error(self) -> NotImplementedGuaranteeError:
        return unknown_training_nodes_error("classcode")

    def state(self) -> State:
        return {**self.encoder.state(), "decider": self.decider}


@dataclass(frozen=True, kw_only=True)
class NodeLevelClassCode(Method):
    """ClassCode under ``node-record``: recipe S weights features and aggregates, R also reads out-neighbors.

    Args:
        reads_own_edges: Recipe R.
        targets: Nodes whose aggregates are released; None for all.
        encoder_share: Share of mu^2 for the encoder; None for a suitable one.
    """

    weighs_classes: ClassVar[bool] = True

    reads_own_edges: bool = False
    targets: Targets = None
    unlabeled_send: bool = True
    encoder_share: float | None = None
    out_degree_bound: int = 1

    def prepare(self, view: Graph, scaling: FeatureScaling) -> PreparedFit:
        """Check and plan a fit, and reject wrong names in ``targets`` before anything is charged."""
        ready = super().prepare(view, scaling)
        released_rows(view, self._training_members(view), self.targets)
        return ready

    def _training_members(self, view: Graph) -> Tensor:
        return charged_members(view, training_groups(metrics=self.privacy_config.private_metrics))

    def room(self, view: Graph) -> float:
        """Return the approximate memory of a fit in bytes; decoding has C^2 covariance entries per class."""
        return super().room(view) + decoding_memory(view.num_classes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.privacy_config.calibrated(sizes, partial(self.queries, sizes))

    def budget_split(self, sizes: PublicSizes, mu: float) -> BudgetSplit:
        """Return the division of a total mu.

        In recipe R the encoder needs so little of the budget that one share suits all tested graphs and
        budgets. S learns the weight of aggregates only with those of labeled nodes.
        """
        if self.reads_own_edges:
            share = _READING_SHARE if self.encoder_share is None else self.encoder_share
            return BudgetSplit(encoder=share, combiner=_COMBINER_SHARE, pushes=(1.0,))
        suits = encoder_share(mu, (sizes.width + 1) * sizes.classes, sizes.records, sizes.classes)
        share = suits if self.encoder_share is None else self.encoder_share
        evidence_weights = _EVIDENCE_WEIGHTS_SHARE if self.targets is None else 0.0
        return BudgetSplit(encoder=share, combiner=evidence_weights, combiner_steps=20)

    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        """Return the queries in order, which cost every record a total of at most mu.

        Training records are charged for all queries. Validation records are trained on as well, since nothing
        is selected on them, unless they are counted for metrics. Records outside of training are charged for
        their messages, which may have a larger norm, or with metrics for noisy counts. Replace-one doubles
        every sensitivity except that of codes (``code_push``).
        """
        unit, metrics = self.privacy_config.unit, self.privacy_config.private_metrics
        assert isinstance(unit, NodeRecord)
        budget_split = self.budget_split(sizes, mu)
        noise = budget_split.noise(mu / unit.change)
        outside = float(self.unlabeled_send) * (1.0 if metrics else noise.bound)
        bounds = tuple(1.0 if paying else outside for paying in training_groups(metrics=metrics))
        parameters = (sizes.width + 1) * sizes.classes
        queries: list[Query] = [
            full_batch_steps(parameters, budget_split.encoder_steps, noise.encoder, metrics=metrics)
        ]
        same_priority = self.reads_own_edges or self.targets is not None
        for number, sigma in enumerate(noise.pushes):
            levels = LEVELS if number else FLAT_LEVELS if same_priority else FIRST_LEVELS
            queries.append(code_push(unit, sizes.classes, sigma, bounds, self.out_degree_bound, levels))
        if noise.combiner:
            combiner = (4 * sizes.classes - 1) * sizes.classes
            parameters, clip = (combiner, 1.0) if self.reads_own_edges else (WEIGHTS, WEIGHTS_CLIP)
            steps = budget_split.combiner_steps
            queries.append(full_batch_steps(parameters, steps, noise.combiner, metrics=metrics, clip=clip))
        spare = mu * math.sqrt(1 - budget_split.aggregation)  # records outside of training skip the steps
        counts = metric_queries(unit, sizes.classes, spare) if metrics else ()
        return (*queries, *counts)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges: recipe R predicts a node from its own out-edges."""
        return "read" if self.reads_own_edges else super().edge_use(plan)

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Execute the plan's queries in order, and predict every node from public values and its own record.

        Guarantee: ``docs/privacy/proofs/classcode.md``. Labels of nodes outside of training are never read.
        """
        plan = session.planned
        steps = [query for query in plan.queries if isinstance(query, DPSGDQuery)]
        pushes = [query for query in plan.queries if isinstance(query, OutEdgeSumQuery)]
        labeled = charged_members(view, steps[0].pays)
        # A plan with different levels in the first aggregation gives more weight to unlabeled nodes.
        prioritized = ~labeled & (len(pushes[0].levels) > len(FLAT_LEVELS))
        released = released_rows(view, labeled, self.targets)
        release = session.open(view, record_groups(view))

        def push(vectors: Any, levels: Tensor) -> Tensor:
            return release.answer(OutEdgeSumData(vectors, levels))

        loss_targets = self.objective.clipped_targets(view)
        with session.stage("encoder"):
            encoder = train_encoder(view, loss_targets, steps[0], labeled, release)
            log_posteriors = map_records(encoder.log_posteriors, view.x)
        with session.stage("aggregate"):
            in_hull = isinstance(pushes[0], OutEdgeCodeSumQuery)
            messages = NodeMessages(view.y, labeled, view.num_classes, pushes[0].bounds[OTHER], in_hull)
            sigmas = [query.sigma for query in pushes]
            aggregated = aggregate_and_decode(push, sigmas, messages, log_posteriors, released, prioritized)
        with session.stage("classifier"):
            labels, likelihoods = rows(loss_targets, labeled), aggregated.log_likelihoods
            if self.reads_own_edges:
                neighborhood_sum = own_neighborhood_sum(
                    view.adjacency,
                    aggregated.rows,
                    aggregated.sigma,
                    row_shrinkage(aggregated.strengths, aggregated.sigma),
                    messages.first(log_posteriors),
                    pushes[0].out_degree_bound,
                )
                inputs = map_records(combiner_inputs, log_posteriors, neighborhood_sum, likelihoods)
                decider = fit_combiner(rows(inputs, labeled), labels, steps[1], release)
                decided = map_records(partial(combine, decider), inputs)
            else:
                decider = torch.ones(WEIGHTS, dtype=torch.float64)
                for query in steps[1:]:  # none if aggregates of labeled nodes are not released
                    features = rows(log_posteriors, labeled)
                    decider = fit_evidence_weights(features, likelihoods[labeled], labels, query, release)
                decided = map_records(partial(weigh_evidence, decider), log_posteriors, likelihoods)
        # Row v of the probabilities is only for people who are authorized to access v's record.
        proba = map_records(lambda log: log.exp().to(torch.float32), decided)
        trained = TrainedNodeLevelClassCode(encoder=encoder, decider=decider)
        noisy = {"rows": aggregated.rows.to(torch.float32)}
        return self.closed(release, trained, proba, view, session, noisy)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedNodeLevelClassCode:
        combiner = 4 * sizes.classes - 1, sizes.classes
        return TrainedNodeLevelClassCode.restore(state, sizes, (WEIGHTS,), combiner)
