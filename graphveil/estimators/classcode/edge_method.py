"""ClassCode under edge-level units: features and labels are public, and edges are protected.

A fit (``EdgeLevelClassCode.fit``) has four steps:

1. Networks on features, cross-fitted over labeled nodes, give public posteriors.
2. Each round of the release sends the current posteriors and returns noisy aggregates (``edge_rows.py``).
3. After each round the likelihood of the aggregates, heads that read posteriors and aggregates, and a gate on
   validation nodes decide the classes. With few labels, feature networks are trained again on that decision.
4. The release closes. What applies to other graphs is stored (``TrainedEdgeLevelClassCode``).

Everything except the rounds is post-processing of noisy aggregates and public labels.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.data import Graph
from graphveil.errors import ReleaseError
from graphveil.estimators.classcode.edge_plan import (
    CLUSTERS,
    TARGET,
    TRAIN,
    EdgeReleaseConfig,
    groups_of,
    labeled_count,
    public_labels,
)
from graphveil.estimators.classcode.edge_rows import (
    LIKELIHOOD_SHAPES,
    Affinity,
    AggregationRounds,
    CountRounds,
    EdgeWeightModel,
    LikelihoodShape,
    affinity_from_counts,
    build_rounds,
    fit_length,
    fit_shape,
    fit_weight_model,
    row_log_likelihood,
)
from graphveil.estimators.features.clusters import FeatureClusters
from graphveil.estimators.features.crossfit import (
    CrossFit,
    CrossFitPosteriors,
    fits,
    mean_posterior,
    public_posteriors,
    restore_networks,
)
from graphveil.estimators.method import (
    FitResult,
    Method,
    State,
    TrainedModel,
    check_fits,
    networks_state,
    part_of,
)
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes, check_classes, nodes_of
from graphveil.estimators.session import Session
from graphveil.estimators.training.nonprivate import sample_training_nodes
from graphveil.estimators.training.objective import DEFAULT_OBJECTIVE, Objective, Score
from graphveil.nn.batched import BatchedFeedForward
from graphveil.nn.layers import FeedForward
from graphveil.training import TrainingSchedule, train
from graphveil.training.metrics import metric_value

SEEDS = 3
_MAX_SMALL_TRAINING_SET = 5000  # training nodes below which a smaller, stronger-regularized head is used
_STEPS, _SMALL_STEPS, _BATCH = 400, 160, 2048
_CHUNK_SIZE = 1 << 17  # number of nodes that heads read at once
GATE_STEP = 0.25
_MIN_PROBABILITY = 1e-30  # lower bound of probabilities
_FEATURES, _IMITATING = "features", "imitating"
_NUMBERS = 6  # stored numbers of a fit
_USEFUL_AUC = 0.55  # of features alone, below which their clusters are counted
_MAX_SELF_TRAINING_NODES = 5000  # labeled nodes


class PosteriorHead(nn.Module):
    """logits = alpha Q + net(input); alpha is initialized to one, the result of the likelihood."""

    def __init__(self, alpha: Tensor, net: FeedForward) -> None:
        """Store the parameters; the network maps the inputs to classes."""
        super().__init__()
        self.alpha, self.net = nn.Parameter(alpha.clone()), net

    @classmethod
    def restore(cls, state: State) -> "PosteriorHead":
        """Return a trained head from its parameters."""
        widths = [
            len(state["net._layers.0.weight"]),
            *(len(state[f"net._layers.{k}.bias"]) for k in range(3)),
        ]
        net = FeedForward(widths, generator=torch.Generator(), batch_norm=True)
        head = cls(torch.ones(()), net)
        head.load_state_dict(state)
        head.eval()
        return head

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        """Return logits (B, C) from the initial log-posterior (B, C) and the inputs (B, f)."""
        logits: Tensor = self.alpha * start + self.net(inputs)
        return logits


class BatchedHeads(nn.Module):
    """Heads that are trained together on the same batches, each with its own initial parameters."""

    def __init__(self, inputs: int, classes: int, small: bool, *, generator: torch.Generator) -> None:
        """Initialize the networks."""
        super().__init__()
        width, dropout = (16, 0.4) if small else (64, 0.2)  # small: for few training nodes
        self.alpha = nn.Parameter(torch.ones(SEEDS, 1, 1))
        self.nets = BatchedFeedForward(
            [inputs, width, width, classes],
            SEEDS,
            generator=generator,
            dropout=dropout,
            separate_dropout=True,
        )

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        """Return the logits of all heads, (heads, B, C)."""
        logits: Tensor = self.alpha * start + self.nets(inputs)
        return logits

    def losses(self, start: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return each head's mean cross entropy, (heads), for classes (B) or targets (B, C)."""
        log = self(start, inputs).log_softmax(dim=2)
        if labels.ndim == 2:
            weighted: Tensor = -(log * labels).sum(dim=2).mean(dim=1)
            return weighted
        own = log.gather(2, labels.expand(SEEDS, -1)[:, :, None])
        losses: Tensor = -own.mean(dim=(1, 2))
        return losses

    def heads(self) -> list[PosteriorHead]:
        """Return the heads one by one, in evaluation mode."""
        return [
            PosteriorHead(alpha.reshape(()), net).eval()
            for alpha, net in zip(self.alpha.detach(), self.nets.networks(), strict=True)
        ]


