"""Training: the plain loop, the private one, and their checkpoints."""

from graphveil.train.clipped import ClippedSum
from graphveil.train.dpsgd import PrivateSchedule, clipped_sum, train_clipped, train_private
from graphveil.train.ghost import Activation, Affine, Branches, Chain, Ghost, UnitRows
from graphveil.train.loop import EpochRecord, Schedule, train
from graphveil.train.per_sample import refuse_row_mixing

__all__ = [
    "Activation",
    "Affine",
    "Branches",
    "Chain",
    "ClippedSum",
    "EpochRecord",
    "Ghost",
    "PrivateSchedule",
    "Schedule",
    "UnitRows",
    "clipped_sum",
    "refuse_row_mixing",
    "train",
    "train_clipped",
    "train_private",
]
