"""A second lesson for the feature networks: what was decided with the rows."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.data import Graph
from graphveil.estimators.features.crossfit import CrossFit, CrossFitPosteriors
from graphveil.estimators.session import Session
from graphveil.estimators.training.sample import sample_training_nodes


def distilled_posteriors(
    graph: Graph, session: Session, public: CrossFitPosteriors, decided: Tensor, name: str
) -> CrossFitPosteriors:
    """Return posteriors that imitate a decision made with the rows, blended with the public ones.

    A feature network learns from every node what its neighborhood said: targets teach it too, and unsure
    labels count less. It is cross-fitted over all nodes, so what it says of a node is independent of that
    node's own row. Post-processing of the release and public labels.

    Args:
        decided: log-posteriors of the decision, (N, C).
        name: names the stage.
    """
    targets = decided.exp().to(torch.float32)
    labeled = graph.mask("train") | graph.mask("val")
    targets[labeled] = (targets[labeled] + one_hot(graph.y[labeled], graph.num_classes)) / 2
    fit = CrossFit(graph, session, name, sample_training_nodes(graph, torch.arange(graph.num_nodes)), targets)
    imitated = fit.posteriors(public.candidate)
    return replace(imitated, log=((public.log + imitated.log) / 2).log_softmax(dim=1))
