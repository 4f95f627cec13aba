"""Some of the edges are private and randomised, the others are public: unit ``private-slot-edge``."""

import torch

from graphveil.errors import ConfigError
from graphveil.graph import Adjacency, Graph
from graphveil.perturb import public_share
from graphveil.reproduce.cells import Work
from graphveil.reproduce.measures import fit
from graphveil.reproduce.measures.found import Found, Places
from graphveil.reproduce.measures.scores import scores_of


def measure(work: Work, places: Places) -> Found:
    """Fit the model where a ``fraction`` of the edges is private, or those that the data set names.

    Which they are is drawn by the seed; everybody may have private ones. With ``public_alone`` among the
    options the private ones are left out, which costs nothing.
    """
    one = fit.experiment_of(work, places.root)
    whole = fit.prepared(one)
    public = _public_edges(whole, work)
    if work.options.get("public_alone"):
        known = whole.replace(adjacency=public, public=None)
    else:
        known = whole.with_public(public, torch.ones(whole.num_nodes, dtype=torch.bool))
    graph = one.split(known, 0)
    model = one.model(0)
    model.fit(graph, workspace=places.work, cache=places.cache)
    return Found.of(scores_of(model, graph), model.guarantee)


def _public_edges(graph: Graph, work: Work) -> Adjacency:
    fraction = work.options.get("fraction")
    if fraction is not None:
        return public_share(graph.adjacency, fraction, seed=work.seed)
    if graph.public is None:
        raise ConfigError(f"{work.dataset} does not say which of its edges are private")
    return graph.public.edges
