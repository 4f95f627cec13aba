"""Data sets that others published: which there are, and how their files are read or fetched."""
