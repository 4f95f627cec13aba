"""ClassCode on records (unit ``node-record``): labeled codes pushed along the sources' own edges.

A fit (:func:`fit_node_level_classcode`) has three steps, and each is paid for by the records that it reads:

1. The encoder: a linear classifier of features, trained by noisy steps on labeled nodes.
2. Noisy pushes of codes along the sources' own edges. Each is steered by what the last ones told, and a
   mixture fitted to the published rows alone turns them into likelihoods (``node_decoder.py``).
3. The decision. Recipe S weighs features and rows with two learned numbers. Recipe R also reads the published
   rows of the nodes on a node's own list: row v is noisy, the rows of v's d own neighbors are noisy
   independently, and their sum tells v's class with sqrt(d) times less noise. Reading needs no budget
   (``release/out_edge_sums.py``), since the prediction for v depends on v's own record and published values;
   training the combiner does, and pays.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from graphveil.data import Graph, rows
from graphveil.errors import ArtifactError, ConfigError, NotImplementedGuaranteeError, ReleaseError, UnitError
from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.node_decoder import DecodedRows, decode, decoding_memory
from graphveil.estimators.classcode.node_plan import (
    FLAT_LEVELS,
    LEVELS,
    WEIGHTS,
    WEIGHTS_CLIP,
    NodeLevelReleasePlan,
)
from graphveil.estimators.features.noisy_softmax import NoisySoftmax, descend_softmax, fit_softmax
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import OTHER, PublicSizes, members, record_groups
from graphveil.estimators.session import Session
from graphveil.estimators.training.record_plan import release_accuracies
from graphveil.privacy import NodeRecord
from graphveil.privacy.statements import EdgeUse
from graphveil.release import (
    DPSGDData,
    DPSGDQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    Release,
    ReleasePlan,
    calibrate_plan,
)
from graphveil.release.out_edge_sums import read_out_neighbor_sums
from graphveil.training import PrivateSchedule, clipped_sum

Targets = str | tuple[int | str, ...] | None
_ENCODER_RATE, _RATE_RANGE, _USUAL, _POWER = 5.0, (2.0, 60.0), 900.0, 1.3
_SAFETY = 1 + 1e-6  # a message stays below its bound in spite of rounding
Push = Callable[[Tensor, Tensor], Tensor]  # vectors (N, d) and levels (N) to noisy rows (N, d)
_FLAT, _PREFERRED = 1, 8
_LATER = 64.0
_UNCERTAINTY_FLOOR = 0.05
_WEIGHTS_RATE, _MAX_WEIGHT = 1.0, 2.5
_MAX_NOISE_STEP = 0.25  # noise in a weight, as a standard deviation: fewer records take smaller steps instead
COMBINER_RATE = 8.0
_TINY = 1e-12
_SUM_SCALE, _SUM_LENGTH, _LIKELY_SCALE, _LIKELY_RANGE = 3.0, 2.0, 3.0, 2.0
_FROM_SUM, _FROM_LIKELY = 3.0, 2.0  # the start's trust in the sums and in the row's log-likelihoods
Read = Callable[[Tensor], tuple[Tensor, Tensor]]  # published rows to sums over own lists, and their lengths


def released_rows(graph: Graph, plan: ReleasePlan, targets: Targets) -> Tensor:
    """Return the public set of nodes whose rows are released, bool (N); ``"unlabeled"`` ones do not teach.

    Raises:
        ConfigError: an id is no node of the graph, or nothing is left.
    """
    if targets is None:
        return torch.ones(graph.num_nodes, dtype=torch.bool)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if targets == "test":
        chosen[members(graph, "test")] = True
    elif targets == "unlabeled":
        chosen = ~training_members(graph, plan)
    else:
        ids = range(graph.num_nodes) if graph.ids is None else graph.ids.tolist()  # without ids: row numbers
        places = {str(name): place for place, name in enumerate(ids)}
        wanted = [str(name) for name in targets]
        if not all(name in places for name in wanted):
            raise ConfigError(
                "targets names a node that the graph does not have; give ids of its nodes, or 'unlabeled' or "
                "'test'"
            )
        chosen[[places[name] for name in wanted]] = True
    if not bool(chosen.any()):
        raise ConfigError(f"targets={targets!r} leaves no row to release; name some nodes, or drop it")
    return chosen


def training_members(graph: Graph, plan: ReleasePlan) -> Tensor:
    """Return the public members of the groups that teach, with or without a label, bool (N)."""
    pays = next(query.pays for query in plan.queries if isinstance(query, DPSGDQuery))
    return torch.tensor(pays)[record_groups(graph)]


def encoder_schedule(steps: int, noise_multiplier: float, records: int) -> PrivateSchedule:
    """Return the encoder's schedule: the step size follows from how loud the noise is, a public figure.

    rate = clip(5 (m / 900)^1.3, 2, 60) with m = n sqrt(T) / z, the descent's mu times the records.

    >>> round(encoder_schedule(60, 91.3814, 11925).learning_rate, 4)
    5.8148
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    rate = _ENCODER_RATE * (loudness / _USUAL) ** _POWER
    low, high = _RATE_RANGE
    return PrivateSchedule.full_batch(steps=steps, learning_rate=min(max(rate, low), high))


