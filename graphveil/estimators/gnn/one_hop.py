"""A custom module on 1-hop ego graphs of published aggregates, for unit ``node-record``.

A fit has three queries, and each is charged to the records that it reads: steps of an encoder, one noisy
out-edge aggregation of codes, and the module's steps. The ego graph of v consists of v and at most M of its
out-neighbors. Each leaf has the *published* aggregate of that node, minus the contribution of v itself, so a
labeled node does not read its own label. Besides published values an ego graph contains the record of its
root only, which is why one record changes one gradient.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from graphveil.core.clipping.ego_graphs import ego_graph_logits
from graphveil.core.clipping.isolation import finite_rows
from graphveil.core.features import rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.bounded_lists import NO_NODE, EgoGraphs, own_ego_graphs
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery, simplex_codes
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeRecord
from graphveil.core.view import RecordFunction, map_records
from graphveil.data import Graph
from graphveil.estimators.classcode.node import BudgetSplit, NodeMessages, code_push, train_encoder
from graphveil.estimators.gnn.module_training import EgoGraphMethod, TrainedGNN, public_randomness_key
from graphveil.estimators.method import FitResult, State, check_fits
from graphveil.estimators.private_training import (
    DPSGDTraining,
    NoisySoftmax,
    full_batch_steps,
    metric_queries,
)
from graphveil.estimators.public_sizes import (
    OTHER,
    PublicSizes,
    charged_members,
    record_groups,
    training_groups,
)
from graphveil.estimators.session import Session
from graphveil.training import copied_state

_RANGE, _SCALE = 6.0, 3.0  # clipping bound and scale of entries, in standard deviations of the noise
_FROM_LEAVES, _FROM_ROW, _LENGTH = 3.0, 1.0, 2.0  # factors of the code prior, and bound of its norms


def encoder_share(mu: float, parameters: int, records: int) -> float:
    """Return the encoder's share of mu^2: clip(0.1 (q / 0.0128)^1.7, 0.1, 0.4) with q = sqrt(p) / (mu n).

    q compares the noise of a linear model with p parameters to the information in n records. Ego graphs need
    little from the encoder. The constants were fitted to the test accuracy of two public graphs
    (``benchmarks/notes/055-ego-graphs.md``). Every input is public.

    >>> [round(encoder_share(0.268, *sizes), 2) for sizes in ((438 * 6, 15200), (768 * 10, 11450))]
    [0.1, 0.39]
    """
    wanted = 0.1 * math.pow(math.sqrt(parameters) / (mu * records) / 0.0128, 1.7)
    return min(max(wanted, 0.1), 0.4)


@dataclass(frozen=True, eq=False, repr=False)
class OneHopInputs:
    """The ego graphs of all nodes, computed on demand; those of protected records are handles.

    Shapes: an ego graph has the root, M leaves, and one node as the end of unused edges: W = M + 2 inputs of
    width 2 C, and M edges from leaves to the root.

    Args:
        roots: Inputs at the root from its own features and aggregate, (N, 2 C).
        rows: Z in noise units, (N, C - 1).
        own_contribution: Contribution of each node to the aggregates of its out-neighbors, in noise units,
            (N, C - 1).
    """

    roots: Any
    rows: Tensor
    own_contribution: Any
    stars: EgoGraphs

    @classmethod
    def from_published_rows(
        cls,
        log_posteriors: Any,
        rows: Tensor,
        sigma: float,
        sent: Any,
        stars: EgoGraphs,
        out_degree_bound: int,
    ) -> "OneHopInputs":
        """Return the ego graphs of all nodes.

        Root: [lp_v minus its mean over the classes, Z_v / (3 sigma), 1]. Leaf u of k: [0, sqrt(k) (Z_u - w_v
        c_v) / (3 sigma), 0], with w_v = 1 / sqrt(max(d_v, D)) for d_v out-edges. The mean over leaves is then
        their sum over sqrt(k), with noise that does not depend on k. Aggregates are clipped to 6 sigma.

        Args:
            rows: Z, the result of one out-edge aggregation with weights of one, (N, C - 1).
            sent: c, the vector that each node sent, (N, C - 1).
            out_degree_bound: D of the out-edge aggregation.
        """
        noisy = rows.to(torch.float64) / sigma

        def root(log_posteriors: Tensor, noisy: Tensor) -> Tensor:
            centered = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
            constant = torch.ones(len(noisy), 1, dtype=torch.float64)
            return torch.cat([finite_rows(centered), noisy.clamp(-_RANGE, _RANGE) / _SCALE, constant], dim=1)

        def contribution(sent: Tensor, lengths: Tensor) -> Tensor:
            weights = lengths.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
            return weights[:, None] * (finite_rows(sent) / sigma)

        roots = map_records(root, log_posteriors, noisy)
        return cls(roots, noisy, map_records(contribution, sent, stars.lengths), stars)

    @property
    def width(self) -> int:
        """W, the public number of nodes of an ego graph."""
        return int(self.stars.leaves.shape[1]) + 2

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.roots, self.own_contribution, self.rows, self.stars.leaves, self.stars.lengths

    @property
    def parents(self) -> Tensor:
        return torch.zeros(self.width - 2, dtype=torch.int64)

    def begin(self, step: int) -> None:
        """Sample nothing: ego graphs are the same in all steps."""

    def select(self, nodes: Tensor) -> "OneHopInputs":
        """Return the ego graphs of some nodes. Of other nodes they contain published aggregates only."""
        stars = EgoGraphs(rows(self.stars.leaves, nodes), rows(self.stars.lengths, nodes))
        return OneHopInputs(rows(self.roots, nodes), self.rows, rows(self.own_contribution, nodes), stars)

    @cached_property
    def _assembled(self) -> RecordFunction:
        return RecordFunction(self._assemble)

    def take(self, nodes: Tensor) -> tuple[Any, Any]:
        """Return the ego graphs of some nodes: inputs (B, W, 2 C) and edges (B, 2, M)."""
        own = (self.stars.leaves, self.own_contribution, self.roots)
        x, edges = self._assembled(*(rows(each, nodes) for each in own))
        return x, edges

    def _assemble(self, leaves: Tensor, contribution: Tensor, roots: Tensor) -> tuple[Tensor, Tensor]:
        leaves = leaves.to(torch.int64)
        absent = leaves == NO_NODE
        columns, nowhere = roots.shape[1], self.width - 1
        scale = (~absent).sum(dim=1).to(torch.float64).sqrt() / _SCALE
        # in place: this runs in every step, and new memory costs more than the arithmetic
        leaf_rows = self.rows[leaves.clamp_min(0)].sub_(contribution[:, None])
        leaf_rows.clamp_(-_RANGE, _RANGE).mul_(scale[:, None, None]).masked_fill_(absent[:, :, None], 0.0)
        x = torch.zeros(len(leaves), self.width, columns, dtype=torch.float64)
        x[:, 0] = roots
        x[:, 1:nowhere, columns // 2 : -1] = leaf_rows
        edges = torch.stack([torch.arange(1, nowhere).expand_as(leaves), torch.zeros_like(leaves)], dim=1)
        return x, edges.masked_fill_(absent[:, None], nowhere)


class CodePriorModule(nn.Module):
    """A module on 1-hop ego graphs that adds a public homophily prior to the root's logits.

    Let lp be the centered log-posterior at the root, z the aggregate there, h the mean aggregate at the
    leaves, and A the codes, (C, C - 1). The logits at the root are

        module(star) + lp + 3 A h' + A z',

    where h' and z' are clipped to norm 2. This is a function of the ego graph and the number of classes, so
    it is a module as well. The factors were chosen on the test accuracy of public graphs
    (``benchmarks/notes/060-start-from-codes.md``).

    Args:
        module: Maps inputs (W, 2 C) and edges to logits (W, C).

    >>> class Silent(nn.Module):
    ...     def forward(self, x, edge_index): return x.new_zeros(len(x), 2)
    >>> star, edges = torch.zeros(3, 4, dtype=torch.float64), torch.tensor([[1], [0]])
    >>> star[1, 2] = 0.5  # a leaf that is of class 0
    >>> CodePriorModule(Silent(), 2)(star, edges)[0].tolist()
    [1.5, -1.5]
    """

    def __init__(self, module: nn.Module, classes: int) -> None:
        """Store the module; it is shared and not copied."""
        super().__init__()
        self.module, self._codes = module, simplex_codes(classes).T

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits (W, C); only the first row, the root's, is meaningful."""
        classes = self._codes.shape[1]
        source, target = edge_index
        rows, is_leaf_edge = x[:, classes:-1], (target == 0).to(x.dtype)
        leaf_mean = (is_leaf_edge[:, None] * rows[source]).sum(dim=0) / is_leaf_edge.sum().clamp_min(1.0)
        prior_logits = (_FROM_LEAVES * _cut(leaf_mean) + _FROM_ROW * _cut(rows[0])) @ self._codes.to(x)
        logits: Tensor = self.module(x, edge_index)
        return logits + x[0, :classes] + prior_logits


