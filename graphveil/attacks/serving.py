"""The predictions of a deployed model for features that are sent to it, and the edges that it reads."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from graphveil._util.checks import checked
from graphveil.attacks.influence import Matrix, Predict, float64_batch, is_sparse
from graphveil.attacks.roc import Floats
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import NoUnit
from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.full_graph import TrainedFullGraph
from graphveil.estimators.session import Session
from graphveil.local.heterorr import TrainedHetero
from graphveil.perturb.mechanism import adjacency_of

EXACT, RELEASED_GRAPH, RELEASED_ROWS = "exact edges", "a released graph", "released rows"


@checked
@dataclass(frozen=True, eq=False)
class ServedModel:
    """A fitted model as its users observe it.

    Args:
        predict: Function from features to probabilities; the server has the edges.
        edge_source: Source of a prediction: exact edges, a released graph, or released aggregates. In the
            last case aggregates are stored, and other features are another query with its own privacy cost.
            Perturbations then change no prediction, and every influence is zero by construction.
        proba: Probabilities for the graph's own features.
        released: Additional published aggregates by name.

    Privacy:
        Contains a fitted model and, if it predicts from edges, access to them. Internal. Use it to measure
        attacks.
    """

    predict: Predict
    edge_source: str
    proba: Floats
    released: dict[str, Floats]

    @property
    def responds_to_features(self) -> bool:
        """Whether features of one node can change the prediction of another node."""
        return self.edge_source != RELEASED_ROWS


@checked
def serve_model(model: Estimator, graph: Graph) -> ServedModel:
    """Return the predictions of a fitted model on its training graph, as a function of the features.

    A network over edges runs in float64 and in evaluation mode. Features are scaled as for the model's own
    predictions.

    Args:
        model: Fitted estimator.
        graph: Training graph.

    Returns:
        The served model.

    Privacy:
        Reads: the exact edges, if the model does. Charges: nothing. The result is internal.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.ClassCode(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph)
    >>> serve_model(model, graph).edge_source
    'released rows'
    """
    fitted = model.fitted
    proba = fitted.own_proba.to(torch.float64).numpy()
    trained = fitted.trained.graph_model if isinstance(fitted.trained, TrainedHetero) else fitted.trained
    if isinstance(trained, TrainedFullGraph):
        edges, noisy = graph.adjacency, trained.mechanism is not None
        if noisy:  # a fit keeps the numbers of the released node pairs
            domain = Domain.whole(graph.num_nodes, directed=graph.directed)
            edges = adjacency_of(fitted.released["graph"], domain, None, "")
        answered = network_predict(trained.network, edges)

        def predict(x: Matrix) -> Floats:
            return answered(_scaled(fitted.scaling, x))

        return ServedModel(predict, RELEASED_GRAPH if noisy else EXACT, proba, {})
    if isinstance(model.protected_unit, NoUnit) and fitted.method.reads_edges:

        def recomputed(x: Matrix) -> Floats:
            sent = _scaled(fitted.scaling, x)
            queried_graph = graph.replace(x=sent if is_sparse(sent) else torch.from_numpy(np.asarray(sent)))
            session = Session(streams=PublicStreams(fitted.method.privacy_config.seed))
            return trained.answer(queried_graph, session, None).proba.to(torch.float64).numpy()

        return ServedModel(recomputed, EXACT, proba, {})
    rows = {name: part.to(torch.float64).numpy() for name, part in fitted.released.items()}
    of_nodes = {name: part for name, part in rows.items() if part.ndim == 2 and len(part) == graph.num_nodes}
    return ServedModel(lambda x: proba, RELEASED_ROWS, proba, of_nodes)


@checked
def network_predict(network: nn.Module, adjacency: Adjacency) -> Predict:
    """Return the predictions of a trained network over some edges, in float64.

    Args:
        network: Network from a batch and an adjacency to logits.
        adjacency: Edges of the message passing.

    Returns:
        Function from features to probabilities.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    exact = copy.deepcopy(network).double().eval()

    @torch.no_grad()
    def predict(x: Matrix) -> Floats:
        logits: Tensor = exact(float64_batch(x), adjacency)
        return logits.softmax(dim=1).numpy()

    return predict


def _scaled(scaling: FeatureScaling, x: Matrix) -> Matrix:
    """Return features scaled as for a model's own predictions, in their own precision."""
    if is_sparse(x):
        return scaling.apply(sparse.csr_array(x))
    scaled: Any = scaling.apply(torch.from_numpy(np.asarray(x)))
    return np.asarray(scaled.numpy())
