"""Public class posteriors from nodes' own features, cross-fitted: no node's label affects its own posterior.

Later stages learn on labeled nodes how to weight these posteriors against noisy aggregates, and apply it to
unlabeled nodes. A network is more confident and more accurate on the nodes that it was trained on. In-sample
posteriors would therefore train likelihood, heads and gate to ignore the aggregates. So each labeled node is
predicted by the one of five networks that was not trained on it. A target is predicted by the mean of all
five, with similar errors. Validation labels can then be used for training and for choosing the gate.

Candidates are compared on one held-out fold, with one network each. A network keeps its last epoch, at which
the step size is zero, since choosing the best epoch would need further labels. The network of the chosen
candidate is kept, and those of the other folds are trained as one batch. All of them read every batch, and
each loss excludes the nodes of its own fold. So batch norm of a network reads a held-out node's features, and
nothing reads its label.

No edge is read, so this does not spend privacy budget. The contribution of each part is measured in
``benchmarks/notes/007-classcode-components.md``, ``018-public-posteriors.md`` and ``041-few-labels.md``.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from graphveil._util.files import load_checked, save_checked
from graphveil.core.features import Features, to_dense
from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.method import State, networks_state, part_of
from graphveil.estimators.objective import (
    DEFAULT_OBJECTIVE,
    MAX_TRAINING_NODES,
    WORST,
    Objective,
    sample_training_nodes,
)
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.nn.layers import BatchedFeedForward, FeedForward, batch_of
from graphveil.training import EpochRecord, TrainingSchedule, train

FOLDS = 5
_BATCH, _RATE = 512, 0.01
_MAX_LATE_GAIN = 3.0  # times what a candidate's second quarter gained, it may at most gain in its second half
_VERSION = 2  # version of the computation: cached posteriors of another version are not used


@dataclass(frozen=True)
class Candidate:
    """Hyperparameters of a feature network; the best candidate is chosen on held-out public labels."""

    epochs: int
    hidden: int = 128
    dropout: float = 0.5
    input_dropout: float = 0.0
    weight_decay: float = 0.0
    unit_rows: bool = False  # L2-normalized features, for bags of words of different lengths
    labels_below: int | None = None  # tried only with fewer public labels

    @property
    def schedule(self) -> TrainingSchedule:
        """The training schedule. The last epoch is kept, since held-out labels choose the candidate."""
        return TrainingSchedule(
            epochs=self.epochs,
            learning_rate=_RATE,
            weight_decay=self.weight_decay,
            batch_size=_BATCH,
            decay="cosine",
            select="last",
        )


CANDIDATES = (
    Candidate(5),
    Candidate(20, hidden=256, dropout=0.3, input_dropout=0.4, unit_rows=True),
    Candidate(15, input_dropout=0.4, weight_decay=5e-3, unit_rows=True),
    # With few labels and many features networks memorize quickly: stop early (notes/041-few-labels.md).
    Candidate(5, unit_rows=True, labels_below=5000),
)


@dataclass(frozen=True, eq=False)
class FoldEnsemble:
    """One feature network per fold; ``unit_rows``: their inputs are L2-normalized."""

    networks: tuple[FeedForward, ...]
    unit_rows: bool

    def log_posteriors(self, x: Features) -> Tensor:
        rows = network_input(x, unit=self.unit_rows)
        each = torch.stack([log_posterior(network, rows) for network in self.networks])
        return each.mean(dim=0).log_softmax(dim=1)

    def state(self, part: str) -> State:
        return networks_state(part, self.networks)

    @classmethod
    def restore(cls, state: State, part: str, unit_rows: bool) -> "FoldEnsemble":
        parts = (part_of(state, f"{part}/{k}/") for k in range(FOLDS))
        return cls(tuple(restore_network(one) for one in parts if one), unit_rows)

    def fits(self, features: int, classes: int) -> bool:
        ends = [(network.affines()[0], network.affines()[-1]) for network in self.networks]
        widths = [(first.weight.shape[0], last.weight.shape[1]) for first, last in ends]
        return widths == [(features, classes)] * FOLDS


@dataclass(frozen=True)
class CrossFitPosteriors:
    """Log-posteriors of all nodes (N, C), the chosen candidate, and the networks."""

    log: Tensor
    candidate: Candidate
    ensemble: FoldEnsemble

    def state(self) -> State:
        number = torch.tensor(CANDIDATES.index(self.candidate))
        return {"log": self.log, "candidate": number, **self.ensemble.state("network")}

    @classmethod
    def restore(cls, state: State) -> "CrossFitPosteriors":
        candidate = CANDIDATES[int(state["candidate"])]
        return cls(state["log"], candidate, FoldEnsemble.restore(state, "network", candidate.unit_rows))


def public_posteriors(
    view: Graph, session: Session, objective: Objective = DEFAULT_OBJECTIVE
) -> CrossFitPosteriors:
    """Return cross-fitted posteriors from features and the public training and validation labels, not edges.

    They depend on features, public labels and the session's seed. With a cache they are computed once. A file
    that is damaged or does not fit is computed again and replaced. Files are written atomically, so with
    concurrent writers the last one is kept.
    """
    if session.cache is None or session.streams.seed is None:  # sessions without a seed differ
        return _posteriors(view, session, objective)
    sampled = (
        (MAX_TRAINING_NODES,) if int((view.labeled_in("train", "val")).sum()) > MAX_TRAINING_NODES else ()
    )
    chosen = () if objective == DEFAULT_OBJECTIVE else (objective,)
    recipe = repr((_VERSION, CANDIDATES, FOLDS, _BATCH, _RATE, "cpu", *sampled, *chosen))
    digest = public_digest(view, recipe, session.streams.derive("posterior"))
    path = session.cache / f"posteriors-{digest}.safetensors"
    if path.exists():
        session.on_progress("posteriors from the cache", 1, 1)
        # The last three: a part is missing, or has another shape.
        with suppress(ArtifactError, KeyError, IndexError, RuntimeError):
            stored = CrossFitPosteriors.restore(load_checked(path)[0])
            fits = stored.ensemble.fits(view.num_features, view.num_classes)
            if fits and stored.log.shape == (view.num_nodes, view.num_classes):
                return stored
    found = _posteriors(view, session, objective)
    save_checked(path, found.state())
    return found


def _posteriors(view: Graph, session: Session, objective: Objective) -> CrossFitPosteriors:
    nodes = sample_training_nodes(view, nodes_of(view.labeled_in("train", "val")))
    fit = CrossFit(view, session, "posterior", nodes, objective.targets(view))
    trained = fit.best(CANDIDATES, objective)
    return replace(trained, log=blend_similar_nodes(trained.log, view, objective))


def network_input(x: Features, *, unit: bool) -> Features:
    return unit_rows(densify_if_dense(x)) if unit else densify_if_dense(x)


@torch.no_grad()
def log_posterior(network: FeedForward, x: Features, at_once: int = 1 << 17) -> Tensor:
    network.eval()
    blocks = range(0, max(1, x.shape[0]), at_once)
    parts = [x] if len(blocks) == 1 else [x[first : first + at_once] for first in blocks]
    return torch.cat([network(batch_of(part)).log_softmax(dim=1) for part in parts])


def restore_network(state: State) -> FeedForward:
    widths = [len(state["_layers.0.weight"]), *(len(state[f"_layers.{k}.bias"]) for k in (0, 1))]
    network = FeedForward(widths, generator=torch.Generator(), batch_norm=True)
    network.load_state_dict(state)
    network.eval()
    return network


class CrossFit:
    """Feature networks, each trained without one fold of the nodes.

    A node of a fold has the posterior of the network that was not trained on it; other nodes have the mean of
    all.
    """

    def __init__(self, view: Graph, session: Session, name: str, nodes: Tensor, targets: Tensor) -> None:
        """Split ``nodes`` in folds; ``targets`` are classes (N) or probabilities (N, C)."""
        self._view, self._session, self._name, self._nodes = view, session, name, nodes
        # A class may be unknown, with the number of a target; it is not counted.
        wanted = targets if targets.ndim == 2 else one_hot(targets.clamp_min(0), view.num_classes)
        self._targets = wanted.to(torch.float32)
        shuffled = torch.randperm(len(nodes), generator=session.streams.torch(f"{name}-folds"))
        self._fold_of = shuffled % FOLDS

    def best(
        self, candidates: Sequence[Candidate], objective: Objective = DEFAULT_OBJECTIVE
    ) -> CrossFitPosteriors:
        chosen = self._session.load_or_compute(
            f"{self._name}-choice", lambda: self._choose(candidates, objective)
        )
        return self.posteriors(candidates[int(chosen["candidate"])], first=part_of(chosen, "network/0/"))

    def posteriors(self, candidate: Candidate, first: State | None = None) -> CrossFitPosteriors:
        done = [] if first is None else [restore_network(first)]
        folds = range(len(done), FOLDS)
        stage = f"{self._name}, folds {len(done) + 1} to {FOLDS}"
        state = self._session.load_or_compute(
            f"{self._name}-folds", lambda: networks_state("fold", self._train(folds, candidate, stage)[0])
        )
        trained = [restore_network(part_of(state, f"fold/{k}/")) for k in range(len(folds))]
        networks = tuple(done + trained)
        x = network_input(self._view.x, unit=candidate.unit_rows)
        each = torch.stack([log_posterior(network, x) for network in networks])
        log = each.mean(dim=0).log_softmax(dim=1)
        log[self._nodes] = each[self._fold_of, self._nodes]
        return CrossFitPosteriors(log, candidate, FoldEnsemble(networks, candidate.unit_rows))

    def _choose(self, candidates: Sequence[Candidate], objective: Objective) -> State:
        held_out = self._nodes[self._fold_of == 0]
        best, highest, least = State(), WORST, math.inf
        usual = sum(candidate.labels_below is None for candidate in candidates)
        for number, candidate in enumerate(candidates):
            if candidate.labels_below is not None and len(self._nodes) >= candidate.labels_below:
                continue
            # A stage's name selects its randomness, so that a new candidate does not change the others.
            which = f"{number + 1} of {usual}" if number < usual else "for few labels"
            stage = f"{self._name} candidate {which}"
            behind = partial(is_clearly_worse, epochs=candidate.epochs, least=least)
            networks, history = self._train(range(1), candidate, stage, held_out, behind)
            score = (0.0, -history[-1].val_loss)
            if objective.metric is not None:
                log = log_posterior(networks[0], network_input(self._view.x, unit=candidate.unit_rows))
                score = objective.score(log[held_out], self._targets[held_out])
            elif score > highest:
                least = history[-1].val_loss
            if score > highest or not best:
                best = {"candidate": torch.tensor(number), **networks_state("network", networks)}
                highest = score
        return best

    def _train(
        self,
        folds: range,
        candidate: Candidate,
        stage: str,
        scored_nodes: Tensor | None = None,
        should_stop: Callable[[list[EpochRecord]], bool] = lambda history: False,
    ) -> tuple[tuple[FeedForward, ...], list[EpochRecord]]:
        """Return networks trained without one of ``folds`` each, as one batch, and the training history.

        ``stage`` names the progress and the randomness. The history has the likelihood of ``scored_nodes``.
        """
        view, session = self._view, self._session
        generator = session.streams.torch(stage)
        networks = BatchedFeedForward(
            [view.num_features, candidate.hidden, view.num_classes],
            len(folds),
            generator=generator,
            dropout=candidate.dropout,
            input_dropout=candidate.input_dropout,
        )
        x = network_input(view.x, unit=candidate.unit_rows)
        # Each node's weight in the loss of each fold's network, (folds, N): 0 in its own fold.
        counts = torch.zeros(len(folds), view.num_nodes)
        counts[:, self._nodes] = (self._fold_of != torch.tensor(folds)[:, None]).to(torch.float32)

        def log_posteriors(batch: Tensor) -> Tensor:
            scores: Tensor = networks(batch_of(x, batch))
            return scores.log_softmax(dim=2)

        history = train(
            networks,
            lambda batch: log_posteriors(batch).mean(dim=0),
            self._targets,
            self._nodes,
            self._nodes[:0] if scored_nodes is None else scored_nodes,
            candidate.schedule,
            generator=generator,
            on_epoch=session.epochs(stage, candidate.epochs),
            loss=lambda batch: mean_losses(
                log_posteriors(batch), self._targets[batch], counts[:, batch]
            ).sum(),
            should_stop=should_stop,
        )
        return networks.networks(), history


def is_clearly_worse(history: list[EpochRecord], *, epochs: int, least: float) -> bool:
    """Return whether a candidate can be stopped after half of its epochs.

    It can if its distance to the best candidate is over three times the gain in its second quarter. The step
    size decreases, and no candidate was observed to gain as much in its second half.

    >>> losses = [2.0, 1.9, 1.8, 1.7]
    >>> history = [EpochRecord(epoch, 0.0, loss, 0.0) for epoch, loss in enumerate(losses)]
    >>> [is_clearly_worse(history, epochs=8, least=least) for least in (1.2, 0.9)]
    [False, True]
    """
    if len(history) != epochs // 2 or epochs < 4:
        return False
    quarter, half = history[epochs // 4 - 1].val_loss, history[-1].val_loss
    return half - least > _MAX_LATE_GAIN * max(0.0, quarter - half)


def mean_losses(log: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Return each network's mean cross entropy over the examples that count, (...).

    Shapes: log-posteriors (..., B, C), targets (B, C), counts (..., B).

    >>> log, targets = torch.tensor([[[0.0, -3.0], [-1.0, -2.0]]]), torch.eye(2)
    >>> mean_losses(log, targets, torch.tensor([[0.0, 1.0]])).tolist()
    [2.0]
    """
    losses = -(log * targets).sum(dim=-1)
    return (losses * counts).sum(dim=-1) / counts.sum(dim=-1).clamp_min(1.0)


