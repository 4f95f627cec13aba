"""Training: the plain loop and its checkpoints."""

from graphveil.train.loop import EpochRecord, Schedule, train

__all__ = ["EpochRecord", "Schedule", "train"]
