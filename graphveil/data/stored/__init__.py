"""Graphs on disk: edges in destination blocks that are mapped into memory and never loaded whole."""
