"""Serialize events and guarantees as plain JSON values, and read them back by a closed table of kinds.

Stored guarantee numbers are not trusted: a guarantee is recomputed from its event. Anything else, including
nan and infinite numbers, raises an ``ArtifactError``.
"""

import json
import math
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

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
from graphveil.core.guarantee import EdgeUse, Guarantee
from graphveil.core.unit import parse_unit
from graphveil.errors import ArtifactError, ConfigError

_KINDS: dict[str, type[Event]] = {
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
_MAX_COUNT = 1 << 62  # of steps, releases or degrees; a larger one may not even fit into a float
_MAX_EVENTS = 200  # a plan of this library has under twenty; each kind of training takes time to account for

_Texts = Annotated[tuple[str, ...], Field(strict=False)]


class GuaranteeRecord(BaseModel):
    """The inputs of a guarantee's accounting; its numbers and sentences follow from them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    unit: str = Field(max_length=40)
    events: list[dict[str, Any]]
    delta: float = Field(ge=0, lt=1)
    releases: int = Field(ge=0, le=_MAX_COUNT)
    slack: float = Field(ge=0, lt=1)
    mode: Literal["strict", "paper"] = "strict"  # in files of earlier versions, which need it
    deviations: _Texts
    notes: _Texts
    linear_group_scaling: bool
    replace_one: bool = False
    max_degree: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    edge_use: EdgeUse = "queried"
    edge_mu: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    coalition_mu: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    received: bool = False
    graph: bool = False
    labels_public: bool = False
    additional: list["GuaranteeRecord"] = Field(default=[], max_length=1)


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
    names = [name for name in GuaranteeRecord.model_fields if name not in ("events", "additional", "mode")]
    additional = [guarantee_to_plain(one) for one in guarantee.additional]
    record = {name: getattr(guarantee, name) for name in names} | {"additional": additional}
    return record | {"mode": "strict", "events": events_to_plain(guarantee.event)}


def guarantee_from_plain(record: dict[str, Any]) -> Guarantee:
    """Account for a record that ``guarantee_to_plain`` wrote.

    Raises:
        PrivacyError: it names an unknown unit, or its events do not go together.

    >>> from graphveil.privacy import UndirectedEdge
    >>> first = Guarantee.from_event(UndirectedEdge(), compose(Gaussian(0.2)), delta=1e-7, releases=1)
    >>> guarantee_from_plain(json.loads(json.dumps(guarantee_to_plain(first)))) == first
    True
    """
    known = {name: record[name] for name in GuaranteeRecord.model_fields if name in record}
    try:
        return guarantee_from_record(GuaranteeRecord.model_validate(known))
    except ValidationError as error:
        faults = {str(one["loc"][0]): one["type"] for one in error.errors(include_input=False)}
    if missing := sorted(name for name, kind in faults.items() if kind == "missing"):
        raise ArtifactError(
            f"The stored guarantee lacks {', '.join(missing)}. Copy the file from the original run again."
        )
    raise ArtifactError(
        f"field {next(iter(faults))!r} of the stored guarantee has a wrong type or is out of range"
    )


def guarantee_from_record(record: GuaranteeRecord) -> Guarantee:
    values = dict(record)
    del values["mode"]
    if any(one.additional for one in record.additional):
        raise ArtifactError("an additional guarantee cannot contain further additional guarantees")
    additional = tuple(map(guarantee_from_record, values.pop("additional")))
    events = events_from_plain(values.pop("events"))
    try:
        unit = parse_unit(
            values.pop("unit"), replace_one=values.pop("replace_one"), max_degree=values.pop("max_degree")
        )
        return Guarantee.from_event(unit, events, additional=additional, **values)
    except ConfigError as error:
        raise ArtifactError(
            f"The stored guarantee is damaged: {error}. Copy the file from the original run again."
        ) from None


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
def _reader(kind: str) -> TypeAdapter[Event]:
    """Return the validator of events of a kind; making it takes much longer than using it."""
    return TypeAdapter(_KINDS[kind])


def _plain_event(record: object) -> Event:
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
        if isinstance(found, PoissonGaussian | PoissonRoots) and found.steps > _MAX_COUNT:
            raise ValueError("the number of steps is too large for a float")
        return found
    except (ValidationError, ValueError, OverflowError):
        raise ArtifactError(
            f"an event of kind {kind!r} has a field of a wrong type or out of range"
        ) from None
