"""What a cell leaves: figures, and what they cost; and where cells keep things."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphveil.privacy import Guarantee, NoUnit


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a cell found out, as plain values.

    Args:
        values: figures by name.
        cost: the unit, epsilon, delta and validity of its guarantee; None if it asks protected data nothing.
        deviations: why the guarantee does not hold, where it does not.
        refused: why there are no figures; empty if there are.
    """

    values: Mapping[str, float]
    cost: Mapping[str, Any] | None = None
    deviations: tuple[str, ...] = ()
    refused: str = ""

    @classmethod
    def from_guarantee(cls, values: Mapping[str, float], guarantee: Guarantee) -> "Measurement":
        """Return figures with what they cost."""
        is_charged = guarantee.releases and guarantee.unit != NoUnit.name
        plain = guarantee.as_dict()
        cost = {name: plain[name] for name in ("unit", "epsilon", "delta", "valid")} if is_charged else None
        return cls(values=values, cost=cost, deviations=tuple(guarantee.deviations))

    def as_dict(self) -> dict[str, Any]:
        """Return it as a file has it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Measurement":
        """Return what a file says."""
        return cls(**{**plain, "deviations": tuple(plain["deviations"])})


@dataclass(frozen=True, kw_only=True)
class MeasurementPaths:
    """Where cells read and keep things.

    Args:
        root: the folder of the data sets; None for the default.
        work: a cell's own folder, from which a killed release goes on at no further cost; None keeps nothing.
        cache: what follows from public data alone, for all cells.
    """

    root: Path | None
    work: Path | None = field(default=None)
    cache: Path | None = field(default=None)
