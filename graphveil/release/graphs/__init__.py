"""Queries whose answers make a whole graph."""
