"""HeteroRR: randomized features, randomized private edges, and a graph convolutional network on both."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Graph
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute, none_before_fit
from graphveil.estimators.full_graph import (
    FullGraphKeywords,
    build_graph_mechanism,
    layer_options,
    resolve_depth,
    resolve_schedule,
)
from graphveil.estimators.mlp import MLP
from graphveil.estimators.requirements import check_on_cpu
from graphveil.local.heterorr.method import HeteroFullGraph
from graphveil.local.heterorr.randomized_features import FeatureRandomizer
from graphveil.local.lpgnn.keywords import FeatureKeywords
from graphveil.local.lpgnn.report_config import feature_report_config
from graphveil.mechanisms.claim import check_budget
from graphveil.nn.gcn import GcnArchitecture
from graphveil.privacy import EdgeSubset
from graphveil.training import TrainingSchedule

_PAPER_EPOCHS, _PAPER_PATIENCE = 2000, 50
_NAIVE = {"features": "feature-rr-naive", "k": "auto", "rounding": "stochastic", "decode": "unbiased"}


@dataclass(kw_only=True, eq=False, repr=False)
class HeteroRR(FeatureKeywords, FullGraphKeywords, Estimator):
    """Features and private edges are randomized apart, and a network learns from both (HeteroRR).

        X~ = FeatureRR(X; eps_x),   G~ = EdgeRR(G; epsilon),   GCN on (X~, G~) with labels as they are.

    Both come out once and are kept: whatever is computed from them costs nothing more. The network sees X~
    and G~ alone, in training and where it predicts, and never a true feature or a true private edge.

    Guarantee: two, about different things, which are never added. Each private edge: (epsilon, delta), with
    delta that of the mechanism's random walk, 0 for most. Each node's features: eps_x-LDP. Labels, who is in
    the data, public edges and the list of nodes that may have private ones are not protected.

    Paper mode takes the source's own steps: the dendrogram by alternating walks with the exponent
    eps / Delta, for which nothing is proved, bins of tenths that are read as they are, and no batch norm.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        epsilon: of one private edge.
        eps_x: of one node's features; inf leaves them as they are.
        perturb: the mechanism of edges, with its settings in brackets: ``"edge-rr(structure=public)"``.
        features: how features are randomized; ``"multi-bit"`` tells about few of them, and far more of each.
        hidden, activation: of the two layers, 128 and ``"relu"`` in the source.

    Further arguments are those of :class:`~graphveil.local.lpgnn.keywords.FeatureKeywords` and
    :class:`~graphveil.estimators.full_graph.FullGraphKeywords`.

    Raises:
        UnitError: the unit is not ``"edge-subset"``; on ``fit``, the graph does not say what is public.
        ConfigError: ``eps_x`` is missing.

    >>> import torch
    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> from graphveil.perturb import sample_public_edges
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> public, listed = sample_public_edges(graph.adjacency, 0.2, seed=0), torch.ones(graph.num_nodes) > 0
    >>> model = HeteroRR(unit="edge-subset", epsilon=2.0, eps_x=4.0, seed=0, epochs=3)
    >>> promised = model.fit(graph.with_public(public, listed)).guarantee
    >>> promised.epsilon, promised.additional[0].epsilon
    (2.0, 4.0)
    """

    method: ClassVar[str] = "heterorr"
    scales_features: ClassVar[bool] = False
    paper_deviations: ClassVar[tuple[str, ...]] = (
        "the source's own algorithm, whose budget for private edges is not proved",
    )

    features: str = "feature-rr"
    perturb: str | None = "edge-rr"
    hidden: int = 128
    activation: str = "relu"

    clipped_ = FittedAttribute[int | None](lambda fit: fit.learned.get("clipped"), none_before_fit)

    @property
    def _protects_records(self) -> bool:
        """Whether features are randomized: columns must not be made from what all of them hold."""
        return bool(self.eps_x != float("inf"))

    def no_graph_baseline(self) -> MLP:
        """Return the unfitted baseline: as many layers, for the features as they were told
        (:meth:`with_reported_features`).

        It reads no edge, and learns from what was told already, so it costs nothing.
        """
        return MLP(
            unit=self.unit,
            seed=self.seed,
            tuned=False,
            layers=resolve_depth(self),
            hidden=self.hidden,
            activation=self.activation,
            batch_norm=self.batch_norm,
            dropout=self.dropout,
            epochs=self._schedule().epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self._schedule().patience,
        )

    def with_reported_features(self, graph: Graph) -> Graph:
        """Return the fitted graph with its features as they were told: what the network saw of them.

        Edges are as they are; the released ones are ``aggregates_["graph"]``, the numbers of their slots.
        """
        method = self.fitted.method
        assert isinstance(method, HeteroFullGraph)
        return method.feature_randomizer.seen(graph, self.aggregates_)

    def reported_feature_row(self, features: int) -> ReleaseRow:
        """Return what leaves a node of so many features, as a line of a table."""
        method = self.config
        assert isinstance(method, HeteroFullGraph)
        return method.feature_randomizer.row(features)

    def _check_config(self) -> None:
        if self.unit not in (None, EdgeSubset.name):
            raise UnitError(
                "heterorr protects private edges beside public ones, and features: use unit "
                f"'edge-subset', got {self.unit!r}; without noise there is 'gcn', unit 'none'"
            )
        if self.perturb is None:
            raise ConfigError("heterorr releases a graph: name a mechanism with perturb=, such as 'edge-rr'")
        super()._check_config()
        if self.eps_x is None:
            raise ConfigError(
                "heterorr has two budgets, and that of features is missing: pass eps_x= (--set eps_x=4; inf "
                "leaves features as they are) beside epsilon, which is for private edges"
            )
        check_budget(eps_x=self.eps_x)
        if self.delta not in ("auto", 0) and self.features != "agm":
            raise ConfigError(
                f"delta={self.delta!r} is for features='agm'; that of a random walk is a setting of it, "
                "perturb='edge-rr(structure=lazy_audited, delta=1e-7)'; drop it"
            )

    def _build_method(self) -> HeteroFullGraph:
        check_on_cpu(self.method, self.device)
        privacy_config, paper = self.privacy_config, self.mode == "paper"
        assert self.perturb is not None  # it was checked before
        shape = GcnArchitecture(
            hidden=self.hidden, depth=resolve_depth(self), style=layer_options(self, normed=not paper)
        )
        return HeteroFullGraph(
            name=self.method,
            privacy_config=privacy_config,
            device=self.device,
            shape=shape,
            schedule=self._schedule(),
            mechanism=build_graph_mechanism(privacy_config, self.perturb, self.max_edges),
            feature_randomizer=FeatureRandomizer(
                method=self.method,
                report_config=feature_report_config(self._read(), privacy_config),
                scaling=self.scaling,
            ),
        )

    def _read(self) -> FeatureKeywords:
        """Return how features are randomized; in paper mode bins are the source's, unless they are given."""
        kept = {name: getattr(self, name) for name in FeatureKeywords.__dataclass_fields__}
        given = any(kept[name] != value for name, value in _NAIVE.items() if name != "features")
        source = self.mode == "paper" and self.features == "feature-rr" and not given
        return FeatureKeywords(**(kept | _NAIVE if source else kept))

    def _schedule(self) -> TrainingSchedule:
        """Return the schedule, in paper mode the source's where it is left open."""
        schedule = resolve_schedule(self)
        if self.mode != "paper":
            return schedule
        epochs = _PAPER_EPOCHS if self.epochs is None else self.epochs
        patience = _PAPER_PATIENCE if self.patience is None else self.patience
        return TrainingSchedule(
            epochs=epochs,
            learning_rate=schedule.learning_rate,
            weight_decay=schedule.weight_decay,
            patience=patience,
        )
