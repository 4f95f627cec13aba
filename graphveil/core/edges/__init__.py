"""Edges in memory or mapped from files, their blocks, and the node pairs that may have an edge."""
