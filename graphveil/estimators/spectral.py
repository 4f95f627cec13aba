"""Spectral: node classification by similar neighbor lists instead of by edges.

Combines features, one released graph, and votes of labeled nodes with similar neighbor lists. Nodes with
similar lists share an embedding, which is computed from the edges after randomized response. If every node
pair is flipped with probability q, then

    M = (A' - q (J - I)) / (1 - 2 q),   E[M] = A,   s = sqrt(q (1 - q)) / (1 - 2 q),

where s is the standard deviation of each entry. Such noise alone has eigenvalues up to 2 s sqrt(N). An
eigenvalue t of A above s sqrt(N) is observed at t + N s^2 / t. Its eigenvector has a squared cosine of
1 - N s^2 / t^2 to the true one (Benaych-Georges, Nadakuditi: The eigenvalues and eigenvectors of finite, low
rank perturbations of large random matrices, 2011). Eigenvectors beyond the edge of the noise are kept, each
scaled by that cosine. Scaling by eigenvalues instead would give all weight to the few directions of hubs.
Everything here is post-processing of a release.
"""

import itertools
import math
from dataclasses import astuple, dataclass
from typing import ClassVar

import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.unit import DirectedEdge, UndirectedEdge
from graphveil.data import Graph
from graphveil.errors import GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.crossfit import FoldEnsemble, public_posteriors
from graphveil.estimators.full_graph import (
    GraphReleaseMethod,
    GraphReleaseModel,
)
from graphveil.estimators.method import FitResult, State, check_fits
from graphveil.estimators.objective import DEFAULT_OBJECTIVE, WORST, Objective
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes, check_classes, nodes_of
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.nn.layers import SparseRows
from graphveil.perturb import EdgeRand
from graphveil.perturb.mechanism import MAX_EDGES

_ROUNDS = 8  # of orthogonal iteration: enough for eigenvalues beyond the noise
_MIN_EIGENVALUE = 1e-3  # of the largest eigenvalue: without noise, smaller ones are rounding errors


def spectral_rows(adjacency: Adjacency, flip: float, rank: int, generator: torch.Generator) -> Tensor:
    """Return one embedding per node, the leading direction first, float32, (N, r) with r at most ``rank``.

    Nodes with the same neighbor list have the same embedding, up to noise. Others are nearly orthogonal.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> rows = spectral_rows(star, 0.0, 4, torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(rows[1:], rows[1].expand(3, -1), atol=1e-5))
    True
    """
    nodes = adjacency.num_nodes
    indptr, sources = (part.numpy() for part in adjacency.arrays[:2])
    ones = torch.ones(len(sources)).numpy()
    edges = SparseRows.from_scipy(sparse.csr_array((ones, sources, indptr), shape=(nodes, nodes)))

    def product(rows: Tensor) -> Tensor:
        """Return M times some columns; M is dense, so it is never formed."""
        expected = flip * (rows.sum(dim=0, keepdim=True) - rows)
        return (edges.apply(rows) - expected) / (1 - 2 * flip)

    # Orthogonal iteration, then the eigenvalues of the largest absolute value in the subspace.
    basis = torch.randn(nodes, min(rank, nodes), generator=generator)
    for _ in range(_ROUNDS):
        basis = product(torch.linalg.qr(basis).Q)
    basis = torch.linalg.qr(basis).Q
    small = basis.T @ product(basis)
    values, turned = torch.linalg.eigh((small + small.T) / 2)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], basis @ turned[:, order]

    variance = nodes * flip * (1 - flip) / (1 - 2 * flip) ** 2  # N s^2
    largest = float(values.abs().max())
    kept = values.abs() > max(2 * math.sqrt(variance), _MIN_EIGENVALUE * largest, 1e-30)
    seen = values[kept].abs().to(torch.float64)
    true = (seen + (seen.square() - 4 * variance).clamp_min(0).sqrt()) / 2
    cosine = (1 - variance / true.square()).clamp_min(0).sqrt()
    rows: Tensor = vectors[:, kept] * cosine.to(torch.float32)
    return rows


HALVINGS = (0, 1, 2, 3)  # all directions, the leading half, quarter and eighth
DOUBLINGS = (1, 2, 3, 4, 5, 6)  # a voter counts by its cosine to the power 2, 4, ..., 64
_PRIORS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # number of votes that the features count as
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_MIN_PROBABILITY = 1e-12  # lower bound of probabilities


