"""ClassCode: noisy sums of neighbours' class codes, steered to where a prediction is needed."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError, UnitError
from graphveil.graph import Graph
from graphveil.models.base import Estimator, State, nodes_of
from graphveil.models.classcode.elsewhere import Reader, check_classes, groups_to_predict
from graphveil.models.classcode.head import SEEDS, Head, fit_gate, fit_heads
from graphveil.models.classcode.likelihood import SHAPES, Affinity, Shape, fit_shape
from graphveil.models.classcode.owner import OwnerFit, OwnerPlan, check_options, fit_owner, released_rows
from graphveil.models.classcode.parts import part_of, parts_state
from graphveil.models.classcode.posteriors import Posteriors, distilled_posteriors, public_posteriors
from graphveil.models.classcode.queries import TARGET, Steering, groups_of, public_labels
from graphveil.models.classcode.rounds import Rounds, ask_counts, parts_of, rounds_of
from graphveil.models.classcode.weights import Weigher
from graphveil.models.inference.cache import Answer
from graphveil.models.session import Session
from graphveil.models.training.private import record_groups
from graphveil.models.training.record_plan import released_accuracies
from graphveil.models.weighting import Weighting
from graphveil.networks.layers import FeedForward
from graphveil.privacy import NodeOwner, NoUnit
from graphveil.privacy.wording import EdgeUse
from graphveil.release import ReleasePlan, calibrate_plan
from graphveil.release.engines.row_range import RowRange
from graphveil.weights import GivenWeight, Similarity

_FEW_TO_LEARN_FROM = 5000  # labelled nodes
_UNKNOWN_FEATURES, _UNKNOWN_TRAIN = 500, 0.75  # the width, and the share of nodes, where no graph is known


@dataclass(frozen=True)
class Decision:
    """What was decided: the likelihood's shape, its log-posteriors, and those of all experts."""

    shape: Shape
    likely: Tensor
    log: Tensor

    @classmethod
    def of(cls, features: Tensor) -> "Decision":
        """Return what features say, before any row."""
        return cls(SHAPES[0], features, features)


