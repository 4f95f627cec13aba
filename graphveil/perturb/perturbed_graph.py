"""A released graph: noisy edges that are public, and their guarantee."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphveil._util.checks import checked
from graphveil._util.escape import render
from graphveil._util.figures import counted
from graphveil._util.files import as_path, atomic_folder, writing_folder
from graphveil.data import Graph, tables
from graphveil.data.graph_files import read_edges
from graphveil.data.tables.inspect_tables import EDGES_FILE
from graphveil.errors import ArtifactError, ConfigError, GraphError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain

REVEALS_WARNING = (
    "at this budget the released graph reveals almost every true edge: it is not protected in practice"
)
_ALMOST_CERTAIN = 0.99995  # true-positive rate at 1 % false positives, which is printed as 100.00 %
GUARANTEE_FILE, PAGE_FILE = "guarantee.json", "RELEASED.md"
_FORMAT = "graphveil-graph"
_MAX_CHARACTERS = 1 << 20  # of the metadata, so that a damaged or malicious file is rejected before parsing


class PerturbedGraph(NamedTuple):
    """The noisy graph and its guarantee; ``graph, guarantee = edge_rand(...)`` unpacks them.

    The edges are public. Training on them, storing and sharing them does not spend privacy budget.

    Privacy:
        The edges are noisy and public, with ``guarantee``. Features, labels and ids are those of the private
        graph, unchanged: no guarantee covers them.
    """

    graph: Graph
    guarantee: Guarantee

    @property
    def num_edges(self) -> int:
        """The number of noisy edges, which is public; an undirected edge counts once.

        Privacy:
            Reads: noisy edges only. The result is public.
        """
        stored = self.graph.edge_index().shape[1]
        return stored if self.graph.directed else stored // 2

    def to_pyg(self) -> Any:
        """Return the noisy graph as a torch_geometric ``Data``, for any model.

        Privacy:
            Charges: nothing. Edges are noisy and public. Features and labels are those of the private graph:
            no guarantee covers them.
        """
        return self.graph.to_pyg()

    def save(self, folder: Path | str, *, source: str = "source", target: str = "target") -> Path:
        """Write edges, ``guarantee.json`` and a description to a new folder, which is safe to publish.

        The two columns of ``edges.parquet`` hold the nodes' ids, or their numbers if they have no ids; an
        undirected edge is one row. ``read_graph`` recognizes the file as a released graph.

        Raises:
            ConfigError: the folder exists or cannot be written, or the graph was not released.

        Privacy:
            Charges: nothing. Public: the folder. It holds the noisy edges with the ids of their ends, and
            neither features nor labels. Ids are not covered.
        """
        path = as_path(folder, "folder")
        with writing_folder(path):
            if not self.graph.edge_set.released:
                raise ConfigError(
                    "These edges were not perturbed by a mechanism, so they must not be published. Perturb "
                    "them first with `graphveil perturb`."
                )
            if path.exists():
                raise ConfigError(
                    f"{path} already exists. A perturbed graph is never overwritten. Choose another folder."
                )
            table = edge_table(self.graph, source, target)
            record = {"mechanism": mechanism_of(self.graph), "edges": table.num_rows}
            record |= self.guarantee.as_dict()
            page = _page(self.graph, self.guarantee, table.num_rows, source, target)
            with atomic_folder(path) as work:
                (work / EDGES_FILE).write_bytes(tables.encode(table, ".parquet"))
                (work / GUARANTEE_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
                (work / PAGE_FILE).write_text(page, encoding="utf-8")
        return path


@checked
def load(
    folder: Path | str, nodes: Graph, *, source: str = "source", target: str = "target"
) -> PerturbedGraph:
    """Combine a stored perturbed graph with the nodes of another graph, without reading that graph's edges.

    Args:
        folder: Folder written by ``PerturbedGraph.save``, or its table of edges.
        nodes: Features, labels and ids of the nodes.
        source, target: Columns of the edges.

    Raises:
        GraphError: The table is missing or damaged, names other nodes, or is not a released graph.

    Privacy:
        Reads: the stored noisy edges, and features, labels and ids of ``nodes``, but not its edges. Charges:
        nothing. No guarantee covers features and labels.
    """
    path = Path(folder)
    ids = np.arange(nodes.num_nodes) if nodes.ids is None else nodes.ids
    adjacency = read_edges(path, ids, source=source, target=target, directed=nodes.directed)
    graph = nodes.replace(adjacency=adjacency)
    guarantee = guarantee_of(graph)
    if guarantee is None:
        raise GraphError(
            f"{path.name} does not contain a graph released by a perturbation mechanism. Use "
            "read_graph to read other edges."
        )
    return PerturbedGraph(graph, guarantee)


def provenance_of(guarantee: Guarantee, mechanism: str, release_id: str) -> str:
    """Return the metadata of a released edge set: mechanism, release and guarantee, as text."""
    record = {"format": _FORMAT, "mechanism": mechanism, "release": release_id}
    return json.dumps(record | {"guarantee": guarantee_to_plain(guarantee)}, sort_keys=True)


def guarantee_of(graph: Graph) -> Guarantee | None:
    """Return the recomputed guarantee that a graph's edges were released with; None for private edges.

    Raises:
        ArtifactError: The metadata of the release is damaged.

    Privacy:
        Reads: the public metadata of a release. Edges are not read. Charges: nothing.
    """
    released = graph.edge_set.released
    return guarantee_from_plain(_parse_provenance(released)["guarantee"]) if released else None


def mechanism_of(graph: Graph) -> str:
    """Return the name of the mechanism that released a graph's edges, empty for private ones."""
    return str(_parse_provenance(graph.edge_set.released)["mechanism"]) if graph.edge_set.released else ""


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
            "The metadata of the perturbed graph is damaged, so its guarantee is unknown. Use the "
            "folder that `graphveil perturb` wrote."
        ) from None


def edge_table(graph: Graph, source: str, target: str) -> tables.Table:
    """Return the edges as a table with the release in its metadata, which is bound to these rows."""
    import pyarrow as pa

    if source == target:
        raise ConfigError(f"source and target have the same name {source!r}. Use two column names.")
    tail, head = (part.numpy() for part in graph.edge_index())
    once = slice(None) if graph.directed else tail < head
    ends = [part if graph.ids is None else graph.ids[part] for part in (tail[once], head[once])]
    columns = {source: pa.array(ends[0]), target: pa.array(ends[1])}
    weights = graph.edge_weights()
    if weights is not None:  # of published code, which stores zeros
        columns["weight"] = pa.array(weights.numpy()[once])
    return tables.with_record(pa.table(columns), graph.edge_set.released)


def reveals_edges(guarantee: Guarantee) -> bool:
    """Return whether a guarantee allows an attacker to find practically all edges."""
    return guarantee.max_tpr() >= _ALMOST_CERTAIN


def _page(graph: Graph, guarantee: Guarantee, edges: int, source: str, target: str) -> str:
    difference = "True edges may be missing from it, and edges in it may not be true."
    if reveals_edges(guarantee):
        difference = f"Warning: {REVEALS_WARNING}."
    return render(
        "released_graph.md",
        edges=counted(edges, "directed edge" if graph.directed else "undirected edge"),
        nodes=counted(graph.num_nodes, "node"),
        mechanism=mechanism_of(graph),
        difference=difference,
        guarantee=guarantee,
        found=f"{100 * guarantee.max_tpr():.2f}",
        source=repr(source),
        target=repr(target),
        directed=graph.directed,
    )
