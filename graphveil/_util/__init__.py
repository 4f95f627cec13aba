"""Helpers that every part shares."""
