"""Papers as published: their tables and figures by one command each, and claims that are refuted."""

from graphveil.papers.as_published.graph_mechanisms import (
    PaperARR,
    PaperEdgeRand,
    PaperEdgeRR,
    PaperLapGraph,
    PaperPrivHRG,
)

__all__ = ["PaperARR", "PaperEdgeRR", "PaperEdgeRand", "PaperLapGraph", "PaperPrivHRG"]
