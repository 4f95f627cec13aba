"""A share of the edges is private and randomized, the others are public: unit ``edge-subset``."""

import torch

from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures import fit
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.measures.scores import scores_of
from graphveil.perturb import sample_public_edges


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit the model where a ``fraction`` of the edges is private, and everybody may have private ones.

    Which they are is drawn by the seed. With ``public_alone`` among the options the private ones are left
    out, which costs nothing.
    """
    one = fit.experiment_of(work, paths.root)
    whole = fit.prepared(one)
    public = sample_public_edges(whole.adjacency, work.options["fraction"], seed=work.seed)
    if work.options.get("public_alone"):
        known = whole.replace(adjacency=public)
    else:
        known = whole.with_public(public, torch.ones(whole.num_nodes, dtype=torch.bool))
    graph = one.split(known, 0)
    model = one.model(0)
    model.fit(graph, workspace=paths.work, cache=paths.cache)
    return Measurement.from_guarantee(scores_of(model, graph), model.guarantee)
