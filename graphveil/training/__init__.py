"""Training: the non-private loop, the private one, and their checkpoints."""

from graphveil.training.clipped_sums import ClippedSum
from graphveil.training.dpsgd import PrivateSchedule, clipped_sum
from graphveil.training.ghost_modules import (
    Activation,
    Affine,
    GhostBranches,
    GhostModule,
    GhostSequential,
    UnitRows,
)
from graphveil.training.loop import EpochRecord, TrainingSchedule, train
from graphveil.training.per_sample import reject_row_mixing

__all__ = [
    "Activation",
    "Affine",
    "ClippedSum",
    "EpochRecord",
    "GhostBranches",
    "GhostModule",
    "GhostSequential",
    "PrivateSchedule",
    "TrainingSchedule",
    "UnitRows",
    "clipped_sum",
    "reject_row_mixing",
    "train",
]
