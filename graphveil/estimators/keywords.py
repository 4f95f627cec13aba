"""Constructor keywords that several estimators share, and their defaults for each unit."""

from dataclasses import dataclass
from typing import Any

from graphveil._util import checks
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.errors import ConfigError
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.nn.layers import ACTIVATIONS
from graphveil.training import TrainingSchedule


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkKeywords:
    """Keywords of training without edges, shared by MLP and GAP.

    If labels and features are public, networks are trained by Adam, and the epoch with the best validation
    accuracy is kept. Under node-level units they are trained by DP-Adam on the training nodes' records,
    without batch norm or dropout. The last parameters are kept, since validation records are protected as
    well.

    Args:
        hidden: Width of the hidden layers.
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        batch_norm: Whether hidden layers normalize over the batch. None for yes, under node-level units no.
        dropout: Share of hidden entries dropped in training.
        epochs: Passes over the training nodes. None for 100, under node-level units 60.
        learning_rate: Step size of Adam. None for 0.01, under node-level units 0.03.
        weight_decay: Penalty on squared parameters.
        batch_size: Nodes in a batch (expected number under node-level units). None for all nodes.
        patience: Stop after this number of epochs without a better validation accuracy; None never stops.
        clip: Node-level units: clipping norm of per-record gradients.
    """

    hidden: int = 16
    activation: str = "selu"
    batch_norm: bool | None = None
    dropout: float = 0.0
    epochs: int | None = None
    learning_rate: float | None = None
    weight_decay: float = 0.0
    batch_size: int | None = None
    patience: int | None = None
    clip: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The training configuration of networks, resolved for a unit; see ``NetworkKeywords``."""

    hidden: int
    layers: dict[str, Any]  # keywords of networks: activation, batch norm, dropout
    epochs: int
    rate: float
    weight_decay: float
    batch_size: int | None
    patience: int | None
    clip: float

    @classmethod
    def from_keywords(cls, given: NetworkKeywords, privacy_config: PrivacyConfig) -> "TrainingConfig":
        checks.width(hidden=given.hidden)
        checks.one_of(ACTIVATIONS, activation=given.activation)
        checks.within(0, 0.99, dropout=given.dropout)
        records = privacy_config.on_records
        if records:
            _reject_mixing(given, privacy_config)
        # On full batches of records: benchmarks/notes/008-node-level-gap.md.
        epochs, rate = (60, 0.03) if records else (100, 0.01)
        normed = not records if given.batch_norm is None else given.batch_norm
        found = cls(
            hidden=given.hidden,
            layers={"activation": given.activation, "batch_norm": normed, "dropout": given.dropout},
            epochs=epochs if given.epochs is None else given.epochs,
            rate=rate if given.learning_rate is None else given.learning_rate,
            weight_decay=given.weight_decay,
            batch_size=given.batch_size,
            patience=given.patience,
            clip=given.clip,
        )
        if not records:  # a batch may have one record, as nothing mixes them
            found.nonprivate_schedule()  # which rejects wrong settings
        found.private()
        return found

    def nonprivate_schedule(self, epochs: int | None = None) -> TrainingSchedule:
        return TrainingSchedule(
            epochs=self.epochs if epochs is None else epochs,
            learning_rate=self.rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            patience=self.patience,
        )

    def private(self, epochs: int | None = None) -> PrivateSchedule:
        return PrivateSchedule(
            epochs=self.epochs if epochs is None else epochs,
            batch_size=self.batch_size,
            clip=self.clip,
            learning_rate=self.rate,
            weight_decay=self.weight_decay,
        )


def _reject_mixing(given: NetworkKeywords, privacy_config: PrivacyConfig) -> None:
    """Reject what mixes records, or reads validation records without a charge."""
    if given.batch_norm:
        raise ConfigError(
            f"batch_norm=True mixes the records of a batch, which unit {privacy_config.unit.name!r} "
            "protects individually. Omit it. Custom networks can use LayerNorm or GroupNorm."
        )
    if given.dropout:
        raise ConfigError(
            f"dropout={given.dropout:g} is not supported under node-level units. Use dropout=0."
        )
    if given.patience is not None:
        raise ConfigError(
            "patience evaluates validation records after every epoch, and node-level units protect "
            "them. Omit it."
        )
