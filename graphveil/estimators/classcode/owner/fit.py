"""A fit of recipe S or R: encoder, pushes, decoder, and weighing (S) or reading and combiner (R)."""

from dataclasses import dataclass

from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import ReleaseError
from graphveil.estimators.classcode.owner.aggregation import (
    FLAT_LEVELS,
    AggregatedCodes,
    aggregate_and_decode,
)
from graphveil.estimators.classcode.owner.combiner import (
    Combiner,
    combiner_inputs,
    fit_combiner,
    own_neighborhood_sum,
    row_shrinkage,
)
from graphveil.estimators.classcode.owner.encoder import train_encoder
from graphveil.estimators.classcode.owner.evidence_weights import EvidenceWeights, fit_evidence_weights
from graphveil.estimators.classcode.owner.messages import NodeMessages
from graphveil.estimators.classcode.owner.targets import training_members
from graphveil.estimators.features.noisy_softmax import NoisySoftmax
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import OTHER
from graphveil.estimators.session import Session
from graphveil.release import DPSGDData, DPSGDQuery, OutEdgeSumData, OutEdgeSumQuery, Release, ReleasePlan
from graphveil.release.out_edge_sums import read_out_neighbor_sums


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

    Guarantee: ``docs/guarantees.md``, section 9. Labels of nodes that do not teach are never read.

    Args:
        graph: records and lists.
        plan: made of an ``NodeLevelReleasePlan``.
        release: open, with the plan's first question as its next one.
        session: progress and workspace.
        released: whose rows are released, bool (N).
        read_own_edges: recipe R; the plan is made for one of the two.
    """
    fit = _Fit(graph, plan, release, session)
    with session.stage("encoder"):
        encoder = fit.encoder()
        log_posteriors = encoder.log_posteriors(graph.x)
    with session.stage("aggregate"):
        messages = NodeMessages(graph.y, fit.labeled, graph.num_classes, fit.pushes[0].bounds[OTHER])
        sigmas = [push.sigma for push in fit.pushes]
        aggregated = aggregate_and_decode(
            fit.push, sigmas, messages, log_posteriors, released, fit.prioritized
        )
    with session.stage("classifier"):
        if not read_own_edges:
            evidence_weights = fit.evidence_weights(log_posteriors, aggregated)
            decided = evidence_weights.log_posteriors(log_posteriors, aggregated.log_likelihoods)
            return NodeLevelFitResult(encoder, evidence_weights, aggregated.rows, decided)
        inputs = fit.combiner_inputs(log_posteriors, aggregated, messages.first(log_posteriors))
        combiner = fit.combiner(inputs)
    return NodeLevelFitResult(encoder, combiner, aggregated.rows, combiner.log_posteriors(inputs))


class _Fit:
    """The steps of a fit that ask the release something, each once."""

    def __init__(self, graph: Graph, plan: ReleasePlan, release: Release, session: Session) -> None:
        """Check that the plan is one of ours."""
        self._graph, self._release, self._session = graph, release, session
        steps = [query for query in plan.queries if isinstance(query, DPSGDQuery)]
        self.pushes = [query for query in plan.queries if isinstance(query, OutEdgeSumQuery)]
        if not steps or not self.pushes:
            raise ReleaseError("a plan of ClassCode on records begins with steps and goes on with pushes")
        self.first, self.last = steps[0], steps[1] if len(steps) > 1 else None
        self.labeled = training_members(graph, plan)
        self._nodes = self.labeled.nonzero()[:, 0]
        # A plan that can tell rows apart from the first push on gives more to those that nobody knows yet.
        self.prioritized = ~self.labeled & (len(self.pushes[0].levels) > len(FLAT_LEVELS))

    def push(self, vectors: Tensor, levels: Tensor) -> Tensor:
        """Answer the next push."""
        return self._release.answer(OutEdgeSumData(vectors, levels))

    def encoder(self) -> NoisySoftmax:
        """Train the encoder, or take it from the workspace."""
        return train_encoder(self._graph, self.first, self.labeled, self._release, self._session)

    def combiner_inputs(self, log_posteriors: Tensor, aggregated: AggregatedCodes, sent: Tensor) -> Tensor:
        """Return what the combiner reads: for v, v's own record and published rows."""
        neighborhood_sum = own_neighborhood_sum(
            lambda published: read_out_neighbor_sums(self._graph.adjacency, published),
            aggregated.rows,
            aggregated.sigma,
            row_shrinkage(aggregated.strengths, aggregated.sigma),
            sent,
            self.pushes[0].out_degree_bound,
        )
        return combiner_inputs(log_posteriors, neighborhood_sum, aggregated.log_likelihoods)

    def evidence_weights(self, log_posteriors: Tensor, aggregated: AggregatedCodes) -> EvidenceWeights:
        """Train the weights of features and rows, if the plan has steps for that."""
        query, labels = self.last, self._graph.y
        if query is None:
            return EvidenceWeights.even()
        read = (log_posteriors, aggregated.log_likelihoods)
        noise = self._release.answer(DPSGDData(*(part[self._nodes] for part in read), labels[self._nodes]))

        def train() -> State:
            fitted = fit_evidence_weights(
                *read,
                labels,
                self.labeled,
                steps=query.steps,
                noise_multiplier=query.noise_multiplier,
                noise=noise,
            )
            return {"weights": fitted.weights}

        return EvidenceWeights(self._session.load_or_compute("weighing", train)["weights"])

    def combiner(self, inputs: Tensor) -> Combiner:
        """Train the combiner, or take it from the workspace."""
        query, labels = self.last, self._graph.y
        if query is None:
            raise ReleaseError("a plan of recipe R ends with the combiner's steps")
        noise = self._release.answer(DPSGDData(inputs[self._nodes], labels[self._nodes]))

        def train() -> State:
            fitted = fit_combiner(inputs, labels, self.labeled, steps=query.steps, noise=noise)
            return {"weights": fitted.weights}

        return Combiner(self._session.load_or_compute("combiner", train)["weights"])