@dataclass(kw_only=True, eq=False)
class ClassCode(Estimator):
    """Node classification from noisy rows of neighbours' class codes; the flagship.

    **Edge units.** Every node sends a code of its class (its label if that is public, else its feature
    posterior) along its edges. The two directions of an edge get public weights whose squares sum to one, so
    a node without a label hears its labelled neighbours at full weight, while one friendship moves the whole
    release by one noise unit only. The row of a target v is r_v = mu sum_u A_uv w(g_u, g_v) c_u + N(0, I).

    Guarantee: units ``undirected-edge`` and ``directed-edge``. The rows and the class-pair counts are one
    Gaussian release of sensitivity one for every pair of groups, with mu = mu*(epsilon, delta); everything
    after it is post-processing with public labels. Proof: ``docs/guarantees.md``, section 9.

    At edge level another graph is predicted from rows of its own, one release that is booked once, and of a
    graph that has grown the new nodes alone have new rows (:meth:`predict_proba`). Labels of its training and
    validation nodes are used if it has a split; it needs none.

    **Unit** ``node-owner``. A labelled node sends the code of its label, any other the mean code under the
    posterior of a privately trained encoder, each along its own edges with weights w whose squares add up to
    one a source; row v is Z_v = sum of w_uv c_u + N(0, sigma^2 I). A mixture fitted to the rows alone turns
    them into likelihoods, and the next pushes give more weight to rows that are unclear. The prediction for
    v weighs v's features and v's row, with ``read_own_edges`` also the rows of the nodes on v's own list.

    Guarantee: unit ``node-owner``. Encoder, rows, combiner, and predictions for all nodes but q are mu-GDP
    for the record of q, mu = mu*(epsilon, delta); the prediction for q is only for those entitled to its
    record. Validation labels are used like training labels, unless ``private_metrics`` counts on them.

    Args:
        count_share: share of a labelled pair's budget that goes to class-pair counts (rho).
        few_labels: use the two-round variant for few labels; None: when under half of the nodes have one.
        back: weight from targets back to labelled nodes in that variant (b).
        distil: train the feature networks a second time, on what the rows said, before the last decision;
            None: with fewer than 5,000 labelled nodes, where features have the most left to learn.
        weights: at edge level, what a message counts, by what is publicly known of both ends: ``"one"``,
            ``"half_cos"``, ``"class_agree(0.2)"``, and others that ``graphveil.weights.parse_weight``
            knows. They read features or, all but ``"jaccard"``, posteriors from features: as probabilities,
            or as codes where they take cosines. The noise grows with the largest value of the weight.
        weight_rows: the posteriors that weights by cosine read: those of ``"input"``, from features, or of
            the ``"previous"`` round of rows, if there are two.
        read_own_edges: unit ``node-owner``: predict a node from the rows of its own neighbours, too, which
            is worth most at small epsilon, and makes its prediction tell about its list.
        targets: unit ``node-owner``: whose rows are released; fewer rows are less noisy. None for all, or
            ``"unlabelled"``, ``"test"``, or node ids. Other nodes are predicted from their features.
        unlabelled_send: unit ``node-owner``: whether nodes that do not teach send messages.
        encoder_share: unit ``node-owner``: share of mu^2 that goes to the encoder; None for 0.2 with
            ``read_own_edges``, and otherwise for what budget, records and weights suggest.

    Rows of labelled nodes are noisier than those of targets by design: their predictions are not to be
    presented as if they were targets'.

    >>> from graphveil.graph import RECIPES, synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=0).fit(graph)
    >>> model.guarantee.valid, round(model.guarantee.epsilon, 6)
    (True, 1.0)
    """

    method: ClassVar[str] = "classcode"
    grows: ClassVar[bool] = True
    node_units: ClassVar[tuple[str, ...]] = ("node-owner",)

    count_share: float = 0.05
    few_labels: bool | None = None
    back: float = 0.3
    distil: bool | None = None
    weights: str = "one"
    weight_rows: str = "input"
    read_own_edges: bool = False
    targets: Literal["unlabelled", "test"] | tuple[int | str, ...] | None = None
    unlabelled_send: bool = True
    encoder_share: float | None = None

    gate_: tuple[float, ...] = field(default=(), init=False, repr=False)
    _reader: Reader | None = field(default=None, init=False, repr=False)
    _heads: list[Head] = field(default_factory=list, init=False, repr=False)
    _owner: OwnerFit | None = field(default=None, init=False, repr=False)
    _weighting: Weighting | None = field(default=None, init=False, repr=False)
    _tower: FeedForward | None = field(default=None, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        if self.mode == "paper":
            raise ConfigError(
                "classcode has no paper to reproduce and so no paper mode: use mode='strict' (--mode strict)"
            )
        _check.within(0.001, 0.5, count_share=self.count_share)
        _check.within(0, 1, back=self.back)
        if isinstance(self.protected_unit, NoUnit):
            raise UnitError(
                "classcode is calibrated to a budget and has no non-private form: pass an edge unit and an "
                "epsilon, or use sage, gcn or gap with unit='none' as the non-private reference"
            )
        check_options(self, on_records=self._on_records)
        self._weighting = Weighting.named(
            self.weights, self.weight_rows, encoder=True, records=self._on_records
        )
        if isinstance(self._similarity, GivenWeight):
            raise ConfigError(
                "weights='given' reads the weights of the graph's edges, and classcode counts edges whatever "
                "their weights, so that it would not know how long a row is; use gap, which reads them, or "
                "drop them (adjacency.without_weights(), or no --weight)"
            )

    @property
    def _reads_previous(self) -> bool:
        """Whether the weights of a second round read what the first one said."""
        return self._weighting is not None and self._weighting.rows == "previous"

    @property
    def _similarity(self) -> Similarity | None:
        return None if self._weighting is None else self._weighting.similarity

    @property
    def _on_records(self) -> bool:
        return isinstance(self.protected_unit, NodeOwner)

    # -- the plan ------------------------------------------------------------------------------------------

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        unit = self.protected_unit
        if isinstance(unit, NodeOwner):
            asked = self._asked(unit, num_nodes, num_classes)
            return calibrate_plan(unit, self._budgeted(), delta, asked.queries, num_nodes=num_nodes)
        steering = Steering.choose(unit, self.count_share, bool(self.few_labels), self.back, self._similarity)
        return calibrate_plan(
            unit,
            self._budgeted(),
            delta,
            lambda mu: steering.queries(mu, num_classes),
            num_nodes=num_nodes,
        )

    def _asked(self, unit: NodeOwner, num_nodes: int, num_classes: int) -> OwnerPlan:
        """Return the questions to records; sizes that are not known yet are guessed."""
        return OwnerPlan(
            unit=unit,
            features=self._sizes.get("features", _UNKNOWN_FEATURES),
            classes=num_classes,
            records=self._sizes.get("records") or max(1, round(_UNKNOWN_TRAIN * num_nodes)),
            reads_own_edges=self.read_own_edges,
            weighs=self.targets is None,
            share=self.encoder_share,
            unlabelled_send=self.unlabelled_send,
            metrics=self.private_metrics,
            degree_budget=self.degree_budget or 1,
        )

    def _edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return "read" if self.read_own_edges else super()._edge_use(plan)

    def _plan_for(self, graph: Graph) -> ReleasePlan | None:
        if self._on_records or self.few_labels is not None:
            return super()._plan_for(graph)
        labelled = int((groups_of(graph) != TARGET).sum())
        decided = replace(self, few_labels=2 * labelled < graph.num_nodes)
        return decided.plan(num_nodes=graph.num_nodes, num_classes=graph.num_classes)

    # -- training ------------------------------------------------------------------------------------------

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        if plan is None:
            raise UnitError("classcode has no non-private form")
        if self._on_records:
            return self._fit_owner(graph, plan, context)
        with context.stage("encoder"):
            public = public_posteriors(graph, context)
            weigher = self._learned_weigher(graph, public.log, context)
        groups, (cells, hops) = groups_of(graph), parts_of(plan)
        release = self._release(plan, graph, context, groups)
        with context.stage("aggregate"):
            counts, affinity = ask_counts(release, cells, graph, groups)
        rounds = Rounds(graph, groups, public_labels(graph, groups), hops, release, weigher)
        decision, prior = Decision.of(public.log), public
        for number, _ in enumerate(hops, start=1):
            seen = decision.likely if self._reads_previous else public.log  # no node's own label is in either
            with context.stage("aggregate"):
                rounds.listen(decision.log, seen, context.streams.torch(f"weighed-pairs-{number}"))
            decision = self._decide(graph, context, rounds, affinity, prior, public)
            if self._distils(graph):
                with context.stage("classifier"):
                    name = f"distilled-{number}"
                    prior = distilled_posteriors(graph, context, public, decision.log, name)
                decision = self._decide(graph, context, rounds, affinity, prior, public)
        release.close()
        rows = {f"rows{number}": rows for number, rows in enumerate(rounds.rows, start=1)}
        self.aggregates_ = {"counts": counts, **rows}
        imitating = () if prior is public else prior.networks
        unit_rows = public.candidate.unit_rows
        self._reader = Reader(public.networks, imitating, unit_rows, affinity, decision.shape)
        return decision.log.exp().to(torch.float32)

    def _learned_weigher(self, graph: Graph, log: Tensor, context: Session) -> Weigher | None:
        """Return the weights and what they learn from public labels; None for weights of one."""
        if self._weighting is None:
            return None
        weighting, rows = self._weighting, log.exp()
        self._tower = weighting.tower(graph.num_classes, context.streams.torch("weights"))
        if self._tower is not None:
            taught = context.once("weights", lambda: _state_of(weighting.learned(graph, rows, context)))
            self._tower.load_state_dict(taught)
        return Weigher(weighting.similarity, self._tower)

    def _fit_owner(self, graph: Graph, plan: ReleasePlan, context: Session) -> Tensor:
        released = released_rows(graph, plan, self.targets)
        release = self._release(plan, graph, context, record_groups(graph))
        self._owner, decided = fit_owner(
            graph, plan, release, context, released, read_own_edges=self.read_own_edges
        )
        proba = decided.exp().to(torch.float32)
        if self.private_metrics:
            self.private_accuracy_ = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        self.aggregates_ = {"rows": self._owner.rows.to(torch.float32)}
        return proba

    def _distils(self, graph: Graph) -> bool:
        if self.distil is not None:
            return self.distil
        return int((groups_of(graph) != TARGET).sum()) < _FEW_TO_LEARN_FROM

    def _decide(
        self,
        graph: Graph,
        context: Session,
        rounds: Rounds,
        affinity: Affinity,
        prior: Posteriors,
        public: Posteriors,
    ) -> Decision:
        """Decide on what the features and the rows so far say."""
        train_nodes, val_nodes = nodes_of(graph.mask("train")), nodes_of(graph.mask("val"))
        with context.stage("classifier"):
            rows, signal = rounds.heard(affinity)
            shape, likely = fit_shape(rows, signal, prior.log.to(torch.float64), graph.y, train_nodes)
            inputs = rounds.inputs(likely, prior.log, rows, signal)
            self._heads, headed = fit_heads(likely, inputs, graph.y, train_nodes, val_nodes, context)
            experts = (headed, likely, public.log.to(torch.float64))
            self.gate_, decided = fit_gate(experts, graph.y, val_nodes)
        return Decision(shape, likely, decided)

    # -- other graphs --------------------------------------------------------------------------------------

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        """Return rounds of rows alone: what a fit learns from counts holds for other graphs, too."""
        if self._on_records:
            return super()._plan_of_other(graph)
        check_classes(graph, self.class_names_, self._shape["classes"])
        labelled = int((groups_of(graph) != TARGET).sum())
        few = 2 * labelled < graph.num_nodes if self.few_labels is None else self.few_labels
        steering = Steering.choose(self.protected_unit, 0.0, few, self.back, self._similarity)
        return calibrate_plan(
            self.protected_unit,
            self._budgeted(),
            self._delta(graph.num_nodes),
            lambda mu: steering.rows(mu, self._shape["classes"]),
            num_nodes=graph.num_nodes,
        )

    def _check_other(self, plan: ReleasePlan) -> None:
        if self._on_records:
            super()._check_other(plan)

    def _answer(self, graph: Graph, plan: ReleasePlan, context: Session, kept: Answer | None) -> Answer:
        assert self._reader is not None
        first = 0 if kept is None else len(kept.proba)
        groups = groups_to_predict(graph, first)
        engine = RowRange(first) if first else None
        release = self._release(plan, graph, context, groups, engine=engine)
        weigher = None if self._weighting is None else Weigher(self._weighting.similarity, self._tower)
        labels, hops = public_labels(graph, groups_of(graph)), rounds_of(plan.queries)
        rounds = Rounds(graph, groups, labels, hops, release, weigher, first)
        previous = self._reads_previous
        proba = self._reader.predict(rounds, graph, context, kept, previous=previous)
        release.close()
        return Answer(plan, tuple(rounds.rows), proba)

    def _predict_other(self, graph: Graph) -> Tensor:
        raise UnitError("classcode has no non-private form")

    # -- files ---------------------------------------------------------------------------------------------

    def _state(self) -> State:
        if self._on_records:
            return {} if self._owner is None else self._owner.state()
        state: State = {"gate": torch.tensor(self.gate_)} | parts_state("heads", self._heads)
        if self._tower is not None:
            state |= parts_state("weights", [self._tower])
        return state if self._reader is None else state | self._reader.state()

    def _restore(self, state: State) -> None:
        if self._on_records:
            self._owner = OwnerFit.restore(state, self.aggregates_["rows"])
            return
        self.gate_ = tuple(state["gate"].tolist())
        self._reader = Reader.restore(state, self._shape["features"], self._shape["classes"])
        self._heads = [Head.restore(part_of(state, f"heads/{k}/")) for k in range(SEEDS)]
        if self._weighting is not None:
            self._tower = self._weighting.tower(self._shape["classes"], PublicStreams(0).torch("restore"))
        if self._tower is not None:
            self._tower.load_state_dict(part_of(state, "weights/0/"))


def _state_of(network: nn.Module | None) -> State:
    """Return a network's weights."""
    return {} if network is None else dict(network.state_dict())
