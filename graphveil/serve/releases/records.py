"""New records of a request, as a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, TypeAdapter, ValidationError

from graphveil.data.tables.encoding import ColumnRule, encode
from graphveil.data.tables.labels import text
from graphveil.errors import GraphError
from graphveil.serve.error_responses import RequestError, other_features, to_json_bytes
from graphveil.serve.schemas import LARGEST, Identity

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.data.tables.files import Column
    from graphveil.serve.runs import ServedRun

Id = int | str

Feature = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]


class NewNodeRecord(BaseModel):
    """One node: its id, and its features by column name, or in the order of the training's columns.

    A run without feature columns needs none.
    """

    model_config = ConfigDict(extra="forbid")

    id: Identity
    x: list[Feature] | dict[str, StrictBool | Feature | StrictStr | list[Feature] | None] | None = None


_RECORDS = TypeAdapter(Annotated[list[NewNodeRecord], Field(min_length=1)])
_EDGES = TypeAdapter(list[tuple[Identity, Identity]])


@dataclass(frozen=True)
class NewRecordsGraph:
    """A graph that a caller sends, in one order whatever the order it was sent in.

    Args:
        features: by id.
        edges: pairs of ids, each once; of an undirected one the smaller end is first.
    """

    features: Mapping[Id, Sequence[float]]
    edges: Sequence[tuple[Id, Id]]

    @classmethod
    def read(cls, records: object, edges: object, run: "ServedRun", *, directed: bool) -> "NewRecordsGraph":
        """Read both lists.

        Raises:
            RequestError: they are invalid, the features are not those of the run, an id is listed twice, or
                an edge has an unknown end.
        """
        try:
            found, pairs = _RECORDS.validate_python(records), _EDGES.validate_python(edges or [])
        except ValidationError:
            raise RequestError("invalid_body") from None
        features = dict(zip((one.id for one in found), _features(found, run), strict=True))
        known = all(end in features for pair in pairs for end in pair)
        if len(features) < len(found) or not known or len({type(one) for one in features}) > 1:
            raise RequestError("no_graph")
        ranks = {one: rank for rank, one in enumerate(sorted(features))}
        distinct = {pair if directed or ranks[pair[0]] < ranks[pair[1]] else pair[::-1] for pair in pairs}
        edges = sorted(distinct, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        return cls({one: features[one] for one in ranks}, edges)

    @property
    def bytes(self) -> bytes:
        """Bytes that identify this graph."""
        return to_json_bytes([list(self.features.items()), list(self.edges)])

    def graph(self, *, classes: Sequence[str], directed: bool) -> "Graph":
        """Return it as a graph without labels."""
        import torch

        from graphveil.data import Graph

        places = {one: place for place, one in enumerate(self.features)}
        return Graph.from_edges(
            x=torch.tensor(list(self.features.values()), dtype=torch.float32),
            y=torch.full((len(places),), -1),
            source=[places[one] for one, _ in self.edges],
            target=[places[other] for _, other in self.edges],
            directed=directed,
            num_classes=len(classes),
            class_names=tuple(classes),
        )


def _features(found: Sequence[NewNodeRecord], run: "ServedRun") -> list[list[float]]:
    """Return the features of each record as the model reads them, in 32 bits, whatever way they were sent.

    Raises:
        RequestError: the features are not those of the run.
    """
    rules = () if run.encoding is None else run.encoding.rules
    names = [rule.name for rule in rules]
    if run.encoding is not None and run.encoding.constant:
        # A run without feature columns: the constant 1 may be left out, and means the same graph.
        if any(one.x not in (None, [], [1.0]) for one in found):
            raise RequestError("no_features")
        return [[1.0] for _ in found]
    listed = [one.x for one in found if isinstance(one.x, list)]
    named = [one.x for one in found if isinstance(one.x, dict)]
    if len(listed) == len(found) and all(len(x) == run.features for x in listed):
        matrix = np.array(listed, dtype=np.float32)
    elif rules and len(named) == len(found):
        wrong = [name for name in names if any(name not in x for x in named)]
        if wrong or any(len(x) > len(names) for x in named):
            raise other_features(run.features, names, wrong)
        parts = []
        for rule in rules:
            try:
                parts.append(encode([_column(rule, [x[rule.name] for x in named])], (rule,), len(named)))
            except (GraphError, TypeError, ValueError):  # Arrow's own errors are among them
                wrong.append(rule.name)
        if wrong:
            raise other_features(run.features, names, wrong)
        matrix = np.concatenate(parts, axis=1)
    else:
        raise other_features(run.features, names)
    if np.abs(matrix).max(initial=0.0) > np.float32(LARGEST):
        raise other_features(run.features, names)
    rows: list[list[float]] = matrix.tolist()
    return rows


def _column(rule: ColumnRule, values: Sequence[Any]) -> "Column":
    """Return JSON values as a column that a rule can read; dates are text such as 2026-11-25."""
    import pyarrow as pa

    if rule.kind == "category":
        if any(isinstance(one, list) for one in values):
            raise TypeError
        array = pa.array([None if one is None else text(one) for one in values], pa.string())
    elif rule.kind == "date":
        array = pa.array(values, pa.string()).cast(pa.timestamp("us"))
    elif rule.kind == "list":
        array = pa.array(values, pa.list_(pa.float64()))
    else:
        kind = bool if rule.kind == "bool" else float
        if not all(one is None or type(one) is kind for one in values):
            raise TypeError
        array = pa.array([None if one is None else float(one) for one in values], pa.float64())
    return pa.chunked_array([array])
