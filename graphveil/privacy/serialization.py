"""Serialize events and guarantees as plain JSON values, and read them back by a closed table of kinds.

Stored guarantee numbers are not trusted: a guarantee is recomputed from its event. Anything else, including
nan and infinite numbers, raises an ``ArtifactError``.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    OneOf,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
)
from graphveil.core.guarantee import EDGE_USES, Guarantee
from graphveil.core.unit import parse_unit
from graphveil.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_Simple = (
    Gaussian
    | PairwiseGaussian
    | PureDP
    | PoissonGaussian
    | PoissonRoots
    | NonPrivate
    | LocalReport
    | ApproximateDP
)
_KINDS: dict[str, type[_Simple]] = {
    "gaussian": Gaussian,
    "pairwise_gaussian": PairwiseGaussian,
    "pure_dp": PureDP,
    "poisson_gaussian": PoissonGaussian,
    "poisson_roots": PoissonRoots,
    "non_private": NonPrivate,
    "local_report": LocalReport,
    "approximate_dp": ApproximateDP,
}
_GROUPS, _CASES = "by_group", "one_of"
_MAX_GROUPS = 100
_NAMES = {cls: name for name, cls in _KINDS.items()}
_GUARANTEE_FIELDS = ("delta", "releases", "slack", "mode", "deviations", "notes", "linear_group_scaling")
_RECORD_UNIT_FIELDS = ("edge_use", "edge_mu", "received", "graph", "labels_public")
_UNIT_FIELDS = ("replace_one", "max_degree")  # of the unit, besides its name
_MAX_COUNT = 1 << 62  # of steps, releases or degrees; a larger one may not even fit into a float
_MAX_EVENTS = 200  # a plan of this library has under twenty; each kind of training takes time to account for


def events_to_plain(event: Event) -> list[dict[str, Any]]:
    """Return an event as a list of its parts in order, each with its kind.

    >>> events_to_plain(Gaussian(0.5))
    [{'kind': 'gaussian', 'mu': 0.5}]
    """
    return [_record(part) for part in compose(event).events]


def events_from_plain(records: object) -> Composed:
    """Return the event that ``events_to_plain`` wrote; anything else is an ``ArtifactError``.

    >>> events_from_plain([{"kind": "gaussian", "mu": 0.5}])
    Composed(events=(Gaussian(mu=0.5),))
    """
    return compose(
        *(
            OneOf(tuple(compose(*map(_case, _listed(case))) for case in _several(record)))
            if isinstance(record, dict) and record.get("kind") == _CASES
            else _case(record)
            for record in _listed(records)
        )
    )


def guarantee_to_plain(guarantee: Guarantee) -> dict[str, Any]:
    """Return the inputs of a guarantee's accounting; its numbers and sentences follow from them."""
    names = ("unit", *_UNIT_FIELDS, *_GUARANTEE_FIELDS, *_RECORD_UNIT_FIELDS)
    additional = [guarantee_to_plain(one) for one in guarantee.additional]
    record = {name: getattr(guarantee, name) for name in names} | {"additional": additional}
    return record | {"events": events_to_plain(guarantee.event)}


def guarantee_from_plain(record: dict[str, Any]) -> Guarantee:
    """Account for a record that ``guarantee_to_plain`` wrote.

    Raises:
        ArtifactError: It has another form, or contains a number that is not finite.
        PrivacyError: it names an unknown unit, or its events do not go together.

    >>> from graphveil.privacy import UndirectedEdge
    >>> first = Guarantee.from_event(UndirectedEdge(), compose(Gaussian(0.2)), delta=1e-7, releases=1)
    >>> guarantee_from_plain(json.loads(json.dumps(guarantee_to_plain(first)))) == first
    True
    """
    for name, fits in _VALIDATORS.items():
        if name in record and not fits(record[name]):
            raise ArtifactError(f"field {name!r} of the stored guarantee has a wrong type or is out of range")
    if missing := {"unit", "events", *_GUARANTEE_FIELDS} - set(record):
        raise ArtifactError(
            f"The stored guarantee lacks {', '.join(sorted(missing))}. Copy the file from the "
            "original run again."
        )
    known = {name: record[name] for name in _GUARANTEE_FIELDS}
    known |= {name: tuple(record[name]) for name in ("deviations", "notes")}
    known |= {name: record[name] for name in _RECORD_UNIT_FIELDS if name in record}  # older records lack some
    additional = record.get("additional", ())
    if any(one.get("additional") for one in additional):
        raise ArtifactError("an additional guarantee cannot contain further additional guarantees")
    known["additional"] = tuple(map(guarantee_from_plain, additional))
    events = events_from_plain(record["events"])
    try:
        unit = parse_unit(record["unit"], **{name: record[name] for name in _UNIT_FIELDS if name in record})
        return Guarantee.from_event(unit, events, **known)
    except ConfigError as error:
        raise ArtifactError(
            f"The stored guarantee is damaged: {error}. Copy the file from the original run again."
        ) from None


