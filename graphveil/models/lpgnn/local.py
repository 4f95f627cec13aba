"""What methods on randomised records have in common: budgets, the guarantee, and one collection a fit."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil.aggregate import ReleasePlan
from graphveil.collect import Collector, Survey
from graphveil.errors import ConfigError, GraphError, NotYetError
from graphveil.graph import Adjacency, Graph, rows
from graphveil.graph.features import as_features
from graphveil.graph.recipes import RANGES_PUBLIC
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelRR
from graphveil.mechanisms.claim import Claim, check_budget
from graphveil.mechanisms.local.bounds import FROM_DATA, Ends
from graphveil.mechanisms.local.feature_rr import Decode
from graphveil.mechanisms.local.feature_rr import Mode as Rounding
from graphveil.models.base import SEEDED, Estimator
from graphveil.models.cards import ReleaseRow
from graphveil.models.context import FitContext, OnProgress, silent
from graphveil.models.lpgnn.collected import Ids, agreed, as_graph
from graphveil.models.lpgnn.elsewhere import Collection, Heard, collection_of, joined
from graphveil.models.lpgnn.inputs import Estimates
from graphveil.models.lpgnn.laws import GAUSSIAN_DELTA, BinCount, FeatureLaw, Samples, report_rows
from graphveil.models.lpgnn.records import UNKNOWN, Randomised, Randomiser, no_reports, outside
from graphveil.models.lpgnn.scaling import ROW_SCALED, SCALINGS, Scaling, scaled
from graphveil.models.questions import Asked, check_subject
from graphveil.privacy import Entry, Guarantee, LocalReport, NodeFeatures, budget_of, compose

_PARTS: tuple[Literal["features", "label"], ...] = ("features", "label")
_OF_RECORDS = (  # the parameters that say what a report is
    *("unit", "mode", "delta", "eps_x", "eps_y", "features", "m", "theta", "k", "rounding", "decode"),
    *("low", "high", "scaling", "data_dependent_bounds"),
)


@dataclass(kw_only=True, eq=False)
class LocalEstimator(Estimator):
    """Base of methods that learn from records which each node randomises, over public edges.

    Under unit ``node-features`` every node randomises its features, and training and validation nodes their
    label, before the method sees anything. A fit is one collection: booked before it, resumed without another
    one. Under unit ``none`` records are exact.

    Args:
        eps_x: the budget of a node's features; inf sends them as they are.
        eps_y: the budget of its label; inf sends it as it is.
        features: how features are randomised: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``,
            ``"piecewise"``, ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each),
            ``"feature-rr"`` or ``"feature-rr-naive"``.
        m: of ``"multi-bit"``: ``"best"``, ``"floor"`` (the paper's) or a number of features.
        theta: public weights of the features, which add up to one: feature i tells at eps_x theta_i. Of
            ``"feature-rr"``, ``"lpm"`` and those that tell about a sample otherwise.
        k, rounding, decode: of ``"feature-rr"``: its bins, see :class:`~graphveil.mechanisms.FeatureRR`.
        low, high: the public range of all features, or one end a feature; what lies outside is cut. How many
            values are is counted in ``clipped_``, which is private.
        scaling: how features come into that range: ``"none"``, ``"row"`` (each node by its own smallest and
            largest feature) or ``"columns"`` (by everybody's, as in the paper: see below).
        data_dependent_bounds: your word for ``"columns"``, which tells about the records it is computed from
            and voids the guarantee.
    """

    local: ClassVar[bool] = True

    eps_x: float | None = None
    eps_y: float | None = None
    features: str = "multi-bit"
    m: Samples = "best"
    theta: tuple[float, ...] | None = None
    k: BinCount = "auto"
    rounding: Rounding = "stochastic"
    decode: Decode = "unbiased"
    low: Ends = 0.0
    high: Ends = 1.0
    scaling: Scaling = "none"
    data_dependent_bounds: bool = False

    clipped_: int | None = field(default=None, init=False, repr=False)  # private: it stays inside
    agreement_: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _reports: Randomised | None = field(default=None, init=False, repr=False)  # of the last fit
    _received: Randomised | None = field(default=None, init=False, repr=False)  # for the next one

    @classmethod
    def from_survey(cls, survey: Survey, **configuration: Any) -> Self:
        """Return an estimator for what devices answer to a survey, see :meth:`fit_collected`.

        Args:
            survey: says what is protected, how, and at which budgets.
            configuration: further constructor keywords.

        Raises:
            ConfigError: a keyword contradicts the survey; it does not collect both features and labels, or
                took its bounds from data.

        >>> from graphveil.mechanisms import MultiBit
        >>> from graphveil.models.lpgnn import LPGNN
        >>> asked = Survey(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0, classes=3))
        >>> model = LPGNN.from_survey(asked, x_steps=16)
        >>> model.eps_x, model.eps_y, model.mechanism(8) == asked.features
        (1.0, 2.0, True)
        """
        return cls(**agreed(survey, configuration))

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
            k=self.k,
            rounding=self.rounding,
            decode=self.decode,
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
        promise = promise.with_deviations(*_deviations_of(graph))
        received = self._received is not None
        return dataclasses.replace(promise, notes=self._notes(graph), received=received)

    def promise_for(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        self._sizes = {"features": features, "classes": classes}
        claims = self.mechanism(features).claim, self.label_mechanism(classes).claim
        parts = [
            LocalReport(part, claim.epsilon, claim.delta) for part, claim in zip(_PARTS, claims, strict=True)
        ]
        return Guarantee.of(
            NodeFeatures(),
            compose(*parts),
            delta=sum(claim.delta for claim in claims),
            releases=len(parts),
            mode=self.mode,
            deviations=self._own_deviations(claims[0]),
        )

    def _own_deviations(self, claim: Claim) -> tuple[str, ...]:
        """Return why what a node tells about its features keeps no promise; empty if it does."""
        paper = self.paper_deviations if self.mode == "paper" else ()
        seeded = () if self.unsafe_noise_seed is None else (SEEDED,)
        return (*claim.deviations, *paper, *seeded)

    def _notes(self, graph: Graph) -> tuple[str, ...]:
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        return (*notes, ROW_SCALED) if self.scaling == "row" else notes

    def release_rows(self, plan: ReleasePlan | None) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node."""
        if not self._randomises:
            return super().release_rows(plan)
        shape = self._shape or self._sizes  # as fitted or loaded, or as promised
        return report_rows(self.mechanism(shape["features"]), self.label_mechanism(shape["classes"]))

    # -- one collection ------------------------------------------------------------------------------------

    def fit_collected(
        self,
        collector: Collector,
        adjacency: Adjacency,
        *,
        public_features: object = None,
        ids: Ids | None = None,
        on_progress: OnProgress = silent,
    ) -> Self:
        """Learn from what devices sent, over public edges, and predict all nodes.

        Nothing is randomised here: no noise is drawn, and nothing booked, because every node paid before its
        message left. The guarantee is the survey's, about what had left the devices. A node that has not
        answered has the middle of every feature's range and no label. Two thirds of those that have are
        trained on, and the epoch is chosen on the others; ``seed`` says which. There is no accuracy to be
        had: no exact label is here.

        Args:
            collector: the messages, of the survey that the estimator is from.
            adjacency: the public edges between its nodes, numbered as there.
            public_features: features (N, d) of all nodes that are no secret, for a survey that asks for the
                label alone. The guarantee says eps_x = inf of them, which is no protection.
            ids: the nodes' own ids (N), for tables of predictions.

        Raises:
            ConfigError: the estimator is not of the collector's survey, or ``unsafe_noise_seed`` is given;
                public features are missing, not asked for, or outside ``low`` and ``high``.
            GraphError: the sizes differ, or fewer than two nodes have answered.
        """
        agreed(collector.survey, self.get_params())
        public = self._public(collector.survey, public_features)
        graph, received = as_graph(collector, adjacency, seed=self.seed, ids=ids, public=public)
        return self._fit_received(graph, received, on_progress)

    def _public(self, survey: Survey, given: object) -> Estimates | None:
        """Return public features in the place of estimates, where the survey asks for none."""
        if (given is None) != (survey.features is not None):
            raise ConfigError(
                "the survey asks for no features, so public ones are needed: public_features=, one row a node"
                if given is None
                else "the survey asks for features, and what was said is learned from; drop public_features"
            )
        if given is None:
            return None
        x = scaled(as_features(given), self.scaling)
        if count := outside(self._law().bounds, x):
            raise ConfigError(
                f"{count:,} values of the public features lie outside low={self.low!r} and "
                f"high={self.high!r}, and would be cut; say their range (--set low=.. --set high=..), or "
                "scaling='row'"
            )
        return Estimates(x)

    def fit_reports_of(
        self, fitted: "LocalEstimator", graph: Graph, *, on_progress: OnProgress = silent
    ) -> Self:
        """Learn from the reports that another model was fitted to, on the same graph, at no further cost.

        Nothing is randomised here, and nothing booked: whatever is computed from reports that were paid for
        is free. The guarantee is the other model's. What it says about a node holds for both models together.

        Args:
            fitted: fitted in this process; reports are not saved with a model.
            graph: the graph it was fitted to, with the same split.

        Raises:
            ConfigError: the two models randomise records differently, or the other one has no reports.
            GraphError: the nodes, or those that told their label, are not those of the reports.
        """
        reports = fitted._reports
        if reports is None:
            raise ConfigError(
                "the other model has no reports: it is not fitted, or comes from a file, which does not hold "
                "them; fit it in this process first"
            )
        self._check_same_records(fitted)
        telling = (graph.mask("train") | graph.mask("val")).numpy()
        if not np.array_equal(reports.labels.numpy() != UNKNOWN, telling):
            raise GraphError(
                "the reports are of other nodes or another split; pass the graph that the other model was "
                "fitted to"
            )
        self._fit_received(graph, reports, on_progress)
        self.clipped_, self.guarantee_ = fitted.clipped_, fitted.guarantee
        return self

    def _check_same_records(self, fitted: "LocalEstimator") -> None:
        """Require that both models mean the same by a report."""
        for name in _OF_RECORDS:
            own, other = getattr(self, name), getattr(fitted, name)
            if own != other:
                raise ConfigError(
                    f"{name}={own!r} is not how the reports were made, which is {name}={other!r}; take that, "
                    "or fit(graph), which is a collection of its own"
                )

    def _fit_received(self, graph: Graph, received: Randomised, on_progress: OnProgress) -> Self:
        self._received = received
        try:
            return self.fit(graph, on_progress=on_progress)
        finally:
            self._received = None

    def _records(self, graph: Graph, context: FitContext) -> Randomised:
        """Have every node randomise its record, and book what that costs; exact records without a unit."""
        if self._received is not None:
            self.clipped_ = None  # only the devices know
            return self._received
        x = scaled(graph.x, self.scaling)
        if not self._randomises:
            return no_reports(graph, x)
        kept = None if context.workspace is None else context.workspace / "reports.safetensors"
        book = context.budget or budget_of(graph.edge_set)
        if kept is None or not kept.exists():
            book.check(self._entry("unbooked", self.guarantee))  # before anything is told
        self.clipped_ = outside(self._law().bounds, x)
        records = self._randomiser()(graph, x, self.unsafe_noise_seed, kept)
        if all(known.release_id != records.release_id for known in book.entries):
            book.book(self._entry(records.release_id, self.guarantee))
        context.on_booked()
        if records.reproducible:
            self.guarantee_ = self.guarantee.with_deviations(SEEDED)
        return records

    def _randomiser(self) -> Randomiser:
        shape = self._shape
        return Randomiser(
            mechanism=self.mechanism(shape["features"]), label=self.label_mechanism(shape["classes"])
        )

    def _entry(self, release_id: str, price: Guarantee) -> Entry:
        return Entry(release_id, self.method, price.event, unit=NodeFeatures())

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

    # -- other graphs --------------------------------------------------------------------------------------

    def fit(self, graph: Graph, *, on_progress: OnProgress = silent, workspace: Path | None = None) -> Self:
        """Have every node randomise its record, once, learn from what they told, and predict all nodes.

        Errors and arguments are those of :meth:`Estimator.fit`; of a graph that grows from this one, the new
        nodes alone are asked.
        """
        super().fit(graph, on_progress=on_progress, workspace=workspace)
        if self._reports is not None:
            heard = Heard(None, (), self._fitted(), self._reports)
            self._answers.keep(graph.adjacency.version, graph.x, heard)
        return self

    def _questions(self, graph: Graph, disjoint_edges: bool, disjoint_people: bool) -> Sequence[Asked]:
        if not self._randomises:
            return super()._questions(graph, disjoint_edges, disjoint_people)
        check_subject(self, disjoint_edges, disjoint_people)
        if self._answers.find(graph.adjacency.version, graph.x) is not None:
            return []
        self._check_unit(graph)
        self._check_features(graph)
        if self.guarantee.received:
            raise ConfigError(
                f"this {self.method} learned from messages, and no raw features are asked here: have the "
                "nodes of the other graph answer the survey, and learn from all messages (fit_collected, "
                "collect learn), which costs those who have answered nothing more"
            )
        return [collection_of(self, graph, self._price_of_features(graph), disjoint_people, self._hear)]

    def _price_of_features(self, graph: Graph) -> Guarantee:
        """Return the guarantee of one report on the features of each node, and on nothing else."""
        claim = self.mechanism(graph.num_features).claim
        report = LocalReport("features", claim.epsilon, claim.delta)
        alone = Guarantee.of(
            NodeFeatures(),
            compose(report),
            delta=claim.delta,
            releases=1,
            mode=self.mode,
            notes=self._notes(graph),
        )
        deviations = (*self._own_deviations(claim), *_deviations_of(graph), *self.guarantee.deviations)
        return alone.with_deviations(*deviations)

    def _hear(self, collection: Collection, context: FitContext) -> Heard:
        """Have the nodes of a collection randomise their features, book it, and predict the graph."""
        graph, price = collection.graph, collection.price
        book = context.budget or budget_of(collection.people)
        book.check(self._entry("unbooked", price))  # before anything is told
        own = rows(graph.x, torch.arange(collection.first, graph.num_nodes))
        new = self._randomiser().features_alone(
            scaled(own, self.scaling), self.unsafe_noise_seed, self._told.releases
        )
        book.book(self._entry(new.release_id, price))
        context.on_booked()
        records = joined(collection.before, new)
        return Heard(None, (), self._predict_told(graph, records), records)

    @abstractmethod
    def _predict_told(self, graph: Graph, records: Randomised) -> Tensor:
        """Return probabilities (N, C) of a graph from what its nodes told."""


def _deviations_of(graph: Graph) -> tuple[str, ...]:
    """Return why a graph's records keep no promise: a recipe that scales columns reads everybody's data."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
    return (*graph.deviations, *ranges)
