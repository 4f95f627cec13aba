"""A survey from the texts of flags."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from graphveil.errors import ConfigError
from graphveil.runs.inputs.parameters import parse_value, read_settings, read_theta

if TYPE_CHECKING:
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.protocol import LabelLaw
    from graphveil.mechanisms import FeatureRR, MultiBit

MULTI_BIT, FEATURE_RR = "multi-bit", "feature-rr"
RR = "rr"


@dataclass(frozen=True, kw_only=True)
class ProtocolBuilder:
    """What ``collect protocol`` was given. The fields are its flags; lists are comma-separated texts."""

    eps_x: float | None = None
    eps_y: float | None = None
    columns: str | None = None
    dim: int | None = None
    low: str = "0"
    high: str = "1"
    classes: str | None = None
    mechanism: str = MULTI_BIT
    label_mechanism: str = RR
    theta: Path | None = None
    purpose: str = ""
    settings: Iterable[str] = field(default=())

    def protocol(self) -> "CollectionProtocol":
        """Return the survey.

        Raises:
            ConfigError: a flag is missing, contradicts another, or holds a value outside its range.

        >>> given = {"columns": "age, height", "high": "120,2.5", "classes": "red,blue"}
        >>> protocol = ProtocolBuilder(eps_x=1.0, eps_y=2.0, **given).protocol()
        >>> protocol.features.bounds.high, protocol.columns, protocol.class_names
        ((120.0, 2.5), ('age', 'height'), ('red', 'blue'))
        """
        from graphveil.local.collect import CollectionProtocol

        columns, names = _items("--columns", self.columns), _items("--classes", self.classes)
        if columns and self.dim is not None:
            raise ConfigError("--columns says how many features there are; drop --dim")
        dim = len(columns) or self.dim
        if (dim is None) != (self.eps_x is None):
            raise ConfigError("features need both a budget and names: --eps-x with --columns or --dim")
        if (self.classes is None) != (self.eps_y is None):
            raise ConfigError("a label needs both a budget and classes: --eps-y with --classes")
        if self.eps_y is None and self.label_mechanism != RR:
            raise ConfigError("--label-mechanism is for a label: give --eps-y and --classes, or drop it")
        if dim is None and self.eps_y is None:
            raise ConfigError(
                "a survey asks for features (--eps-x with --columns or --dim), a label (--eps-y with "
                "--classes), or both, and neither is given"
            )
        counted = len(names) == 1 and names[0].isdecimal()
        classes = int(names[0]) if counted else len(names)
        return CollectionProtocol(
            features=None if dim is None or self.eps_x is None else self._features(self.eps_x, dim),
            label=None if self.eps_y is None else _label(self.eps_y, classes, self.label_mechanism),
            purpose=self.purpose,
            columns=columns,
            class_names=() if counted else names,
        )

    def _features(self, epsilon: float, dim: int) -> "MultiBit | FeatureRR":
        from graphveil.mechanisms import Bounds, FeatureRR, MultiBit

        kind: type[MultiBit | FeatureRR] = MultiBit if self.mechanism == MULTI_BIT else FeatureRR
        low, high = (parse_value(name, getattr(self, name), _ENDS) for name in ("low", "high"))
        bounds = Bounds(_like(low, high), _like(high, low))
        given: dict[str, Any] = {"epsilon": epsilon, "dim": dim, "bounds": bounds}
        given |= read_settings(self.settings, _own(kind), self.mechanism)
        if self.theta is not None:
            if kind is MultiBit:
                raise ConfigError(f"--theta is for --mechanism {FEATURE_RR}; {MULTI_BIT} samples features")
            given["allocation"] = read_theta(self.theta)
        return kind(**given)


_ENDS = float | tuple[float, ...]


def _items(flag: str, text: str | None) -> tuple[str, ...]:
    """Return the items of a comma-separated list, none of which is empty.

    >>> _items("--classes", "red, blue")
    ('red', 'blue')
    """
    found = () if text is None else tuple(item.strip() for item in text.split(","))
    if "" in found:
        raise ConfigError(f"{flag} {text!r} has an empty item. Write a list without empty items, a,b,c.")
    return found


def _like(end: Any, other: Any) -> Any:
    """Return one bound for all features as one each, where the other bound is."""
    return (end,) * len(other) if isinstance(other, tuple) and not isinstance(end, tuple) else end


def _label(epsilon: float, classes: int, mechanism: str) -> "LabelLaw":
    from graphveil.local.collect.protocol import LABELS

    return LABELS[None if mechanism == RR else mechanism](epsilon=epsilon, classes=classes)


def _own(kind: type[Any]) -> dict[str, Any]:
    """Return the keywords that only this mechanism has, with their types; an allocation is no text."""
    from graphveil.mechanisms import FeatureMechanism

    hints, common = get_type_hints(kind), {part.name for part in fields(FeatureMechanism)}
    return {part.name: hints[part.name] for part in fields(kind) if part.name not in {*common, "allocation"}}
