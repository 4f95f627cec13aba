"""Estimators on randomised records: one collection a fit, further models of it for free, other graphs."""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphveil._threads import one_thread
from graphveil.collect import Collector, Survey
from graphveil.errors import ConfigError, GraphError
from graphveil.graph import Adjacency, Graph, rows
from graphveil.graph.features import as_features
from graphveil.models.base import SEEDED
from graphveil.models.inference.requests import PredictionRequest, check_subject
from graphveil.models.lpgnn.collected import Ids, agreed, as_graph
from graphveil.models.lpgnn.elsewhere import Collection, Heard, collection_of, joined
from graphveil.models.lpgnn.promise import LocalPromise
from graphveil.models.lpgnn.records import UNKNOWN, Randomised, Randomiser, no_reports, outside
from graphveil.models.lpgnn.scaling import scaled
from graphveil.models.session import OnProgress, Session, silent
from graphveil.networks.inputs import Estimates
from graphveil.privacy import Entry, Guarantee, NodeFeatures, ledger_of
from graphveil.release import ReleasePlan

_OF_RECORDS = (  # the parameters that say what a report is
    *("unit", "mode", "delta", "eps_x", "eps_y", "features", "m", "theta", "k", "rounding", "decode"),
    *("low", "high", "scaling", "data_dependent_bounds"),
)


@dataclass(kw_only=True, eq=False)
class LocalEstimator(LocalPromise):
    """Base of methods that learn from records which each node randomises, over public edges.

    A fit is one collection: booked before it, resumed without another one. Its reports serve further models,
    and the new nodes of a graph that grows are asked alone. How many values lay outside the public range is
    counted in ``clipped_``, which is private; ``agreement_`` is how often the network alone predicts what
    training and validation nodes said.
    """

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
            ConfigError: a keyword contradicts the survey; it does not collect labels, or took its bounds from
                data.

        >>> from graphveil.mechanisms import LabelRR, MultiBit
        >>> from graphveil.models.lpgnn import LPGNN
        >>> asked = Survey(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0, classes=3))
        >>> model = LPGNN.from_survey(asked, x_steps=16)
        >>> model.eps_x, model.eps_y, model.mechanism(8) == asked.features
        (1.0, 2.0, True)
        """
        return cls(**agreed(survey, configuration))

    def _guarantee_for(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        received = self._received is not None and self._randomises
        return dataclasses.replace(super()._guarantee_for(plan, graph), received=received)

    # -- one collection ------------------------------------------------------------------------------------

    @one_thread()
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
                "the survey asks for no features, so public ones are needed: public_features=, one row per "
                "node"
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

    @one_thread()
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

    def _records(self, graph: Graph, context: Session) -> Randomised:
        """Have every node randomise its record, and book what that costs; exact records without a unit."""
        if self._received is not None:
            self.clipped_ = None  # only the devices know
            return self._received
        x = scaled(graph.x, self.scaling)
        if not self._randomises:
            return no_reports(graph, x)
        kept = None if context.workspace is None else context.workspace / "reports.safetensors"
        book = context.budget or ledger_of(graph.edge_set)
        if kept is None or not kept.exists():
            book.check(self._entry("unbooked", self.guarantee))  # before anything is told
        self.clipped_ = outside(self._law().bounds, x)
        records = self._randomiser()(graph, x, self.unsafe_noise_seed, kept)
        if all(known.release_id != records.release_id for known in book.entries):
            book.record(self._entry(records.release_id, self.guarantee))
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

    def _questions(
        self, graph: Graph, disjoint_edges: bool, disjoint_people: bool
    ) -> Sequence[PredictionRequest]:
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

    def _hear(self, collection: Collection, context: Session) -> Heard:
        """Have the nodes of a collection randomise their features, book it, and predict the graph."""
        graph, price = collection.graph, collection.price
        book = context.budget or ledger_of(collection.people)
        book.check(self._entry("unbooked", price))  # before anything is told
        own = rows(graph.x, torch.arange(collection.first, graph.num_nodes))
        new = self._randomiser().features_alone(
            scaled(own, self.scaling), self.unsafe_noise_seed, self._told.releases
        )
        book.record(self._entry(new.release_id, price))
        context.on_booked()
        records = joined(collection.before, new)
        return Heard(None, (), self._predict_told(graph, records), records)

    @abstractmethod
    def _predict_told(self, graph: Graph, records: Randomised) -> Tensor:
        """Return probabilities (N, C) of a graph from what its nodes told."""
