"""Queries whose answer is a few noisy counts."""
