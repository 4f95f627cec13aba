"""Papers as published: their methods, their tables and figures by one command each, and refuted claims.

No guarantee of a method here is valid. The methods are those of the product with what a paper does
differently, and have their names with ``-paper``: ``graphveil train gap-paper``.
"""

from graphveil.papers.as_published.gap import GAP, MLP
from graphveil.papers.as_published.graph_mechanisms import (
    PaperARR,
    PaperEdgeRand,
    PaperEdgeRR,
    PaperLapGraph,
    PaperPrivHRG,
)
from graphveil.papers.as_published.methods import GAT, GCN, LPGNN, HeteroRR, SimGAT
from graphveil.papers.as_published.sage import SAGE

__all__ = [
    "GAP",
    "GAT",
    "GCN",
    "LPGNN",
    "MLP",
    "SAGE",
    "HeteroRR",
    "PaperARR",
    "PaperEdgeRR",
    "PaperEdgeRand",
    "PaperLapGraph",
    "PaperPrivHRG",
    "SimGAT",
]
