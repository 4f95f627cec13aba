"""``AutoClassifier``: fits the method that suits a unit, a budget and a graph best.

The rules of choice are in ``estimators/choice.py``. That of unit ``local-attributes`` is here: an average of
models, weighted by the likelihood of held-out LDP reports.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.unit import (
    DirectedEdge,
    LocalAttributes,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    NoUnit,
    UndirectedEdge,
)
from graphveil.data import Graph
from graphveil.data.relational import TABLE_UNITS
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.choice import (
    Choice,
    ChosenModel,
    HIndexChoice,
    OutDegreeChoice,
    PublicChoice,
    ValidationChoice,
    read_choice,
)
from graphveil.estimators.classcode.estimator import ClassCode
from graphveil.estimators.classcode.likelihoods import Homophily
from graphveil.estimators.features.scaling import check_scaling
from graphveil.estimators.fitted import FittedAttribute, FittedModel
from graphveil.estimators.full_graph import GAT, GCN
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.mlp import MLP
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.relational import RelationalClassifier
from graphveil.estimators.requirements import MIXED_EDGES, Rejections
from graphveil.estimators.sage import SAGE
from graphveil.estimators.session import Session
from graphveil.local.label_posterior import LabelPosterior, PosteriorMethod, TrainedLabelPosterior
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod, TrainedOnReports
from graphveil.local.lpgnn import NetworkMethod, TrainedLpgnn, baseline_of
from graphveil.local.posterior_mixture import calibrated_log_likelihood, mixture_weights
from graphveil.local.reports import FeatureKeywords, LabelKeywords, RandomizedRecords, known, reported_nodes

_MIN_LIKELIHOOD = 1e-9  # keeps logarithms finite
_MAX_STANDARD_ERRORS = 2.0  # between the best option and one that is averaged with it
_WEIGHTS, _MODEL = "auto/weights", "auto/model/"
TrainedOption = TrainedLpgnn | TrainedLabelPosterior


@dataclass(frozen=True, kw_only=True)
class EvidenceChoice(LocalMethod):
    """Fit each option to the same LDP reports, and average their predictions (stacking).

    Each option predicts the reports of three folds from those of the other two. The evidence is the
    log-likelihood of these reports, after calibration by a mixture with class shares. ``stacking_weights``
    chooses the weights of the average, and which options have none.

    Args:
        options: Options by name, from the simplest to the most complex.

    Privacy:
        Unit: ``local-attributes``. Reads: LDP reports and public edges. Charges: one collection. The choice
        and all fits are post-processing of its reports.
    """

    options: Mapping[str, PosteriorMethod | NetworkMethod] = field(hash=False)

    @property
    def decision(self) -> str:
        names = ", ".join(self.options)
        return (
            f"an average of the best of {names} by the likelihood of held-out LDP reports (post-processing)"
        )

    def check(self, view: Graph) -> None:
        for option in self.options.values():
            option.check(view)

    def fit(self, view: Graph, session: Session) -> FitResult:
        networks = {
            name: option.options(view, session)  # before records are charged
            for name, option in self.options.items()
            if isinstance(option, NetworkMethod)
        }
        with session.stage("randomize"):
            records = self.collected(view, session)
        labels, fits = records.labels, list[tuple[FitResult, Tensor]]()
        for name, option in self.options.items():
            if isinstance(option, NetworkMethod):
                fits.append(option.cross_fit(view, records, networks[name], session))
            else:
                with session.stage("evidence"):
                    fits.append(option.cross_fit(view, records))
        noisy, labeled = self.noisy(view, labels), known(labels)
        weights, gains = [1.0, *[0.0] * (len(fits) - 1)], [0.0] * len(fits)
        if bool(labeled.any()):
            likelihood = noisy.likelihood[labeled]
            shares = likelihood @ noisy.shares
            ratios = torch.stack([(held[labeled] * likelihood).sum(dim=1) for _, held in fits], dim=1)
            found, evidence = stacking_weights(ratios, shares)
            weights, gains = found.tolist(), (evidence - shares.log()[:, None]).mean(dim=0).tolist()
        models = list[TrainedOption]()
        for (result, _), weight in zip(fits, weights, strict=True):
            assert isinstance(result.trained, TrainedLpgnn | TrainedLabelPosterior)
            models += [result.trained] if weight else []
        trained = ChosenOnReports.from_weights(tuple(self.options), weights, gains, models)
        learned: dict[str, Any] = {"clipped": records.clipped}
        if len(models) == 1:
            learned = {**fits[trained.chosen][0].learned, **learned}
        else:
            held = weighted_sum([without for _, without in fits], weights)
            parts = {part: reported_nodes(view, labels, part) for part in ("train", "val")}
            learned["agreement"] = {part: noisy.agreement(held, nodes) for part, nodes in parts.items()}
        return FitResult(
            trained=trained,
            proba=weighted_sum([cast(Tensor, result.proba) for result, _ in fits], weights),
            released=self.released(records),
            learned=learned,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "ChosenOnReports":
        """Return the averaged models, without reports, which are not stored with a model."""
        _, evidence, rest = read_choice(state, len(self.options))
        weights = rest.pop(_WEIGHTS)
        if weights.shape != (len(self.options),) or not bool((weights > 0).any()):
            raise ArtifactError(
                "The stored weights of the methods are damaged. Restore them from the original run folder."
            )
        models = list[TrainedOption]()
        for number in (weights > 0).nonzero()[:, 0].tolist():
            option, prefix = list(self.options.values())[number], f"{_MODEL}{len(models)}/"
            own = {name[len(prefix) :]: value for name, value in rest.items() if name.startswith(prefix)}
            models.append(option.restore(own, sizes, released))
        return ChosenOnReports.from_weights(tuple(self.options), weights.tolist(), evidence, models)


def weighted_sum(probas: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the sum of weighted probabilities; those of weight 0 are left out, so one alone is unchanged.

    >>> weighted_sum([torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])], [0.5, 0.5])
    tensor([0.7500, 0.2500])
    """
    used = [(weight, proba) for weight, proba in zip(weights, probas, strict=True) if weight]
    if len(used) == 1:
        return used[0][1]
    return torch.stack([weight * proba for weight, proba in used]).sum(dim=0)


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedModels(TrainedOnReports):
    """Several models of the same reports, whose probabilities are averaged.

    A graph that did not grow from the fitted one has no reported labels. There only networks are averaged.

    Args:
        weights: Their weights, which sum to 1.
    """

    models: tuple[TrainedOption, ...]
    weights: tuple[float, ...]

    @property
    def networks(self) -> list[TrainedLpgnn]:
        return [model for model in self.models if isinstance(model, TrainedLpgnn)]

    @property
    def reads_features(self) -> bool:
        return bool(self.networks)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        found = [model.answer(view, session, kept).proba for model in self.models]
        return CachedPrediction(None, (), weighted_sum(found, self.weights))

    def collect(self, view: Graph, before: RandomizedRecords | None, session: Session) -> CachedPrediction:
        """Randomize features once, charge the ledger, and average; see ``TrainedLpgnn.collect``."""
        first = self.networks[0]
        collected = first.collect(view, before, session)
        probas, weights = list[Tensor](), list[float]()
        for model, weight in zip(self.models, self.weights, strict=True):
            if model is first:
                probas.append(collected.proba)
            elif isinstance(model, TrainedLpgnn):
                probas.append(model.predicted(view, collected.reports, session))
            elif model.is_fitted_on(view):
                probas.append(model.answer(view, session, None).proba)
            else:
                continue
            weights.append(weight)
        shares = [weight / sum(weights) for weight in weights]
        return replace(collected, proba=weighted_sum(probas, shares))

    def state(self) -> State:
        return {
            f"{_MODEL}{number}/{name}": value
            for number, model in enumerate(self.models)
            for name, value in model.state().items()
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ChosenOnReports(TrainedOnReports, ChosenModel):
    """The average of the kept options, with the reports that all options were fitted to."""

    option_weights: tuple[float, ...]

    @classmethod
    def from_weights(
        cls, names: tuple[str, ...], weights: list[float], evidence: list[float], models: list[TrainedOption]
    ) -> Self:
        reports = models[0].reports
        shares = tuple(weight for weight in weights if weight)
        return cls(
            names=names,
            chosen=weights.index(max(weights)),
            evidence=tuple(evidence),
            model=AveragedModels(models=tuple(models), weights=shares, reports=reports),
            reports=reports,
            option_weights=tuple(weights),
        )

    @property
    def chosen_method(self) -> str:
        kept = [name for name, weight in self.weights.items() if weight]
        return kept[0] if len(kept) == 1 else f"average of {', '.join(kept)}"

    @property
    def weights(self) -> dict[str, float]:
        return dict(zip(self.names, self.option_weights, strict=True))

    def state(self) -> State:
        return {**super().state(), _WEIGHTS: torch.tensor(self.option_weights, dtype=torch.float64)}


def stacking_weights(ratios: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of each option, (K), and the log-likelihood of each report by each option.

    The weights of all options maximize the likelihood of the held-out reports, as in stacking of predictive
    distributions (Yao et al. 2018). Likelihoods are calibrated first, so that an overconfident option does
    not lose its weight. If the average is not more likely than the best option by more than one standard
    error, only the options are averaged that are at most two standard errors below the best one. Standard
    errors are those of paired differences.

    >>> ratios = torch.tensor([[1.5, 0.5], [1.4, 0.6], [1.6, 0.4], [1.5, 0.7]])
    >>> stacking_weights(ratios, torch.ones(4))[0]
    tensor([1., 0.])
    """
    evidence = [calibrated_log_likelihood(each.clamp(min=_MIN_LIKELIHOOD), shares) for each in ratios.t()]
    best = max(evidence, key=lambda each: float(each.sum()))
    calibrated = torch.stack(evidence, dim=1).exp()
    weights = mixture_weights(calibrated)
    average = calibrated_log_likelihood((ratios @ weights).clamp(min=_MIN_LIKELIHOOD), shares)
    if _standard_errors(average - best) <= 1:
        kept = [k for k, each in enumerate(evidence) if _standard_errors(best - each) <= _MAX_STANDARD_ERRORS]
        weights = torch.zeros(len(evidence))
        weights[kept] = mixture_weights(calibrated[:, kept])
    return weights, torch.stack(evidence, dim=1)


def _standard_errors(differences: Tensor) -> float:
    """Return a sum of paired differences in its standard errors; 0 if it is 0."""
    total = float(differences.sum())
    error = float(differences.std(correction=0)) * math.sqrt(len(differences))
    return total / max(error, _MIN_LIKELIHOOD) if total else 0.0


# -- the estimator ----


@dataclass(kw_only=True, eq=False, repr=False)
class AutoClassifier(FeatureKeywords, LocalEstimator):
    """Classify nodes by the method that suits the unit, the budget and the graph best.

    You give a unit and a budget. The total privacy cost is that budget, also for the decision:

    * Edge-level units: ``ClassCode`` with the whole budget, and the no-graph baseline. The one with the
      higher likelihood of public validation labels is chosen.
    * Unit ``node``: the noisy h-index of the degrees, with 2 % of mu^2, decides between the no-graph baseline
      and ``ClassCode``, which needs this query in any case.
    * Unit ``node-record``: a noisy mean out-degree, with at most 2 % of mu^2, decides between the no-graph
      baseline and ``ClassCode`` with ``read_own_edges``. The rest of the budget is spent on the chosen one.
    * Unit ``node-bounded-degree``: the no-graph baseline. Noise for all edges of a node exceeds their signal.
    * Unit ``local-attributes``: three versions of ``LabelPosterior``, ``LPGNN`` and ``SimGAT`` are fitted to
      the same LDP reports. Their predictions are averaged, with the weights that maximize the likelihood of
      held-out reports. With ``eps_x=0`` nodes report labels only, and only the first three are fitted. One
      of these predicts class shares, for graphs where neither edges nor features are informative.
    * Unit ``none``: ``GCN``, ``SAGE``, ``GAT`` or ``MLP``, by the likelihood of validation labels.

    With ``metric`` it takes the place of the likelihood. ``chosen_`` is the name of the chosen method.
    ``candidates_`` has the mean log-likelihood or metric of each candidate on validation nodes where labels
    are public, and None elsewhere. Under ``local-attributes`` it has the mean log-likelihood of a held-out
    report, above that of class shares, and ``weights_`` has the weights of the average.
    ``mean_out_degree_`` is the noisy mean under unit ``node-record``, and ``h_index_`` the noisy h-index of
    the degrees under unit ``node``.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        eps_x: Budget of a node's features under ``local-attributes``; 0 reports no features.
        missing_labels: Share of training and validation nodes without a label, which report a random class.
            A public parameter of ``local-attributes``.

    Further arguments of ``local-attributes`` are those of ``FeatureKeywords`` and ``LabelKeywords``.

    Raises:
        NotImplementedGuaranteeError: If the unit is ``edge-subset``, which has a method of its own.

    Privacy:
        Unit: edge-level. Reads and charges: as ``ClassCode``. The choice is post-processing and public.

        Unit: ``node-record``. Reads: features, labels and out-edges. Charges: one release. Both alternatives
        have at most the same mu for every record, so the adaptive choice is charged as the composition of
        the first query with one of them. Public: the noisy mean, the choice, and what the chosen method
        publishes. The prediction for node v is only for people who are authorized to access v's record.

        Unit: ``local-attributes``. Reads: LDP reports and public edges. Charges: eps_x and eps_y, once per
        collection. All fits and the choice are post-processing of the reports.

        Proofs: ``docs/privacy/proofs/accounting.md``, "Adaptive choices", and
        ``docs/privacy/proofs/local.md``, "Choices by reports".

    >>> from graphveil.data import RECIPES, synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = AutoClassifier(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=0).fit(graph)
    >>> model.chosen_ in model.candidates_, round(model.guarantee.epsilon, 3)
    (True, 1.0)
    """

    method: ClassVar[str] = "auto"
    reads_tables: ClassVar[bool] = True  # with a unit of tables
    rejections: ClassVar[Rejections] = MIXED_EDGES
    scales_features: ClassVar[bool] = True  # except under local-attributes

    missing_labels: float = 0.0

    chosen_ = FittedAttribute[str | None](lambda fit: _choice(fit).chosen_method)
    candidates_ = FittedAttribute[dict[str, float | None]](lambda fit: _choice(fit).candidates, dict)
    weights_ = FittedAttribute[dict[str, float]](lambda fit: _weights(fit), dict)
    mean_out_degree_ = FittedAttribute[float | None](lambda fit: _choice(fit).mean_out_degree)

    h_index_ = FittedAttribute[float | None](lambda fit: fit.learned.get("h_index"))

    # Of the counts of ClassCode, which are released whatever is chosen; None under other units.
    homophily_ = FittedAttribute[Homophily | None](lambda fit: fit.learned.get("homophily"))

    @property
    def choice_(self) -> dict[str, Any] | None:
        """The chosen method, all candidates, and the evidence, as plain values; None before a fit."""
        if self._fit is None:
            return None
        local = isinstance(self.fitted.method, LocalMethod)
        metric = self.fitted.method.objective.metric or "validation_log_likelihood"
        return {
            "chosen": self.chosen_,
            "candidates": self.candidates_,
            "metric": "log_likelihood" if local else metric,
            "weights": self.weights_,
            "mean_out_degree": self.mean_out_degree_,
            "h_index": self.h_index_,
        }

    @classmethod
    def is_local(cls, unit: str | None) -> bool:
        """Return whether records are randomized before the method sees them, under a unit."""
        return unit == LocalAttributes.name

    @classmethod
    def reads_labels_only(cls, configuration: Mapping[str, Any]) -> bool:
        """Return whether a model with these constructor keywords reads no features, as with ``eps_x=0``."""
        return configuration.get("eps_x") == 0

    def no_graph_baseline(self) -> Estimator:
        """Return the unfitted no-graph baseline for the same reports or the same unit.

        Privacy:
            Reads: no data. Charges: nothing.
        """
        if not self.is_local(self.unit):
            return MLP(**{**self._named(MLP), "out_degree_bound": None})
        return self._label_posterior().no_graph_baseline() if self.eps_x == 0 else baseline_of(self)

    def _check_config(self) -> None:
        super()._check_config()
        if self.is_local(self.unit):
            check_scaling(self.feature_scaling, self.feature_range, self.method, scales=False)
            return
        reports = [*fields(FeatureKeywords), *fields(LabelKeywords)]
        for part in (*reports, *(one for one in fields(self) if one.name == "missing_labels")):
            if getattr(self, part.name) != part.default:
                raise ConfigError(
                    f"{part.name}={getattr(self, part.name)!r} applies to unit 'local-attributes' only, "
                    f"where each node randomizes its record, and has no effect under {self.unit!r}. Omit it."
                )

    def _build_method(self) -> Choice | LocalMethod:
        build: dict[str, Callable[[], Choice | LocalMethod]] = {
            UndirectedEdge.name: partial(self._by_validation, ClassCode, MLP),
            DirectedEdge.name: partial(self._by_validation, ClassCode, MLP),
            Node.name: self._by_h_index,
            NodeRecord.name: self._by_out_degree,
            **dict.fromkeys(
                TABLE_UNITS, partial(self._only, RelationalClassifier, "the data are several tables")
            ),
            NodeBoundedDegree.name: partial(
                self._only, MLP, "noise for all edges of a node exceeds their signal"
            ),
            LocalAttributes.name: self._by_reports,
            NoUnit.name: partial(self._by_validation, GCN, SAGE, GAT, MLP),
        }
        return build[self.protected_unit.name]()

    def _by_validation(self, *kinds: type[Estimator]) -> ValidationChoice:
        return self._method(ValidationChoice, options=self._options(*kinds))

    def _by_out_degree(self) -> OutDegreeChoice:
        options = self._options(MLP) | self._options(ClassCode, read_own_edges=True)
        return self._method(OutDegreeChoice, options=options)

    def _by_h_index(self) -> HIndexChoice:
        # Predictions that read own lists cannot be counted.
        options = self._options(MLP) | self._options(ClassCode, read_own_edges=not self.private_metrics)
        return self._method(HIndexChoice, options=options)

    def _only(self, kind: type[Estimator], reason: str) -> PublicChoice:
        options = self._options(kind)
        return self._method(PublicChoice, options=options, reason=reason)

    def _options(self, *kinds: type[Estimator], **keywords: Any) -> dict[str, Any]:
        shared = self._named(Estimator)
        return {kind.method: kind(**shared, **keywords).config for kind in kinds}

    def _by_reports(self) -> LocalMethod:
        checks.within(0, 0.99, missing_labels=self.missing_labels)
        given: dict[str, Any] = {"name": self.method, "report_config": self.report_config()}
        models: dict[str, Estimator] = {
            "class-shares": self._label_posterior(prior="nothing"),
            "label-posterior (diffusion)": self._label_posterior(prior="diffusion"),
        }
        if self.eps_x != 0:
            further = {"unit": self.unit, "delta": self.delta, "missing_labels": self.missing_labels}
            shared = self._named(FeatureKeywords) | self._named(LabelKeywords) | further
            # Without a posterior, which is an option of its own.
            kinds: dict[str, Any] = {name: METHODS[name] for name in ("lpgnn", "simgat")}
            models |= {name: kind(**shared, posterior_steps=0) for name, kind in kinds.items()}
        models["label-posterior (mixture)"] = self._label_posterior()
        options = dict[str, PosteriorMethod | NetworkMethod]()
        for name, model in models.items():
            assert isinstance(model.config, PosteriorMethod | NetworkMethod)
            options[name] = replace(model.config, **given, privacy_config=self.privacy_config)
        return self._method(EvidenceChoice, **given, options=options)

    def _label_posterior(self, **keywords: Any) -> LabelPosterior:
        return LabelPosterior(
            unit=self.unit,
            eps_y=self.eps_y,
            labels=self.labels,
            missing_labels=self.missing_labels,
            **keywords,
        )


def _choice(fit: FittedModel) -> ChosenModel:
    assert isinstance(fit.trained, ChosenModel)
    return fit.trained


def _weights(fit: FittedModel) -> dict[str, float]:
    """Return the weights of averaged methods by name; of a single chosen method, its own."""
    choice = _choice(fit)
    return choice.weights if isinstance(choice, ChosenOnReports) else {choice.chosen_method: 1.0}
