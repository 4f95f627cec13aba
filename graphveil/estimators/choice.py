"""Choices between methods within one budget, for ``AutoClassifier``.

Four rules decide here, and each is private for its own reason:

* Unit ``none`` and edge-level units (``ValidationChoice``): labels are public, so all candidates are fitted
  and the likelihood of validation labels decides, or a metric. At most one candidate queries edges. The
  choice is post-processing.
* Unit ``node-record`` (``OutDegreeChoice``): a noisy mean out-degree decides between two methods. Both cost
  the same total mu, so the plan is charged for either (``docs/privacy/proofs/accounting.md``).
* Unit ``node`` (``HIndexChoice``): the noisy h-index of the degrees decides in the same way.
* Unit ``node-bounded-degree``: public facts decide. The no-graph baseline is fitted.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Self

import torch

from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import OutDegreeSumData, OutDegreeSumQuery
from graphveil.core.queries.projected_sums import DegreeHIndexData, DegreeHIndexQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import Node, NodeUnit
from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.classcode.node import NodeLevelClassCode, wanted_share
from graphveil.estimators.classcode.projected import ProjectedClassCode
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.mlp import NodeLevelSoftmax
from graphveil.estimators.objective import Score
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.private_training import DEGREE_SHARE, degree_query
from graphveil.estimators.public_sizes import PublicSizes, record_groups
from graphveil.estimators.session import Session

MAX_OUT_DEGREE = 20  # that counts; longer lists suit the graph method in any case
MAX_OUT_DEGREE_SHARE = 0.02  # of mu^2
_PRECISION = 0.1  # standard deviation of the noisy mean over the threshold, with a smaller share
_LEAST_EVIDENCE, _EVIDENCE_OVER_FEATURES = 45.0, 85.0  # fitted to eleven public graphs at epsilon 1 to 8
_CLASSES = 6  # from which on the number of classes does not matter
_THRESHOLD = 5.0  # fitted to eleven public graphs at epsilon 1 to 8
_MIN_PROBABILITY = 1e-30  # lower bound of probabilities
_INVERSE_TEMPERATURES = tuple(2.0 ** (step / 4) for step in range(-12, 9))
_CHOSEN, _EVIDENCE = "auto/chosen", "auto/evidence"


@dataclass(frozen=True, eq=False)
class ChosenModel(TrainedModel):
    """The model of the chosen method, and the evidence of the choice.

    Args:
        evidence: Of each candidate the mean log-likelihood or metric of validation nodes, or under
            ``local-attributes`` of held-out LDP reports. Otherwise the noisy mean out-degree (1).
    """

    names: tuple[str, ...]
    chosen: int
    evidence: tuple[float, ...]
    model: TrainedModel

    @property
    def chosen_method(self) -> str:
        return self.names[self.chosen]

    @property
    def candidates(self) -> dict[str, float | None]:
        """Evidence by candidate; None if it is not public."""
        known = len(self.evidence) == len(self.names)
        return dict(zip(self.names, self.evidence if known else [None] * len(self.names), strict=True))

    @property
    def mean_out_degree(self) -> float | None:
        return self.evidence[0] if len(self.evidence) == 1 < len(self.names) else None

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        return self.model.sizes_for(view, fitted)

    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:
        self.model.check(view, class_names)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        return self.model.plan_for(sizes)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        return self.model.answer(view, session, kept)

    def state(self) -> State:
        return {
            **self.model.state(),
            _CHOSEN: torch.tensor(self.chosen),
            _EVIDENCE: torch.tensor(self.evidence, dtype=torch.float64),
        }


def read_choice(state: State, options: int) -> tuple[int, list[float], State]:
    rest = {name: value for name, value in state.items() if name not in (_CHOSEN, _EVIDENCE)}
    chosen, evidence = state[_CHOSEN], state[_EVIDENCE]
    if chosen.shape != () or not 0 <= int(chosen) < options or evidence.ndim != 1:
        raise ArtifactError(
            "The stored choice of a method is damaged. Copy the model folder from the original run again."
        )
    return int(chosen), evidence.tolist(), rest


@dataclass(frozen=True, kw_only=True)
class Choice(Method):
    """A choice between methods for one unit.

    Args:
        options: Candidate methods by name. The first one is chosen if nothing speaks against it. A fit has
            its plan, unless a choice plans for all of them.
    """

    weighs_classes: ClassVar[bool] = True

    options: Mapping[str, Method] = field(hash=False)

    @property
    def samples(self) -> bool:
        return any(option.samples for option in self.options.values())

    @property
    def first(self) -> Method:
        return next(iter(self.options.values()))

    def check(self, view: Graph) -> None:
        for option in self.options.values():
            option.check(view)

    def sizes_of(self, view: Graph) -> PublicSizes:
        return self.first.sizes_of(view)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        return self.first.plan(sizes)

    def for_graph(self, view: Graph) -> Self:
        options = {name: option.for_graph(view) for name, option in self.options.items()}
        return replace(super().for_graph(view), options=options)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> ChosenModel:
        chosen, evidence, rest = read_choice(state, len(self.options))
        option = list(self.options.values())[chosen]
        return self._model(chosen, evidence, option.restore(rest, sizes, released))

    def _model(self, chosen: int, evidence: list[float], model: TrainedModel) -> ChosenModel:
        return ChosenModel(tuple(self.options), chosen, tuple(evidence), model)


@dataclass(frozen=True, kw_only=True)
class ValidationChoice(Choice):
    """All candidates are fitted, and the likelihood of public validation labels decides, or a metric.

    Accuracy is too coarse: a few validation nodes differ by chance, and on imbalanced classes all candidates
    may predict the largest class. The likelihood is that of calibrated probabilities, with the best of some
    temperatures, so that an overconfident candidate is not rejected for that. The first candidate is the only
    one that may query edges, so a fit is charged for it alone.
    """

    supports_growing_graphs: ClassVar[bool] = True
    selects_by_metric: ClassVar[bool] = True

    @property
    def decision(self) -> str:
        measure = self.objective.metric or "likelihood"
        rule = f"one of {', '.join(self.options)} by {measure} on validation labels"
        return f"{rule}, after the release (post-processing)" if self.privacy_config.protects else rule

    def fit(self, view: Graph, session: Session) -> FitResult:
        nodes = view.labeled_in("val").nonzero()[:, 0]
        targets = self.objective.targets(view)[nodes]
        factors = _INVERSE_TEMPERATURES if self.objective.metric is None else (1.0,)
        results, scores = list[FitResult](), list[Score]()
        for number, (name, option) in enumerate(self.options.items()):
            own = session if not number else replace(session, plan=None, guarantee=None)
            if session.plan is None and session.workspace is not None:
                # Checkpoints of different networks have the same name.
                own = replace(own, workspace=session.workspace / name)
                (session.workspace / name).mkdir(parents=True, exist_ok=True)
            result = option.fit(view, own)
            assert result.proba is not None  # features and labels are public, so predictions are, too
            results.append(result)
            log_posteriors = result.proba[nodes].to(torch.float64).clamp_min(_MIN_PROBABILITY).log()
            calibrated = ((factor * log_posteriors).log_softmax(dim=1) for factor in factors)
            scores.append(max(self.objective.score(each, targets) for each in calibrated))
        best = scores.index(max(scores))
        evidence = [likelihood if self.objective.metric is None else found for found, likelihood in scores]
        return replace(
            results[best],
            trained=self._model(best, evidence, results[best].trained),
            released=dict(results[0].released),
            learned=dict(results[0].learned),
        )


@dataclass(frozen=True, kw_only=True)
class DegreeChoice(Choice):
    """A first query about degrees decides between two candidates that cost the same."""

    options: Mapping[str, NodeLevelSoftmax | NodeLevelClassCode | ProjectedClassCode] = field(hash=False)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        alternatives = tuple(len(option.queries(sizes, 1.0)) for option in self.options.values())
        return self.privacy_config.calibrated(sizes, partial(self.queries, sizes), alternatives)

    @abstractmethod
    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        """Return all queries; a release answers the first one and those of one candidate."""

    def _fit_chosen(
        self, view: Graph, session: Session, release: Release, chosen: int, evidence: list[float]
    ) -> FitResult:
        """Go on with one alternative of the open release."""
        plan = session.planned
        release.choose(chosen)
        path = [plan.queries[k] for k in plan.paths[chosen]]
        own = ReleasePlan(plan.unit, tuple(path[1:]), plan.delta, plan.slack, plan.sampler)
        result = list(self.options.values())[chosen].fit(view, replace(session, plan=own, release=release))
        return replace(result, trained=self._model(chosen, evidence, result.trained))


@dataclass(frozen=True, kw_only=True)
class OutDegreeChoice(DegreeChoice):
    """A noisy mean out-degree decides between the no-graph baseline and ClassCode, under ``node-record``.

    ClassCode predicts a node from the sum of its out-neighbors' noisy aggregates. With D the noisy mean and
    mu the budget, their signal-to-noise ratio is about D mu. Its feature encoder has a fifth of mu^2, which
    costs the more, the larger q = sqrt(p) / (mu n) is, for p parameters of a linear classifier and n training
    records. ClassCode is chosen if D mu > 5 sqrt(q). The constant was fitted to test accuracies of eleven
    public graphs (``docs/decisions/110-auto.md``). The noise of D has a standard deviation of a tenth of this
    threshold, but at most 2 % of mu^2. On graphs with thousands of nodes this is at most 0.5 % of mu^2.

    Guarantee: for a record of any group the first query is Gaussian with mu_1^2 = s mu^2, and each candidate
    is at most Gaussian with (1 - s) mu^2, whatever the first answer is.
    """

    options: Mapping[str, NodeLevelSoftmax | NodeLevelClassCode] = field(hash=False)

    @property
    def decision(self) -> str:
        return (
            f"one of {', '.join(self.options)} by a noisy mean out-degree, which has at most "
            f"{MAX_OUT_DEGREE_SHARE:.0%} of mu^2; both alternatives cost the same"
        )

    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        share = self.share(sizes, mu)
        first = OutDegreeSumQuery(bound=MAX_OUT_DEGREE, sigma=MAX_OUT_DEGREE / (mu * math.sqrt(share)))
        left = mu * math.sqrt(1 - share)
        return (first, *(query for option in self.options.values() for query in option.queries(sizes, left)))

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return that predictions may read own out-edges, as those of ClassCode do."""
        return "read"

    def fit(self, view: Graph, session: Session) -> FitResult:
        release = session.open(view, record_groups(view))
        with session.stage("choice"):
            total = float(release.answer(OutDegreeSumData()))
            mean = min(max(total / view.num_nodes, 0.0), float(MAX_OUT_DEGREE))
            chosen = self.choose(mean, session.planned, self.sizes_of(view))
        return self._fit_chosen(view, session, release, chosen, [mean])

    def choose(self, mean_out_degree: float, plan: ReleasePlan, sizes: PublicSizes) -> int:
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        return int(mean_out_degree > self.threshold(sizes, plan.mu / unit.change))

    def threshold(self, sizes: PublicSizes, mu: float) -> float:
        """Return the mean out-degree above which ClassCode is chosen, 5 sqrt(q) / mu."""
        noise_of_features = math.sqrt((sizes.width + 1) * sizes.classes) / (mu * sizes.records)
        return _THRESHOLD * math.sqrt(noise_of_features) / mu

    def share(self, sizes: PublicSizes, mu: float) -> float:
        """Return the share of mu^2 of the noisy mean: its noise is a tenth of the threshold, or larger."""
        share = (MAX_OUT_DEGREE / (mu * sizes.nodes * _PRECISION * self.threshold(sizes, mu))) ** 2
        return min(share, MAX_OUT_DEGREE_SHARE)


