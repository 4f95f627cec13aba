"""Noise on one value: central mechanisms that add integers, and local ones that randomize a record.

A name is imported on first use, so that the mechanisms of a client load without torch. Mechanisms that only
papers use are in ``graphveil.papers``, and are imported by name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.core.noise.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
    from graphveil.core.noise.discrete_gaussian import IntegerNoise as IntegerNoise
    from graphveil.core.noise.discrete_gaussian import RoundedGaussian as RoundedGaussian
    from graphveil.core.noise.discrete_gaussian import choose_sampler as choose_sampler
    from graphveil.core.noise.steps import StepNoise as StepNoise
    from graphveil.core.noise.steps import public_rate as public_rate
    from graphveil.mechanisms.feature_mechanisms import Bins as Bins
    from graphveil.mechanisms.feature_mechanisms import FeatureRR as FeatureRR
    from graphveil.mechanisms.feature_mechanisms import MultiBit as MultiBit
    from graphveil.mechanisms.features import NOT_COLLECTED as NOT_COLLECTED
    from graphveil.mechanisms.features import NOT_RANDOMIZED as NOT_RANDOMIZED
    from graphveil.mechanisms.features import Bounds as Bounds
    from graphveil.mechanisms.features import EvenAllocation as EvenAllocation
    from graphveil.mechanisms.features import FeatureMechanism as FeatureMechanism
    from graphveil.mechanisms.features import LDPReports as LDPReports
    from graphveil.mechanisms.features import LocalDPClaim as LocalDPClaim
    from graphveil.mechanisms.features import WeightedAllocation as WeightedAllocation
    from graphveil.mechanisms.features import node_features_statement as node_features_statement
    from graphveil.mechanisms.labels import LabelMechanism as LabelMechanism
    from graphveil.mechanisms.labels import LabelRR as LabelRR
    from graphveil.mechanisms.labels import LocalHashing as LocalHashing
    from graphveil.mechanisms.labels import SubsetSelection as SubsetSelection
    from graphveil.mechanisms.local_noise import LocalNoise as LocalNoise

_HOMES = {
    "core.noise.discrete_gaussian": ("DiscreteGaussian", "IntegerNoise", "RoundedGaussian", "choose_sampler"),
    "core.noise.steps": ("StepNoise", "public_rate"),
    "mechanisms.feature_mechanisms": ("Bins", "FeatureRR", "MultiBit"),
    "mechanisms.features": (
        "Bounds",
        "EvenAllocation",
        "FeatureMechanism",
        "LDPReports",
        "LocalDPClaim",
        "NOT_COLLECTED",
        "NOT_RANDOMIZED",
        "WeightedAllocation",
        "node_features_statement",
    ),
    "mechanisms.labels": ("LabelMechanism", "LabelRR", "LocalHashing", "SubsetSelection"),
    "mechanisms.local_noise": ("LocalNoise",),
    "papers.as_published.record_feature_rr": ("RecordFeatureRR", "record_loss", "record_weights"),
    "papers.analytic_gaussian": ("AnalyticGaussian", "analytic_sigma"),
    "papers.feature_weights": ("permutation_importance", "public_weights", "shap_importance"),
    "papers.per_feature": ("PerFeature", "SampledAllocation"),
    "papers.scalar_mechanisms": (
        "Duchi",
        "Hybrid",
        "Laplace",
        "PMSub",
        "Piecewise",
        "ScalarMechanism",
        "ThreeOutputs",
    ),
}
_LAZY_IMPORTS = {name: f"graphveil.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_LAZY_IMPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'graphveil.mechanisms' has no attribute {name!r}")
    found = getattr(import_module(_LAZY_IMPORTS[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
