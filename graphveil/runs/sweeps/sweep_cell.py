"""One cell of a sweep: an experiment, and its place in the grid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphveil.runs.experiment import Experiment

_LONGEST_NAME, _LONGEST_LIST = 80, 8  # letters of a cell's folder, values that are written out


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One experiment of a grid.

    Args:
        number: its place in the grid, from 1.
        experiment: what is run.
        epsilon: its place on the axis; None if the budget decides nothing about it.
        settings: the values that were swept, those that its method has.
        include_nonprivate: whether it is the non-private reference of the method.
    """

    number: int
    experiment: Experiment
    epsilon: float | None
    settings: Mapping[str, Any]
    include_nonprivate: bool = False

    @property
    def series(self) -> str:
        """The method with its settings, which one line of the figure follows over epsilon."""
        words = [
            self.experiment.method,
            self.settings_text,
            "without privacy" if self.include_nonprivate else "",
        ]
        return " ".join(word for word in words if word)

    @property
    def settings_text(self) -> str:
        """The swept settings as ``key=value``."""
        return " ".join(f"{key}={format_setting(value)}" for key, value in self.settings.items())

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        words = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{self.series}{budget}").strip("-")
        return f"{self.number:03d}-{words[:_LONGEST_NAME]}"


def format_setting(value: Any) -> str:
    """Return a setting's value as tables and figures show it.

    >>> format_setting((0.5, 0.5)), format_setting((0.001,) * 1000)
    ('(0.5, 0.5)', '1000 values')
    """
    long = isinstance(value, tuple) and len(value) > _LONGEST_LIST
    return f"{len(value)} values" if long else str(value)
