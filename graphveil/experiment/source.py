"""Where a graph comes from: a data set by name, or the caller's own two tables."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.graph import Graph

_COLUMNS = ("id", "label", "source", "target")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Either a named data set, or files and the columns in them. The fields are the command line's flags."""

    dataset: str | None = None
    root: Path | None = None
    nodes: Path | None = None
    edges: Path | None = None
    id: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    max_weight: float | None = None
    directed: bool = False
    split: str | None = None
    classes: tuple[str, ...] | None = None  # the labels, where they are not to be read from the file
    to_predict: bool = False  # no label is needed then
    aside: tuple[str, ...] = ()  # columns of the nodes that are no features, if they are there

    def __post_init__(self) -> None:
        """Refuse anything but exactly one complete way to a graph."""
        files = [f"--{name}" for name in ("nodes", "edges", *_COLUMNS) if getattr(self, name) is not None]
        if self.dataset is not None:
            given = files + ["--directed"] * self.directed
            given += [flag for flag, value in self._optional.items() if value is not None]
            if given:
                raise ConfigError(
                    f"--dataset and {', '.join(given)} exclude each other: a named data set knows its own "
                    "columns; drop the one or the other"
                )
            return
        needed = [name for name in ("nodes", "edges", *_COLUMNS) if name != "label" or not self.to_predict]
        if (self.weight is None) != (self.max_weight is None):
            raise ConfigError(
                "--weight and --max-weight go together: the column of the edges' weights, and the public "
                "bound that larger ones are cut to; give both or neither"
            )
        missing = [f"--{name}" for name in needed if getattr(self, name) is None]
        if not files:
            raise ConfigError(
                "no data were given: pass --dataset NAME (`graphveil datasets` lists them), or --nodes FILE "
                "--edges FILE --id COL --label COL --source COL --target COL"
            )
        if missing:
            raise ConfigError(
                f"a graph from files needs two files and the names of their columns: add {', '.join(missing)}"
            )

    @property
    def _optional(self) -> dict[str, object]:
        """Return the flags of files that need not be given."""
        optional = {"--split": self.split, "--weight": self.weight, "--max-weight": self.max_weight}
        return {**optional, "--classes": self.classes}

    @property
    def name(self) -> str:
        """What tables call the graph: the data set, or the stem of the file of nodes."""
        if self.dataset is not None:
            return self.dataset
        assert self.nodes is not None
        return self.nodes.name.partition(".")[0]

    @property
    def published_name(self) -> str:
        """What a release may call the graph: never a file name."""
        return self.dataset or "a private graph, read from files"

    @property
    def fixed_split(self) -> bool:
        """Whether the files name a split of their own."""
        return self.split is not None

    def load(self, classes: tuple[str, ...] | None = None) -> "Graph":
        """Read the graph, unprepared; ``classes`` fixes the labels and their order beforehand."""
        from graphveil.graph import load_dataset, read_graph

        if self.dataset is not None:
            return load_dataset(self.dataset, root=self.root, recipe=None)
        columns = {name: getattr(self, name) for name in (*_COLUMNS, "split", "weight", "max_weight")}
        assert self.nodes is not None and self.edges is not None
        graph = read_graph(
            self.nodes,
            self.edges,
            directed=self.directed,
            aside=self.aside,
            classes=classes or self.classes,
            **columns,
        )
        return graph.replace(name=f"files:{graph.name}")  # no recipe may take a file for a known data set

    def as_dict(self) -> dict[str, Any]:
        """Return the flags that were given, as plain values."""
        given = {name: value for name, value in asdict(self).items() if value not in (None, False, ())}
        return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenGraph(Source):
    """A graph that the caller holds already; with a test mask it keeps its own split."""

    graph: "Graph"

    @classmethod
    def of(cls, graph: "Graph") -> "GivenGraph":
        """Return the source of a graph, under the graph's own name."""
        return cls(dataset=graph.name or "graph", graph=graph)

    @property
    def published_name(self) -> str:
        """What a release may call the graph."""
        return "a private graph, given in Python"

    @property
    def fixed_split(self) -> bool:
        """Whether the graph brings a split."""
        return self.graph.test_mask is not None

    def load(self, classes: tuple[str, ...] | None = None) -> "Graph":
        """Return the graph."""
        return self.graph

    def as_dict(self) -> dict[str, Any]:
        """Return what names the source."""
        return {"graph": self.name}