@dataclass(frozen=True)
class VotingRule:
    """A rule that combines votes and features.

    Args:
        halvings: Number of times that the number of directions is halved. A few directions are enough if a
            graph has few kinds of neighbor lists.
        doublings: Number of times that a cosine is squared. Higher powers give more weight to near nodes.
        prior: Number of votes that the features count as.
        share: Weight of the votes against features alone; 0 uses features only.
    """

    halvings: int
    doublings: int
    prior: float
    share: float

    @property
    def known(self) -> bool:
        return self.halvings in HALVINGS and self.doublings in DOUBLINGS

    def votes(self, rows: Tensor, voters: Tensor, labels: Tensor, classes: int) -> Tensor:
        levels = count_votes(leading(rows, self.halvings), voters, labels, classes)
        return levels[DOUBLINGS.index(self.doublings)]

    def decided(self, log_posteriors: Tensor, votes: Tensor) -> Tensor:
        """Return log-posteriors (N, C) from those of features and from votes.

        >>> features, votes = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.0, 9.0]])
        >>> VotingRule(0, 1, 1.0, 1.0).decided(features, votes).exp().round(decimals=4).tolist()
        [[0.05, 0.95]]
        """
        features = log_posteriors.to(torch.float64)
        mixed = self.prior * features.exp() + votes.to(torch.float64)
        mixed = (mixed / mixed.sum(dim=1, keepdim=True)).clamp_min(_MIN_PROBABILITY).log()
        return (self.share * mixed + (1 - self.share) * features).log_softmax(dim=1)


