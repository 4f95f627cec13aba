"""LPGNN: learns from records that were randomised one by one, over public edges."""

from dataclasses import dataclass, field, fields
from typing import ClassVar

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.graph import Graph
from graphveil.models.base import State, nodes_of
from graphveil.models.lpgnn.drop import SELECT, NoisyLabels, Select, fit_noisy
from graphveil.models.lpgnn.local import LocalEstimator
from graphveil.models.lpgnn.posterior import combined, log_posterior
from graphveil.models.lpgnn.records import UNKNOWN, Randomised
from graphveil.models.lpgnn.scaling import scaled
from graphveil.models.session import Session
from graphveil.networks.backbones import BACKBONES, Backbone, Widths, backbone
from graphveil.networks.inputs import Estimates, propagated
from graphveil.networks.layers import ACTIVATIONS
from graphveil.propagation import KProp, Propagation
from graphveil.propagation.kprop import AGGREGATORS, ISOLATED, Aggregator, Isolated
from graphveil.release import ReleasePlan
from graphveil.train import Schedule


@dataclass(kw_only=True, eq=False)
class LPGNN(LocalEstimator):
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
        eps_x, eps_y, features, m, theta, low, high, scaling, data_dependent_bounds: how a node randomises its
            record, see :class:`~graphveil.models.lpgnn.promise.LocalPromise`.
        x_steps: K_x.
        y_steps: K_y; 0 learns what each node said about itself.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: whether A^ has them.
        isolated: a node without neighbours gets ``"zero"`` from A^, or is left as it is (``"keep"``).
        backbone: ``"sage"``, ``"gcn"``, ``"gat"``, or ``"mlp"``, which sends no messages.
        forward_correction: whether the noise of labels is part of the model (T); otherwise it is learned.
        posterior_steps: if above 0, the network's probabilities are multiplied by what the randomised labels
            around a node say about it, from so many hops away (:func:`log_posterior`): 16 for sparse graphs,
            8 for denser ones.
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

    def without_edges(self) -> "LPGNN":
        """Return the unfitted baseline that reads no edge: an MLP on each node's own X' and Y'.

        It is for the same reports (:meth:`fit_reports_of`, or :meth:`fit_collected` on the same messages),
        which were paid for already. What is learned are P(y'|x) = softmax(MLP(X')) T; the width, the learning
        parameters and how the epoch is chosen are this model's own.

        >>> beside = LPGNN(unit="node-features", eps_x=1.0, eps_y=2.0, hidden=8).without_edges()
        >>> beside.backbone, beside.x_steps, beside.y_steps, beside.hidden, beside.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        own = {part.name for part in fields(LPGNN) if part.init}
        kept = {name: value for name, value in self.get_params().items() if name in own}
        nothing = {"x_steps": 0, "y_steps": 0, "posterior_steps": 0, "forward_correction": True}
        return LPGNN(**{**kept, "backbone": "mlp", **nothing})

    # -- what may be replaced ------------------------------------------------------------------------------

    def _propagation(self, graph: Graph, features: Estimates) -> Propagation:
        """Return what randomised features are propagated by; it may read them, and the public edges."""
        return self._kprop(graph, self.x_steps)

    def _smoothing(self, graph: Graph) -> Propagation | None:
        """Return what randomised labels are propagated by; None for nothing."""
        return self._kprop(graph, self.y_steps) if self.y_steps else None

    # -- configuration -------------------------------------------------------------------------------------

    def _check_config(self) -> None:
        super()._check_config()
        _check.one_of(AGGREGATORS, aggregator=self.aggregator)
        _check.one_of(ISOLATED, isolated=self.isolated)
        _check.one_of(tuple(BACKBONES), backbone=self.backbone)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.one_of(SELECT, select=self.select)
        _check.integer_at_least(
            0, x_steps=self.x_steps, y_steps=self.y_steps, posterior_steps=self.posterior_steps
        )
        _check.width(hidden=self.hidden)
        _check.within(0, 0.99, dropout=self.dropout)
        if self.device == "cuda":
            raise ConfigError(f"{self.method} runs on the CPU in this version; pass device='cpu' or 'auto'")
        self._schedule()

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        with context.stage("randomise"):
            records = self._records(graph, context)
        self._reports = records
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
        self.agreement_ = {part: self._agreement(proba, graph, part) for part in ("train", "val")}
        return self._with_labels(proba, graph, records.labels) if self.posterior_steps else proba

    def _with_labels(self, proba: Tensor, graph: Graph, labels: Tensor) -> Tensor:
        """Return probabilities that heed what was told around each node."""
        transition = torch.from_numpy(self.label_mechanism(graph.num_classes).transition).float()
        noisy = self._noisy(graph, labels)
        return combined(proba, log_posterior(noisy, transition, graph.adjacency, self.posterior_steps))

    def _agreement(self, proba: Tensor, graph: Graph, part: str) -> float:
        """Return how often the network alone predicts what nodes of a part said; the posterior heard them."""
        assert self._reports is not None
        mask = graph.mask(part)
        return float((proba.argmax(dim=1)[mask] == self._reports.labels[mask]).float().mean())

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

    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities for another graph, from exact features and nobody's labels."""
        assert not self._randomises  # its nodes have answered, then
        self._check_features(graph)
        return self._predict_from(graph, Estimates(scaled(graph.x, self.scaling)))

    @torch.no_grad()
    def _predict_from(self, graph: Graph, estimates: Estimates) -> Tensor:
        assert self._network is not None
        inputs = propagated(estimates, self._propagation(graph, estimates))
        logits: Tensor = self._network.on(graph.adjacency)(inputs)
        return logits.softmax(dim=1)

    def _predict_told(self, graph: Graph, records: Randomised) -> Tensor:
        """Return probabilities from what nodes told; labels are heeded if anybody told one."""
        proba = self._predict_from(graph, records.features)
        heed = self.posterior_steps and bool((records.labels != UNKNOWN).any())
        return self._with_labels(proba, graph, records.labels) if heed else proba

    def _state(self) -> State:
        return {} if self._network is None else dict(self._network.state_dict())

    def _restore(self, state: State) -> None:
        self._network = self._build(PublicStreams(0).torch("restore"))
        self._network.load_state_dict(state)
        self._network.eval()
