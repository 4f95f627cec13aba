"""Configuration of the local randomization of node records: keywords, mechanisms, and report tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

import numpy as np

from graphveil._util import checks
from graphveil.core.view import LABEL_FIELDS
from graphveil.errors import ConfigError
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.local.randomized_records import SCALINGS, Randomizer, Scaling
from graphveil.mechanisms import (
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    LabelMechanism,
    LocalHashing,
    MultiBit,
    WeightedAllocation,
)
from graphveil.mechanisms.claim import check_budget
from graphveil.mechanisms.feature_rr import Decode
from graphveil.mechanisms.feature_rr import Mode as Rounding
from graphveil.mechanisms.features import Ends
from graphveil.mechanisms.labels import LABELS, LabelName
from graphveil.publish.queries import QueryRow

Samples = int | Literal["best", "floor"]
BinCount = int | Literal["auto"]
ROW_SCALED = (
    "each node brings its features to [0, 1] by its own smallest and largest one, before anything else"
)
GAUSSIAN_DELTA = 1e-10  # LPGNN's
IDENTITY_MECHANISM = "as it is"
_PAPERS = "graphveil.papers.per_feature"  # imported for the mechanisms of papers only
_SAME_KEYWORDS = ("features", "m", "theta", "k", "rounding", "decode", "scaling")
_PLAIN_BINS = ("auto", "stochastic", "unbiased")
WEIGHTED_MECHANISMS = (
    *("lpm", "duchi", "piecewise", "pm-sub", "hybrid", "three-outputs"),
    *("feature-rr", "feature-rr-naive"),
)
FEATURES = ("multi-bit", "1bm", "lpm", "agm", *WEIGHTED_MECHANISMS[1:])


# -- keywords ----


@dataclass(kw_only=True, eq=False, repr=False)
class LabelKeywords:
    """Keywords for the local randomization of labels.

    Args:
        eps_y: Budget of a node's label; inf reports it without protection.
        labels: ``"subset"`` is subset selection and reports several classes if there are many for the
            budget. Otherwise it is ``"rr"``, randomized response, which always reports one class.
            ``"hashing"`` reports one of a few public groups of classes. It is nearly as accurate as
            ``"subset"``, and gives malicious clients the least influence.
    """

    eps_y: float | None = None
    labels: LabelName = "subset"


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureKeywords:
    """Keywords for the local randomization of features.

    Args:
        eps_x: Budget of a node's features; inf reports them without protection.
        features: Mechanism: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``, ``"piecewise"``,
            ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each), ``"feature-rr"`` or
            ``"feature-rr-naive"``.
        m: For ``"multi-bit"``: ``"best"``, ``"floor"`` (as in the paper) or a number of features.
        theta: Public feature weights, which sum to one: feature i has the budget eps_x theta_i. For
            ``"feature-rr"``, ``"lpm"`` and the mechanisms that otherwise sample features.
        k, rounding, decode: For ``"feature-rr"``: its bins, see ``FeatureRR``.
        low, high: Public range of all features, or one bound per feature; values outside are clipped. The
            number of clipped values is ``clipped_``, which is private.
        scaling: How features are scaled to that range: ``"none"``, ``"row"`` (by the smallest and largest
            feature of each node) or ``"columns"`` (by those of all nodes, as in the paper).
        data_dependent_bounds: Set True to accept ``"columns"``, which depends on the records that it is
            computed from and makes the guarantee invalid.
    """

    eps_x: float | None = None
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


# -- table rows ----


def feature_row(mechanism: FeatureMechanism) -> QueryRow:
    """Return the table row that describes the feature report of each node.

    >>> feature_row(MultiBit(epsilon=1.0, dim=500)).words
    'MultiBit, 1 of 500 features reported, epsilon 1, cut to [0, 1]'
    """
    reported = int(getattr(mechanism, "samples", mechanism.dim))
    low, high = np.min(mechanism.bounds.low), np.max(mechanism.bounds.high)
    cut = f"cut to [{low:g}, {high:g}]"
    if math.isinf(mechanism.epsilon):
        words = f"{IDENTITY_MECHANISM}, {cut}"
    else:
        weighted = isinstance(getattr(mechanism, "allocation", None), WeightedAllocation)
        weights = " by public weights" if weighted else ""
        features = f"{reported} of {mechanism.dim} features reported{weights}"
        words = f"{type(mechanism).__name__}, {features}, epsilon {mechanism.epsilon:g}, {cut}"
    return QueryRow(
        kind="features",
        sensitivity=float(np.max(mechanism.bounds.width)),
        noise_std=[math.sqrt(mechanism.worst_variance)],
        values_per_node=reported,
        words=words,
    )


def label_row(label: LabelMechanism) -> QueryRow:
    """Return the table row that describes the label report of each node.

    >>> label_row(LABELS["subset"](epsilon=1.0, classes=7)).words
    '2 of 7 classes said, its own among them with probability 0.5209'
    """
    if math.isinf(label.epsilon):
        words = IDENTITY_MECHANISM
    elif isinstance(label, LocalHashing):
        groups = f"one of {label.groups} public groups of {label.classes} classes reported"
        words = f"{groups}, its own with probability {label.keep:.4g}"
    elif label.size > 1:
        among = f"its own among them with probability {label.keep:.4g}"
        words = f"{label.size} of {label.classes} classes said, {among}"
    else:
        words = f"kept with probability {label.keep:.4g}, else another of {label.classes}"
    # A hash is public and not reported, so local hashing reports one value.
    values = 1 if isinstance(label, LocalHashing) else label.size
    return QueryRow(kind="label", sensitivity=1.0, noise_std=[], values_per_node=values, words=words)


# -- a record ----


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """How a node randomizes its record, before the numbers of features and classes are known.

    The fields are those of ``FeatureKeywords`` and ``LabelKeywords``, with ``bounds`` for the range.

    Args:
        features: A name in ``FEATURES``; None if no features are reported.
        delta: For ``"agm"``.

    >>> ReportConfig(features="multi-bit", eps_x=1.0).mechanism(500).samples
    1
    """

    features: str | None
    eps_x: float = math.inf
    bounds: Bounds = field(default=Bounds())
    m: Samples = "best"
    theta: Sequence[float] | None = None
    delta: float = GAUSSIAN_DELTA
    k: BinCount = "auto"
    rounding: Rounding = "stochastic"
    decode: Decode = "unbiased"
    scaling: Scaling = "none"
    eps_y: float = math.inf
    labels: LabelName = "rr"

    def __post_init__(self) -> None:
        """Reject parameters that the mechanism does not have, instead of ignoring them."""
        checks.one_of(tuple(LABELS), labels=self.labels)
        if self.features is None:
            return
        checks.one_of(FEATURES, features=self.features)
        if self.theta is not None and self.features not in WEIGHTED_MECHANISMS:
            raise ConfigError(
                f"theta weights the features of {', '.join(WEIGHTED_MECHANISMS)}, but "
                f"features={self.features!r} has no budget per feature. Remove theta."
            )
        if self.m != "best" and self.features != "multi-bit":
            raise ConfigError(
                f"m={self.m!r} is only for features='multi-bit', not {self.features!r}. Remove it."
            )
        if self.features != "feature-rr" and (self.k, self.rounding, self.decode) != _PLAIN_BINS:
            raise ConfigError(
                f"k, rounding and decode are only for features='feature-rr', not {self.features!r}. Remove "
                "them."
            )

    @classmethod
    def from_keywords(
        cls,
        privacy_config: PrivacyConfig,
        *,
        features: FeatureKeywords | None = None,
        label: LabelKeywords | None = None,
    ) -> "ReportConfig":
        """Return the configuration of the parts that are reported; a budget of None is inf, no protection."""
        given: dict[str, Any] = {"features": None}
        if label is not None:
            given |= {"eps_y": _budget(label.eps_y), "labels": label.labels}
        if features is not None:
            checks.one_of(SCALINGS, scaling=features.scaling)
            if (features.scaling == "columns") != features.data_dependent_bounds:
                raise ConfigError(
                    "scaling='columns' and data_dependent_bounds=True must be set together. Column minima "
                    "and maxima depend on the private records, so there is no valid guarantee. Set both, or "
                    "use scaling='row', which each node computes on its own."
                )
            delta = privacy_config.delta
            given |= {name: getattr(features, name) for name in _SAME_KEYWORDS}
            given["eps_x"] = _budget(features.eps_x)
            given["bounds"] = Bounds(features.low, features.high, from_data=features.scaling == "columns")
            given["delta"] = GAUSSIAN_DELTA if isinstance(delta, str) else delta
        return cls(**given)

    @property
    def public_fields(self) -> tuple[str, ...]:
        """The fields of a graph that a fit reads as they are; features that are not reported are not read.

        No guarantee covers features if eps_x is infinite, or if their range is computed from all records.
        """
        public = self.features is not None and (math.isinf(self.eps_x) or self.bounds.from_data)
        features = ("x",) if public else ()
        return (*features, *LABEL_FIELDS) if math.isinf(self.eps_y) else features

    def mechanism(self, dim: int) -> FeatureMechanism | None:
        """Return the mechanism for ``dim`` features; None if no features are reported."""
        common: dict[str, Any] = {"epsilon": self.eps_x, "dim": dim, "bounds": self.bounds}
        even = EvenAllocation() if self.theta is None else WeightedAllocation(self.theta)
        match self.features:
            case None:
                return None
            case "multi-bit":
                return MultiBit(**common, m=self.m)
            case "1bm":
                return MultiBit(**common, m="all")
            case "feature-rr":
                return FeatureRR(**common, allocation=even, k=self.k, mode=self.rounding, decode=self.decode)
            case "feature-rr-naive":
                return FeatureRR(**common, allocation=even, k=10, mode="ceil", decode="naive")
        of_paper: FeatureMechanism = import_module(_PAPERS).feature_mechanism(
            self.features, theta=self.theta, delta=self.delta, **common
        )
        return of_paper

    def label(self, classes: int) -> LabelMechanism:
        """Return the mechanism for a label of ``classes`` classes."""
        return LABELS[self.labels](epsilon=self.eps_y, classes=classes)

    def rows(self, features: int, classes: int) -> tuple[QueryRow, ...]:
        """Return table rows that describe the LDP report of each node."""
        mechanism, label = self.mechanism(features), label_row(self.label(classes))
        return (label,) if mechanism is None else (feature_row(mechanism), label)

    def randomizer(self, features: int, classes: int) -> Randomizer:
        """Return the randomizer for records with these numbers of features and classes."""
        return Randomizer(mechanism=self.mechanism(features), label=self.label(classes), scaling=self.scaling)


def _budget(epsilon: float | None) -> float:
    return math.inf if epsilon is None else float(epsilon)


def check_budgets(
    privacy_config: PrivacyConfig, name: str, label: LabelKeywords, features: FeatureKeywords | None
) -> None:
    """Require the budgets of method ``name`` under ``local-attributes``, and none for other units."""
    budgets = ({} if features is None else {"eps_x": features.eps_x}) | {"eps_y": label.eps_y}
    if privacy_config.epsilon is not None:
        raise ConfigError(
            f"epsilon={privacy_config.epsilon:g}: {name} spends on "
            + (
                "features and on the label; pass eps_x= and eps_y=, which add up"
                if len(budgets) > 1
                else "the label alone; pass eps_y="
            )
        )
    if not privacy_config.protects:
        if any(value is not None for value in budgets.values()):
            raise ConfigError(
                "eps_x and eps_y are budgets of unit 'local-attributes', but unit "
                f"{privacy_config.unit.name!r} adds no noise. Remove them."
            )
        return
    if missing := [budget for budget, value in budgets.items() if value is None]:
        verb, it = ("is", "it") if len(missing) == 1 else ("are", "them")
        flags = " ".join(f"--set {budget}=1" for budget in missing)
        needed = (
            "budgets eps_x of features and eps_y of the label"
            if len(budgets) > 1
            else "budget eps_y of the label"
        )
        raise ConfigError(
            f"Unit 'local-attributes' needs the {needed}, but {' and '.join(missing)} {verb} missing. "
            f"Pass {it} ({flags}; inf means no protection)."
        )
    check_budget(**{budget: value for budget, value in budgets.items() if value is not None})
    if privacy_config.delta not in ("auto", 0) and features is not None and features.features != "agm":
        raise ConfigError(
            f"delta={privacy_config.delta!r} is only for features='agm', not {features.features!r}. "
            "Remove it."
        )