def train_encoder(
    graph: Graph, query: DPSGDQuery, labeled: Tensor, release: Release, session: Session
) -> NoisySoftmax:
    """Train the encoder on labeled members as the release's next question.

    Args:
        graph: features and labels.
        query: the steps.
        labeled: the public members that teach, bool (N).
        release: open, with the steps as its next question.
        session: on which device gradients are formed.
    """
    nodes = labeled.nonzero()[:, 0]
    return fit_softmax(
        release,
        query,
        rows(graph.x, nodes),
        graph.y[nodes],
        graph.num_classes,
        encoder_schedule(query.steps, query.noise_multiplier, len(nodes)),
        device=session.private_device,
    )


@dataclass(frozen=True)
class NodeMessages:
    """Who sends what: labeled nodes their class's code, of norm one; the others a soft code, or nothing.

    A record without a label pays for nothing but its messages and may use the whole budget for them: its
    bound B is above one, so that its messages cost as much as a labeled record's everything.

    Args:
        labels: class numbers (N); those outside ``labeled`` are not read, and -1 is null: it sends nothing.
        labeled: the public members of the labeled group, bool (N).
        classes: C.
        bound: B, the unlabeled records' norm bound; 0 makes them send nothing.
    """

    labels: Tensor
    labeled: Tensor
    classes: int
    bound: float

    def first(self, log_posteriors: Tensor) -> Tensor:
        """Return messages by the features' posteriors: soft codes of norm at most B, shape (N, C-1).

        >>> sent = NodeMessages(torch.tensor([1, -1]), torch.tensor([True, False]), 2, 1.5)
        >>> [round(v, 4) for v in sent.first(torch.zeros(2, 2)).flatten().abs().tolist()]
        [1.0, 0.0]
        """
        return self._with_labels(self._soft(log_posteriors))

    def later(self, log_posteriors: Tensor) -> Tensor:
        """Return messages by better posteriors: an unsure node too speaks at full voice B."""
        soft = self._soft(log_posteriors)
        return self._with_labels(soft / soft.norm(dim=1, keepdim=True).clamp_min(1e-12))

    def _soft(self, log_posteriors: Tensor) -> Tensor:
        soft: Tensor = log_posteriors.to(torch.float64).softmax(dim=1) @ simplex_codes(self.classes)
        return soft

    def _with_labels(self, soft: Tensor) -> Tensor:
        sent = soft * (self.bound / _SAFETY)
        nodes = self.labeled.nonzero()[:, 0]
        known = self.labels[nodes]
        codes = simplex_codes(self.classes)[known.clamp_min(0)] / _SAFETY
        sent[nodes] = torch.where((known >= 0)[:, None], codes, 0.0)
        return sent