def public_digest(view: Graph, recipe: str, seed: int) -> str:
    """Return a digest of the features, the public labels, and the training configuration.

    Labels of test nodes are not included.
    """
    labeled = view.labeled_in("train", "val")
    cache_key = {"recipe": recipe, "seed": seed, "torch": torch.__version__, "classes": view.num_classes}
    hashed = hashlib.sha256(json.dumps(cache_key, sort_keys=True).encode())
    x = view.x
    features = (x.numpy(),) if isinstance(x, Tensor) else (np.asarray(x.shape), x.indptr, x.indices, x.data)
    for array in (*features, labeled.numpy(), view.y[labeled].numpy()):
        hashed.update(json.dumps([str(array.dtype), list(array.shape)]).encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


_DENSE = 0.05  # share of non-zero features above which dense products are faster


def densify_if_dense(x: Features) -> Features:
    if isinstance(x, sparse.csr_array) and x.nnz > _DENSE * x.shape[0] * x.shape[1]:
        return to_dense(x)
    return x


def unit_rows(x: Features) -> Features:
    """Return the features with every row L2-normalized; zero rows stay zero.

    >>> import torch
    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(x, Tensor):
        return normalize(x, dim=1)
    norms = np.sqrt(np.add.reduceat(np.append(x.data, 0.0) ** 2, x.indptr[:-1]) * (np.diff(x.indptr) > 0))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values = (x.data * np.repeat(scale, np.diff(x.indptr))).astype(np.float32)
    return sparse.csr_array((values, x.indices, x.indptr), shape=x.shape)


NEIGHBORS = 20
_ALL_PAIRS = 1 << 26  # maximum number of node-label pairs to compare
_CHUNK = 1 << 22  # similarities held at once
_MIN_PROBABILITY = 0.01  # prior votes, in units of a similarity of one: keeps every class possible
_WEIGHTS, _TEMPERS = (0.0, 0.1, 0.2, 0.4, 0.8), (0.6, 0.8, 1.0)


def blend_similar_nodes(
    log_posteriors: Tensor, view: Graph, objective: Objective = DEFAULT_OBJECTIVE
) -> Tensor:
    """Return log-posteriors (N, C) blended with those of similar nodes, by their score on public labels.

    Both predictions of a labeled node exclude its own label, so the choice is unbiased. Large graphs, which
    have enough labels for the networks, are returned unchanged.
    """
    labeled = nodes_of(view.labeled_in("train", "val"))
    if view.num_nodes * len(labeled) > _ALL_PAIRS:
        return log_posteriors
    targets = objective.targets(view)
    similar = similar_nodes_posterior(view, labeled, objective.weights(view))
    best, highest = log_posteriors, WORST
    for weight in _WEIGHTS:
        for temper in _TEMPERS:
            blend = (temper * log_posteriors + weight * similar).log_softmax(dim=1)
            score = objective.score(blend[labeled], targets[labeled])
            if score > highest:
                best, highest = blend, score
    return best


def similar_nodes_posterior(view: Graph, labeled: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return each node's log-posterior from its most similar labeled nodes, excluding itself, (N, C).

    Similarity is the cosine of features weighted by inverse document frequency. A similar node votes with it,
    times the weight of its class.
    """
    rows = _weighted_unit_rows(view.x)
    votes = torch.full((view.num_nodes, view.num_classes), _MIN_PROBABILITY)
    k = min(NEIGHBORS, len(labeled) - 1)
    for nodes in torch.arange(view.num_nodes).tensor_split(-(-view.num_nodes * len(labeled) // _CHUNK)):
        if isinstance(rows, Tensor):
            similarity = rows[nodes] @ rows[labeled].T
        else:
            similarity = torch.from_numpy((rows[nodes.numpy()] @ rows[labeled.numpy()].T).toarray())
        similarity[nodes[:, None] == labeled[None, :]] = -1.0
        value, index = similarity.topk(k, dim=1)
        votes[nodes] = votes[nodes].scatter_add(1, view.y[labeled][index], value.clamp_min(0.0))
    if weights is not None:
        votes *= weights
    return (votes / votes.sum(dim=1, keepdim=True)).log()


def _weighted_unit_rows(x: Features) -> Features:
    matrix = sparse.csr_array(to_dense(x).numpy()) if isinstance(x, Tensor) else x
    used = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rarity = np.log((1 + matrix.shape[0]) / (1 + used)) + 1
    places = matrix.indices, matrix.indptr
    weighted = sparse.csr_array(
        ((matrix.data * rarity[matrix.indices]).astype(np.float32), *places), shape=matrix.shape
    )
    return unit_rows(densify_if_dense(weighted))
