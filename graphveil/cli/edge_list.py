"""Who is connected with whom, as commands are told that read nothing else of a graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.data.tables.files import CsvFormat


@dataclass(frozen=True, kw_only=True)
class EdgeListOptions:
    """Two tables and their columns, as flags name them."""

    nodes: Path | None
    edges: Path | None
    id: str | None
    source: str | None
    target: str | None
    directed: bool

    @property
    def given(self) -> list[str]:
        """The flags that were given."""
        return [f"--{name}" for name, value in vars(self).items() if value not in (None, False)]

    @property
    def missing(self) -> list[str]:
        """The flags that two tables need besides."""
        return [f"--{name}" for name, value in vars(self).items() if value is None]


def read_edge_list(
    dataset: str | None, root: Path | None, columns: EdgeListOptions, csv_format: "CsvFormat | None" = None
) -> "Graph":
    """Read who is connected with whom; of a table of nodes, their ids alone."""
    from graphveil.data import load_dataset
    from graphveil.data.graph_files import read_topology
    from graphveil.data.tables.files import COMMAS

    if dataset is not None:
        if columns.given:
            raise ConfigError(
                f"--dataset and {', '.join(columns.given)} exclude each other: a named data set knows its "
                "own columns; drop the one or the other"
            )
        return load_dataset(dataset, root=root, recipe=None)
    if columns.missing:
        raise ConfigError(
            "a graph is a data set by name (--dataset NAME), or two files and the names of their columns: "
            f"add {', '.join(columns.missing)}"
        )
    return read_topology(**vars(columns), csv_format=csv_format or COMMAS)