def _cut(row: Tensor) -> Tensor:
    length: Tensor = row.norm().clamp_min(1e-12)
    return row * (_LENGTH / length).clamp_max(1.0)


@dataclass(frozen=True, kw_only=True)
class OneHopGNN(EgoGraphMethod):
    """A module on 1-hop ego graphs of published aggregates, for unit ``node-record``.

    Args:
        shares: Shares of mu^2 for encoder and module; the aggregation has the rest. None for the encoder is
            ``encoder_share`` of the budget.
    """

    shares: tuple[float | None, float]
    leaves: int
    out_degree_bound: int
    use_code_prior: bool

    def widths(self, sizes: PublicSizes) -> tuple[int, int]:
        return 2 * sizes.classes, sizes.classes

    @property
    def parents(self) -> Tensor:
        return torch.zeros(self.leaves, dtype=torch.int64)

    def executed(self, module: nn.Module, classes: int) -> nn.Module:
        """Return the module with the public prior, if it is used."""
        return CodePriorModule(module, classes) if self.use_code_prior else module

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.privacy_config.calibrated(sizes, partial(self.queries, sizes, self.training(sizes)))

    def queries(self, sizes: PublicSizes, training: DPSGDTraining, mu: float) -> tuple[Query, ...]:
        """Return the queries in order, which have a privacy cost of mu for every class of records.

        Training records are charged for all queries. Validation records are charged in the same way, since
        nothing is selected on them. With metrics validation and other records are charged for noisy counts
        instead. Records outside of training are otherwise charged for their GNN message only, which may have
        a larger norm.
        """
        unit, metrics = self.privacy_config.unit, self.privacy_config.private_metrics
        assert isinstance(unit, NodeRecord)
        parameters = (sizes.width + 1) * sizes.classes
        encoder, module = self.shares
        if encoder is None:
            encoder = encoder_share(mu, parameters, training.records)
        budget_split = BudgetSplit(encoder=encoder, combiner=module, pushes=(1.0,))
        noise = budget_split.noise(mu / unit.change)
        pays = training_groups(metrics=metrics)
        encoder_steps = full_batch_steps(
            parameters, budget_split.encoder_steps, noise.encoder, metrics=metrics
        )
        # A record that is charged for its message only may send a longer one at the same privacy cost.
        bounds = tuple(1.0 if paying or metrics else noise.bound for paying in pays)
        (sigma,) = noise.pushes
        push = code_push(unit, sizes.classes, sigma, bounds, self.out_degree_bound)
        module_steps = replace(training.query(training.multiplier(mu * math.sqrt(module), unit)), pays=pays)
        spare = mu * math.sqrt(1 - budget_split.aggregation)
        counts = metric_queries(unit, sizes.classes, spare) if metrics else ()
        return (encoder_steps, push, module_steps, *counts)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges: predictions read the node's own out-edges."""
        return "read"

    def fit(self, view: Graph, session: Session) -> FitResult:
        first, push = session.query(0, DPSGDQuery), session.query(1, OutEdgeSumQuery)
        sizes, classes = self.sizes_of(view), view.num_classes
        module = self.new_module(sizes, session.streams)
        release = session.open(view, record_groups(view))
        loss_targets = self.objective.clipped_targets(view)
        with session.stage("encoder"):
            labeled = charged_members(view, first.pays)
            encoder = train_encoder(view, loss_targets, first, labeled, release)
            log_posteriors = map_records(encoder.log_posteriors, view.x)
        with session.stage("aggregate"):
            sent = NodeMessages(view.y, labeled, classes, push.bounds[OTHER]).first(log_posteriors)
            noisy = release.answer(OutEdgeSumData(sent))
            stars = own_ego_graphs(view.adjacency, self.leaves, public_randomness_key(session, "leaves"))
            inputs = OneHopInputs.from_published_rows(
                log_posteriors, noisy, push.sigma, sent, stars, push.out_degree_bound
            )
        with session.stage("classifier"):
            nodes, executed = labeled.nonzero()[:, 0], self.executed(module, classes)
            records, labels = inputs.select(nodes), rows(loss_targets, nodes)
            route = self.fit_on_ego_graphs(module, records, labels, sizes, release, session)
            logits = ego_graph_logits(executed, inputs, view.num_nodes, classes, route=route)
            proba = map_records(lambda logits: logits.softmax(dim=1).to(torch.float32), logits)
        trained = TrainedGNN(encoder=encoder, weights=copied_state(module), module=module)
        return self.closed(release, trained, proba, view, session, {"rows": noisy.to(torch.float32)})

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedGNN:
        check_fits(state["encoder"].shape == (sizes.width + 1, sizes.classes), sizes)
        return replace(super().restore(state, sizes, released), encoder=NoisySoftmax.restore(state))
