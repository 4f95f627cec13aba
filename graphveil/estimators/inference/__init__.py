"""Predicting graphs that were not fitted: requests, what they cost, and the answers that are kept."""
