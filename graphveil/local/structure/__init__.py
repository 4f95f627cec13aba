"""Which nodes are alike by their place in a public graph, as sparse matrices: for SimGAT."""

from graphveil.local.structure.base import StructuralSimilarity
from graphveil.local.structure.combine import averaging, union
from graphveil.local.structure.communities import communities
from graphveil.local.structure.edges import PublicEdges
from graphveil.local.structure.embedding import DeepWalk, Embedding, Factorized, Node2Vec
from graphveil.local.structure.multihop import MultiHop
from graphveil.local.structure.named import SIMILARITIES, parse_similarity

__all__ = [
    "SIMILARITIES",
    "DeepWalk",
    "Embedding",
    "Factorized",
    "MultiHop",
    "Node2Vec",
    "PublicEdges",
    "StructuralSimilarity",
    "averaging",
    "communities",
    "parse_similarity",
    "union",
]