@dataclass(frozen=True)
class AggregatedCodes:
    """What the rows said of each node; zero where no row is released.

    Shapes: ``log_likelihoods`` (N, C), ``strengths`` (N), ``rows`` (N, C-1): all pushes together, with noise
    of standard deviation ``sigma``.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    rows: Tensor
    sigma: float


def aggregate_and_decode(
    push: Push,
    sigmas: Sequence[float],
    messages: NodeMessages,
    log_posteriors: Tensor,
    released: Tensor,
    prioritized: Tensor,
) -> AggregatedCodes:
    """Push once for every sigma and decode all rows together.

    The first push gives favored rows four times the weight of others: nodes whose class is known need less
    to be told about theirs. The next ones give more of every source's bounded weight to rows that are weak
    and unclear so far: g_v = E[s_v]^-1/2 (H_v + 0.05)^1/2, rounded to public levels, and eight times that for
    favored ones, whose strengths are larger for their weight. Sources whose class is not known send a
    better guess each time. Rows add up by their precision.

    Args:
        push: answers one query; it bounds every source's weights and adds noise.
        sigmas: the noise of each push.
        messages: who sends what.
        log_posteriors: from the features, (N, C).
        released: public set of rows, bool (N).
        prioritized: public set of rows that matter more than the rest, bool (N).
    """
    codes = simplex_codes(messages.classes)
    vectors = messages.first(log_posteriors)
    levels = torch.where(released, torch.where(prioritized, _FLAT + _PREFERRED, _FLAT), 0)
    total, precision = torch.zeros(len(released), codes.shape[1], dtype=torch.float64), 0.0
    for number, sigma in enumerate(sigmas, start=1):
        total += push(vectors, levels).to(torch.float64) / sigma**2
        precision += sigma**-2
        decoded = decode((total / precision)[released], precision**-0.5, codes)
        likely = torch.zeros_like(log_posteriors, dtype=torch.float64)
        likely[released] = decoded.log_likelihoods
        if number < len(sigmas):
            vectors = messages.later(log_posteriors + likely)
            levels[released] = allocate_levels(decoded, prioritized[released])
    strengths = torch.zeros(len(released), dtype=torch.float64)
    strengths[released] = decoded.strengths
    return AggregatedCodes(likely, strengths, total / precision, precision**-0.5)


def allocate_levels(decoded: DecodedRows, prioritized: Tensor) -> Tensor:
    """Return the level of each decoded row, the smallest weight being one.

    >>> even, faint = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.25])
    >>> nobody = torch.zeros(2, dtype=torch.bool)
    >>> allocate_levels(DecodedRows(torch.zeros(2, 3), faint, even), nobody).tolist()
    [1, 5]
    """
    squared = (
        (decoded.uncertainties + _UNCERTAINTY_FLOOR)
        / decoded.strengths
        * torch.where(prioritized, _LATER, 1.0)
    )
    return level_of(squared / squared.min()) if len(squared) else _FLAT + torch.zeros(0, dtype=torch.int64)


def level_of(squared: Tensor) -> Tensor:
    """Return the nearest level of squared weights that are at least one, by their logarithm."""
    return (2 * squared.log2()).round().clamp(0, len(LEVELS) - 1 - _FLAT).to(torch.int64) + _FLAT


@dataclass(frozen=True)
class EvidenceWeights:
    """The weights of the features' log-posteriors and of the rows' log-likelihoods, (2)."""

    weights: Tensor

    @classmethod
    def even(cls) -> "EvidenceWeights":
        """Return weights of one: both are believed."""
        return cls(torch.ones(WEIGHTS, dtype=torch.float64))

    def log_posteriors(self, log_posteriors: Tensor, log_likelihoods: Tensor) -> Tensor:
        """Return the weighed sum as log-posteriors, (N, C)."""
        a, b = self.weights.tolist()
        weighed: Tensor = a * log_posteriors + b * log_likelihoods
        return weighed.log_softmax(dim=1)


def fit_evidence_weights(
    log_posteriors: Tensor, log_likelihoods: Tensor, labels: Tensor, query: DPSGDQuery, release: Release
) -> EvidenceWeights:
    """Train on labeled nodes from weights of one, as the release's next question.

    The result is cut to [0, 2.5]: rows may count for nothing, but not against what they say.

    Args:
        log_posteriors, log_likelihoods: of the nodes that are learned from, (n, C).
        labels: their classes (n); a member without a label (-1) is null.
        query: the steps.
        release: open.
    """
    gradients = clipped_sum(WeighedLogits(), (log_posteriors, log_likelihoods), labels)
    schedule = evidence_weights_schedule(query.steps, query.noise_multiplier, len(labels))
    weights = release.answer(DPSGDData(gradients=gradients, schedule=schedule))
    return EvidenceWeights(weights.clamp(0, _MAX_WEIGHT))


class WeighedLogits(nn.Module):
    """The sum of logits with trained weights, all of them one at the start."""

    def __init__(self) -> None:
        """Start with even weights."""
        super().__init__()
        self.weights = nn.Parameter(torch.ones(WEIGHTS, dtype=torch.float64))

    def forward(self, *logits: Tensor) -> Tensor:
        """Return the sum, (B, C)."""
        return (torch.stack(logits) * self.weights[:, None, None]).sum(dim=0)


def evidence_weights_schedule(steps: int, noise_multiplier: float, records: int) -> PrivateSchedule:
    """Return the schedule: step size one, or less where the noise would move a weight by more than 0.25.

    Both are in clipping norms.

    >>> schedules = [evidence_weights_schedule(20, 118.0, records) for records in (14000, 300)]
    >>> [round(WEIGHTS_CLIP * schedule.learning_rate, 2) for schedule in schedules]
    [1.0, 0.17]
    """
    unit = PrivateSchedule.full_batch(steps=steps, learning_rate=1.0, momentum=0.0)
    wide = unit.averaged_noise * noise_multiplier / records
    rate = min(_WEIGHTS_RATE, _MAX_NOISE_STEP / wide)
    return PrivateSchedule.full_batch(
        steps=steps, learning_rate=rate / WEIGHTS_CLIP, momentum=0.0, clip=WEIGHTS_CLIP
    )


def own_neighborhood_sum(
    read: Read, rows: Tensor, sigma: float, shrinkage: Tensor, sent: Tensor, out_degree_bound: float = 1.0
) -> Tensor:
    """Return what each node hears on its own list, in noise units: float64 (N, d), zero without a list.

    With d_v the length of v's list and w_v = 1 / sqrt(max(d_v, D)) the weight it wrote with,

        r_v = sum over the own list of b_u (Z_u - w_v c_v), divided by sigma sqrt(sum of b_u^2).

    A node takes out what it wrote itself, so a labeled node does not hear its own label.

    Args:
        read: sums published rows over each node's own list.
        rows: Z, the rows of one push with weights one, (N, d).
        sigma: their noise.
        shrinkage: b, a function of published rows, (N); see :func:`row_shrinkage`.
        sent: c, what each node sent, (N, d).
        out_degree_bound: D of the push.
    """
    trusted = shrinkage.to(torch.float64)[:, None]
    sums, degrees = read(torch.cat([trusted * rows, trusted, trusted.square()], dim=1))
    weights = degrees.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
    others = sums[:, :-2] - weights[:, None] * sums[:, -2:-1] * sent
    length = sums[:, -1:].clamp_min(0).sqrt()
    return torch.where(length > 0, others / (sigma * length.clamp_min(_TINY)), 0.0)


def row_shrinkage(strengths: Tensor, sigma: float) -> Tensor:
    """Return how much of a row to add to a sum: s / (sigma^2 + s^2), up to a factor.

    A row of strength s is s f + noise, and what a friend learns from it is its direction f. Rows below the
    noise count by their strength, rows above it by their direction alone: otherwise the many friends of a
    few popular nodes would all hear the same.

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
    """Return the combiner's start, shape (4 C - 1, C): a public belief that friends resemble each other."""
    codes, eye = simplex_codes(classes), torch.eye(classes, dtype=torch.float64)
    directions = torch.zeros(classes - 1, classes, dtype=torch.float64)
    bias = torch.zeros(1, classes, dtype=torch.float64)
    return torch.cat([eye, _FROM_SUM * codes.T, directions, _FROM_LIKELY * eye, bias])


