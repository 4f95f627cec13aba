"""Features that say nothing about anybody: degrees, ones, or chance, in place of a node's own (LPGNN)."""

import numpy as np
import torch
from torch import Tensor

from graphveil._random import PublicStreams
from graphveil.graph import Graph
from graphveil.reproduce.cells import Work
from graphveil.reproduce.measures import fit
from graphveil.reproduce.measures.found import Found, Places
from graphveil.reproduce.target import TEST, VAL

MOST_DEGREE = 100  # larger degrees share a column


def measure(work: Work, places: Places) -> Found:
    """Fit the model with the features that the options name; edges are public there, and so are degrees."""
    one = fit.experiment_of(work, places.root)
    prepared = fit.prepared(one)
    graph = one.split(prepared.replace(x=features_of(prepared, work.options["features"], work.seed)), 0)
    model = one.model(0)
    model.fit(graph, workspace=places.work, cache=places.cache)
    return Found.of({part: model.score(graph, part) for part in (TEST, VAL)}, model.guarantee)


def features_of(graph: Graph, kind: str, seed: int) -> Tensor:
    """Return degrees one-hot (``"ohd"``), a column of ones (``"one"``), or uniform numbers (``"rnd"``)."""
    if kind == "ohd":
        degrees = graph.adjacency.indptr.diff().clamp(max=MOST_DEGREE).long()
        return torch.nn.functional.one_hot(degrees).float()
    if kind == "one":
        return torch.ones(graph.num_nodes, 1)
    rng = PublicStreams(seed).numpy("features")
    return torch.from_numpy(rng.random((graph.num_nodes, graph.num_features)).astype(np.float32))
