"""LPGNN: learns from records that were randomised one by one, over public edges."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.aggregate import KProp, Propagation, ReleasePlan
from graphveil.aggregate.kprop import AGGREGATORS, ISOLATED, Aggregator, Isolated
from graphveil.errors import ConfigError, GraphError, NotYetError
from graphveil.graph import Graph
from graphveil.graph.recipes import RANGES_PUBLIC
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelRR
from graphveil.mechanisms.claim import check_budget
from graphveil.mechanisms.local.bounds import FROM_DATA
from graphveil.models.base import SEEDED, Estimator, State, nodes_of
from graphveil.models.cards import ReleaseRow
from graphveil.models.context import FitContext
from graphveil.models.layers import ACTIVATIONS
from graphveil.models.lpgnn.backbones import BACKBONES, Backbone, Widths, backbone
from graphveil.models.lpgnn.drop import SELECT, NoisyLabels, Select, fit_noisy
from graphveil.models.lpgnn.inputs import Estimates, propagated
from graphveil.models.lpgnn.laws import GAUSSIAN_DELTA, FeatureLaw, Samples, report_rows
from graphveil.models.lpgnn.posterior import combined, log_posterior
from graphveil.models.lpgnn.records import Randomised, Randomiser, no_reports
from graphveil.models.lpgnn.scaling import ROW_SCALED, SCALINGS, Scaling, scaled
from graphveil.privacy import (
    Entry,
    Guarantee,
    LocalReport,
    NodeFeatures,
    budget_of,
    compose,
)
from graphveil.train import Schedule

_PARTS: tuple[Literal["features", "label"], ...] = ("features", "label")


@dataclass(kw_only=True, eq=False)
class LPGNN(Estimator):
    """Locally private graph neural network (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

    Every node randomises its features at ``eps_x`` and, if it is a training or validation node, its label at
    ``eps_y``. From then on a server sees randomised records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop),

    with X' the estimated features, Y' the randomised labels, T the law of what is said for each class, and A^
    the normalised edges without self-loops. The epoch that is kept is chosen on randomised labels alone. Test
    labels are read for the score of the test nodes and for nothing else.

    Guarantee, unit ``node-features``: eps_x-LDP for each node's whole feature vector and eps_y-LDP for its
    label, so eps_x + eps_y for the record; with ``features="agm"`` it is (epsilon, delta). Unit ``none`` is
    the reference without noise.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        eps_x: the budget of a node's features; inf sends them as they are.
        eps_y: the budget of its label; inf sends it as it is.
        features: how features are randomised: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``,
            ``"piecewise"``, ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each),
            ``"feature-rr"`` or ``"feature-rr-naive"``.
        m: of ``"multi-bit"``: ``"best"``, ``"floor"`` (the paper's) or a number of features.
        theta: of ``"feature-rr"``: public weights of the features, which add up to one.
        low, high: the public range of all features; what lies outside is cut.
        scaling: how features come into that range: ``"none"``, ``"row"`` (each node by its own smallest and
            largest feature) or ``"columns"`` (by everybody's, as in the paper: see below).
        data_dependent_bounds: your word for ``"columns"``, which tells about the records it is computed from
            and voids the guarantee.
        x_steps: K_x.
        y_steps: K_y; 0 learns what each node said about itself.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: whether A^ has them.
        isolated: a node without neighbours gets ``"zero"`` from A^, or is left as it is (``"keep"``).
        backbone: ``"sage"``, ``"gcn"`` or ``"gat"``.
        forward_correction: whether the noise of labels is part of the model (T); otherwise it is learned.
        posterior_steps: if above 0, the network's probabilities are multiplied by what the randomised labels
            around a node say about it, from so many hops away (:func:`log_posterior`); 24 serves.
        select: which epoch is kept: ``"paper"`` (every figure on noisy labels has to improve, none may pass
            what is possible) or ``"likelihood"`` (the least loss on randomised validation labels).
        hidden: width of the hidden layer (of each of four heads, for ``"gat"``).
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        dropout: share of hidden entries dropped while training.
        epochs: training epochs.
        learning_rate: the step size of Adam.
        weight_decay: the penalty on squared weights.

    Raises:
        UnitError: the unit is neither ``"node-features"`` nor ``"none"``.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNN(unit="node-features", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (3.0, (1.0, 2.0))
    """

    method: ClassVar[str] = "lpgnn"
    local: ClassVar[bool] = True

    eps_x: float | None = None
    eps_y: float | None = None
    features: str = "multi-bit"
    m: Samples = "best"
    theta: tuple[float, ...] | None = None
    low: float = 0.0
    high: float = 1.0
    scaling: Scaling = "none"
    data_dependent_bounds: bool = False
    x_steps: int = 4
    y_steps: int = 4
    aggregator: Aggregator = "gcn"
    self_loops: bool = False
    isolated: Isolated = "zero"
    backbone: str = "sage"
    forward_correction: bool = True
    posterior_steps: int = 0
    select: Select = "paper"
    hidden: int = 16
    activation: str = "selu"
    dropout: float = 0.0
    epochs: int = 500
    learning_rate: float = 0.01
    weight_decay: float = 0.0

    _network: Backbone | None = field(default=None, init=False, repr=False)

    # -- what may be replaced ------------------------------------------------------------------------------

    def _propagation(self, graph: Graph, features: Estimates) -> Propagation:
        """Return what randomised features are propagated by; it may read them, and the public edges."""
        return self._kprop(graph, self.x_steps)

    def _smoothing(self, graph: Graph) -> Propagation | None:
        """Return what randomised labels are propagated by; None for nothing."""
        return self._kprop(graph, self.y_steps) if self.y_steps else None

    def mechanism(self, dim: int) -> FeatureMechanism:
        """Return what randomises a vector of so many features."""
        return self._law().mechanism(dim)

    def label_mechanism(self, classes: int) -> LabelRR:
        """Return what randomises a label of so many classes."""
        return LabelRR(epsilon=self._budgets[1], classes=classes)

    # -- configuration -------------------------------------------------------------------------------------

    @property
    def _randomises(self) -> bool:
        return self.unit == NodeFeatures.name

    @property
    def _budgets(self) -> tuple[float, float]:
        """What features and label may cost; without a unit, nothing is hidden."""
        return (
            math.inf if self.eps_x is None else float(self.eps_x),
            math.inf if self.eps_y is None else float(self.eps_y),
        )

    @property
    def _spends(self) -> bool:
        """Whether a fit asks anything under a budget of the server's: a record pays before it leaves."""
        return False

    def _law(self) -> FeatureLaw:
        return FeatureLaw(
            name=self.features,
            epsilon=self._budgets[0],
            bounds=Bounds(self.low, self.high, from_data=self.scaling == "columns"),
            m=self.m,
            theta=self.theta,
            delta=GAUSSIAN_DELTA if isinstance(self.delta, str) else self.delta,
        )

    def _check_config(self) -> None:
        super()._check_config()
        self._check_budgets()
        _check.one_of(SCALINGS, scaling=self.scaling)
        if (self.scaling == "columns") != self.data_dependent_bounds:
            raise ConfigError(
                "scaling='columns' and data_dependent_bounds=True go together: the smallest and the largest "
                "value of a column tell about the records they come from, which voids the guarantee; give "
                "both, or scaling='row', which every node does on its own"
            )
        _check.one_of(AGGREGATORS, aggregator=self.aggregator)
        _check.one_of(ISOLATED, isolated=self.isolated)
        _check.one_of(tuple(BACKBONES), backbone=self.backbone)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.one_of(SELECT, select=self.select)
        _check.integer_at_least(
            0, x_steps=self.x_steps, y_steps=self.y_steps, posterior_steps=self.posterior_steps
        )
        _check.integer_at_least(1, hidden=self.hidden)
        _check.within(0, 0.99, dropout=self.dropout)
        if self.device == "cuda":
            raise ConfigError(f"{self.method} runs on the CPU in this version; pass device='cpu' or 'auto'")
        self._schedule()
        self._law()

    def _check_budgets(self) -> None:
        """Require both budgets where records are randomised, and none elsewhere."""
        given = {name: getattr(self, name) for name in ("eps_x", "eps_y")}
        if self.epsilon is not None:
            raise ConfigError(
                f"epsilon={self.epsilon:g}: {self.method} spends on features and on the label; pass eps_x= "
                "and eps_y= (--set eps_x=.. --set eps_y=..), which add up"
            )
        if not self._randomises:
            if any(value is not None for value in given.values()):
                raise ConfigError(
                    f"eps_x and eps_y are budgets of unit 'node-features', and unit {self.unit!r} adds no "
                    "noise; drop them"
                )
            return
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ConfigError(
                f"unit 'node-features' needs the budgets eps_x of features and eps_y of the label, and "
                f"{' and '.join(missing)} is missing: pass it (--set {missing[0]}=1; inf for no protection)"
            )
        check_budget(**given)
        if self.delta != "auto" and self.features != "agm":
            raise ConfigError(f"delta={self.delta!r} is for features='agm'; {self.features!r} needs none")

    def _check_graph(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used; no label is read."""
        self._check_unit(graph)
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(f"the split has no labelled {split} nodes; give it some")

    # -- the guarantee -------------------------------------------------------------------------------------

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        raise NotYetError(f"{self.method} asks nothing of protected edges: its edges are public")

    def _guarantee_for(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        if not self._randomises:
            return super()._guarantee_for(plan, graph)
        promise = self.promise_for(graph.num_features, graph.num_classes)
        # A recipe that has scaled the columns did so by everybody's data.
        ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
        promise = promise.with_deviations(*graph.deviations, *ranges)
        return dataclasses.replace(promise, notes=self._notes(graph))

    def promise_for(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        self._sizes = {"features": features, "classes": classes}
        claims = self.mechanism(features).claim, self.label_mechanism(classes).claim
        parts = [
            LocalReport(part, claim.epsilon, claim.delta) for part, claim in zip(_PARTS, claims, strict=True)
        ]
        paper = self.paper_deviations if self.mode == "paper" else ()
        seeded = () if self.unsafe_noise_seed is None else (SEEDED,)
        return Guarantee.of(
            NodeFeatures(),
            compose(*parts),
            delta=sum(claim.delta for claim in claims),
            releases=len(parts),
            mode=self.mode,
            deviations=(*claims[0].deviations, *paper, *seeded),
        )

    def _notes(self, graph: Graph) -> tuple[str, ...]:
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        return (*notes, ROW_SCALED) if self.scaling == "row" else notes

    def release_rows(self, plan: ReleasePlan | None) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node."""
        if not self._randomises:
            return super().release_rows(plan)
        shape = self._shape or self._sizes  # as fitted or loaded, or as promised
        return report_rows(self.mechanism(shape["features"]), self.label_mechanism(shape["classes"]))

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: FitContext) -> Tensor:
        with context.stage("randomise"):
            records = self._records(graph, context)
        if self._randomises:
            self.aggregates_ = {"labels": records.labels}
        with context.stage("aggregate"):
            inputs = propagated(records.features, self._propagation(graph, records.features))
        network = self._network = self._build(context.streams.torch(self.method)).on(graph.adjacency)
        with context.stage("classifier"):
            history = fit_noisy(
                network,
                inputs,
                self._noisy(graph, records.labels),
                self._schedule(),
                select=self.select,
                on_epoch=context.epochs("classifier", self.epochs),
            )
        context.record("classifier", history)
        with torch.no_grad():
            logits: Tensor = network(inputs)
        proba = logits.softmax(dim=1)
        return self._with_labels(proba, graph, records.labels) if self.posterior_steps else proba

    def _with_labels(self, proba: Tensor, graph: Graph, labels: Tensor) -> Tensor:
        """Return probabilities that heed what was told around each node."""
        transition = torch.from_numpy(self.label_mechanism(graph.num_classes).transition).float()
        noisy = self._noisy(graph, labels)
        return combined(proba, log_posterior(noisy, transition, graph.adjacency, self.posterior_steps))

    def _records(self, graph: Graph, context: FitContext) -> Randomised:
        """Have every node randomise its record, and book what that costs; exact records without a unit."""
        x = scaled(graph.x, self.scaling)
        if not self._randomises:
            return no_reports(graph, x)
        kept = None if context.workspace is None else context.workspace / "reports.safetensors"
        book, entry = context.budget or budget_of(graph.edge_set), self._entry("unbooked")
        if kept is None or not kept.exists():
            book.check(entry)  # before anything is told
        randomiser = Randomiser(
            mechanism=self.mechanism(graph.num_features), label=self.label_mechanism(graph.num_classes)
        )
        records = randomiser(graph, x, self.unsafe_noise_seed, kept)
        if all(known.release_id != records.release_id for known in book.entries):
            book.book(self._entry(records.release_id))
        context.on_booked()
        if records.reproducible:
            self.guarantee_ = self.guarantee.with_deviations(SEEDED)
        return records

    def _entry(self, release_id: str) -> Entry:
        return Entry(release_id, self.method, self.guarantee.event, unit=NodeFeatures())

    def _noisy(self, graph: Graph, labels: Tensor) -> NoisyLabels:
        label = self.label_mechanism(graph.num_classes)
        transition = torch.from_numpy(label.transition).float()
        return NoisyLabels(
            labels=labels,
            classes=graph.num_classes,
            train=nodes_of(graph.mask("train")),
            val=nodes_of(graph.mask("val")),
            keep=label.keep,
            transition=transition if self.forward_correction and label.keep < 1 else None,
            smoothing=self._smoothing(graph),
        )

    def _kprop(self, graph: Graph, steps: int) -> KProp:
        return KProp(
            adjacency=graph.adjacency,
            steps=steps,
            aggregator=self.aggregator,
            self_loops=self.self_loops,
            isolated=self.isolated,
        )

    def _build(self, generator: torch.Generator) -> Backbone:
        widths = Widths(features=self._shape["features"], hidden=self.hidden, classes=self._shape["classes"])
        return backbone(
            self.backbone,
            widths,
            activation=self.activation,
            dropout=self.dropout,
            generator=generator,
        )

    def _schedule(self) -> Schedule:
        return Schedule(epochs=self.epochs, learning_rate=self.learning_rate, weight_decay=self.weight_decay)

    # -- afterwards ----------------------------------------------------------------------------------------

    def score(self, graph: Graph, split: str = "test") -> float:
        """Return the accuracy on test nodes or, on training and validation nodes, on what they said.

        Their own labels are protected under ``node-features``, so it is their randomised ones, of the fitted
        graph, that predictions are compared with; the best that can be expected there is the probability that
        a label is kept.
        """
        if not self._randomises or split == "test":
            return super().score(graph, split)
        said, mask = self.aggregates_["labels"], graph.mask(split)
        if len(said) != graph.num_nodes:
            raise GraphError("what training and validation nodes said is known of the fitted graph only")
        return float((self.predict()[mask] == said[mask]).float().mean())

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        if self._randomises:
            raise NotYetError(
                f"the nodes of another graph would have to randomise their features first, and {self.method} "
                "does not yet ask them without their labels; fit it on that graph"
            )
        return None

    @torch.no_grad()
    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities for another graph, from exact features and nobody's labels."""
        self._plan_of_other(graph)
        self._check_features(graph)
        assert self._network is not None
        estimates = Estimates(scaled(graph.x, self.scaling))
        inputs = propagated(estimates, self._propagation(graph, estimates))
        logits: Tensor = self._network.on(graph.adjacency)(inputs)
        return logits.softmax(dim=1)

    def _state(self) -> State:
        return {} if self._network is None else dict(self._network.state_dict())

    def _restore(self, state: State) -> None:
        self._network = self._build(PublicStreams(0).torch("restore"))
        self._network.load_state_dict(state)
        self._network.eval()
