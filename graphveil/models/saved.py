"""Estimators from release folders, and folders from fits."""
