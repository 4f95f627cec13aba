"""Ordinary training, without privacy: the loop, task heads and metrics."""

from graphveil.training.loop import EpochRecord, TrainingSchedule, train

__all__ = ["EpochRecord", "TrainingSchedule", "train"]
