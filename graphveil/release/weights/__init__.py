"""How much a neighbor counts: weights of pairs by rows that everybody may know."""

from graphveil.release.weights.attention import Attention
from graphveil.release.weights.base import DotWeight, Similarity
from graphveil.release.weights.cosine import ExpCos, HalfCos, LearnedPublic, ReluCos, SigmoidCos
from graphveil.release.weights.jaccard import Jaccard
from graphveil.release.weights.landmarks import Landmarks
from graphveil.release.weights.posterior import ClassAgree, PosteriorDot
from graphveil.release.weights.registry import parse_weight, register_weight
from graphveil.release.weights.stored import GivenWeight

__all__ = [
    "Attention",
    "ClassAgree",
    "DotWeight",
    "ExpCos",
    "GivenWeight",
    "HalfCos",
    "Jaccard",
    "Landmarks",
    "LearnedPublic",
    "PosteriorDot",
    "ReluCos",
    "SigmoidCos",
    "Similarity",
    "parse_weight",
    "register_weight",
]
