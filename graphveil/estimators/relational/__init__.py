"""Classification of persons from several tables of what they did."""

from graphveil.estimators.relational.estimator import RelationalClassifier

__all__ = ["RelationalClassifier"]