@dataclass(frozen=True, kw_only=True)
class HIndexChoice(DegreeChoice):
    """The noisy h-index of the degrees decides between the no-graph baseline and ClassCode, under ``node``.

    ClassCode needs this query in any case. With H its answer, mu the budget and w the share of mu^2 that the
    encoder could use (``wanted_share``), ClassCode is chosen if H mu > max(45 max(1, 6 / C), 85 w) for C
    classes: longer lists average more noise, classifiers of few classes need less budget for features, and
    large ones need it themselves. The constants were fitted to test accuracies of eleven public graphs
    (``docs/decisions/114-node-unit.md``).
    """

    options: Mapping[str, NodeLevelSoftmax | ProjectedClassCode] = field(hash=False)

    @property
    def decision(self) -> str:
        return (
            f"one of {', '.join(self.options)} by the noisy h-index of the degrees, which has "
            f"{DEGREE_SHARE:.0%} of mu^2; both alternatives cost the same"
        )

    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        first = degree_query(mu, self.privacy_config.delta_for(sizes.nodes))
        left = mu * math.sqrt(1 - DEGREE_SHARE)
        return (first, *(query for option in self.options.values() for query in option.queries(sizes, left)))

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return "queried" if self.privacy_config.private_metrics else "read"

    def fit(self, view: Graph, session: Session) -> FitResult:
        first = session.query(0, DegreeHIndexQuery)
        release = session.open(view, record_groups(view))
        with session.stage("choice"):
            noisy = float(release.answer(DegreeHIndexData()))
            chosen = self.chosen(noisy, first, self.sizes_of(view))
        result = self._fit_chosen(view, session, release, chosen, [])
        return replace(result, learned={**result.learned, "h_index": noisy})

    def chosen(self, h_index: float, query: DegreeHIndexQuery, sizes: PublicSizes) -> int:
        unit = self.privacy_config.unit
        assert isinstance(unit, Node)
        mu = 1 / (query.sigma * math.sqrt(DEGREE_SHARE) * unit.change)
        wanted = wanted_share(mu, (sizes.width + 1) * sizes.classes, sizes.records, sizes.classes)
        few = max(1.0, _CLASSES / sizes.classes)
        return int(h_index * mu > max(_LEAST_EVIDENCE * few, _EVIDENCE_OVER_FEATURES * wanted))


@dataclass(frozen=True, kw_only=True)
class PublicChoice(Choice):
    """The only candidate under a unit, which public facts decide."""

    reason: str

    @property
    def decision(self) -> str:
        return f"{', '.join(self.options)}, by public facts: {self.reason}"

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return self.first.edge_use(plan)

    def fit(self, view: Graph, session: Session) -> FitResult:
        result = self.first.fit(view, session)
        return replace(result, trained=self._model(0, [], result.trained))
