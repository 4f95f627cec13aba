"""A fit of ClassCode on records, as a value: its public weights."""

from dataclasses import dataclass
from typing import NoReturn

from graphveil.data import Graph
from graphveil.errors import ArtifactError, NotImplementedGuaranteeError
from graphveil.estimators.classcode.owner.combiner import Combiner
from graphveil.estimators.classcode.owner.evidence_weights import WEIGHTS, EvidenceWeights
from graphveil.estimators.features.noisy_softmax import NoisySoftmax
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import State, TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedNodeLevelClassCode(TrainedModel):
    """The encoder of features, and what decides on features and rows: a weighing (S) or a combiner (R)."""

    encoder: NoisySoftmax
    decider: EvidenceWeights | Combiner

    def plan_for(self, sizes: PublicSizes) -> NoReturn:
        """Refuse: the pushes of another graph need to know who teaches there.

        Raises:
            NotImplementedGuaranteeError: always.
        """
        raise NotImplementedGuaranteeError(
            "classcode with unit 'node-record' asks by who has a public label, which another graph need not "
            "say, and does not yet predict one; fit it on that graph (its own release and budget), or use "
            "gap, which predicts other graphs"
        )

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> NoReturn:
        """Refuse, as :meth:`plan_for` does."""
        self.plan_for(PublicSizes.from_graph(graph))

    def state(self) -> State:
        """Return the weights."""
        return {**self.encoder.state(), "decider": self.decider.weights}

    @classmethod
    def restore(cls, state: State, sizes: PublicSizes) -> "TrainedNodeLevelClassCode":
        """Return what :meth:`state` was taken from.

        Raises:
            ArtifactError: the weights are not those of so many features and classes.
        """
        weights, classes = state["decider"], sizes.classes
        known = weights.shape in ((WEIGHTS,), (4 * classes - 1, classes))
        if not known or state["encoder"].shape != (sizes.width + 1, classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {classes} classes; take "
                "them from the original run"
            )
        decider = EvidenceWeights(weights) if weights.shape == (WEIGHTS,) else Combiner(weights)
        return cls(encoder=NoisySoftmax.restore(state), decider=decider)
