"""Statistics of a data set after its recipe: published graphs, whose edges may be counted."""

from collections.abc import Callable, Mapping

import numpy as np

from graphveil.data import RECIPES, Graph
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.runs.inputs.source import Source


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return one statistic, which the options name."""
    recipe = RECIPES[work.recipe]
    graph = recipe.prepare(Source(dataset=work.dataset, root=paths.root).load(), paper=True)
    return Measurement(values={"value": STATISTICS[work.options["statistic"]](graph)})


def _median_degree(graph: Graph) -> float:
    return float(np.median(graph.adjacency.indptr.diff().numpy()))


STATISTICS: Mapping[str, Callable[[Graph], float]] = {
    "nodes": lambda graph: float(graph.num_nodes),
    "stored edges": lambda graph: float(len(graph.adjacency.indices)),
    "median degree": _median_degree,
    "features": lambda graph: float(graph.num_features),
    "classes": lambda graph: float(graph.num_classes),
}
