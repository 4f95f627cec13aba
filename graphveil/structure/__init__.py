"""Which nodes are alike by their place in a public graph, as sparse matrices: for SimGAT."""

from graphveil.structure.base import StructuralSimilarity
from graphveil.structure.combine import averaging, union
from graphveil.structure.communities import communities
from graphveil.structure.edges import PublicEdges
from graphveil.structure.embedding import DeepWalk, Embedding, Factorized, Node2Vec
from graphveil.structure.multihop import MultiHop
from graphveil.structure.named import SIMILARITIES, parse_similarity

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