@dataclass(frozen=True)
class Combiner:
    """A linear classifier of combiner inputs; ``weights`` (4 C - 1, C), the last row the bias."""

    weights: Tensor

    def log_posteriors(self, inputs: Tensor) -> Tensor:
        """Return log-posteriors (N, C), float64."""
        return (inputs @ self.weights[:-1] + self.weights[-1]).log_softmax(dim=1)


def fit_combiner(inputs: Tensor, labels: Tensor, steps: int, release: Release) -> Combiner:
    """Train on labeled nodes from the public start, as the release's next question.

    Args:
        inputs: combiner inputs of the nodes that are learned from, (n, 4 C - 2).
        labels: their classes (n); a member without a label (-1) is null.
        steps: of the query.
        release: open.
    """
    start = prior_combiner_weights((inputs.shape[1] + 2) // 4)
    schedule = PrivateSchedule.full_batch(steps=steps, learning_rate=COMBINER_RATE)
    return Combiner(descend_softmax(release, inputs, labels, start, schedule))


@dataclass(frozen=True, eq=False)
class NodeLevelFitResult:
    """What a fit comes to: public weights and merged rows, and log-posteriors that are not for everybody.

    Shapes: ``rows`` (N, C-1), ``log_posteriors`` (N, C), of which row v is for those entitled to v's record.
    """

    encoder: NoisySoftmax
    decider: EvidenceWeights | Combiner
    rows: Tensor
    log_posteriors: Tensor


def fit_node_level_classcode(
    graph: Graph,
    plan: ReleasePlan,
    release: Release,
    session: Session,
    released: Tensor,
    *,
    read_own_edges: bool = False,
) -> NodeLevelFitResult:
    """Ask the plan's questions in order, and predict every node from what is public and its own record.

    Recipe S weighs the features' log-posterior and the row's log-likelihood. Recipe R decides from features,
    row, and the rows on the node's own list.

    Guarantee: ``docs/privacy/proofs/classcode.md``. Labels of nodes that do not teach are never read.

    Args:
        graph: records and lists.
        plan: made of an ``NodeLevelReleasePlan``.
        release: open, with the plan's first question as its next one.
        session: progress and workspace.
        released: whose rows are released, bool (N).
        read_own_edges: recipe R; the plan is made for one of the two.
    """
    steps = [query for query in plan.queries if isinstance(query, DPSGDQuery)]
    pushes = [query for query in plan.queries if isinstance(query, OutEdgeSumQuery)]
    if not steps or not pushes:
        raise ReleaseError("a plan of ClassCode on records begins with steps and goes on with pushes")
    last = steps[1] if len(steps) > 1 else None
    labeled = training_members(graph, plan)
    # A plan that can tell rows apart from the first push on gives more to those that nobody knows yet.
    prioritized = ~labeled & (len(pushes[0].levels) > len(FLAT_LEVELS))

    def push(vectors: Tensor, levels: Tensor) -> Tensor:
        return release.answer(OutEdgeSumData(vectors, levels))

    with session.stage("encoder"):
        encoder = train_encoder(graph, steps[0], labeled, release, session)
        log_posteriors = encoder.log_posteriors(graph.x)
    with session.stage("aggregate"):
        messages = NodeMessages(graph.y, labeled, graph.num_classes, pushes[0].bounds[OTHER])
        sigmas = [query.sigma for query in pushes]
        aggregated = aggregate_and_decode(push, sigmas, messages, log_posteriors, released, prioritized)
    with session.stage("classifier"):
        if not read_own_edges:
            read = (log_posteriors, aggregated.log_likelihoods)
            evidence_weights = EvidenceWeights.even()
            if last is not None:
                features, likelihoods = (part[labeled] for part in read)
                evidence_weights = fit_evidence_weights(
                    features, likelihoods, graph.y[labeled], last, release
                )
            decided = evidence_weights.log_posteriors(*read)
            return NodeLevelFitResult(encoder, evidence_weights, aggregated.rows, decided)
        if last is None:
            raise ReleaseError("a plan of recipe R ends with the combiner's steps")
        neighborhood_sum = own_neighborhood_sum(
            lambda published: read_out_neighbor_sums(graph.adjacency, published),
            aggregated.rows,
            aggregated.sigma,
            row_shrinkage(aggregated.strengths, aggregated.sigma),
            messages.first(log_posteriors),
            pushes[0].out_degree_bound,
        )
        inputs = combiner_inputs(log_posteriors, neighborhood_sum, aggregated.log_likelihoods)
        combiner = fit_combiner(inputs[labeled], graph.y[labeled], last.steps, release)
    return NodeLevelFitResult(encoder, combiner, aggregated.rows, combiner.log_posteriors(inputs))


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedNodeLevelClassCode(TrainedModel):
    """The encoder of features, and what decides on features and rows: a weighing (S) or a combiner (R)."""

    encoder: NoisySoftmax
    decider: EvidenceWeights | Combiner

    def plan_for(self, sizes: PublicSizes) -> NoReturn:
        """Refuse: the pushes of another graph need to know who teaches there.

        Raises:
            NotImplementedGuaranteeError: always.
        """
        raise NotImplementedGuaranteeError(
            "classcode with unit 'node-record' asks by who has a public label, which another graph need not "
            "say, and does not yet predict one; fit it on that graph (its own release and budget), or use "
            "gap, which predicts other graphs"
        )

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> NoReturn:
        """Refuse, as :meth:`plan_for` does."""
        self.plan_for(PublicSizes.from_graph(graph))

    def state(self) -> State:
        """Return the weights."""
        return {**self.encoder.state(), "decider": self.decider.weights}

    @classmethod
    def restore(cls, state: State, sizes: PublicSizes) -> "TrainedNodeLevelClassCode":
        """Return what :meth:`state` was taken from.

        Raises:
            ArtifactError: the weights are not those of so many features and classes.
        """
        weights, classes = state["decider"], sizes.classes
        known = weights.shape in ((WEIGHTS,), (4 * classes - 1, classes))
        if not known or state["encoder"].shape != (sizes.width + 1, classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {classes} classes; take "
                "them from the original run"
            )
        decider = EvidenceWeights(weights) if weights.shape == (WEIGHTS,) else Combiner(weights)
        return cls(encoder=NoisySoftmax.restore(state), decider=decider)


@dataclass(frozen=True, kw_only=True)
class NodeLevelClassCode(Method):
    """ClassCode on records: recipe S weighs features and rows, recipe R reads the rows on a node's own list.

    Args:
        reads_own_edges: recipe R.
        targets: whose rows are released; None for all.
        unlabeled_send: whether nodes that do not teach send messages.
        encoder_share: share of mu^2 that goes to the encoder; None for what suits.
        out_degree_bound: D of the pushes.
    """

    reads_own_edges: bool = False
    targets: Targets = None
    unlabeled_send: bool = True
    encoder_share: float | None = None
    out_degree_bound: int = 1

    def room(self, graph: Graph) -> float:
        """Return about how many bytes a fit takes: decoding has covariances of each class, of C^2 entries."""
        return super().room(graph) + decoding_memory(graph.num_classes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, pushes and counts."""
        privacy_config, release_plan = self.privacy_config, self.release_plan(sizes)
        delta = privacy_config.delta_for(sizes.nodes)
        return calibrate_plan(
            release_plan.unit, privacy_config.budget, delta, release_plan.queries, num_nodes=sizes.nodes
        )

    def release_plan(self, sizes: PublicSizes) -> NodeLevelReleasePlan:
        """Return the questions, before the size of their noise is chosen."""
        unit = self.privacy_config.unit
        if not isinstance(unit, NodeRecord):
            raise UnitError(f"{self.name} on records is for unit 'node-record', not {unit.name!r}")
        return NodeLevelReleasePlan(
            unit=unit,
            features=sizes.width,
            classes=sizes.classes,
            records=sizes.records,
            reads_own_edges=self.reads_own_edges,
            fits_evidence_weights=self.targets is None,
            share=self.encoder_share,
            unlabeled_send=self.unlabeled_send,
            metrics=self.privacy_config.private_metrics,
            out_degree_bound=self.out_degree_bound,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used: recipe R predicts a node from its own list."""
        return "read" if self.reads_own_edges else super().edge_use(plan)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Ask steps and pushes in order, and release the accuracies that were planned."""
        plan = session.plan
        if plan is None:
            raise ConfigError("ClassCode asks under a plan, and this session has none")
        released = released_rows(graph, plan, self.targets)  # refuses wrong names before anything is booked
        release = session.open(graph, record_groups(graph))
        decided = fit_node_level_classcode(
            graph, plan, release, session, released, read_own_edges=self.reads_own_edges
        )
        proba, accuracy = decided.log_posteriors.exp().to(torch.float32), dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return FitResult(
            trained=TrainedNodeLevelClassCode(encoder=decided.encoder, decider=decided.decider),
            proba=proba,
            released={"rows": decided.rows.to(torch.float32)},
            private_accuracy=accuracy,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedNodeLevelClassCode:
        """Return the fit with these weights."""
        return TrainedNodeLevelClassCode.restore(state, sizes)
