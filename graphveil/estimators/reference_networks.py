"""GCN and GAT: references without privacy, and networks for released graphs."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.estimators.base import Estimator
from graphveil.estimators.full_graph import (
    FullGraphKeywords,
    build_full_graph_method,
    check_perturbed,
    layer_options,
    resolve_depth,
    resolve_schedule,
)
from graphveil.estimators.method import Method
from graphveil.estimators.requirements import check_on_cpu
from graphveil.nn.attention import HEADS
from graphveil.nn.gat import GatArchitecture
from graphveil.nn.gcn import GcnArchitecture
from graphveil.training.heads import MULTICLASS, MULTILABEL


@dataclass(kw_only=True, eq=False, repr=False)
class GCN(FullGraphKeywords, Estimator):
    """Graph convolutional network (Kipf, Welling: Semi-supervised classification with GCNs, 2017).

    Every node gets a self-loop, and an edge weighs by the degrees of its two ends:

        H <- act(norm(D^-1/2 (A + I)^T D^-1/2 H W + b)),   D = 1 + in-degree;   the last layer is plain.

    With ``multi_label`` a node has any number of the L labels of ``Graph.label_sets``: logits go through a
    sigmoid each, the loss is binary cross entropy, ``predict`` returns those likelier than not, and ``score``
    is micro F1.

    Guarantee: none, but on a released graph (``perturb``). Degrees and sums are exact.

    Shapes: features (N, d) to probabilities (N, C), or (N, L).

    Args:
        multi_label: learn label sets instead of one class a node.

    Raises:
        GraphError: ``multi_label`` on a graph without label sets.
        NotImplementedGuaranteeError: the unit is not ``"none"``, and no graph is released first.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> GCN(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "gcn"

    multi_label: bool = False

    def _check_config(self) -> None:
        check_perturbed(self, self)
        super()._check_config()

    def _build_method(self) -> Method:
        check_on_cpu(self.method, self.device)
        shape = GcnArchitecture(hidden=self.hidden, depth=resolve_depth(self), style=layer_options(self))
        head = MULTILABEL if self.multi_label else MULTICLASS
        return build_full_graph_method(self, self, shape, resolve_schedule(self), head)


@dataclass(kw_only=True, eq=False, repr=False)
class GAT(FullGraphKeywords, Estimator):
    """Graph attention network (Veličković et al.: Graph attention networks, 2018).

    Every node hears its in-neighbors and itself, and each head weighs them by what it learned:

        h_v <- act(norm(b + sum_u a_uv W h_u)),   a_uv = softmax over u of leaky_relu(s . W h_u + g . W h_v).

    The heads of a hidden layer stand side by side; the last layer has one head and is plain. Unlike in the
    paper, ``dropout`` drops entries of hidden rows and no attention weights. Time grows with edges, heads and
    width, memory with edges times heads.

    Guarantee: none, but on a released graph (``perturb``). Weights and sums are exact.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        heads: heads of the hidden layers, each of width ``hidden``.

    Raises:
        NotImplementedGuaranteeError: the unit is not ``"none"``, and no graph is released first.
        ConfigError: ``heads`` is no whole number above 0, or hidden layers are too wide with so many.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> GAT(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "gat"

    heads: int = HEADS

    def _check_config(self) -> None:
        check_perturbed(self, self)
        super()._check_config()

    def _build_method(self) -> Method:
        check_on_cpu(self.method, self.device)
        style = layer_options(self)
        checks.width(heads=self.heads)
        checks.width(**{"heads * hidden": self.heads * self.hidden})
        shape = GatArchitecture(hidden=self.hidden, heads=self.heads, depth=resolve_depth(self), style=style)
        return build_full_graph_method(self, self, shape, resolve_schedule(self))
