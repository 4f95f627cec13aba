"""What a released edge set says of itself: by which mechanism it was released, and its guarantee."""

import json

from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain

_FORMAT = "graphveil-graph"
_MAX_CHARACTERS = 1 << 20


def provenance_of(guarantee: Guarantee, mechanism: str, release_id: str) -> str:
    """Return what a released edge set says of itself, as text."""
    record = {"format": _FORMAT, "mechanism": mechanism, "release": release_id}
    return json.dumps(record | {"guarantee": guarantee_to_plain(guarantee)}, sort_keys=True)


def guarantee_of(graph: Graph) -> Guarantee | None:
    """Return the guarantee that a graph's edges were released with, accounted anew; None for private edges.

    Raises:
        ArtifactError: what the edges say of themselves is damaged.
    """
    return _guarantee(graph.edge_set.released) if graph.edge_set.released else None


def mechanism_of(graph: Graph) -> str:
    """Return the name of the mechanism that released a graph's edges, empty for private ones."""
    return str(_parse_provenance(graph.edge_set.released)["mechanism"]) if graph.edge_set.released else ""


def _guarantee(text: str) -> Guarantee:
    return guarantee_from_plain(_parse_provenance(text)["guarantee"])


def _parse_provenance(text: str) -> dict[str, dict[str, object]]:
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError
        record = json.loads(text)
        if record["format"] != _FORMAT or not isinstance(record["guarantee"], dict):
            raise ValueError
        return {name: record[name] for name in ("mechanism", "release", "guarantee")}
    except (ValueError, TypeError, KeyError):
        raise ArtifactError(
            "the record of a released graph is damaged, so its guarantee is not known; take the edges "
            "from the folder that `graphveil perturb` wrote"
        ) from None
