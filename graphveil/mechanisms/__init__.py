"""Noise on one value: central mechanisms that add integers, and local ones that randomize a record.

A name is imported on first use, so that the mechanisms of a client load without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.core.noise.discrete_gaussian import (
        DiscreteGaussian,
        IntegerNoise,
        RoundedGaussian,
        choose_sampler,
    )
    from graphveil.core.noise.steps import StepNoise, public_rate
    from graphveil.mechanisms.analytic_gaussian import AnalyticGaussian, analytic_sigma
    from graphveil.mechanisms.claim import (
        NOT_COLLECTED,
        NOT_RANDOMIZED,
        LocalDPClaim,
        node_features_statement,
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
    from graphveil.mechanisms.importance import permutation_importance, public_weights, shap_importance
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

_LAZY_IMPORTS = {
    "AnalyticGaussian": "graphveil.mechanisms.analytic_gaussian",
    "Bins": "graphveil.mechanisms.feature_rr",
    "Bounds": "graphveil.mechanisms.features",
    "LocalDPClaim": "graphveil.mechanisms.claim",
    "DiscreteGaussian": "graphveil.core.noise.discrete_gaussian",
    "Duchi": "graphveil.mechanisms.scalar",
    "FeatureMechanism": "graphveil.mechanisms.features",
    "FeatureRR": "graphveil.mechanisms.feature_rr",
    "Hybrid": "graphveil.mechanisms.scalar",
    "IntegerNoise": "graphveil.core.noise.discrete_gaussian",
    "LabelMechanism": "graphveil.mechanisms.labels",
    "LabelRR": "graphveil.mechanisms.labels",
    "Laplace": "graphveil.mechanisms.scalar",
    "LocalHashing": "graphveil.mechanisms.labels",
    "LocalNoise": "graphveil.mechanisms.local_noise",
    "MultiBit": "graphveil.mechanisms.per_feature",
    "NOT_COLLECTED": "graphveil.mechanisms.claim",
    "NOT_RANDOMIZED": "graphveil.mechanisms.claim",
    "PMSub": "graphveil.mechanisms.scalar",
    "PerFeature": "graphveil.mechanisms.per_feature",
    "Piecewise": "graphveil.mechanisms.scalar",
    "RecordFeatureRR": "graphveil.mechanisms.feature_rr",
    "LDPReports": "graphveil.mechanisms.features",
    "RoundedGaussian": "graphveil.core.noise.discrete_gaussian",
    "SampledAllocation": "graphveil.mechanisms.features",
    "ScalarMechanism": "graphveil.mechanisms.scalar",
    "EvenAllocation": "graphveil.mechanisms.features",
    "StepNoise": "graphveil.core.noise.steps",
    "SubsetSelection": "graphveil.mechanisms.labels",
    "ThreeOutputs": "graphveil.mechanisms.scalar",
    "WeightedAllocation": "graphveil.mechanisms.features",
    "analytic_sigma": "graphveil.mechanisms.analytic_gaussian",
    "choose_sampler": "graphveil.core.noise.discrete_gaussian",
    "node_features_statement": "graphveil.mechanisms.claim",
    "permutation_importance": "graphveil.mechanisms.importance",
    "public_rate": "graphveil.core.noise.steps",
    "public_weights": "graphveil.mechanisms.importance",
    "record_loss": "graphveil.mechanisms.feature_rr",
    "record_weights": "graphveil.mechanisms.feature_rr",
    "shap_importance": "graphveil.mechanisms.importance",
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
    found = getattr(import_module(_LAZY_IMPORTS[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
