"""Structural similarity of nodes in a public graph, as sparse matrices, for SimGAT."""

from graphveil.local.structure.public_edges import PublicEdges, averaging, communities, union
from graphveil.local.structure.similarity import (
    SIMILARITIES,
    DeepWalk,
    Embedding,
    Factorized,
    MultiHop,
    Node2Vec,
    StructuralSimilarity,
    parse_similarity,
)

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
