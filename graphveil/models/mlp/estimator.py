"""MLP: what is expected of features alone, and what every method has to beat."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.models.base import Estimator
from graphveil.models.keywords import NetworkKeywords, Recipe
from graphveil.models.mlp.small import ClearMLP, PrivateMLP


@dataclass(kw_only=True, eq=False)
class MLP(NetworkKeywords, Estimator):
    """A multi-layer perceptron on the nodes' own features.

    It reads no edge, so at edge level it costs nothing: every private method must beat it, or is not worth
    its epsilon.

    Guarantee under node units: its training steps are one question to the training nodes' records, booked
    before the first one. A record that is nulled moves each clipped sum by at most C, and the noise is the
    least whose exact accounting meets (epsilon, delta). The prediction for a node reads that node's features
    and the released weights, no other record. In paper mode (MLP-DP of Sajadmanesh et al.: GAP, 2023) the
    noise follows the paper's Renyi accounting, and the epoch of the best exact validation accuracy is kept.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: number of layers, the output layer included; None for 3, under node units 2, since more
            weights are more noise, in paper mode there 3.

    Raises:
        ConfigError: a parameter is outside its range or not for the unit; on ``fit``, the batch is larger
            than the training set.

    >>> from graphveil.graph.synthetic import synthetic
    >>> from graphveil.graph.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0, epochs=20).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    >>> private = MLP(unit="node-owner", epsilon=4.0, seed=0, epochs=20).fit(graph)
    >>> private.guarantee.releases, private.guarantee.epsilon <= 4.0
    (1, True)
    """

    method: ClassVar[str] = "mlp"
    reads_edges: ClassVar[bool] = False
    node_units: ClassVar[tuple[str, ...]] = ("node-owner", "node-promise")
    paper_deviations: ClassVar[tuple[str, ...]] = (
        "noise calibrated by the paper's Renyi accounting",
        "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    )

    layers: int | None = None

    def _check_config(self) -> None:
        super()._check_config()
        self._configured()

    def _configured(self) -> "ClearMLP":
        terms = self._terms()
        depth = (2 if terms.on_records and not terms.paper else 3) if self.layers is None else self.layers
        _check.depth(layers=depth)
        kind = PrivateMLP if terms.on_records else ClearMLP
        recipe = Recipe.of(self, terms, self.device)
        return kind(name=self.method, terms=terms, device=self.device, recipe=recipe, depth=depth)