def fit_heads(
    start: Tensor,
    inputs: Tensor,
    labels: Tensor,
    train_nodes: Tensor,
    val_nodes: Tensor,
    session: Session,
    objective: Objective,
) -> tuple[list[PosteriorHead], Tensor]:
    """Train the heads; return them, and the mean of their probabilities as a log-posterior (N, C)."""
    small = len(train_nodes) < _MAX_SMALL_TRAINING_SET
    batch = max(2, min(_BATCH, len(train_nodes) // 4))
    epochs = max(1, round((_SMALL_STEPS if small else _STEPS) * batch / len(train_nodes)))
    schedule = TrainingSchedule(
        epochs=epochs,
        learning_rate=0.01,
        weight_decay=1e-3 if small else 1e-4,
        batch_size=batch,
        decay="cosine",
        select=objective.metric or "likelihood",
        positive=objective.positive_number,
    )
    generator = session.streams.torch("heads")
    heads = BatchedHeads(inputs.shape[1], start.shape[1], small, generator=generator)
    q, f = start.to(torch.float32), inputs
    history = train(
        heads,
        lambda index: log_mean(heads(q[index], f[index])),
        labels,
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(f"{SEEDS} heads", epochs),
        loss=lambda index: heads.losses(q[index], f[index], labels[index]).sum(),
    )
    session.record("heads", history)
    trained = heads.heads()
    chunks = zip(torch.split(q, _CHUNK_SIZE), torch.split(f, _CHUNK_SIZE), strict=True)
    with torch.no_grad():
        parts = [log_mean(torch.stack([head(*chunk) for head in trained])) for chunk in chunks]
    return trained, torch.cat(parts)


def log_mean(logits: Tensor) -> Tensor:
    """Return the log of the mean probability of some logits, (heads, B, C) to (B, C)."""
    return logits.softmax(dim=2).mean(dim=0).clamp_min(_MIN_PROBABILITY).log()


def fit_gate(
    experts: Sequence[Tensor], labels: Tensor, nodes: Tensor, objective: Objective = DEFAULT_OBJECTIVE
) -> tuple[tuple[float, ...], Tensor]:
    """Fit a convex combination of log-posteriors on a grid, by its score on validation nodes.

    The grid contains each expert alone, including the feature network, so the result is at most slightly
    worse than a model that never reads the edges.
    """
    levels = [i * GATE_STEP for i in range(round(1 / GATE_STEP) + 1)]
    grid = [w for w in itertools.product(levels, repeat=len(experts)) if abs(sum(w) - 1) < 1e-9]

    def score(weights: tuple[float, ...]) -> Score:
        return objective.score(blend([e[nodes] for e in experts], weights), labels[nodes])

    best = max(grid, key=score)
    return best, blend(experts, best)


def blend(experts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the normalized weighted sum of log-posteriors."""
    mixed = sum(w * e for w, e in zip(weights, experts, strict=True))
    return torch.as_tensor(mixed).log_softmax(dim=1)


def distilled_posteriors(
    view: Graph, session: Session, public: CrossFitPosteriors, decided: Tensor, name: str
) -> CrossFitPosteriors:
    """Return posteriors that imitate a decision made with the aggregates, blended with the public ones.

    A feature network is trained on the decisions for all nodes, including targets. Uncertain ones have less
    weight. It is cross-fitted over all nodes, so its posterior of a node is independent of that node's own
    aggregate. Post-processing of the release and public labels.

    Args:
        decided: Log-posteriors of the decision, (N, C).
        name: Name of the stage.
    """
    targets = decided.exp().to(torch.float32)
    labeled = view.labeled_in("train", "val")
    targets[labeled] = (targets[labeled] + one_hot(view.y[labeled], view.num_classes)) / 2
    fit = CrossFit(view, session, name, sample_training_nodes(view, torch.arange(view.num_nodes)), targets)
    imitated = fit.posteriors(public.candidate)
    return replace(imitated, log=((public.log + imitated.log) / 2).log_softmax(dim=1))


def choose_clusters(view: Graph, log_posteriors: Tensor, session: Session) -> FeatureClusters | None:
    """Return feature clusters to count neighbors by, if features do not predict the class of their node.

    Then a count of neighbors by predicted class has no information, but their features may have some. The
    choice reads cross-fitted posteriors and public labels only: a ROC-AUC below 0.55. It is made for two
    classes, where rows have room for clusters (``neighbor_count_plan``).
    """
    labeled = view.labeled_in("train", "val")
    if view.num_classes != 2:
        return None
    if not metric_value("roc_auc", view.y[labeled], log_posteriors[labeled].exp()) < _USEFUL_AUC:
        return None  # also if all labeled nodes have one class
    found = FeatureClusters.fit(view.x, CLUSTERS, session.streams.torch("clusters"))
    return found if len(found.offsets) > 1 else None


@dataclass(frozen=True, eq=False)
class PosteriorEstimate:
    """The decision: the likelihood's shape, its log-posteriors, those of all experts, and the gate."""

    shape: LikelihoodShape
    likely: Tensor
    log: Tensor
    heads: tuple[PosteriorHead, ...] = ()
    gate: tuple[float, ...] = ()


class PosteriorEstimator:
    """Decides classes from features and current aggregates. Everything it reads is public or was released.

    Args:
        view: Labels and split.
        session: Randomness and progress.
        public: Posteriors from features.
        objective: Class weights, and what selects the epoch of the heads, and the gate.
        self_training: Whether feature networks are trained again on the decision, before a last decision.
    """

    def __init__(
        self,
        view: Graph,
        session: Session,
        public: CrossFitPosteriors,
        objective: Objective,
        *,
        self_training: bool,
    ) -> None:
        """Start with the public posteriors as the prior."""
        self._graph, self._session, self._self_training = view, session, self_training
        self._objective = objective
        self._public, self._prior = public, public

    @property
    def distilled(self) -> CrossFitPosteriors | None:
        """The posteriors that imitate the decision; None without self-training."""
        return None if self._prior is self._public else self._prior

    def update(self, rounds: AggregationRounds, number: int, affinity: Affinity) -> PosteriorEstimate:
        """Return the decision after these rounds, with estimated class affinities."""
        decision = self._estimate(rounds, affinity)
        if not self._self_training:
            return decision
        with self._session.stage("classifier"):
            self._prior = distilled_posteriors(
                self._graph, self._session, self._public, decision.log, f"distilled-{number}"
            )
        return self._estimate(rounds, affinity)

    def _estimate(self, rounds: AggregationRounds, affinity: Affinity) -> PosteriorEstimate:
        view, session, prior = self._graph, self._session, self._prior.log
        train_nodes, val_nodes = (
            sample_training_nodes(view, nodes_of(view.labeled_in(part))) for part in ("train", "val")
        )
        targets = self._objective.targets(view)
        with session.stage("classifier"):
            rows, signal = rounds.combined_aggregates(affinity)
            shape, likely = fit_shape(rows, signal, prior.to(torch.float64), targets, train_nodes)
            inputs = rounds.inputs(likely, prior, rows, signal)
            heads, headed = fit_heads(
                likely, inputs, targets, train_nodes, val_nodes, session, self._objective
            )
            experts = (headed, likely, self._public.log.to(torch.float64))
            gate, decided = fit_gate(experts, targets, val_nodes, self._objective)
        return PosteriorEstimate(shape, likely, decided, tuple(heads), gate)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedEdgeLevelClassCode(TrainedModel):
    """The result of an edge-level fit. Heads and gate apply only to the fitted graph, the rest to any.

    Args:
        privacy_config: Unit and budget.
        edge_plan: Queries of the edges of another graph, with the noise of the fit.
        classes: C.
        networks: Feature networks.
        distilled: Networks that imitate the fit's decisions, if any; the prior is the mean of both.
        unit_rows: Whether their inputs are L2-normalized.
        affinity: Affinities between classes, and the mean degree.
        shape: Shape of the likelihood.
        weight_model: Edge weights; None for weights of one.
        heads: Networks that read aggregates of the fitted graph.
        gate: Weights of heads, likelihood and features there.
        clusters: Feature clusters, if neighbors are counted by them instead of by class.
    """

    privacy_config: PrivacyConfig
    edge_plan: EdgeReleaseConfig
    classes: int
    networks: tuple[FeedForward, ...]
    distilled: tuple[FeedForward, ...]
    unit_rows: bool
    affinity: Affinity
    shape: LikelihoodShape
    weight_model: EdgeWeightModel | None
    heads: tuple[PosteriorHead, ...]
    gate: tuple[float, ...]
    clusters: FeatureClusters | None = None

    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:
        """Reject public labels with other classes than in training."""
        check_classes(view, class_names, self.classes)

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return the sizes of another graph, with the number of its own public labels."""
        return replace(super().sizes_for(view, fitted), labeled=labeled_count(view))

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of aggregates only."""
        return self.edge_plan.prediction_plan(self.privacy_config, sizes)

    def prior(self, view: Graph) -> Tensor:
        """Return log-posteriors from features, float64, shape (N, C)."""
        public = mean_posterior(self.networks, view.x, unit=self.unit_rows)
        if self.distilled:
            imitated = mean_posterior(self.distilled, view.x, unit=self.unit_rows)
            public = ((public + imitated) / 2).log_softmax(dim=1)
        return public.to(torch.float64)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Query all rounds, or those of the new nodes of a graph that has grown; old nodes send to them."""
        assert session.plan is not None  # the plan always has queries
        first = 0 if kept is None else len(kept.proba)
        labels, groups = public_labels(view, groups_of(view)), groups_of(view)
        # Old nodes have no new aggregate, so the whole budget of their edges is used at the other end, as if
        # they were labeled.
        groups[:first] = TRAIN
        release = session.open(view, groups, first=first)
        rounds = build_rounds(
            session.plan.queries, view, groups, labels, release, self.weight_model, first, self.clusters
        )
        prior = self.prior(view)
        old = prior[:0] if kept is None else kept.proba.to(torch.float64).clamp_min(_MIN_PROBABILITY).log()
        new, seen = prior[first:], prior
        for number, _ in enumerate(rounds.hops, start=1):
            generator = session.streams.torch(f"weighed-pairs-{number}")
            rounds.aggregate(torch.cat([old, new]), seen, generator)
            rows, signal = rounds.combined_aggregates(self.affinity, unlabeled=True)
            fitted = fit_length(rows, signal, self.shape, prior[first:])
            likelihood = row_log_likelihood(rows, fitted, self.shape.spread, self.shape.overdispersion)
            new = (prior[first:] + self.shape.temperature * likelihood).log_softmax(dim=1)
            seen = torch.cat([old, new]) if self.edge_plan.reads_previous else prior
        release.close()
        proba = new.exp().to(torch.float32)
        if kept is not None:
            proba = torch.cat([kept.proba, proba])
        return CachedPrediction(session.plan, tuple(rounds.rows), proba)

    def state(self) -> State:
        """Return the parameters of all networks, and public values."""
        shape, weights = self.shape, None if self.weight_model is None else self.weight_model.weight_network
        numbers = (
            self.affinity.mean_degree,
            shape.spread,
            shape.overdispersion,
            shape.temperature,
            float(self.unit_rows),
            float(self.edge_plan.noise == "gaussian"),
        )
        return {
            "gate": torch.tensor(self.gate),
            **networks_state("heads", self.heads),
            **networks_state("weights", [] if weights is None else [weights]),
            "affinity": self.affinity.neighbors,
            **({} if self.clusters is None else self.clusters.state()),
            "numbers": torch.tensor(numbers, dtype=torch.float64),
            **networks_state(_FEATURES, self.networks),
            **networks_state(_IMITATING, self.distilled),
        }


@dataclass(frozen=True, kw_only=True)
class EdgeLevelClassCode(Method):
    """ClassCode for edge-level units: counts and weighted rounds of aggregates as one release.

    Labels are public here, so a plan may depend on the number of labels.

    Args:
        edge_plan: Queries of the edges.
        self_training: Whether feature networks are trained again on decisions; None with few labels.
    """

    supports_growing_graphs: ClassVar[bool] = True
    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    trains_on_sample: ClassVar[bool] = True
    tables: ClassVar[float] = 14.0
    pairs: ClassVar[float] = 8.0

    edge_plan: EdgeReleaseConfig
    self_training: bool | None = None

    def sizes_of(self, view: Graph) -> PublicSizes:
        """Return the sizes, with the number of public labels."""
        return replace(super().sizes_of(view), labeled=labeled_count(view))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the counts and the rounds of aggregates."""
        return self.edge_plan.fit_plan(self.privacy_config, sizes)

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Train on features, query counts and aggregates, and decide after each round."""
        queries = session.planned.queries
        with session.stage("encoder"):
            public = public_posteriors(view, session, self.objective)
            weight_model = fit_weight_model(self.edge_plan.edge_weighting, view, public.log, session)
            clusters = choose_clusters(view, public.log, session)
        groups = groups_of(view)
        release = session.open(view, groups)
        released, affinity = State(), None
        if isinstance(queries[0], EdgeCountQuery):
            with session.stage("aggregate"):
                labeled, sigma = groups != TARGET, queries[0].sigma[0]
                cells = release.answer(EdgeCountData(torch.where(labeled, view.y, 0)))
                labels, nodes = view.y[labeled], view.num_nodes
                affinity = affinity_from_counts(cells, sigma, labels, nodes, directed=view.directed)
                released["counts"] = cells
            queries = queries[1:]
        rounds = build_rounds(
            queries, view, groups, public_labels(view, groups), release, weight_model, clusters=clusters
        )
        self_training = self.self_training
        if self_training is None:
            self_training = labeled_count(view) < _MAX_SELF_TRAINING_NODES
        estimator = PosteriorEstimator(view, session, public, self.objective, self_training=self_training)
        decision = PosteriorEstimate(LIKELIHOOD_SHAPES[0], public.log, public.log)  # before any aggregate
        for number, _ in enumerate(rounds.hops, start=1):
            # Neither of the two inputs of edge weights depends on a node's own label.
            seen = decision.likely if self.edge_plan.reads_previous else public.log
            with session.stage("aggregate"):
                rounds.aggregate(decision.log, seen, session.streams.torch(f"weighed-pairs-{number}"))
            if isinstance(rounds, CountRounds):
                affinity = rounds.affinity()
            if affinity is None:
                raise ReleaseError("a ClassCode plan must consist of count queries followed by hops")
            decision = estimator.update(rounds, number, affinity)
        release.close()
        assert affinity is not None  # there is at least one round
        distilled = estimator.distilled
        trained = TrainedEdgeLevelClassCode(
            privacy_config=self.privacy_config,
            edge_plan=self.edge_plan.resolved(self.privacy_config, self.sizes_of(view)),
            classes=view.num_classes,
            networks=public.networks,
            distilled=() if distilled is None else distilled.networks,
            unit_rows=public.candidate.unit_rows,
            affinity=affinity,
            shape=decision.shape,
            weight_model=weight_model,
            heads=decision.heads,
            gate=decision.gate,
            clusters=clusters if isinstance(rounds, CountRounds) else None,
        )
        released |= {f"rows{number}": rows for number, rows in enumerate(rounds.rows, start=1)}
        proba = decision.log.exp().to(torch.float32)
        learned = {"homophily": affinity.homophily}
        return FitResult(trained=trained, proba=proba, released=released, learned=learned)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedEdgeLevelClassCode:
        """Return the fit with these parameters.

        Raises:
            ArtifactError: If they do not have this number of features and classes.
        """
        networks, distilled = (restore_networks(state, part) for part in (_FEATURES, _IMITATING))
        width, classes, table, numbers = sizes.width, sizes.classes, state["affinity"], state["numbers"]
        clusters = FeatureClusters.restore(state, width) if "clusters/weights" in state else None
        columns = classes if clusters is None else len(clusters.offsets)
        whole = all(fits(some, width, classes) for some in (networks, distilled or networks))
        whole &= (
            table.shape == (classes, columns)
            and numbers.shape == (_NUMBERS,)
            and bool((table > 0).all() & (numbers >= 0).all())
        )
        check_fits(whole, sizes)
        degree, spread, overdispersion, temperature, unit_rows, gaussian = numbers.tolist()
        weight_model, weighting = None, self.edge_plan.edge_weighting
        if weighting is not None:
            network = weighting.weight_network(classes, PublicStreams(0).torch("restore"))
            if network is not None:
                network.load_state_dict(part_of(state, "weights/0/"))
            weight_model = EdgeWeightModel(weighting.similarity, network)
        return TrainedEdgeLevelClassCode(
            privacy_config=self.privacy_config,
            edge_plan=replace(self.edge_plan, noise="gaussian" if gaussian else "laplace"),
            classes=classes,
            networks=networks,
            distilled=distilled,
            unit_rows=bool(unit_rows),
            affinity=Affinity(table, degree),
            shape=LikelihoodShape(spread, overdispersion, temperature),
            weight_model=weight_model,
            heads=tuple(PosteriorHead.restore(part_of(state, f"heads/{seed}/")) for seed in range(SEEDS)),
            gate=tuple(state["gate"].tolist()),
            clusters=clusters,
        )
