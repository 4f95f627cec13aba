"""A released graph: noisy edges that may be published, and the guarantee that goes with them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphveil._util.checks import checked
from graphveil._util.files import as_path, writing_folder
from graphveil.data import Graph
from graphveil.data.graph_files import read_edges
from graphveil.errors import GraphError
from graphveil.perturb.folder import write_folder
from graphveil.perturb.provenance import guarantee_of
from graphveil.privacy import Guarantee


class PerturbedGraph(NamedTuple):
    """The noisy graph and its guarantee; ``graph, guarantee = edge_rand(...)`` takes them apart.

    The edges are public now. To train on them, store them, or send them on costs nothing more.
    """

    graph: Graph
    guarantee: Guarantee

    @property
    def num_edges(self) -> int:
        """The number of noisy edges, which is public; a friendship counts once."""
        stored = self.graph.adjacency.edge_index().shape[1]
        return stored if self.graph.directed else stored // 2

    def to_pyg(self) -> Any:
        """Return the noisy graph as a torch_geometric ``Data``, for any model."""
        return self.graph.to_pyg()

    def save(self, folder: Path | str, *, source: str = "source", target: str = "target") -> Path:
        """Write edges, ``guarantee.json`` and a page in words to a new folder, which may be published.

        The edges hold the nodes' own ids, or their numbers where they have none, in columns of these names;
        an undirected edge stands there once. ``read_graph`` knows that they were released.

        Raises:
            ConfigError: the folder exists or cannot be written, or the graph was not released.
        """
        path = as_path(folder, "folder")
        with writing_folder(path):
            write_folder(self.graph, self.guarantee, path, source=source, target=target)
        return path


@checked
def load(
    folder: Path | str, nodes: Graph, *, source: str = "source", target: str = "target"
) -> PerturbedGraph:
    """Return a stored graph with the nodes of another, whose own edges are not read.

    Args:
        folder: what :meth:`PerturbedGraph.save` wrote, or its table of edges.
        nodes: the features, labels and ids that the edges belong to.
        source, target: the columns of the edges.

    Raises:
        GraphError: the table is missing or damaged, names other nodes, or is no released graph.
    """
    path = Path(folder)
    ids = np.arange(nodes.num_nodes) if nodes.ids is None else nodes.ids
    adjacency = read_edges(path, ids, source=source, target=target, directed=nodes.directed)
    graph = nodes.replace(adjacency=adjacency)
    guarantee = guarantee_of(graph)
    if guarantee is None:
        raise GraphError(f"{path.name} holds edges that no mechanism released; use read_graph")
    return PerturbedGraph(graph, guarantee)
