"""The label posterior: classes from public edges and one noisy label a person, with no features at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.collect import Collector, Survey
from graphveil.errors import ConfigError
from graphveil.graph import Graph
from graphveil.graph.identity import Version
from graphveil.models.inference.cache import Answer
from graphveil.models.inference.requests import Books, PredictionRequest, Requesting, Words
from graphveil.models.learned import Learned
from graphveil.models.lpgnn.collected import agreed_label
from graphveil.models.lpgnn.drop import NoisyLabels
from graphveil.models.lpgnn.inductive import TrainedOnReports
from graphveil.models.lpgnn.local import LocalEstimator
from graphveil.models.lpgnn.method import LocalMethod
from graphveil.models.lpgnn.mixture import AROUND, Around, Mixed, Surroundings, mixed_posterior
from graphveil.models.lpgnn.randomised import told_in, unsaid
from graphveil.models.lpgnn.reporting import Reporting
from graphveil.models.method import Outcome, State
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.networks.inputs import Estimates


@dataclass(kw_only=True, eq=False, repr=False)
class LabelPosterior(LocalEstimator):
    """The posterior of each node's class, given public edges and one noisy label a person.

    Every training and validation node randomises its label at ``eps_y``, and nothing else leaves it: features
    are not read, and their budget is not spent. What is around a node then says which class it has,

        P(y_v | what was told) by the exact law of the noise,

    in several ways: a guess from afar and its neighbours, belief propagation, and either with communities of
    the public edges as a prior. They are mixed by how likely each makes told labels that it was not told
    (:func:`~graphveil.models.lpgnn.mixture.mixed_posterior`), so that what does not fit a graph loses its
    weight. There is no network, and nothing to fit but these weights (``weights_``).

    Guarantee, unit ``node-features``: eps_y-LDP for each node's label; nothing is told about its features.
    Unit ``none`` is the reference without noise.

    Shapes: labels (N) to probabilities (N, C).

    Args:
        eps_x: 0: nothing is told about features. It is there so that budgets are compared by name.
        eps_y, labels: see :class:`~graphveil.models.lpgnn.keywords.LabelKeywords`.
        around: how a node's surroundings are heeded: ``"mixture"``, ``"robust"`` (the same, and classes that
            false clients claim are not taken to be more common), ``"diffusion"`` (the guess from afar and its
            neighbours alone) or ``"nothing"`` (its own label alone: what edges add shows beside it).
        posterior_steps: how many hops away the guess from afar listens: 16 for sparse graphs, 8 for denser.
        missing_labels: the share of training and validation nodes without a label, who say a class at random:
            public, since it cannot be told from what is said.

    Raises:
        UnitError: the unit is neither ``"node-features"`` nor ``"none"``.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LabelPosterior(unit="node-features", eps_y=2.0, seed=0).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (2.0, (0.0, 2.0))
    """

    method: ClassVar[str] = "label-posterior"
    needs_features: ClassVar[bool] = False
    of_reports: ClassVar[tuple[str, ...]] = ("unit", "mode", "eps_y", "labels")

    eps_x: float | None = 0.0
    around: Around = "mixture"
    posterior_steps: int = 16
    missing_labels: float = 0.0

    weights_ = Learned[dict[str, float]](lambda fit: dict(fit.learned.get("weights", {})), dict)

    def without_edges(self) -> "LabelPosterior":
        """Return the unfitted baseline that reads no edge: the posterior of a node's own label.

        It is for the same reports (:meth:`fit_reports_of`, or :meth:`fit_collected` on the same LDP reports).
        A node that told nothing gets the most frequent class.

        >>> LabelPosterior(unit="node-features", eps_y=1.0).without_edges().around
        'nothing'
        """
        return LabelPosterior(**{**self.get_params(), "around": "nothing"})

    @classmethod
    def from_survey(cls, survey: Survey, **configuration: Any) -> Self:
        """Return an estimator for what devices answer to a survey, see :meth:`fit_collected`.

        Raises:
            ConfigError: a keyword contradicts the survey, or it asks for no label, or for features, which
                would be told for nothing.

        >>> from graphveil.mechanisms import SubsetSelection
        >>> LabelPosterior.from_survey(Survey(label=SubsetSelection(epsilon=1.0, classes=7))).labels
        'subset'
        """
        return cls(**agreed_label(survey, configuration))

    def _configured(self) -> "LabelPosteriorMethod":
        _check.one_of(tuple(AROUND), around=self.around)
        _check.integer_at_least(1, posterior_steps=self.posterior_steps)
        _check.within(0, 0.99, missing_labels=self.missing_labels)
        if self.eps_x not in (None, 0):
            raise ConfigError(
                f"eps_x={self.eps_x!r}: {self.method} reads no features, so nothing is told about them; drop "
                "it (0), or use 'lpgnn', which learns from both"
            )
        return LabelPosteriorMethod(
            name=self.method,
            terms=self._terms(),
            device=self.device,
            reporting=Reporting.of_labels(self, self._terms(), self.method),
            around=self.around,
            steps=self.posterior_steps,
            missing_labels=self.missing_labels,
        )

    def _agreed(self, survey: Survey) -> None:
        agreed_label(survey, {**self.get_params(), "eps_x": 0.0})

    def _public(self, collector: Collector, given: object) -> Estimates | None:
        """Return zeros in the place of features, which are not read."""
        if given is not None:
            raise ConfigError(f"{self.method} reads no features; drop public_features (--nodes)")
        return Estimates(torch.zeros(collector.nodes, 1))

    def _requesting(self) -> Requesting:
        """Return that other graphs are asked nothing: there are no features to tell."""
        return _asks_nobody


def _asks_nobody(books: Books, graph: Graph, words: Words) -> Sequence[PredictionRequest]:
    return ()


@dataclass(frozen=True, kw_only=True)
class LabelPosteriorMethod(LocalMethod):
    """The label posterior as a frozen method.

    Args:
        around: how a node's surroundings are heeded.
        steps: how far the guess from afar listens.
        missing_labels: the share of those asked that has no label.
    """

    around: Around
    steps: int
    missing_labels: float

    def __post_init__(self) -> None:
        """Refuse a share of missing labels where nobody randomises one, and missing ones are left out."""
        if self.missing_labels and not self.hides_labels:
            raise ConfigError(
                f"missing_labels={self.missing_labels:g} is for labels that are randomised, which without a "
                "finite eps_y none is; drop it"
            )

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Have labels randomised, and infer classes from what was told."""
        with session.stage("randomise"):
            records = self.collected(graph, session).records
        with session.stage("classifier"):
            found = self.inferred(graph, records.labels)
        agreement = {
            part: self.noisy(graph, records.labels).agreement(
                found.held_out, told_in(graph, records.labels, part)
            )
            for part in ("train", "val")
        }
        return Outcome(
            trained=TrainedLabelPosterior(reports=records, method=self, of=ref(graph.adjacency.version)),
            proba=found.log_proba.exp(),
            released={"labels": records.labels} if self.terms.protects else {},
            learned={"agreement": agreement, "weights": found.weights},
        )

    def inferred(self, graph: Graph, labels: Tensor) -> Mixed:
        """Return the posterior of all nodes; the seed deals what is held out, so answers can be repeated."""
        return mixed_posterior(
            self.noisy(graph, labels),
            self._transition(graph),
            Surroundings(graph.adjacency, self.steps),
            PublicStreams(self.terms.seed or 0).torch("held-out labels"),
            names=AROUND[self.around],
            robust=self.around == "robust",
        )

    def noisy(self, graph: Graph, labels: Tensor) -> NoisyLabels:
        """Return what is known about a graph's randomised labels."""
        label = self.reporting.label(graph.num_classes)
        return NoisyLabels(
            labels=labels,
            classes=graph.num_classes,
            train=told_in(graph, labels, "train"),
            val=told_in(graph, labels, "val"),
            keep=label.keep_with(self.missing_labels),
            blind=label.blind,
            transition=self._transition(graph),
        )

    def _transition(self, graph: Graph) -> Tensor:
        label = self.reporting.label(graph.num_classes)
        return torch.from_numpy(label.transition_with(self.missing_labels)).float()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLabelPosterior":
        """Return a posterior of edges that nobody here has; reports are not kept with it."""
        return TrainedLabelPosterior(reports=None, method=self, of=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLabelPosterior(TrainedOnReports):
    """What was told, and on which edges.

    Args:
        method: how it is heeded.
        of: the version of the fitted edges; None for a model from a file.
    """

    method: LabelPosteriorMethod
    of: "ReferenceType[Version] | None"

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Predict the fitted graph with other features, or one that has grown from it, at no cost.

        Raises:
            ConfigError: nobody in the graph told anything.
        """
        grown = {step.base for step in graph.adjacency.history} | {graph.adjacency.version}
        fitted = None if self.of is None else self.of()
        if self.reports is None or fitted not in grown:
            raise ConfigError(
                f"{self.method.name} knows a class by labels that were told around a node, and nobody in "
                "this graph told one: fit it there, which is a collection with a budget of its own. Graphs "
                "that grow from the fitted one (Graph.grow) are predicted at no cost, in the process that "
                "fitted it"
            )
        labels = unsaid(self.reports.labels, graph.num_nodes)
        return Answer(None, (), self.method.inferred(graph, labels).log_proba.exp())

    def state(self) -> State:
        """Return no weights: there is no network."""
        return {}
