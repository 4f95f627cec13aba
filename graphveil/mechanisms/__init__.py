"""Noise on one value: central mechanisms that add integers, and local ones that randomize a record.

A name is imported on first use, so that the mechanisms of a client load without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.mechanisms.analytic_gaussian import AnalyticGaussian, analytic_sigma
    from graphveil.mechanisms.claim import (
        NOT_COLLECTED,
        NOT_RANDOMIZED,
        LocalDPClaim,
        node_features_statement,
    )
    from graphveil.mechanisms.discrete_gaussian import (
        DiscreteGaussian,
        IntegerNoise,
        RoundedGaussian,
        choose_sampler,
    )
    from graphveil.mechanisms.feature_rr import Bins, FeatureRR, RecordFeatureRR, record_loss, record_weights
    from graphveil.mechanisms.features import (
        Bounds,
        EvenAllocation,
        FeatureMechanism,
        LDPReports,
        SampledAllocation,
        WeightedAllocation,
    )
    from graphveil.mechanisms.importance import (
        permutation_importance,
        public_weights,
        shap_importance,
    )
    from graphveil.mechanisms.labels import LabelMechanism, LabelRR, LocalHashing, SubsetSelection
    from graphveil.mechanisms.local_noise import LocalNoise
    from graphveil.mechanisms.per_feature import MultiBit, PerFeature
    from graphveil.mechanisms.scalar import (
        Duchi,
        Hybrid,
        Laplace,
        Piecewise,
        PMSub,
        ScalarMechanism,
        ThreeOutputs,
    )
    from graphveil.mechanisms.steps import StepNoise, public_rate

_LAZY_IMPORTS = {
    "AnalyticGaussian": "analytic_gaussian",
    "Bins": "feature_rr",
    "Bounds": "features",
    "LocalDPClaim": "claim",
    "DiscreteGaussian": "discrete_gaussian",
    "Duchi": "scalar",
    "FeatureMechanism": "features",
    "FeatureRR": "feature_rr",
    "Hybrid": "scalar",
    "IntegerNoise": "discrete_gaussian",
    "LabelMechanism": "labels",
    "LabelRR": "labels",
    "Laplace": "scalar",
    "LocalHashing": "labels",
    "LocalNoise": "local_noise",
    "MultiBit": "per_feature",
    "NOT_COLLECTED": "claim",
    "NOT_RANDOMIZED": "claim",
    "PMSub": "scalar",
    "PerFeature": "per_feature",
    "Piecewise": "scalar",
    "RecordFeatureRR": "feature_rr",
    "LDPReports": "features",
    "RoundedGaussian": "discrete_gaussian",
    "SampledAllocation": "features",
    "ScalarMechanism": "scalar",
    "EvenAllocation": "features",
    "StepNoise": "steps",
    "SubsetSelection": "labels",
    "ThreeOutputs": "scalar",
    "WeightedAllocation": "features",
    "analytic_sigma": "analytic_gaussian",
    "choose_sampler": "discrete_gaussian",
    "node_features_statement": "claim",
    "permutation_importance": "importance",
    "public_rate": "steps",
    "public_weights": "importance",
    "record_loss": "feature_rr",
    "record_weights": "feature_rr",
    "shap_importance": "importance",
}

__all__ = [
    "NOT_COLLECTED",
    "NOT_RANDOMIZED",
    "AnalyticGaussian",
    "Bins",
    "Bounds",
    "DiscreteGaussian",
    "Duchi",
    "EvenAllocation",
    "FeatureMechanism",
    "FeatureRR",
    "Hybrid",
    "IntegerNoise",
    "LDPReports",
    "LabelMechanism",
    "LabelRR",
    "Laplace",
    "LocalDPClaim",
    "LocalHashing",
    "LocalNoise",
    "MultiBit",
    "PMSub",
    "PerFeature",
    "Piecewise",
    "RecordFeatureRR",
    "RoundedGaussian",
    "SampledAllocation",
    "ScalarMechanism",
    "StepNoise",
    "SubsetSelection",
    "ThreeOutputs",
    "WeightedAllocation",
    "analytic_sigma",
    "choose_sampler",
    "node_features_statement",
    "permutation_importance",
    "public_rate",
    "public_weights",
    "record_loss",
    "record_weights",
    "shap_importance",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'graphveil.mechanisms' has no attribute {name!r}")
    found = getattr(import_module(f"graphveil.mechanisms.{_LAZY_IMPORTS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
