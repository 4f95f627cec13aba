"""MLP: what is expected of features alone, and what every method has to beat."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.method import Method
from graphveil.estimators.mlp.fixed_shape import NonPrivateMLP, PrivateMLP
from graphveil.estimators.mlp.node_level import NodeLevelSoftmax
from graphveil.estimators.mlp.tuned import TunedMLP
from graphveil.estimators.privacy_config import PrivacyConfig


@dataclass(kw_only=True, eq=False, repr=False)
class MLP(NetworkKeywords, Estimator):
    """What features alone tell: the floor that every private method must beat, or is not worth its epsilon.

    It reads no edge, so at edge level it costs nothing.

    **Tuned**, which it is in strict mode as long as no keyword says what the network shall be: at edge level
    and without privacy, five networks, each trained without a fifth of the labeled nodes, their recipe
    chosen among three on labels held out, blended with the votes of the nodes whose features are most alike.
    Labels of validation nodes teach, too; no node's own label informs its own prediction, so accuracy on
    validation nodes means something. These are the very posteriors that ClassCode begins with.

    **Tuned under node units**, it is softmax regression by full-batch noisy steps whose settings follow from
    public sizes and the budget (:class:`NodeLevelSoftmax`): the best that little budget buys. Validation
    records teach there, too.

    **Small**: one network of the shape that the keywords give, as papers have it beside their methods (GAP:
    three layers of 16 units). Paper mode trains it, and any keyword of the network that differs from its
    default asks for it.

    Guarantee under node units: its training steps are one question to the training nodes' records, recorded
    before the first one. A record that is nulled moves each clipped sum by at most C, and the noise is the
    least whose exact accounting meets (epsilon, delta). The prediction for a node reads that node's features
    and the released weights, no other record. In paper mode (MLP-DP of Sajadmanesh et al.: GAP, 2023) the
    noise follows the paper's Renyi accounting, and the epoch of the best exact validation accuracy is kept.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        tuned: whether all settings are chosen, on held-out public labels or, under node units, from public
            sizes; None for yes in strict mode, unless a keyword of the network or its training is given.
        layers: number of layers, the output layer included; None for 3, under node units 2, since more
            weights are more noise, in paper mode there 3.

    Raises:
        ConfigError: a parameter is outside its range or not for the unit, or contradicts ``tuned=True``; on
            ``fit``, the batch is larger than the training set.

    >>> from graphveil.data import synthetic
    >>> from graphveil.data.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    >>> private = MLP(unit="node-record", epsilon=4.0, seed=0, epochs=20).fit(graph)
    >>> private.guarantee.releases, private.guarantee.epsilon <= 4.0
    (1, True)
    """

    method: ClassVar[str] = "mlp"
    reads_edges: ClassVar[bool] = False
    node_units: ClassVar[tuple[str, ...]] = ("node-record", "node-bounded-degree")
    paper_deviations: ClassVar[tuple[str, ...]] = (
        "noise calibrated by the paper's Renyi accounting",
        "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    )

    tuned: bool | None = None
    layers: int | None = None

    def _check_config(self) -> None:
        super()._check_config()
        self._build_method()

    def _build_method(self) -> Method:
        privacy_config = self._build_privacy_config()
        if self._is_tuned(privacy_config):
            tuned = NodeLevelSoftmax if privacy_config.on_records else TunedMLP
            return tuned(name=self.method, privacy_config=privacy_config, device=self.device)
        depth = (
            (2 if privacy_config.on_records and not privacy_config.paper else 3)
            if self.layers is None
            else self.layers
        )
        checks.depth(layers=depth)
        kind = PrivateMLP if privacy_config.on_records else NonPrivateMLP
        training_config = TrainingConfig.from_keywords(self, privacy_config, self.device)
        return kind(
            name=self.method,
            privacy_config=privacy_config,
            device=self.device,
            training_config=training_config,
            depth=depth,
        )

    def _is_tuned(self, privacy_config: PrivacyConfig) -> bool:
        """Whether everything is chosen for the data or by public rule, refusing what would contradict it."""
        checks.switch(**({} if self.tuned is None else {"tuned": self.tuned}))
        given = self._given()
        if self.tuned is None:
            return not (privacy_config.paper or given)
        if self.tuned and privacy_config.paper:
            raise ConfigError(
                "tuned=True is not what papers do; drop it, or use mode='strict' (--mode strict)"
            )
        if self.tuned and given:
            raise ConfigError(f"tuned=True chooses {', '.join(given)} itself; drop one or the other")
        return self.tuned

    def _given(self) -> list[str]:
        """Return the keywords of the network and its training that differ from their defaults."""
        named = [field.name for field in dataclasses.fields(NetworkKeywords)] + ["layers"]
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return [name for name in named if getattr(self, name) != defaults[name]]
