"""``AutoClassifier``: fits the method that suits a unit, a budget and a graph best.

The rules of choice are in ``estimators/choice.py``, and that of unit ``local-attributes`` is in
``local/evidence_choice.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from graphveil._util import checks
from graphveil.core.unit import LocalAttributes, NodeBoundedDegree, NodeRecord
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.choice import Choice, ChosenModel, OutDegreeChoice, PublicChoice, ValidationChoice
from graphveil.estimators.classcode.estimator import ClassCode
from graphveil.estimators.classcode.likelihoods import Homophily
from graphveil.estimators.features.scaling import check_scaling
from graphveil.estimators.fitted import FittedAttribute, FittedModel, none_before_fit
from graphveil.estimators.full_graph import GAT, GCN
from graphveil.estimators.mlp import MLP
from graphveil.estimators.sage import SAGE
from graphveil.local.evidence_choice import ChosenOnReports, EvidenceChoice
from graphveil.local.label_posterior import LabelPosterior, PosteriorMethod
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod
from graphveil.local.lpgnn import NetworkMethod, baseline_of
from graphveil.local.report_config import FeatureKeywords, LabelKeywords


@dataclass(kw_only=True, eq=False, repr=False)
class AutoClassifier(FeatureKeywords, LocalEstimator):
    """Classify nodes by the method that suits the unit, the budget and the graph best.

    You give a unit and a budget. The total privacy cost is that budget, also for the decision:

    * Edge-level units: ``ClassCode`` with the whole budget, and the no-graph baseline. The one with the
      higher likelihood of public validation labels is chosen.
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
    ``mean_out_degree_`` is the noisy mean under unit ``node-record``.

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
    node_units: ClassVar[tuple[str, ...]] = ("node-record", "node-bounded-degree")
    scales_features: ClassVar[bool] = True  # except under local-attributes

    missing_labels: float = 0.0

    chosen_ = FittedAttribute[str | None](lambda fit: _choice(fit).chosen_method, none_before_fit)
    candidates_ = FittedAttribute[dict[str, float | None]](lambda fit: _choice(fit).candidates, dict)
    weights_ = FittedAttribute[dict[str, float]](lambda fit: _weights(fit), dict)
    mean_out_degree_ = FittedAttribute[float | None](
        lambda fit: _choice(fit).mean_out_degree, none_before_fit
    )

    # Of the counts of ClassCode, which are released whatever is chosen; None under other units.
    homophily_ = FittedAttribute[Homophily | None](lambda fit: fit.learned.get("homophily"), none_before_fit)

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
            own = {part.name for part in fields(MLP) if part.init}
            return MLP(**{name: value for name, value in self.get_params().items() if name in own})
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
        config, unit = self.privacy_config, self.privacy_config.unit
        if isinstance(unit, LocalAttributes):
            return self._build_local()
        common = {part.name for part in fields(Estimator) if part.init}
        shared = {name: value for name, value in self.get_params().items() if name in common}

        def options(*kinds: type[Estimator], **keywords: Any) -> dict[str, Any]:
            return {kind.method: kind(**shared, **keywords).config for kind in kinds}

        if isinstance(unit, NodeRecord):
            candidates = {**options(MLP), **options(ClassCode, read_own_edges=True)}
            return OutDegreeChoice(name=self.method, privacy_config=config, options=candidates)
        if isinstance(unit, NodeBoundedDegree):
            reason = "noise for all edges of a node exceeds their signal"
            return PublicChoice(name=self.method, privacy_config=config, options=options(MLP), reason=reason)
        kinds = (ClassCode, MLP) if config.protects else (GCN, SAGE, GAT, MLP)
        return ValidationChoice(name=self.method, privacy_config=config, options=options(*kinds))

    def _build_local(self) -> LocalMethod:
        """Return the collection, and the models that are fitted to its reports."""
        checks.within(0, 0.99, missing_labels=self.missing_labels)
        given = self.method_keywords()
        models: dict[str, Estimator] = {
            "class-shares": self._label_posterior(prior="nothing"),
            "label-posterior (diffusion)": self._label_posterior(prior="diffusion"),
        }
        if self.eps_x != 0:
            own = {part.name for part in (*fields(FeatureKeywords), *fields(LabelKeywords))}
            own |= {"unit", "delta", "missing_labels"}
            shared = {name: value for name, value in self.get_params().items() if name in own}
            # Without a posterior, which is an option of its own.
            kinds: dict[str, Any] = {name: METHODS[name] for name in ("lpgnn", "simgat")}
            models |= {name: kind(**shared, posterior_steps=0) for name, kind in kinds.items()}
        models["label-posterior (mixture)"] = self._label_posterior()
        options = dict[str, PosteriorMethod | NetworkMethod]()
        for name, model in models.items():
            assert isinstance(model.config, PosteriorMethod | NetworkMethod)
            options[name] = replace(model.config, **given)
        return EvidenceChoice(**given, options=options)

    def _label_posterior(self, **keywords: Any) -> LabelPosterior:
        """Return the method of labels alone, for the same label reports."""
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
