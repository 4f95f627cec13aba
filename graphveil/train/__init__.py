"""Training: the plain loop, the private one, and their checkpoints."""

from graphveil.train.dpsgd import PrivateSchedule, train_private
from graphveil.train.ghost import Activation, Affine, Branches, Chain, Ghost, UnitRows
from graphveil.train.loop import EpochRecord, Schedule, train
from graphveil.train.per_sample import refuse_row_mixing

__all__ = [
    "Activation",
    "Affine",
    "Branches",
    "Chain",
    "EpochRecord",
    "Ghost",
    "PrivateSchedule",
    "Schedule",
    "UnitRows",
    "refuse_row_mixing",
    "train",
    "train_private",
]
