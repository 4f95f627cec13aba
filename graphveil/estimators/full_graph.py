"""GNNs that pass messages along edges in every training step, without privacy or on a released graph.

``GCN`` and ``GAT`` are non-private references. With ``perturb`` they read the edges of a released graph only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphveil._util import checks
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import DirectedEdge, LocalAttributes, NoUnit
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.base import Estimator
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.objective import fit_nonprivate
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import (
    EDGE_LEVEL,
    EXACT_RECORDS,
    MIXED_EDGES,
    NODE_LEVEL,
    Rejections,
    rejected,
)
from graphveil.estimators.session import Session
from graphveil.nn.layers import ACTIVATIONS, batch_of
from graphveil.nn.message_passing import (
    HEADS,
    GatNetwork,
    GcnNetwork,
    LayerKind,
    ResidualNetwork,
    SageNetwork,
)
from graphveil.perturb import MECHANISMS, GraphMechanism, parse_mechanism
from graphveil.perturb.mechanism import MAX_EDGES, domain_of, public_edges_of
from graphveil.privacy import Guarantee
from graphveil.training import TrainingSchedule
from graphveil.training.heads import MULTICLASS, MULTILABEL, TaskHead

_ON_EXACT_EDGES = {
    **rejected(
        "{method} reads the exact edges in every training step, so it supports unit 'none' only, but the "
        "unit is {unit!r}. Use method 'classcode' or 'gap', or train on a perturbed graph with "
        "perturb='edge-rr' (--perturb edge-rr).",
        *EDGE_LEVEL,
        *NODE_LEVEL,
        error=NotImplementedGuaranteeError,
    ),
    **EXACT_RECORDS,
    **MIXED_EDGES,
}
_ON_PERTURBED_EDGES = rejected(
    "perturb={perturb!r} (--perturb) releases a perturbed graph, which needs a unit that protects edges, but "
    f"the unit is {{unit!r}}. Use unit {', '.join(map(repr, EDGE_LEVEL[:-1]))} or {EDGE_LEVEL[-1]!r}.",
    *NODE_LEVEL,
    LocalAttributes.name,
    NoUnit.name,
)


# A network of which features, classes and the generator of its parameters are open. It maps a batch of all
# nodes and an adjacency to logits.
Shape = partial[nn.Module]
_NETWORKS: dict[LayerKind, type[nn.Module]] = {"gcn": GcnNetwork, "sage": SageNetwork, "gat": GatNetwork}
GRAPH_INPUT_NOTE = (
    "the model was trained on a released graph, drawn once by {mechanism}, and predicts on it alone: no "
    "prediction reads a true edge"
)


@dataclass(frozen=True, kw_only=True)
class GraphReleaseMethod(Method):
    """A method that reads the exact edges, without privacy, or those of one released graph."""

    mechanism: GraphMechanism | None = None
    input_note: str = field(default=GRAPH_INPUT_NOTE, repr=False)

    def check(self, view: Graph) -> None:
        super().check(view)
        if self.mechanism is not None:
            self.mechanism.check(view, self.privacy_config.unit, domain_of(view, self.privacy_config.unit))

    def with_pairs(self, sizes: PublicSizes, view: Graph) -> PublicSizes:
        """Return the sizes with the protected node pairs of a graph, if a mechanism releases it."""
        return (
            sizes
            if self.mechanism is None
            else replace(sizes, domain=domain_of(view, self.privacy_config.unit))
        )

    def sizes_of(self, view: Graph) -> PublicSizes:
        return self.with_pairs(super().sizes_of(view), view)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the release. If the protected node pairs are unknown, all are assumed to be protected."""
        if self.mechanism is None:
            return None
        unit = self.privacy_config.unit
        whole = Domain.whole(sizes.nodes, directed=isinstance(unit, DirectedEdge))
        return self.mechanism.plan(unit, sizes.domain or whole)

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        """Return the guarantee of the released graph. Everything computed from it is post-processing."""
        guarantee = super().guarantee(plan, view)
        return guarantee if self.mechanism is None else replace(guarantee, graph=True)

    def deviations(self, view: Graph) -> tuple[str, ...]:
        own = super().deviations(view)
        if self.mechanism is None:
            return own
        return (*self.mechanism.deviations(domain_of(view, self.privacy_config.unit)), *own)

    def notes(self, view: Graph) -> tuple[str, ...]:
        notes = super().notes(view)
        if self.mechanism is None:
            return notes
        return (*notes, self.input_note.format(mechanism=self.mechanism.name))

    def released(self, view: Graph, session: Session) -> tuple[State, Graph]:
        """Return the released node pairs by name, and the graph of them; without a mechanism the exact graph.

        Public edges are kept. Everything in a released graph is public.
        """
        if self.mechanism is None:
            return {}, view
        unit = self.privacy_config.unit
        domain, known = domain_of(view, unit), public_edges_of(view, unit)
        with session.stage("aggregate"):
            release = session.open(view)
            slots = self.mechanism.sample_edges(release, domain)
            release.close()
        adjacency = self.mechanism.adjacency(slots, domain, known, "")
        return {"graph": slots}, view.replace(adjacency=adjacency, public=None)


