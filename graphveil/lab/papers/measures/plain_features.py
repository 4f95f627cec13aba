"""Features that say nothing about anybody: degrees, ones, or chance, in place of a node's own (LPGNN)."""

import numpy as np
import torch
from torch import Tensor

from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures import fit
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.target import TEST, VAL

MAX_DEGREE = 100  # larger degrees share a column


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit the model with the features that the options name; edges are public there, and so are degrees."""
    one = fit.experiment_of(work, paths.root)
    prepared = fit.prepared(one)
    graph = one.split(prepared.replace(x=features_of(prepared, work.options["features"], work.seed)), 0)
    model = one.model(0)
    model.fit(graph, workspace=paths.work, cache=paths.cache)
    return Measurement.from_guarantee(
        {part: model.score(graph, part) for part in (TEST, VAL)}, model.guarantee
    )


def features_of(graph: Graph, kind: str, seed: int) -> Tensor:
    """Return degrees one-hot (``"ohd"``), a column of ones (``"one"``), or uniform numbers (``"rnd"``)."""
    if kind == "ohd":
        degrees = graph.adjacency.indptr.diff().clamp(max=MAX_DEGREE).long()
        return torch.nn.functional.one_hot(degrees).float()
    if kind == "one":
        return torch.ones(graph.num_nodes, 1)
    rng = PublicStreams(seed).numpy("features")
    return torch.from_numpy(rng.random((graph.num_nodes, graph.num_features)).astype(np.float32))
