"""Table of a release's privacy loss, line by line, from the events that its guarantee is accounted from.

A saved release also contains a table for readers. It may have been changed by anyone, so only the kinds of
its queries are shown. A table that contradicts the events is rejected.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphveil.artifacts.cards import query_kind_texts
from graphveil.artifacts.snapshot import ReleaseRow, charged_groups, charged_to_text
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    LocalReport,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
)
from graphveil.core.noise.discrete_laplace import sigma_of
from graphveil.errors import ArtifactError
from graphveil.privacy import Guarantee

_STEPS, _REPORTS = ("steps", "attention"), ("features", "label")
_BOUNDED = ("graph", "total", "tree", "blocks")
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class EventLine:
    """One answer about protected data.

    ``relative_noise`` is the noise's standard deviation over the sensitivity, for the pair of groups or the
    group of records that the answer depends on most; of sampled steps it is the noise multiplier of each.
    A report has its ``epsilon`` instead, infinite where it is not randomized.
    """

    kind: str
    relative_noise: float | None
    steps: int | None = None
    sampling_rate: float | None = None
    epsilon: float | None = None
    pays: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, in which infinity is None."""
        epsilon = None if self.epsilon == math.inf else self.epsilon
        return {**asdict(self), "epsilon": epsilon, "pays": list(self.pays)}

    @property
    def noise(self) -> str:
        """The noise as text."""
        if self.relative_noise is None:
            return "none" if self.epsilon in (None, math.inf) else f"randomized at epsilon {self.epsilon:g}"
        noise = f"{self.relative_noise:.5g}"
        if self.steps is None:
            return f"{noise}, for all steps together" if self.kind in _STEPS else noise
        return f"{noise}, {self.steps:,} times, each record with probability {self.sampling_rate:.3g}"


def event_lines(guarantee: Guarantee, rows: Sequence[ReleaseRow]) -> tuple[EventLine, ...]:
    """Return one line per query, in order.

    Args:
        guarantee: Guarantee with the events.
        rows: Stored table with the kinds of the queries.

    Raises:
        ArtifactError: The table does not follow from the events.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> kept = Guarantee.from_event(UndirectedEdge(), Gaussian(0.5), delta=1e-5, releases=1)
    >>> row = ReleaseRow(kind="rows", sensitivity=1.0, noise_std=[2.0], values_per_node=3)
    >>> [line.noise for line in event_lines(kept, [row])]
    ['2']
    """
    events = compose(guarantee.event, *(one.event for one in guarantee.additional)).events
    if len(events) != len(rows) or not all(map(_agrees, events, rows)):
        raise ArtifactError(
            "The table of released quantities does not match the events in the same file, so the "
            "file was changed. Restore privacy.json from the original run."
        )
    return tuple(_line(event, row.kind, guarantee) for event, row in zip(events, rows, strict=True))


def event_cells(lines: Sequence[EventLine]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the lines of a table."""
    paid = any(line.pays for line in lines)
    kinds = query_kind_texts([line.kind for line in lines])
    head = ("#", "query", "noise over sensitivity", *(("charged to",) if paid else ()))
    return head, [
        (
            str(number),
            kind,
            line.noise,
            *((charged_to_text(line.pays),) if paid else ()),
        )
        for number, (line, kind) in enumerate(zip(lines, kinds, strict=True), start=1)
    ]


def _line(event: Event, kind: str, guarantee: Guarantee) -> EventLine:
    pays = charged_groups(event, guarantee.protected)
    one = _worst(event)
    if isinstance(one, ApproximateDP | LocalReport):
        return EventLine(kind=kind, relative_noise=None, epsilon=one.epsilon, pays=pays)
    if isinstance(one, PoissonGaussian | PoissonRoots):
        noise, rate = one.noise_multiplier, one.sampling_rate
        return EventLine(kind=kind, relative_noise=noise, steps=one.steps, sampling_rate=rate, pays=pays)
    if isinstance(one, PureDP):
        return EventLine(kind=kind, relative_noise=sigma_of(one.epsilon), pays=pays)
    mu = _mu(one)
    return EventLine(kind=kind, relative_noise=1 / mu if mu else None, pays=pays)


def _agrees(event: Event, row: ReleaseRow) -> bool:
    """Return whether a row matches an event: kind, steps, and noise multiplier."""
    one = _worst(event)
    if (row.kind in _REPORTS) != isinstance(one, LocalReport):
        return False
    if (row.kind in _BOUNDED) != isinstance(one, ApproximateDP):
        return False
    if isinstance(one, ApproximateDP):
        return True
    if isinstance(one, LocalReport):
        return row.kind == one.part
    if isinstance(one, PoissonGaussian | PoissonRoots):
        return row.kind in _STEPS and (row.steps, row.noise_std) == (one.steps, [one.noise_multiplier])
    if row.kind in _STEPS:  # of full batches, whose clipping norm the event does not contain
        return row.steps is not None
    if not row.noise_std or not all(0 < std < math.inf for std in row.noise_std):
        return False
    if isinstance(one, PureDP):  # which is divided among the counts that change, each by one
        changed = round(row.sensitivity**2)
        return math.isclose(row.noise_std[0], sigma_of(one.epsilon / changed), rel_tol=_ROUNDING)
    least, most = (row.sensitivity / std for std in (max(row.noise_std), min(row.noise_std)))
    return least * (1 - _ROUNDING) <= _mu(one) <= most * (1 + _ROUNDING)


def _worst(event: Event) -> Event:
    """Return what an event does to the group of records that it depends on most."""
    if not isinstance(event, ByGroup):
        return event
    touched = [part for part in event.events if part != Composed(())]
    return max(touched, key=_mu, default=Composed(()))


def _mu(event: Event) -> float:
    if isinstance(event, PairwiseGaussian):
        return math.sqrt(event.worst)
    return total_mu(event) or 0.0