@dataclass(frozen=True, eq=False)
class GraphReleaseModel(TrainedModel):
    """A trained model that reads the exact edges, or those that a mechanism releases for a prediction."""

    method: GraphReleaseMethod

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        return self.method.with_pairs(super().sizes_for(view, fitted), view)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        return self.method.plan(sizes)


@dataclass(frozen=True, kw_only=True)
class FullGraphMethod(GraphReleaseMethod):
    """A network over the exact edges, without privacy, or over the edges of one released graph."""

    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True

    shape: Shape
    schedule: TrainingSchedule

    def check(self, view: Graph) -> None:
        super().check(view)
        self.head.labels(view)

    def sizes_of(self, view: Graph) -> PublicSizes:
        return replace(super().sizes_of(view), classes=self.head.width(view))

    def fit(self, view: Graph, session: Session) -> FitResult:
        published, view = self.released(view, session)
        generator = session.streams.torch(self.stream_name)
        network = self.shape(view.num_features, self.head.width(view), generator=generator)
        everything = batch_of(view.x)
        with session.stage("classifier"):
            fit_nonprivate(
                network,
                lambda index: network(everything, view.adjacency)[index],
                view,
                self.schedule,
                session,
                stage="classifier",
                generator=generator,
                objective=self.objective,
                head=self.head,
                every=True,
            )
        trained = TrainedFullGraph(self, network)
        return FitResult(trained=trained, proba=trained.proba(view), released=published)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedFullGraph":
        network = self.shape(sizes.width, sizes.classes, generator=torch.Generator())
        return TrainedFullGraph(self, restored(network, state))


def restored(network: nn.Module, state: State) -> nn.Module:
    network.load_state_dict(state)
    return network.eval()


@dataclass(frozen=True, eq=False)
class TrainedFullGraph(GraphReleaseModel):
    """A trained network over edges."""

    network: nn.Module

    @torch.no_grad()
    def proba(self, view: Graph) -> Tensor:
        logits: Tensor = self.network(batch_of(view.x), view.adjacency)
        return self.method.head.proba(logits)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        published, seen = self.method.released(view, session)
        return CachedPrediction(session.plan, tuple(published.values()), self.proba(seen))

    def state(self) -> State:
        return dict(self.network.state_dict())


