"""The randomized reports on one record in an event: what they cost together, and by part of the record."""

from collections.abc import Sequence
from typing import Literal

from graphveil._util.ldp_statements import exact_sum
from graphveil.privacy.events import Composed, Event, LocalReport, compose

Part = Literal["features", "label"]
PARTS: tuple[Part, ...] = ("features", "label")  # of a record that its own node randomizes


def ldp_reports_of(event: Event) -> list[LocalReport]:
    """Return the reports of an event, in order."""
    return [part for part in compose(event).events if isinstance(part, LocalReport)]


def budgets_of(event: Event, part: Part) -> list[float]:
    """Return the budgets of all reports on one part of a record."""
    return [report.epsilon for report in ldp_reports_of(event) if report.part == part]


def worst_case_ldp_reports(events: Sequence[Event]) -> Composed:
    """Return what costs each part as much as the one of these events that costs it most.

    A person who made one event's reports only has told no more about its features than the largest sum over
    one of them, nor about its label.

    >>> one = compose(LocalReport("features", 1.0), LocalReport("label", 0.5))
    >>> [report.epsilon for report in ldp_reports_of(worst_case_ldp_reports([one, LocalReport("label",
    ...     2.0)]))]
    [1.0, 2.0]
    """
    found = (_largest(events, part) for part in PARTS)
    return compose(*(report for report in found if report is not None))


def _largest(events: Sequence[Event], part: Part) -> LocalReport | None:
    """Return the largest sums of epsilon and of delta that one event has on a part, None for nothing."""
    own = [[report for report in ldp_reports_of(event) if report.part == part] for event in events]
    if not any(own):
        return None
    epsilon = max(exact_sum([report.epsilon for report in reports]) for reports in own)
    delta = max(exact_sum([report.delta for report in reports]) for reports in own)
    return LocalReport(part, float(epsilon), float(delta))
