"""How each node randomizes its record, as a frozen value, and what one report costs."""

import math
from dataclasses import dataclass

from graphveil._util import checks
from graphveil.artifacts.rows import ReleaseRow
from graphveil.errors import ConfigError
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.local.lpgnn.feature_reports import GAUSSIAN_DELTA, FeatureReportConfig, feature_row
from graphveil.local.lpgnn.keywords import FeatureKeywords, LabelKeywords, LocalKeywords
from graphveil.local.lpgnn.label_reports import LABELS, Labels, label_mechanism, label_row
from graphveil.local.lpgnn.randomized_records import Randomizer
from graphveil.local.lpgnn.scaling import SCALINGS, Scaling
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelMechanism
from graphveil.mechanisms.claim import check_budget


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """How a record is randomized, whatever is learned from it; see :class:`LocalKeywords`.

    Args:
        features: how its features are; None if nothing is told about them.
        eps_y: the budget of its label; inf sends it as it is.
        labels: how its label is, by name.
        scaling: how features come into their public range.
    """

    features: FeatureReportConfig | None
    eps_y: float
    labels: Labels = "rr"
    scaling: Scaling = "none"

    @classmethod
    def from_keywords(cls, given: LocalKeywords, privacy_config: PrivacyConfig, name: str) -> "ReportConfig":
        """Check the keywords under these terms, and fill in what they leave open."""
        _check_budgets(given, privacy_config, name)
        checks.one_of(tuple(LABELS), labels=given.labels)
        return cls(
            features=feature_report_config(given, privacy_config),
            eps_y=_budget(given.eps_y),
            labels=given.labels,
            scaling=given.scaling,
        )

    @classmethod
    def from_label_keywords(
        cls, given: LabelKeywords, privacy_config: PrivacyConfig, name: str
    ) -> "ReportConfig":
        """Return how a label alone is told, with nothing about features."""
        checks.one_of(tuple(LABELS), labels=given.labels)
        _check_terms({"eps_y": given.eps_y}, privacy_config, name)
        return cls(features=None, eps_y=_budget(given.eps_y), labels=given.labels)

    def mechanism(self, dim: int) -> FeatureMechanism | None:
        """Return what randomizes a vector of so many features; None if nothing is told about them."""
        return None if self.features is None else self.features.mechanism(dim)

    def label(self, classes: int) -> LabelMechanism:
        """Return what randomizes a label of so many classes."""
        return label_mechanism(self.labels, self.eps_y, classes)

    def rows(self, features: int, classes: int) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node, as lines of a table."""
        law, label = self.mechanism(features), label_row(self.label(classes))
        return (label,) if law is None else (feature_row(law), label)

    def randomizer(self, features: int, classes: int) -> Randomizer:
        """Return what randomizes records of so many features and classes."""
        return Randomizer(mechanism=self.mechanism(features), label=self.label(classes))


def feature_report_config(given: FeatureKeywords, privacy_config: PrivacyConfig) -> FeatureReportConfig:
    """Return how features are randomized under these terms, and refuse a range that data decide unsaid."""
    checks.one_of(SCALINGS, scaling=given.scaling)
    if (given.scaling == "columns") != given.data_dependent_bounds:
        raise ConfigError(
            "scaling='columns' and data_dependent_bounds=True go together: the smallest and the largest "
            "value of a column depend on the records they come from, which voids the guarantee; give "
            "both, or scaling='row', which every node does on its own"
        )
    return FeatureReportConfig(
        name=given.features,
        epsilon=_budget(given.eps_x),
        bounds=Bounds(given.low, given.high, from_data=given.scaling == "columns"),
        m=given.m,
        theta=given.theta,
        delta=GAUSSIAN_DELTA if isinstance(privacy_config.delta, str) else privacy_config.delta,
        k=given.k,
        rounding=given.rounding,
        decode=given.decode,
    )


def _budget(epsilon: float | None) -> float:
    """Return a budget; without a unit there is none, and nothing is hidden."""
    return math.inf if epsilon is None else float(epsilon)


def _check_budgets(given: LocalKeywords, privacy_config: PrivacyConfig, name: str) -> None:
    """Require both budgets where records are randomized, and none elsewhere."""
    _check_terms({"eps_x": given.eps_x, "eps_y": given.eps_y}, privacy_config, name)
    if privacy_config.protects and privacy_config.delta not in ("auto", 0) and given.features != "agm":
        raise ConfigError(
            f"delta={privacy_config.delta!r} is for features='agm'; {given.features!r} needs none"
        )


def _check_terms(budgets: dict[str, float | None], privacy_config: PrivacyConfig, name: str) -> None:
    """Require these budgets under ``local-attributes``, and none elsewhere."""
    if privacy_config.epsilon is not None:
        flags = " ".join(f"--set {budget}=.." for budget in budgets)
        raise ConfigError(
            f"epsilon={privacy_config.epsilon:g}: {name} spends on "
            + (
                f"features and on the label; pass eps_x= and eps_y= ({flags}), which add up"
                if len(budgets) > 1
                else f"the label alone; pass eps_y= ({flags})"
            )
        )
    if not privacy_config.protects:
        if any(value is not None for value in budgets.values()):
            raise ConfigError(
                "eps_x and eps_y are budgets of unit 'local-attributes', and unit "
                f"{privacy_config.unit.name!r} adds no "
                "noise; drop them"
            )
        return
    _refuse_missing([budget for budget, value in budgets.items() if value is None], tuple(budgets))
    check_budget(**{budget: value for budget, value in budgets.items() if value is not None})


def _refuse_missing(missing: list[str], needed: tuple[str, ...]) -> None:
    """Name the budgets that are missing."""
    if missing:
        verb, it = ("is", "it") if len(missing) == 1 else ("are", "them")
        flags = " ".join(f"--set {name}=1" for name in missing)
        both = len(needed) > 1
        raise ConfigError(
            f"unit 'local-attributes' needs the budget{'s eps_x of features and' if both else ''} eps_y of "
            "the "
            f"label, and "
            f"{' and '.join(missing)} {verb} missing: pass {it} ({flags}; inf for no protection)"
        )
