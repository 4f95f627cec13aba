"""The choice between models under ``local-attributes``, by the likelihood of held-out LDP reports."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.choice import ChosenModel, read_choice
from graphveil.estimators.method import FitResult, State, TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.label_posterior import PosteriorLearner, TrainedLabelPosterior
from graphveil.local.local_method import HeldOutFit, Learner, LocalMethod, TrainedOnReports
from graphveil.local.network_learner import NetworkLearner, TrainedLpgnn
from graphveil.local.noisy_labels import calibrated_log_likelihood, reported_shares
from graphveil.local.randomized_records import known

_MIN_LIKELIHOOD = 1e-9  # keeps logarithms finite


@dataclass(frozen=True, kw_only=True)
class EvidenceChoice(Learner):
    """Fits each option to the same reports, and keeps one by the one-standard-error rule.

    Each option predicts the reports of three folds from those of the other two. The evidence is the
    log-likelihood of these reports, after calibration by a mixture with class shares. The first option is
    kept whose evidence is at most one standard error below the largest.

    Args:
        options: Options by name, from the simplest to the most complex.

    Privacy:
        Unit: ``local-attributes``. Reads: LDP reports and public edges. Charges: one collection. The choice
        and all fits are post-processing of its reports.
    """

    options: Mapping[str, PosteriorLearner | NetworkLearner] = field(hash=False)

    @property
    def decision(self) -> str:
        """Describe the rule."""
        names = ", ".join(self.options)
        return f"one of {names} by the likelihood of held-out LDP reports (post-processing)"

    def check(self) -> None:
        """Reject an option that cannot be computed on this machine."""
        for option in self.options.values():
            option.check()

    def fit(self, method: LocalMethod, graph: Graph, session: Session) -> FitResult:
        """Collect the reports once, fit each option to them, and choose."""
        networks = {
            name: option.options(method, graph, session)  # before records are charged
            for name, option in self.options.items()
            if isinstance(option, NetworkLearner)
        }
        with session.stage("randomize"):
            collected = method.collected(graph, session)
        records, labels = collected.records, collected.records.labels
        fits = list[HeldOutFit]()
        for name, option in self.options.items():
            own = replace(method, learner=option)
            if isinstance(option, NetworkLearner):
                fits.append(option.cross_fit(own, graph, records, networks[name], session))
            else:
                with session.stage("evidence"):
                    fits.append(option.cross_fit(own, graph, records))
        noisy, labeled = method.noisy(graph, labels), known(labels)
        chosen, gains = 0, [0.0] * len(fits)
        if bool(labeled.any()):
            likelihood = noisy.likelihood[labeled]
            shares = likelihood @ reported_shares(noisy, method.transition(graph.num_classes))
            evidence = [log_likelihoods(fit.held_out[labeled], likelihood, shares) for fit in fits]
            chosen = one_standard_error_choice(evidence)
            gains = [float((each - shares.log()).mean()) for each in evidence]
        result = fits[chosen].result
        trained = ChosenOnReports.from_choice(tuple(self.options), chosen, gains, result.trained)
        learned = {**result.learned, "clipped": collected.clipped}
        return replace(result, trained=trained, learned=learned)

    def restore(self, method: LocalMethod, state: State, sizes: PublicSizes) -> "ChosenOnReports":
        """Return the model that was chosen, without reports, which are not stored with a model."""
        chosen, evidence, rest = read_choice(state, len(self.options))
        option = list(self.options.values())[chosen]
        model = option.restore(replace(method, learner=option), rest, sizes)
        return ChosenOnReports.from_choice(tuple(self.options), chosen, evidence, model)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChosenOnReports(TrainedOnReports, ChosenModel):
    """The model of the chosen option, with the reports that all options were fitted to."""

    @classmethod
    def from_choice(
        cls, names: tuple[str, ...], chosen: int, evidence: list[float], model: TrainedModel
    ) -> Self:
        """Return the choice of a model, which holds the reports."""
        assert isinstance(model, TrainedLpgnn | TrainedLabelPosterior)
        return cls(names=names, chosen=chosen, evidence=tuple(evidence), model=model, reports=model.reports)


def log_likelihoods(proba: Tensor, likelihood: Tensor, shares: Tensor) -> Tensor:
    """Return the calibrated log-likelihood of each held-out report, float32 (reports).

    Args:
        proba: Predictions without the report, (reports, C).
        likelihood: Likelihood of each report for each class, (reports, C).
        shares: Likelihood of each report by class shares, (reports).
    """
    ratios = (proba * likelihood).sum(dim=1).clamp(min=_MIN_LIKELIHOOD)
    return calibrated_log_likelihood(ratios, shares)


def one_standard_error_choice(evidence: list[Tensor]) -> int:
    """Return the first option whose sum is at most one standard error below the largest.

    The standard error is that of the paired differences.

    Args:
        evidence: Log-likelihood of each report by each option.

    >>> import torch
    >>> one_standard_error_choice([torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.5, 0.0, 1.0])])
    0
    >>> one_standard_error_choice([torch.zeros(3), torch.tensor([0.9, 1.0, 1.1])])
    1
    """
    best = max(evidence, key=lambda each: float(each.sum()))
    for number, each in enumerate(evidence):
        below = best - each
        error = float(below.std(correction=0)) * math.sqrt(len(below))
        if float(below.sum()) <= error:
            return number
    raise AssertionError("the best option is not below itself")
