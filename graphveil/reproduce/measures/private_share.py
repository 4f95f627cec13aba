"""A share of the edges is private and randomised, the others are public: unit ``private-slot-edge``."""

import torch

from graphveil.perturb import public_share
from graphveil.reproduce.cells import Work
from graphveil.reproduce.measures import fit
from graphveil.reproduce.measures.found import Found, Places
from graphveil.reproduce.measures.scores import scores_of


def measure(work: Work, places: Places) -> Found:
    """Fit the model where a ``fraction`` of the edges is private, and everybody may have private ones.

    Which they are is drawn by the seed. With ``public_alone`` among the options the private ones are left
    out, which costs nothing.
    """
    one = fit.experiment_of(work, places.root)
    whole = fit.prepared(one)
    public = public_share(whole.adjacency, work.options["fraction"], seed=work.seed)
    if work.options.get("public_alone"):
        known = whole.replace(adjacency=public)
    else:
        known = whole.with_public(public, torch.ones(whole.num_nodes, dtype=torch.bool))
    graph = one.split(known, 0)
    model = one.model(0)
    model.fit(graph, workspace=places.work, cache=places.cache)
    return Found.of(scores_of(model, graph), model.guarantee)
