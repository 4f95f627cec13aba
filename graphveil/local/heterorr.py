"""HeteroRR: randomize features and private edges with separate budgets, and train a GCN on both."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from graphveil.core.features import Features
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import UNITS, EdgeSubset, LocalAttributes, NoUnit
from graphveil.core.view import owner_total, protected_view
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.full_graph import (
    FullGraphKeywords,
    FullGraphMethod,
)
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.mlp import MLP
from graphveil.estimators.privacy_config import SEEDED
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.local.collect.protocol import report_guarantee
from graphveil.local.local_method import record_deviations
from graphveil.local.reports import ROW_SCALED, FeatureKeywords, Randomizer, ReportConfig
from graphveil.mechanisms.features import check_budget
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow

GRAPH_AND_FEATURE_INPUT_NOTE = (
    "the model was trained on a released graph, drawn once by {mechanism}, and on features as they were "
    "reported, and predicts on these alone: no prediction reads a true private edge or a true feature"
)
_PARTS = ("values", "indices")  # names of the tensors of a report
_REJECTIONS = {
    **rejected(
        "heterorr protects private edges next to public ones, and features, so it needs unit='edge-subset', "
        "not {unit!r}. Pass the public edges with graph.with_public(edges, nodes) (--public-edges FILE "
        "--private-nodes FILE). If all edges are private, use 'classcode'.",
        *(name for name in UNITS if name != EdgeSubset.name),
    ),
    **rejected(
        "heterorr always adds noise, so unit 'none' is not valid. For training without noise use method "
        "'gcn' with unit 'none'.",
        NoUnit.name,
    ),
}


@dataclass(kw_only=True, eq=False, repr=False)
class HeteroRR(FeatureKeywords, FullGraphKeywords):
    """Train a GCN on separately randomized features and private edges (HeteroRR).

        X~ = FeatureRR(X; eps_x),   G~ = EdgeRR(G; epsilon),   GCN on (X~, G~) with exact labels.

    X~ and G~ are released once. Everything that is computed from them is post-processing and does not spend
    privacy budget. The network reads only X~ and G~, in training and for predictions. It never reads a true
    feature or a true private edge.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        epsilon: Budget of one private edge.
        eps_x: Budget of the features of one node; inf leaves them unprotected.
        perturb: Mechanism for edges, with its settings in brackets: ``"edge-rr(structure=public)"``.
        features: Mechanism for features. ``"multi-bit"`` reports a few features, each with a larger budget.
        hidden, activation: Width and activation of the two layers; the source uses 128 and ``"relu"``.

    Further arguments are those of ``FeatureKeywords`` and ``FullGraphKeywords``.

    Raises:
        UnitError: The unit is not ``"edge-subset"``; in ``fit``, the graph does not define public edges.
        ConfigError: ``eps_x`` is missing.

    Privacy:
        There are two separate guarantees, which are not added. Unit ``edge-subset``: each private edge has
        (epsilon, delta)-DP, with the delta of the random walk of the mechanism, 0 for most. Unit
        ``local-attributes``: the features of each node have eps_x-LDP. Not protected: labels, membership in
        the data, public edges, and the list of nodes that may have private edges.

    >>> import torch
    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> from graphveil.perturb import sample_public_edges
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> public, listed = sample_public_edges(graph, 0.2, seed=0), torch.ones(graph.num_nodes) > 0
    >>> model = HeteroRR(unit="edge-subset", epsilon=2.0, eps_x=4.0, seed=0, epochs=3)
    >>> promised = model.fit(graph.with_public(public, listed)).guarantee
    >>> promised.epsilon, promised.additional[0].epsilon
    (2.0, 4.0)
    """

    method: ClassVar[str] = "heterorr"
    scales_features: ClassVar[bool] = False

    features: str = "feature-rr"
    perturb: str | None = "edge-rr"
    hidden: int = 128
    activation: str = "relu"

    clipped_ = FittedAttribute[int | None](lambda fit: owner_total(fit.learned.get("clipped")))

    def no_graph_baseline(self) -> MLP:
        """Return the unfitted no-graph baseline: an MLP with as many layers, on the perturbed features.

        Fit it to ``with_reported_features(graph)``. It reads no edge and does not spend privacy budget
        (post-processing).

        Privacy:
            Reads: no data. Charges: nothing.
        """
        return MLP(
            unit=self.unit,
            seed=self.seed,
            tuned=False,
            layers=self._depth(),
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
        """Return the fitted graph with its perturbed features, as the network reads them.

        The edges are unchanged. The released edges are ``aggregates_["graph"]``, as numbers of node pairs.

        Privacy:
            Reads: released LDP reports, labels and edges. Charges: nothing (post-processing). The features of
            the result have eps_x-LDP. Its labels and edges are those of ``graph``: they are not covered.
        """
        method = self.fitted.method
        assert isinstance(method, HeteroMethod)
        return graph.replace(x=method.estimates(method.view(graph), self.aggregates_))

    @property
    def _rejections(self) -> Rejections:
        return _REJECTIONS

    def _check_config(self) -> None:
        if self.perturb is None:
            raise ConfigError(
                "heterorr publishes a noisy graph and needs a mechanism for it. Set perturb=, for "
                "example perturb='edge-rr'."
            )
        super()._check_config()
        if self.eps_x is None:
            raise ConfigError(
                "heterorr needs two budgets, and the one for features is missing. Pass eps_x= (--set "
                "eps_x=4; inf does not randomize features) as well as epsilon, which is for private "
                "edges."
            )
        check_budget(eps_x=self.eps_x)
        if self.delta not in ("auto", 0) and self.features != "agm":
            raise ConfigError(
                f"delta={self.delta!r} is only for features='agm'. Remove it. A random walk takes its "
                "delta in perturb='edge-rr(structure=lazy_audited, delta=1e-7)'."
            )

    def _build_method(self) -> "HeteroMethod":
        return self._method(
            HeteroMethod,
            shape=self._shape(),
            schedule=self._schedule(),
            mechanism=self._mechanism(),
            report_config=ReportConfig.from_privacy_config(
                self.privacy_config, features=self._feature_keywords(), label=None
            ),
        )

    def _feature_keywords(self) -> FeatureKeywords:
        return FeatureKeywords(**self._named(FeatureKeywords))


# -- the method ----


@dataclass(frozen=True, kw_only=True)
class HeteroMethod(FullGraphMethod):
    """A network on one released graph, and on features that nodes randomize locally.

    Args:
        report_config: How a node randomizes its features; labels are public.
        feature_notes: Further notes of the guarantee of features.
    """

    selects_by_metric: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = False

    input_note: str = field(default=GRAPH_AND_FEATURE_INPUT_NOTE, repr=False)
    report_config: ReportConfig
    feature_notes: tuple[str, ...] = ()

    @property
    def protects_features(self) -> bool:
        """Whether features are randomized. If so, no column may be computed from all records."""
        return self.report_config.protects_features

    def view(self, graph: Graph) -> Graph:
        """Return what a fit sees: handles of private edges, and of features if nodes randomize them."""
        return protected_view(super().view(graph), LocalAttributes(), self.report_config.public_fields)

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        """Return the guarantee of private edges, with that of features as an additional guarantee."""
        claims = self._randomizer(view).claims
        seeded = () if self.privacy_config.unsafe_noise_seed is None else (SEEDED,)
        of_features = report_guarantee(
            claims,
            deviations=(*claims["features"].deviations, *record_deviations(view), *seeded),
            notes=(*((ROW_SCALED,) if self.report_config.scaling == "row" else ()), *self.feature_notes),
            labels_public=True,
        )
        return super().guarantee(plan, view).with_additional(of_features)

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[QueryRow, ...]:
        return (*super().rows(plan, sizes), *self.report_config.rows(sizes.width, sizes.classes))

    def fit(self, view: Graph, session: Session) -> FitResult:
        return replace(super().fit(view, session), learned={"clipped": self.report_config.clipped(view.x)})

    def released(self, view: Graph, session: Session) -> tuple[State, Graph]:
        """Randomize the features of every node, then release the graph.

        Privacy:
            Unit: ``local-attributes`` for features, which are charged eps_x per node once per collection, and
            ``edge-subset`` for edges. Reads: all features and private edges. Public: the released state.
        """
        with session.stage("features"):
            # Reports are bound to node ids and the mechanism. Edges are private, and excluded.
            name = f"{self.name}: features"
            found = self._randomizer(view).collect(view, session, name, stored="features")
            # Reports are public. There are none if features were not randomized.
            reported = {f"feature_{part}": found[part] for part in _PARTS if part in found}
            seen = view.replace(x=self.estimates(view, reported))
        graph, seen = super().released(seen, session)
        return graph | reported, seen

    def estimates(self, view: Graph, released: State) -> Features:
        reported = {part: released[f"feature_{part}"] for part in _PARTS if f"feature_{part}" in released}
        return self._randomizer(view).estimates(reported, view.x).deviations

    def _randomizer(self, view: Graph) -> Randomizer:
        return self.report_config.randomizer(view.num_features, view.num_classes)