@dataclass(kw_only=True, eq=False, repr=False)
class FullGraphKeywords(Estimator):
    """Base class of the non-private reference models: full-batch training on the whole graph, on the CPU.

    They read the exact edges in every step, so a single noisy release does not cover them. Private units are
    rejected, unless ``perturb`` releases a noisy graph first.

    Args:
        hidden: Width of the hidden layers.
        layers: Number of message-passing layers; None for 2.
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        batch_norm: Whether hidden layers normalize over the nodes; None for yes.
        dropout: Share of hidden entries dropped in training.
        epochs: Training epochs; None for 100.
        learning_rate: Step size of Adam.
        weight_decay: Penalty on squared parameters.
        patience: Stop after this number of epochs without a better validation accuracy; None never stops.
        residual: Whether each message-passing layer adds to its input, with layer norm before it. Use it with
            three or more layers, a width of 64 and a learning rate of 0.003.
        perturb: Mechanism that releases a noisy graph first (``"edge-rand"``, ``"lap-graph"``, ``"arr"``,
            ``"priv-hrg"``, ``"edge-rr"``), under an edge-level unit. Add settings in brackets:
            ``"edge-rr(structure=lazy_audited, rounds=50)"``. The model is trained on the released graph, and
            predicts from released graphs only. Under unit ``"edge-subset"`` the graph defines which edges are
            public (``Graph.with_public``), and they are kept.
        max_edges: With ``perturb``: maximum expected number of released edges; None for 20 million.

    Privacy:
        Unit: ``none``, or an edge-level unit with ``perturb``. Reads: with ``perturb`` the private edges
        once, otherwise in every step. Charges: the release of the noisy graph, or nothing for ``none``.
        Without ``perturb`` no output is private: do not publish.
    """

    mechanisms: ClassVar[Mapping[str, type[GraphMechanism]]] = MECHANISMS  # that ``perturb`` names

    hidden: int = 16
    layers: int | None = None
    activation: str = "selu"
    batch_norm: bool | None = None
    dropout: float = 0.0
    epochs: int | None = None
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    patience: int | None = None
    residual: bool = False
    perturb: str | None = None
    max_edges: int | None = None

    @property
    def _rejections(self) -> Rejections:
        return _ON_EXACT_EDGES if self.perturb is None else _ON_PERTURBED_EDGES

    def _check_config(self) -> None:
        if self.perturb is not None:
            parse_mechanism(self.perturb, self.mechanisms, epsilon=1.0)
        elif self.max_edges is not None:
            raise ConfigError(
                "max_edges has an effect only if a perturbed graph is released. Name a mechanism with "
                "perturb='edge-rr' (--perturb edge-rr), or omit max_edges."
            )
        super()._check_config()

    def _build_method(self) -> Method:
        return self._method(
            FullGraphMethod,
            shape=self._shape(),
            schedule=self._schedule(),
            mechanism=self._mechanism(),
        )

    def _shape(self) -> Shape:
        """Return the network, by default a GCN."""
        return self._network("gcn")

    def _network(self, layer: LayerKind, **own: int) -> Shape:
        style = self._layer_options()
        keywords: dict[str, Any] = {"hidden": self.hidden, "depth": self._depth(), "style": style}
        if not self.residual:
            return partial(_NETWORKS[layer], **keywords, **own)
        if self.batch_norm:
            raise ConfigError(
                "residual=True already uses layer normalization, so it cannot be combined with "
                "batch_norm=True. Omit batch_norm."
            )
        del style["batch_norm"]
        kind: type[nn.Module] = ResidualNetwork
        return partial(kind, layer=layer, heads=own.get("heads", 1), **keywords)

    def _layer_options(self, *, normed: bool = True) -> dict[str, Any]:
        checks.width(hidden=self.hidden)
        checks.one_of(ACTIVATIONS, activation=self.activation)
        checks.within(0, 0.99, dropout=self.dropout)
        norm = normed if self.batch_norm is None else self.batch_norm
        return {"activation": self.activation, "batch_norm": norm, "dropout": self.dropout}

    def _depth(self, default: int = 2) -> int:
        depth = default if self.layers is None else self.layers
        checks.depth(layers=depth)
        return depth

    def _schedule(self) -> TrainingSchedule:
        return TrainingSchedule(
            epochs=100 if self.epochs is None else self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
        )

    def _mechanism(self) -> GraphMechanism | None:
        """Return the mechanism that releases a graph. It shares the model's public randomness."""
        if self.perturb is None:
            return None
        return parse_mechanism(
            self.perturb,
            self.mechanisms,
            epsilon=self.privacy_config.budget,
            max_edges=MAX_EDGES if self.max_edges is None else self.max_edges,
            seed=0 if self.seed is None else self.seed,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class GCN(FullGraphKeywords):
    """Train a graph convolutional network (Kipf, Welling: Semi-supervised classification with GCNs, 2017).

    Every node gets a self-loop, and edges are normalized by the degrees of both ends:

        H <- act(norm(D^-1/2 (A + I)^T D^-1/2 H W + b)),   D = 1 + in-degree.

    The last layer has no activation. With ``multi_label`` a node has any number of the L labels of
    ``Graph.label_sets``. The loss is then binary cross entropy, ``predict`` returns the labels with
    probability above one half, and ``score`` is micro F1.

    Shapes: features (N, d) to probabilities (N, C), or (N, L).

    Args:
        multi_label: Learn label sets instead of one class per node.

    Raises:
        GraphError: If ``multi_label`` is set and the graph has no label sets.
        NotImplementedGuaranteeError: If the unit is not ``"none"`` and no graph is released first.

    Privacy:
        Unit: ``none``, or an edge-level unit with ``perturb``. Reads: exact edges, or the released graph.
        Charges: the release of the noisy graph. Without ``perturb`` there is no guarantee.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> GCN(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "gcn"

    multi_label: bool = False

    @property
    def _task_head(self) -> TaskHead:
        return MULTILABEL if self.multi_label else MULTICLASS


@dataclass(kw_only=True, eq=False, repr=False)
class GAT(FullGraphKeywords):
    """Train a graph attention network (Veličković et al.: Graph attention networks, 2018).

    Every node aggregates its in-neighbors and itself, with learned attention weights for each head:

        h_v <- act(norm(b + sum_u a_uv W h_u)),   a_uv = softmax over u of leaky_relu(s . W h_u + g . W h_v).

    The heads of a hidden layer are concatenated. The last layer has one head and no activation. Unlike in the
    paper, ``dropout`` applies to hidden entries and not to attention weights. Time is proportional to edges,
    heads and width. Memory is proportional to edges times heads.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        heads: Heads of the hidden layers, each of width ``hidden``.

    Raises:
        NotImplementedGuaranteeError: If the unit is not ``"none"`` and no graph is released first.
        ConfigError: If ``heads`` is not an integer above 0, or hidden layers are too wide.

    Privacy:
        Unit: ``none``, or an edge-level unit with ``perturb``. Reads: exact edges, or the released graph.
        Charges: the release of the noisy graph. Without ``perturb`` there is no guarantee.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> GAT(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "gat"

    heads: int = HEADS

    def _shape(self) -> Shape:
        shape = self._network("gat", heads=self.heads)
        checks.width(heads=self.heads)
        checks.width(**{"heads * hidden": self.heads * self.hidden})
        return shape
