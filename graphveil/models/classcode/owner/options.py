"""Which of ClassCode's options go with which unit: one without effect would be believed to do something."""

from typing import TYPE_CHECKING

from graphveil import _check
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.models.classcode.estimator import ClassCode

_ON_RECORDS = ("read_own_edges", "targets", "unlabelled_send", "encoder_share")
_ON_EDGES = ("few_labels", "distil", "count_share", "back")


def check_options(model: "ClassCode", *, on_records: bool) -> None:
    """Refuse options of the other kind of unit, and those that contradict each other.

    Raises:
        ConfigError: an option has no effect under the unit, or a value is outside its range.
    """
    for name in _ON_EDGES if on_records else _ON_RECORDS:
        if getattr(model, name) != type(model).__dataclass_fields__[name].default:
            wanted = "edge units" if on_records else "unit 'node-owner'"
            raise ConfigError(
                f"{name}={getattr(model, name)!r} is for {wanted} and has no effect under unit "
                f"{model.unit!r}; drop it"
            )
    if not on_records:
        return
    if model.encoder_share is not None:
        _check.within(0.001, 0.85, encoder_share=model.encoder_share)
    if model.targets is not None and (not model.targets or model.read_own_edges):
        raise ConfigError(
            "read_own_edges reads the rows of all nodes, and an empty targets= releases none: drop targets, "
            "or name nodes and predict from their own rows (read_own_edges=False)"
        )
    if isinstance(model.targets, str):
        _check.one_of(("unlabelled", "test"), targets=model.targets)
    if model.device == "cuda":
        raise ConfigError("private training runs on the CPU; pass device='cpu' or 'auto'")
