"""What a model's posteriors say about nodes whose class is known, and whose membership is in question."""

import numpy as np

from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.lab.attacks.roc import Bools, Floats
from graphveil.lab.attacks.secret_edges import Integers

_MIN_PROBABILITY = 1e-7


def select_evaluated_nodes(graph: Graph, without: Integers | None = None) -> tuple[Integers, Bools]:
    """Return training and test nodes, and which are members; ``without`` are left out."""
    members, others = (graph.mask(part).numpy().copy() for part in ("train", "test"))
    if without is not None:
        members[without] = others[without] = False
    nodes = np.flatnonzero(members | others)
    return nodes, members[nodes]


def inputs_of(model: Estimator, graph: Graph) -> Floats:
    """Return what the attack model reads of each node: posteriors beside the true class."""
    classes = np.eye(graph.num_classes)[graph.y.numpy()]  # -1, which nobody is judged with, reads the last
    return np.concatenate([model.fitted.own_proba.double().numpy(), classes], axis=1)


def confidence(model: Estimator, graph: Graph) -> Floats:
    """Return log p / (1 - p) of each node's own class: members' is higher where a model has overfitted."""
    proba = model.fitted.own_proba.double().numpy()
    own = np.clip(
        proba[np.arange(graph.num_nodes), graph.y.clamp_min(0).numpy()],
        _MIN_PROBABILITY,
        1 - _MIN_PROBABILITY,
    )
    return np.asarray(np.log(own) - np.log1p(-own))


def standardized(sure: Floats) -> Floats:
    """Return confidences less their mean, over their spread: two models may differ by when they stopped."""
    return np.asarray((sure - sure.mean()) / max(float(sure.std()), _MIN_PROBABILITY))
