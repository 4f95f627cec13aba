"""New records, as a question has them: a graph of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from graphveil.serve.questions import Identity
from graphveil.serve.refusals import as_bytes, unreadable

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.serve.runs import ServedRun

Id = int | str
_LARGEST = 1e15  # of a feature: a network's sums of squares stay finite in 32 bits, and so does its answer

Feature = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-_LARGEST, le=_LARGEST)]


class Record(BaseModel):
    """One node: its id, and its features in the order of the training's columns; none if it had none."""

    model_config = ConfigDict(extra="forbid")

    id: Identity
    x: list[Feature] | None = None


_RECORDS = TypeAdapter(Annotated[list[Record], Field(min_length=1)])
_EDGES = TypeAdapter(list[tuple[Identity, Identity]])


@dataclass(frozen=True)
class NewRecords:
    """A graph that a caller sends, in one order whatever the order it was sent in.

    Args:
        features: by id.
        edges: pairs of ids, each once; of an undirected one the smaller end is first.
    """

    features: Mapping[Id, Sequence[float]]
    edges: Sequence[tuple[Id, Id]]

    @classmethod
    def read(cls, records: object, edges: object, *, run: "ServedRun", directed: bool) -> "NewRecords":
        """Read both lists.

        Raises:
            Refusal: they are no records of the run, an id is there twice, or an edge has another end.
        """
        try:
            found, pairs = _RECORDS.validate_python(records), _EDGES.validate_python(edges or [])
        except ValidationError:
            raise unreadable() from None
        absent = [1.0] if run.constant else []
        features = {one.id: one.x or absent for one in found}
        known = all(end in features for pair in pairs for end in pair)
        if len(features) < len(found) or not known or any(len(x) != run.features for x in features.values()):
            raise unreadable()
        if run.constant and any(x != [1.0] for x in features.values()):
            raise unreadable()
        if len({type(one) for one in features}) > 1:
            raise unreadable()
        ranks = {one: rank for rank, one in enumerate(sorted(features))}
        distinct = {pair if directed or ranks[pair[0]] < ranks[pair[1]] else pair[::-1] for pair in pairs}
        edges = sorted(distinct, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        return cls({one: features[one] for one in ranks}, edges)

    @property
    def bytes(self) -> bytes:
        """What makes it this graph and no other."""
        return as_bytes([list(self.features.items()), list(self.edges)])

    def graph(self, *, classes: Sequence[str], directed: bool) -> "Graph":
        """Return it as a graph without labels."""
        import torch

        from graphveil.graph import Graph

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
