"""HeteroRR: randomize features and private edges with separate budgets, and train a GCN on both."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch

from graphveil.core.collection import ReportFile
from graphveil.core.events import LocalReport, compose
from graphveil.core.features import Features
from graphveil.core.ledger import Entry
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
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.mlp import MLP
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.local.collect.protocol import report_guarantee
from graphveil.local.local_method import record_deviations
from graphveil.local.reports import (
    ROW_SCALED,
    FeatureKeywords,
    ReportConfig,
    clipped_values,
    collect_reports,
    digest_of_ids,
    estimate_features,
    feature_row,
    randomize_features,
    scaled,
)
from graphveil.mechanisms import FeatureMechanism, LocalNoise
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
        estimates = method.feature_randomizer.estimates(method.view(graph), self.aggregates_)
        return graph.replace(x=estimates)

    def reported_feature_row(self, features: int) -> QueryRow:
        """Return the table row that describes the LDP report of a node with ``features`` features."""
        method = self.config
        assert isinstance(method, HeteroMethod)
        return method.feature_randomizer.row(features)

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
        privacy_config = self.privacy_config
        graph_method = super()._build_method()
        assert isinstance(graph_method, FullGraphMethod)
        graph_method = replace(graph_method, input_note=GRAPH_AND_FEATURE_INPUT_NOTE)
        feature_randomizer = FeatureRandomizer(
            method=self.method,
            report_config=ReportConfig.from_keywords(privacy_config, features=self._feature_keywords()),
        )
        return self._method(HeteroMethod, graph_method=graph_method, feature_randomizer=feature_randomizer)

    def _feature_keywords(self) -> FeatureKeywords:
        return FeatureKeywords(**self._named(FeatureKeywords))


# -- features ----


class RandomizedFeatures(NamedTuple):
    """Result of one collection: network inputs, released state, and clipped values per node (a handle)."""

    x: Features
    released: State
    clipped: Any


@dataclass(frozen=True, kw_only=True)
class FeatureRandomizer:
    """Randomizes the features of all nodes of a graph, independently of the model.

    Args:
        report_config: How one node randomizes its features; labels are public.
    """

    method: str
    report_config: ReportConfig
    notes: tuple[str, ...] = ()

    def mechanism(self, features: int) -> FeatureMechanism:
        found = self.report_config.mechanism(features)
        assert found is not None  # HeteroRR always reports features
        return found

    def guarantee(self, view: Graph, privacy_config: PrivacyConfig) -> Guarantee:
        claim = self.mechanism(view.num_features).claim
        seeded = () if privacy_config.unsafe_noise_seed is None else (SEEDED,)
        return report_guarantee(
            {"features": claim},
            deviations=(*claim.deviations, *record_deviations(view), *seeded),
            notes=(*((ROW_SCALED,) if self.report_config.scaling == "row" else ()), *self.notes),
            labels_public=True,
        )

    def row(self, features: int) -> QueryRow:
        return feature_row(self.mechanism(features))

    def randomize(self, view: Graph, session: Session) -> RandomizedFeatures:
        """Randomize the features of every node and charge the privacy ledger.

        If an interrupted fit is resumed, its stored reports are used again.

        Privacy:
            Unit: ``local-attributes``. Reads: all features. Charges: eps_x per node, once per collection.
            Public: the released state. Private: the number of clipped values.
        """
        with session.stage("features"):
            report_file = None
            if session.workspace is not None:
                # Reports are bound to node ids and the mechanism. Edges are private, and excluded.
                binding = {
                    "mechanism": repr(self.mechanism(view.num_features)),
                    "scaling": self.report_config.scaling,
                    "nodes": view.num_nodes,
                    "ids": digest_of_ids(view),
                }
                report_file = ReportFile(session.workspace / "features.safetensors", binding)
            claim = self.mechanism(view.num_features).claim
            event = compose(LocalReport("features", claim.epsilon, claim.delta))

            def entry(release_id: str) -> Entry:
                return Entry(release_id, f"{self.method}: features", event, unit=LocalAttributes())

            randomize = partial(self._perturb, session)
            found = collect_reports(view, session, entry, randomize, (view.x,), report_file)
            # Reports are public. There are none if features were not randomized.
            released = {f"feature_{part}": found[part] for part in _PARTS if part in found}
            clipped = clipped_values(self.report_config.bounds, view.x, self.report_config.scaling)
            return RandomizedFeatures(self.estimates(view, released), released, clipped)

    def estimates(self, view: Graph, released: State) -> Features:
        mechanism = self.mechanism(view.num_features)
        reported = {part: released[f"feature_{part}"] for part in _PARTS if f"feature_{part}" in released}
        return estimate_features(mechanism, reported, view.x, self.report_config.scaling).deviations

    def _perturb(self, session: Session, x: Features) -> State:
        noise = LocalNoise(session.noise_seed)
        mechanism = self.mechanism(x.shape[1])
        purpose = (
            "features"
            if session.collection_index is None
            else f"features, collection {session.collection_index}"
        )
        reproducible = torch.tensor(bool(noise.deviations))
        own = scaled(x, self.report_config.scaling)
        return {"reproducible": reproducible, **randomize_features(mechanism, own, noise, purpose)}


# -- the method ----


@dataclass(frozen=True, kw_only=True)
class HeteroMethod(Method):
    """A network on one released graph, and on features that nodes randomize locally."""

    graph_method: FullGraphMethod
    feature_randomizer: FeatureRandomizer

    @property
    def protects_features(self) -> bool:
        """Whether features are randomized. If so, no column may be computed from all records."""
        return not math.isinf(self.feature_randomizer.report_config.eps_x)

    def view(self, graph: Graph) -> Graph:
        """Return what a fit sees: handles of private edges, and of features if nodes randomize them."""
        public = self.feature_randomizer.report_config.public_fields
        return protected_view(super().view(graph), LocalAttributes(), public)

    def check(self, view: Graph) -> None:
        """Reject a graph that cannot be released or trained on, before anything is spent."""
        self.graph_method.check(view)

    def sizes_of(self, view: Graph) -> PublicSizes:
        return self.graph_method.sizes_of(view)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        return self.graph_method.plan(sizes)

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        """Return the guarantee of private edges, with that of features as an additional guarantee."""
        of_features = self.feature_randomizer.guarantee(view, self.privacy_config)
        return self.graph_method.guarantee(plan, view).with_additional(of_features)

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[QueryRow, ...]:
        return (*self.graph_method.rows(plan, sizes), self.feature_randomizer.row(sizes.width))

    def fit(self, view: Graph, session: Session) -> FitResult:
        features = self.feature_randomizer.randomize(view, session)
        outcome = self.graph_method.fit(view.replace(x=features.x), session)
        return replace(
            outcome,
            trained=TrainedHetero(outcome.trained, self.feature_randomizer),
            released={**outcome.released, **features.released},
            learned={"clipped": features.clipped},
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedHetero":
        trained = self.graph_method.restore(state, sizes, released)
        return TrainedHetero(trained, self.feature_randomizer)


@dataclass(frozen=True, eq=False)
class TrainedHetero(TrainedModel):
    """A trained network; to predict another graph, it releases the graph and randomizes its features."""

    graph_model: TrainedModel
    feature_randomizer: FeatureRandomizer

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        return self.graph_model.sizes_for(view, fitted)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        return self.graph_model.plan_for(sizes)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        features = self.feature_randomizer.randomize(view, session)
        return self.graph_model.answer(view.replace(x=features.x), session, kept)

    def state(self) -> State:
        return self.graph_model.state()
