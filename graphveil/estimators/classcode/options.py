"""Which of ClassCode's options go with which unit: one without effect would be believed to do something."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.estimators.privacy_config import PrivacyConfig

_NODE_LEVEL_OPTIONS = ("read_own_edges", "targets", "unlabeled_send", "encoder_share")
_EDGE_LEVEL_OPTIONS = ("few_labels", "self_training", "count_share", "target_to_labeled_weight", "noise")
_NAMED_TARGETS = ("unlabeled", "test")  # of targets


def check_options(
    given: Mapping[str, Any], defaults: Mapping[str, Any], privacy_config: PrivacyConfig
) -> None:
    """Refuse options of the other kind of unit, and those that contradict each other.

    Args:
        given: the constructor keywords.
        defaults: what they are where nothing is given.
        privacy_config: the unit that they are for.

    Raises:
        ConfigError: an option has no effect under the unit, or a value is outside its range.
    """
    for name in _EDGE_LEVEL_OPTIONS if privacy_config.on_records else _NODE_LEVEL_OPTIONS:
        if given[name] != defaults[name]:
            wanted = "edge units" if privacy_config.on_records else "unit 'node-record'"
            raise ConfigError(
                f"{name}={given[name]!r} is for {wanted} and has no effect under unit "
                f"{privacy_config.unit.name!r}; "
                "drop it"
            )
    if privacy_config.on_records:
        _check_node_level(given)
    if given["noise"] == "laplace":
        _check_counting(given, defaults)


def _check_counting(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse what belongs to sums of codes."""
    for name in ("few_labels", "count_share", "target_to_labeled_weight", "weights", "weight_rows"):
        if given[name] != defaults[name]:
            raise ConfigError(
                f"{name}={given[name]!r} is for sums of codes and has no effect where neighbors are counted "
                "(noise='laplace'); drop it, or pass noise='gaussian'"
            )


def _check_node_level(given: Mapping[str, Any]) -> None:
    if given["encoder_share"] is not None:
        checks.within(0.001, 0.85, encoder_share=given["encoder_share"])
    targets = given["targets"]
    _check_targets(targets)
    if targets is not None and (not targets or given["read_own_edges"]):
        raise ConfigError(
            "read_own_edges reads the rows of all nodes, and an empty targets= releases none: drop targets, "
            "or name nodes and predict from their own rows (read_own_edges=False)"
        )


def _check_targets(targets: object) -> None:
    """Refuse what names no nodes, before anything asks how many there are."""
    if isinstance(targets, str):
        checks.one_of(_NAMED_TARGETS, targets=targets)
        return
    ids = targets if isinstance(targets, tuple | list) else [targets]
    known = all(isinstance(id, str | Integral) and not isinstance(id, bool) for id in ids)
    if targets is not None and not (known and isinstance(targets, tuple | list)):
        raise ConfigError(
            f"targets={targets!r} must be {' or '.join(map(repr, _NAMED_TARGETS))}, or a tuple of node ids"
        )