def _share(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def _strings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_VALIDATORS: dict[str, Callable[[object], bool]] = {
    "unit": lambda value: isinstance(value, str),
    "delta": _share,
    "slack": _share,
    "releases": _count,
    "mode": lambda value: value in ("strict", "paper"),
    "deviations": _strings,
    "notes": _strings,
    "linear_group_scaling": _flag,
    "replace_one": _flag,
    "max_degree": lambda value: value is None or _count(value),
    "edge_use": lambda value: value in EDGE_USES,
    "edge_mu": lambda value: value is None or (isinstance(value, float) and 0 <= value < math.inf),
    "received": _flag,
    "graph": _flag,
    "labels_public": _flag,
    "additional": lambda value: (
        isinstance(value, list) and len(value) <= 1 and all(isinstance(one, dict) for one in value)
    ),
}


def _record(part: Event) -> dict[str, Any]:
    if isinstance(part, ByGroup):
        groups = [events_to_plain(event) for event in part.events]
        return {"kind": _GROUPS, "partition": part.partition, "events": groups}
    if isinstance(part, OneOf):
        return {"kind": _CASES, "events": [events_to_plain(case) for case in part.cases]}
    if isinstance(part, Composed):
        raise TypeError("a composition inside a composition cannot be stored; flatten it with compose()")
    values = {name: None if value == math.inf else value for name, value in asdict(part).items()}
    return {"kind": _NAMES[type(part)], **values}  # JSON has no infinity


def _case(record: object) -> Event:
    if not isinstance(record, dict) or record.get("kind") != _GROUPS:
        return _plain_event(record)
    groups, partition = _several(record, "partition"), record["partition"]
    if not isinstance(partition, str):
        raise ArtifactError(f"an event of kind {_GROUPS!r} has a partition that is not a string")
    try:  # groups within groups are no plain events, so nothing here nests
        return ByGroup(partition, tuple(compose(*map(_plain_event, _listed(group))) for group in groups))
    except ConfigError as error:
        raise ArtifactError(f"an event of kind {_GROUPS!r}: {error}") from None


def _several(record: dict[str, Any], *more: str) -> list[object]:
    """Return the lists of events in a composite event."""
    kind, lists = record["kind"], record.get("events")
    if set(record) != {"kind", "events", *more}:
        raise ArtifactError(f"an event of kind {kind!r} has missing or unknown fields")
    if not isinstance(lists, list) or not 0 < len(lists) <= _MAX_GROUPS:
        raise ArtifactError(f"an event of kind {kind!r} needs a list of events for each group or case")
    return lists


def _listed(records: object) -> list[object]:
    if not isinstance(records, list) or len(records) > _MAX_EVENTS:
        raise ArtifactError(f"the events of a guarantee must be a list of at most {_MAX_EVENTS} objects")
    return records


@lru_cache
def _reader(kind: str) -> "TypeAdapter[Event]":
    """Return the validator of events of a kind; making it takes much longer than using it."""
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[kind])


def _plain_event(record: object) -> Event:
    from pydantic import ValidationError

    kind = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(kind, str) or kind not in _KINDS:
        raise ArtifactError(f"an event must be an object of one of the kinds {', '.join(_KINDS)}")
    cls = _KINDS[kind]
    values = {name: value for name, value in record.items() if name != "kind"}
    if cls is LocalReport and values.get("epsilon", 0) is None:
        values["epsilon"] = math.inf
    if set(values) != {field.name for field in fields(cls)}:
        raise ArtifactError(f"an event of kind {kind!r} has missing or unknown fields")
    try:
        found = _reader(kind).validate_json(json.dumps(values), strict=True)
        if isinstance(found, PoissonGaussian | PoissonRoots) and not _count(found.steps):
            raise ValueError("the number of steps is too large for a float")
        return found
    except (ValidationError, ValueError, OverflowError):
        raise ArtifactError(
            f"an event of kind {kind!r} has a field of a wrong type or out of range"
        ) from None
