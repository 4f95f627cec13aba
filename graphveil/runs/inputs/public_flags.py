"""Which edges of a graph are public, and who may have private ones, as flags say it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.data.tables.files import COMMAS, CsvFormat
from graphveil.errors import ConfigError, UnitError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from graphveil.data import Adjacency, Graph, PublicPart

_ALL_NODES, _LABEL = "all", "label"
NO_LIST = (
    "which edges are public is said, and not who may have private ones: pass --private-nodes (a public list, "
    "or all) or --private-where. It is never found out from the edges, since a graph with one private edge "
    "would then differ from one with none for certain"
)


@dataclass(frozen=True, kw_only=True)
class PublicFlags:
    """The flags of unit ``edge-subset``, with their names.

    Args:
        public_edges: a table of the public edges, with the columns of the edges.
        private_nodes: a table of those who may have private edges, with the column of ids, or ``"all"``.
        private_fraction: for experiments: each edge is private with this probability, the others are public.
        private_where: for experiments: ``COLUMN=VALUE``: edges between such nodes are private.
    """

    public_edges: Path | None = None
    private_nodes: str | None = None
    private_fraction: float | None = None
    private_where: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        ways = [f"--{name.replace('_', '-')}" for name in _WAYS if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} both say which edges are public; keep one")
        if self.private_where is not None and self.private_nodes is not None:
            raise ConfigError("--private-where says who may have private edges; drop --private-nodes")
        if self.private_where is not None and "=" not in self.private_where:
            raise ConfigError(f"--private-where {self.private_where!r} has no value; write COLUMN=VALUE")

    @property
    def given(self) -> dict[str, Any]:
        """The flags that were given, as plain values."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in named.items()
            if value is not None
        }

    def check(self, unit: str | None) -> None:
        """Refuse flags that the unit has no use for: they would be believed to do something."""
        if self.given and unit != "edge-subset":
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in self.given)
            raise UnitError(
                f"{flags}: public edges and private nodes belong to unit 'edge-subset', and the unit "
                f"is {unit!r}; drop them, or change the unit"
            )

    def part(self, graph: "Graph", columns: "GraphTableColumns", *, seed: int) -> "PublicPart | None":
        """Return what is public of a graph as it was read; None where no flag says anything.

        Raises:
            UnitError: nobody says who may have private edges.
        """
        from graphveil.data import PublicPart
        from graphveil.data.node_pairs import no_public_edges
        from graphveil.perturb import public_edges_outside, sample_public_edges

        if not self.given:
            return None
        if self.private_where is not None:
            members = _where(graph, columns, self.private_where)
            return PublicPart(public_edges_outside(graph.adjacency, members), members)
        if self.private_nodes is None:
            raise UnitError(NO_LIST)
        listed = _listed(graph, columns, self.private_nodes)
        if self.private_fraction is not None:
            return PublicPart(sample_public_edges(graph.adjacency, self.private_fraction, seed=seed), listed)
        public = no_public_edges(graph.num_nodes)
        if self.public_edges is not None:
            public = _read_edges(graph, columns, self.public_edges)
        return PublicPart(public, listed)


_WAYS = ("public_edges", "private_fraction", "private_where")


@dataclass(frozen=True, kw_only=True)
class GraphTableColumns:
    """The table of nodes, where there is one, and what its columns and those of edges are called."""

    nodes: Path | None = None
    id: str | None = None
    source: str | None = None
    target: str | None = None
    csv_format: CsvFormat = COMMAS


def ids_of(graph: "Graph") -> "npt.NDArray[np.generic]":
    """Return the ids that tables name the nodes by: their own, or their numbers where they have none."""
    import numpy as np

    return np.arange(graph.num_nodes) if graph.ids is None else graph.ids


def _read_edges(graph: "Graph", columns: GraphTableColumns, path: Path) -> "Adjacency":
    from graphveil.data.graph_files import read_edges

    source, target = columns.source or "source", columns.target or "target"
    ends = {"source": source, "target": target}
    return read_edges(path, ids_of(graph), **ends, directed=False, csv_format=columns.csv_format)


def _listed(graph: "Graph", columns: GraphTableColumns, text: str) -> "torch.Tensor":
    """Return which nodes a public list names, bool (N)."""
    import torch

    from graphveil.data.graph_files import read_ids

    listed = torch.full((graph.num_nodes,), text == _ALL_NODES)
    if text != _ALL_NODES:
        column, csv_format = columns.id or "id", columns.csv_format
        places = read_ids(Path(text), ids_of(graph), column=column, csv_format=csv_format)
        listed[torch.from_numpy(places)] = True
    return listed


def _where(graph: "Graph", columns: GraphTableColumns, text: str) -> "torch.Tensor":
    """Return which nodes have a value in a column, bool (N); a named data set has its labels alone."""
    import torch

    column, _, value = (part.strip() for part in text.partition("="))
    if columns.nodes is None:
        if column != _LABEL:
            raise ConfigError(f"--private-where {text!r}: a named data set has no columns but {_LABEL!r}")
        names = graph.class_names or tuple(map(str, range(graph.num_classes)))
        found = graph.y == (names.index(value) if value in names else graph.num_classes)
    else:
        found = torch.zeros(graph.num_nodes, dtype=torch.bool)
        found[torch.from_numpy(_rows_where(graph, columns, column, value))] = True
    if not bool(found.any()):
        raise ConfigError(f"--private-where {text!r}: no node has this value; check column and value")
    return found


def _rows_where(
    graph: "Graph", columns: GraphTableColumns, column: str, value: str
) -> "npt.NDArray[np.integer[Any]]":
    """Return the places of the nodes whose row of the table has a value."""
    import numpy as np

    from graphveil.data import tables
    from graphveil.data.graph_files import read_ids
    from graphveil.data.tables.files import check_columns

    assert columns.nodes is not None
    csv_format = columns.csv_format
    check_columns(columns.nodes, [column], csv_format)
    places = read_ids(columns.nodes, ids_of(graph), column=columns.id or "id", csv_format=csv_format)
    table = tables.read(columns.nodes, [column], csv_format=csv_format)
    values = tables.column(table, column).to_pylist()
    found: npt.NDArray[np.integer[Any]] = places[np.array([str(each) == value for each in values])]
    return found
