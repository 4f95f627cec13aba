"""Reproduce tables and figures of papers, each by one command, next to the published values."""
