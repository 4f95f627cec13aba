"""How much a neighbor counts: weights of pairs by rows that everybody may know."""

from graphveil.weights.attention import Attention
from graphveil.weights.base import DotWeight, Similarity
from graphveil.weights.cosine import ExpCos, HalfCos, LearnedPublic, ReluCos, SigmoidCos
from graphveil.weights.jaccard import Jaccard
from graphveil.weights.landmarks import Landmarks
from graphveil.weights.posterior import ClassAgree, PosteriorDot
from graphveil.weights.registry import parse_weight, register_weight
from graphveil.weights.stored import GivenWeight

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