def leading(rows: Tensor, halvings: int) -> Tensor:
    return normalize(rows[:, : -(-rows.shape[1] // 2**halvings)], dim=1)


def count_votes(
    rows: Tensor, voters: Tensor, labels: Tensor, classes: int, *, most: int = 1 << 24
) -> list[Tensor]:
    """Return the votes for each class at each power, (N, C) each; no node votes on itself.

    Args:
        most: Number of cosines held at once.

    >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]])
    >>> count_votes(rows, torch.tensor([0, 1]), torch.tensor([0, 1]), 2)[0].round(decimals=2).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.36000001430511475, 0.36000001430511475]]
    """
    nodes, members = len(rows), one_hot(labels, classes).to(rows.dtype)
    votes = [rows.new_zeros(nodes, classes) for _ in DOUBLINGS]
    for some in torch.arange(nodes).tensor_split(-(-nodes * len(voters) // most)):
        alike = (rows[some] @ rows[voters].T).clamp(0, 1)
        alike[some[:, None] == voters[None, :]] = 0.0
        for level in votes:
            alike = alike.square_()
            level[some] = alike @ members
    return votes


def best_rule(
    log_posteriors: Tensor,
    rows: Tensor,
    nodes: Tensor,
    labels: Tensor,
    objective: Objective = DEFAULT_OBJECTIVE,
) -> tuple[VotingRule, Tensor]:
    """Return the rule of the highest likelihood or metric of public labels; no node votes on itself."""
    best, highest, decided = VotingRule(0, DOUBLINGS[0], 1.0, 0.0), WORST, log_posteriors
    for halvings in HALVINGS:
        levels = count_votes(leading(rows, halvings), nodes, labels, log_posteriors.shape[1])
        for (doublings, votes), prior, share in itertools.product(
            zip(DOUBLINGS, levels, strict=True), _PRIORS, _SHARES
        ):
            rule = VotingRule(halvings, doublings, prior, share)
            log = rule.decided(log_posteriors[nodes], votes[nodes])
            score = objective.score(log, labels)
            if score > highest:
                best, highest, decided = rule, score, rule.decided(log_posteriors, votes)
    return best, decided


_FEATURES, _UNIT_ROWS, _RULE = "features", "unit_rows", "rule"


@dataclass(frozen=True, kw_only=True)
class SpectralMethod(GraphReleaseMethod):
    """Votes of labeled nodes with similar neighbor lists, combined with features."""

    selects_by_metric: ClassVar[bool] = True

    rank: int

    def check(self, view: Graph) -> None:
        super().check(view)
        if view.directed:
            raise GraphError(
                "spectral needs an undirected graph, but this graph's edges are directed. Use method "
                "'classcode', or load the graph with directed=False (without --directed)."
            )

    def embed(self, view: Graph, session: Session) -> tuple[State, Tensor]:
        published, seen = self.released(view, session)
        flip = 0.0 if self.mechanism is None else EdgeRandomizedResponse(self.mechanism.epsilon).flip
        with session.stage("embedding"):
            generator = session.streams.torch("spectral")
            return published, spectral_rows(seen.adjacency, flip, self.rank, generator)

    def fit(self, view: Graph, session: Session) -> FitResult:
        with session.stage("encoder"):
            public = public_posteriors(view, session, self.objective)
        released_state, rows = self.embed(view, session)
        known = nodes_of(view.labeled_in("train", "val"))
        with session.stage("classifier"):
            rule, log = best_rule(public.log, rows, known, view.y[known], self.objective)
        trained = TrainedSpectral(self, rule, view.num_classes, public.ensemble)
        return FitResult(trained=trained, proba=log.exp().to(torch.float32), released=released_state)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedSpectral":
        ensemble = FoldEnsemble.restore(state, _FEATURES, bool(state[_UNIT_ROWS]))
        halvings, doublings, *shares = state[_RULE].tolist()
        rule = VotingRule(int(halvings), int(doublings), *shares)
        check_fits(ensemble.fits(sizes.width, sizes.classes) and rule.known, sizes)
        return TrainedSpectral(self, rule, sizes.classes, ensemble)


@dataclass(frozen=True, eq=False)
class TrainedSpectral(GraphReleaseModel):
    """The result of a fit: feature networks and the voting rule.

    Voters are nodes of the predicted graph, so another graph needs its own public labels.
    """

    method: SpectralMethod
    rule: VotingRule
    classes: int
    ensemble: FoldEnsemble

    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:
        if not view.has_split or not bool((view.labeled_in("train", "val")).any()):
            raise GraphError(
                "spectral needs public labels in the graph to predict, but this graph has none. Add a "
                "split with public labels, or use method 'classcode', which needs none."
            )
        check_classes(view, class_names, self.classes)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        released_state, rows = self.method.embed(view, session)
        known = nodes_of(view.labeled_in("train", "val"))
        votes = self.rule.votes(rows, known, view.y[known], self.classes)
        log = self.rule.decided(self.ensemble.log_posteriors(view.x), votes)
        return CachedPrediction(session.plan, tuple(released_state.values()), log.exp().to(torch.float32))

    def state(self) -> State:
        return {
            **self.ensemble.state(_FEATURES),
            _UNIT_ROWS: torch.tensor(self.ensemble.unit_rows),
            _RULE: torch.tensor(astuple(self.rule), dtype=torch.float64),
        }


MAX_RANK = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class Spectral(Estimator):
    """Classify nodes by votes of labeled nodes with similar neighbor lists, combined with features.

    Use it for heterophilous graphs, such as pages of an encyclopedia that link to each other. There the
    classes of a node's neighbors (ClassCode) are not informative, but two nodes with nearly the same neighbor
    list usually have the same class.

    Randomized response on every node pair releases a noisy graph. Node embeddings are its leading
    eigenvectors, each scaled by its estimated accuracy. A labeled node u votes for its class at v with max(0,
    cos(row_u, row_v))^p. The number of directions, the power, the weight of features and the share of the
    votes maximize the likelihood of public labels. No node votes on itself. If neighbor lists are not
    informative, predictions are those of the features.

    Spectral needs a large budget and long neighbor lists. Noise has eigenvalues up to 2 s sqrt(N), with s = 1
    / (2 sinh(epsilon / 2)), and only larger ones are informative. For low degrees, or below an epsilon of 3
    or 4, use ``ClassCode``.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        rank: Maximum number of spectral directions, which is the width of the node embeddings.
        max_edges: Maximum expected number of released edges; None for 20 million.

    Raises:
        UnitError: If the unit is neither ``"undirected-edge"`` nor ``"none"``.
        ConfigError: If a parameter is outside its range. On ``fit``, if noise alone would add too many edges.
        GraphError: On ``fit``, if the edges are directed.

    Privacy:
        Unit: ``undirected-edge``. Reads: private edges; features and labels are public. Charges: one release,
        epsilon-DP with delta = 0. Public: the released graph and everything computed from it. Unit ``none``
        reads the exact edges and is a non-private reference.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = Spectral(unit="undirected-edge", epsilon=8.0, seed=0).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon, model.guarantee.delta
    (True, 8.0, 0.0)
    """

    method: ClassVar[str] = "spectral"
    rejections: ClassVar[Rejections] = Estimator.rejections | rejected(
        "spectral has no guarantee under unit {unit!r}, because it reads all edges of a node. Use unit "
        "'undirected-edge', or method 'classcode' or 'gap'.",
        DirectedEdge.name,
    )

    rank: int = 1024
    max_edges: int | None = None

    def _build_method(self) -> SpectralMethod:
        checks.integer_at_least(1, rank=self.rank)
        checks.within(1, MAX_RANK, rank=self.rank)
        privacy_config = self.privacy_config
        most = MAX_EDGES if self.max_edges is None else self.max_edges
        mechanism = None
        if isinstance(privacy_config.unit, UndirectedEdge):
            mechanism = EdgeRand(epsilon=privacy_config.budget, max_edges=most)
        return self._method(SpectralMethod, mechanism=mechanism)
