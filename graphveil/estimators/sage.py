"""SAGE: message passing with sums, without privacy or on a released graph."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.estimators.full_graph import FullGraphKeywords, Shape


@dataclass(kw_only=True, eq=False, repr=False)
class SAGE(FullGraphKeywords):
    """Train GraphSAGE with sums (Hamilton, Ying, Leskovec: Inductive representation learning, 2017).

    Dense layers, then ``layers`` aggregation steps, then dense layers:

        h <- act(norm(W_self h_v + W_in sum_{u -> v} h_u + b)).

    This is a non-private reference, or is trained on a released graph (``perturb="arr"``). Methods of papers
    that are built on it, SAGE-EDP and SAGE-NDP, are in ``graphveil.papers.as_published``.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: Aggregation steps. None for 2.
        pre_layers: Dense layers before the aggregation steps.
        post_layers: Dense layers after them, including the output layer.

    Raises:
        NotImplementedGuaranteeError: If the unit is not ``"none"`` and no graph is released first.

    Privacy:
        Unit: ``none``, or an edge-level unit with ``perturb``. Reads: exact edges, or the released graph.
        Charges: the release of the noisy graph. Without ``perturb`` there is no guarantee.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> SAGE(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "sage"

    pre_layers: int = 2
    post_layers: int = 1

    def _shape(self) -> Shape:
        checks.depth(pre_layers=self.pre_layers, post_layers=self.post_layers)
        return self._network("sage", pre_layers=self.pre_layers, post_layers=self.post_layers)
