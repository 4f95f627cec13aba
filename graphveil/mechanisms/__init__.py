"""Noise on one value: central mechanisms that add integers, and local ones that randomize a record.

A name is imported when it is used, so that what a person's device needs loads without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.mechanisms.additive import (
        DiscreteGaussian,
        IntegerNoise,
        RoundedGaussian,
        choose_sampler,
    )
    from graphveil.mechanisms.claim import LocalDPClaim
    from graphveil.mechanisms.local.allocation import EvenAllocation, SampledAllocation, WeightedAllocation
    from graphveil.mechanisms.local.bounds import Bounds
    from graphveil.mechanisms.local.feature_rr import Bins, FeatureRR
    from graphveil.mechanisms.local.features import FeatureMechanism, LDPReports
    from graphveil.mechanisms.local.formal_statement import (
        NOT_COLLECTED,
        NOT_RANDOMIZED,
        node_features_statement,
    )
    from graphveil.mechanisms.local.gaussian import AnalyticGaussian, analytic_sigma
    from graphveil.mechanisms.local.importance import (
        permutation_importance,
        public_weights,
        shap_importance,
    )
    from graphveil.mechanisms.local.labels import LabelMechanism, LabelRR
    from graphveil.mechanisms.local.local_hashing import LocalHashing
    from graphveil.mechanisms.local.multibit import MultiBit
    from graphveil.mechanisms.local.noise import LocalNoise
    from graphveil.mechanisms.local.per_feature import PerFeature
    from graphveil.mechanisms.local.record_rr import RecordFeatureRR, record_loss, record_weights
    from graphveil.mechanisms.local.subset_selection import SubsetSelection
    from graphveil.mechanisms.scalar.base import ScalarMechanism
    from graphveil.mechanisms.scalar.duchi import Duchi
    from graphveil.mechanisms.scalar.hybrid import Hybrid
    from graphveil.mechanisms.scalar.laplace import Laplace
    from graphveil.mechanisms.scalar.piecewise import Piecewise, PMSub
    from graphveil.mechanisms.scalar.three_outputs import ThreeOutputs
    from graphveil.mechanisms.steps import StepNoise, public_rate

_LAZY_IMPORTS = {
    "AnalyticGaussian": "local.gaussian",
    "Bins": "local.feature_rr",
    "Bounds": "local.bounds",
    "LocalDPClaim": "claim",
    "DiscreteGaussian": "additive",
    "Duchi": "scalar.duchi",
    "FeatureMechanism": "local.features",
    "FeatureRR": "local.feature_rr",
    "Hybrid": "scalar.hybrid",
    "IntegerNoise": "additive",
    "LabelMechanism": "local.labels",
    "LabelRR": "local.labels",
    "Laplace": "scalar.laplace",
    "LocalHashing": "local.local_hashing",
    "LocalNoise": "local.noise",
    "MultiBit": "local.multibit",
    "NOT_COLLECTED": "local.formal_statement",
    "NOT_RANDOMIZED": "local.formal_statement",
    "PMSub": "scalar.piecewise",
    "PerFeature": "local.per_feature",
    "Piecewise": "scalar.piecewise",
    "RecordFeatureRR": "local.record_rr",
    "LDPReports": "local.features",
    "RoundedGaussian": "additive",
    "SampledAllocation": "local.allocation",
    "ScalarMechanism": "scalar.base",
    "EvenAllocation": "local.allocation",
    "StepNoise": "steps",
    "SubsetSelection": "local.subset_selection",
    "ThreeOutputs": "scalar.three_outputs",
    "WeightedAllocation": "local.allocation",
    "analytic_sigma": "local.gaussian",
    "choose_sampler": "additive",
    "node_features_statement": "local.formal_statement",
    "permutation_importance": "local.importance",
    "public_rate": "steps",
    "public_weights": "local.importance",
    "record_loss": "local.record_rr",
    "record_weights": "local.record_rr",
    "shap_importance": "local.importance",
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
    """Import a public name when it is first used."""
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'graphveil.mechanisms' has no attribute {name!r}")
    found = getattr(import_module(f"graphveil.mechanisms.{_LAZY_IMPORTS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
