"""Dendrograms over nodes, and random walks among them: data and loops; what is released is elsewhere."""
