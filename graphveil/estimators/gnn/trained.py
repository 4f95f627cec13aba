"""The fit of a private GNN as a value: the encoder of features, and the custom module."""

from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.errors import NotImplementedGuaranteeError
from graphveil.estimators.features.noisy_softmax import NoisySoftmax
from graphveil.estimators.method import State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session

MODULE = "module."


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOneHopGNN(TrainedModel):
    """Public parameters of the encoder, and of the module by name.

    ``module`` is the module itself, or None if its code is not registered.
    """

    encoder: NoisySoftmax
    weights: State
    module: nn.Module | None = None

    def plan_for(self, sizes: PublicSizes) -> NoReturn:
        """Raise an error: the aggregation of another graph needs to know its training nodes.

        Raises:
            NotImplementedGuaranteeError: Always.
        """
        raise NotImplementedGuaranteeError(
            "gnn with unit 'node-record' depends on which nodes have a public label, which another graph may "
            "not have, and does not yet predict one; fit it on that graph (its own release and budget), or "
            "use gap"
        )

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> NoReturn:
        """Raise an error, as ``plan_for`` does."""
        self.plan_for(PublicSizes.from_graph(graph))

    def state(self) -> State:
        """Return the parameters."""
        return {**self.encoder.state(), **{f"{MODULE}{name}": part for name, part in self.weights.items()}}


def weights_of(state: State) -> dict[str, Tensor]:
    """Return the module's part of a state."""
    return {name.removeprefix(MODULE): part for name, part in state.items() if name.startswith(MODULE)}
