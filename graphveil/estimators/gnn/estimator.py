"""PrivateGNN: a custom message-passing module, trained with a node-level guarantee."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from graphveil._util import checks
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.events import MAX_ROOTS
from graphveil.core.queries.training_steps import Reach
from graphveil.core.unit import LocalAttributes, Node, NodeBoundedDegree, NodeUnit, NoUnit
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute, FittedModel
from graphveil.estimators.gnn.module_training import TrainedGNN
from graphveil.estimators.gnn.multi_hop import MultiHopGNN
from graphveil.estimators.gnn.one_hop import OneHopGNN
from graphveil.estimators.own.code import Factory, check_factory
from graphveil.estimators.requirements import EDGE_LEVEL, REGRESSION_METHODS, Rejections, rejected

_MIN_SHARE, _MIN_AGGREGATION_SHARE, _MAX_SUGGESTED_SHARE = 0.001, 0.05, 0.4
_LEAVES, _MAX_LEAVES_PER_SLOT = 128, 4  # leaves of a 1-hop ego graph, and of a tree per sampled out-edge
_AVERAGED = 0.3  # share of the steps whose iterates are averaged
_NO_SHARED_EDGES = rejected(
    "gnn reads ego graphs, and under unit 'node' one node may be in those of all others, so there is no "
    "bound. Use unit 'node-record', or method 'classcode' or 'gap'.",
    Node.name,
)
_NO_RECORDS = rejected(
    "gnn protects node records, but unit {unit!r} leaves features and labels public. Publish noisy "
    "aggregates once (graphveil.private_hops) and train any module on them, or use GAP(head=...). To protect "
    "node records use unit 'node-record'.",
    *EDGE_LEVEL,
    LocalAttributes.name,
    NoUnit.name,
)
_NO_PROOF = {
    "published": rejected(
        "neighborhood='published' is not private under unit 'node-bounded-degree': removing a node removes "
        "edges of its neighbors, which changes their predictions. Use unit 'node-record', method gap, or "
        "neighborhood='neighbors', which protects the parameters only.",
        NodeBoundedDegree.name,
    )
}


def _module_of(fit: FittedModel) -> nn.Module | None:
    return fit.trained.module if isinstance(fit.trained, TrainedGNN) else None


@dataclass(kw_only=True, eq=False)
class PrivateGNN(Estimator):
    """Train a custom message-passing module on protected node records.

    ``module`` is the name of a built-in architecture, or a class or function of two public sizes.
    ``module(inputs, classes)`` returns a torch module that maps node inputs (n, inputs) and ``edge_index``
    (2, k) to logits (n, classes), such as layers of torch_geometric.

    **1-hop ego graphs** (``neighborhood="published"``, unit ``node-record``).

    1. An encoder (softmax regression on own features) is trained by 60 noisy steps.
    2. One noisy out-edge aggregation is released. Labeled nodes send the code of their label along their
       out-edges. Others send the mean code under the encoder's posterior. The noisy aggregate of v is
       Z_v = sum of w_uv c_u + N(0, sigma^2 I).
    3. The 1-hop ego graph of v consists of v and at most ``leaves`` of its out-neighbors. The root has the
       inputs [posterior of v, Z_v, 1]. Each of k leaves u has sqrt(k) (Z_u - the contribution of v to Z_u).
       Edges lead from the leaves to the root. A mean over the leaves is then their sum over sqrt(k), with
       noise that does not depend on k. ``inputs`` is 2 C.
    4. The module is trained on the ego graphs of labeled nodes by DP-Adam, with Poisson batches and
       per-ego-graph clipping. The prediction for v adds the logits at the root to a public start: the class
       that the codes suggest under homophily (``CodePriorModule``). ``module_`` is the module without the
       start.

    **Multi-hop ego graphs** (``neighborhood="neighbors"``, private parameters only). The module is trained on
    trees of exact neighbors with ``layers`` levels. In each pass every node samples D = ``max_out_edges`` of
    its out-edges. Each node then receives at most M of the sampled edges. One record reaches at most N = 1 +
    D + ... + D^r roots, and the noise is calibrated to N (Theorem A; N is larger for
    ``node-bounded-degree``). There are no predictions, because they would read exact records of other nodes.
    Use ``module_`` where these records may be read, such as on your own graph.

    A module is rejected before anything is charged if it mixes records of a batch, draws random numbers or
    changes while it runs. It is also rejected if its backward pass fails, or it holds long untrained tensors.
    See ``docs/how-to/custom-model.md`` for the list and alternatives. A function that closes over a tensor
    of the graph cannot be detected: do not write one.

    Args:
        module: Factory of the module, or a name: of a built-in architecture (``"sage"``, ``"gcn"``, ``"gat"``
            or ``"gin"``, which need the extra ``pyg``), or one that was registered (``graphveil.register``).
        neighborhood: Inputs at the leaves: ``"published"`` aggregates, or the exact features of
            ``"neighbors"``, which covers the parameters only.
        encoder_share: Share of mu^2 for the encoder. None for a value from the budget and public sizes.
        module_share: Share of mu^2 for the module. The out-edge aggregation has the rest.
        leaves: M, the largest number of leaves. A longer list of out-edges is sampled. None is 128, and with
            ``neighborhood="neighbors"`` four times ``max_out_edges``.
        start: With 1-hop ego graphs: ``"codes"``, or ``"none"`` for the module's logits alone.
        layers, max_out_edges: r and D of ``neighborhood="neighbors"``.
        allow_high_noise: Allow two or more layers with more than two sampled out-edges per node. The noise is
            then that of seven or more roots.
        epochs: Expected passes of the module over labeled records.
        batch_size: Expected labeled records in a batch; None for a twentieth of them.
        clip: Clipping norm of the gradient of one ego graph.
        learning_rate: Step size of the module's first step. It has a cosine schedule, and the last 30 % of
            the iterates are averaged.

    Raises:
        ConfigError: If a parameter is outside its range, or the module cannot be trained on ``fit``.
        UnitError: If the unit does not fit ``neighborhood``. On ``predict`` after
            ``neighborhood="neighbors"``, since no guarantee covers a prediction.

    Privacy:
        Unit: ``node-record`` (1-hop), also ``node-bounded-degree`` (multi-hop). Reads: features, labels and
        edges. Charges: all steps and the aggregation as one release. Public: encoder, noisy aggregates and
        the module's parameters of all steps. These, and the predictions for all nodes except q, are (epsilon,
        delta)-indistinguishable for the record of q. A record is in one example only, since an ego graph
        reads its root's own out-edges and *published* aggregates. The prediction for q reads q's features and
        out-edges, and is only for people who are authorized to access both.

        With ``neighborhood="neighbors"`` the guarantee covers the module's parameters only.

        Assumption: the module keeps no record outside its own process. Each ego graph runs on a fresh copy.
        Proof: ``docs/privacy/proofs/custom-models.md``.

    >>> import torch
    >>> from graphveil.data import RECIPES, synthetic
    >>> class MyGNN(torch.nn.Module):
    ...     def __init__(self, inputs, classes):
    ...         super().__init__()
    ...         self.own, self.heard = torch.nn.Linear(inputs, 8), torch.nn.Linear(inputs, 8)
    ...         self.out = torch.nn.Linear(8, classes)
    ...     def forward(self, x, edge_index):
    ...         source, target = edge_index
    ...         heard = torch.zeros_like(x).index_add(0, target, x[source])
    ...         return self.out(torch.relu(self.own(x) + self.heard(heard)))
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = PrivateGNN(module=MyGNN, unit="node-record", epsilon=8, seed=0, epochs=2, leaves=8).fit(graph)
    >>> model.guarantee.valid, model.guarantee.epsilon <= 8, len(model.plan_.queries)
    (True, True, 3)
    """

    method: ClassVar[str] = "gnn"
    predicts_numbers: ClassVar[bool] = True

    module: Factory | str = ""
    neighborhood: Literal["published", "neighbors"] = "published"
    encoder_share: float | None = None
    module_share: float = 0.15
    leaves: int | None = None
    start: Literal["codes", "none"] = "codes"
    layers: int = 1
    max_out_edges: int = 1
    allow_high_noise: bool = False
    epochs: int = 10
    batch_size: int | None = None
    clip: float = 1.0
    learning_rate: float = 0.02

    module_ = FittedAttribute[nn.Module | None](_module_of)

    @property
    def _rejections(self) -> Rejections:
        """Units without a proof for this neighborhood, with the reason."""
        return _NO_RECORDS | _NO_SHARED_EDGES | _NO_PROOF.get(self.neighborhood, {})

    def _check_config(self) -> None:
        super()._check_config()
        if not self.module:
            raise ConfigError(
                'gnn needs a module. Pass module="sage", "gcn", "gat" or "gin" (--module sage), or a '
                "class that is constructed as module(inputs, classes) and called as module(x, "
                "edge_index) (--module FILE.py:NAME)."
            )
        check_factory(self.module)
        if self.leaves is not None:
            checks.integer_at_least(1, leaves=self.leaves)
        checks.integer_at_least(1, layers=self.layers, max_out_edges=self.max_out_edges)
        if self.neighborhood == "neighbors":
            self._check_multi_hop()
            return
        if self.task == REGRESSION:
            raise ConfigError(
                "neighborhood='published' publishes class codes and does not support task='regression'. "
                f"It is supported by {REGRESSION_METHODS} (--set neighborhood=neighbors)."
            )
        if self.layers > 1 or self.max_out_edges > 1:
            raise ConfigError(
                f"layers={self.layers} and max_out_edges={self.max_out_edges} need "
                "neighborhood='neighbors'. With neighborhood='published' every node reads one hop only, "
                "so further layers have no effect."
            )
        encoder = _MAX_SUGGESTED_SHARE if self.encoder_share is None else self.encoder_share
        checks.within(_MIN_SHARE, 0.9, encoder_share=encoder, module_share=self.module_share)
        if encoder + self.module_share > 1 - _MIN_AGGREGATION_SHARE:
            raise ConfigError(
                f"encoder_share={encoder:g} and module_share={self.module_share:g} leave less than "
                f"{_MIN_AGGREGATION_SHARE:g} of the budget for the aggregation. Use smaller shares."
            )

    def _check_multi_hop(self) -> None:
        if self.private_metrics:
            raise ConfigError(
                "private_metrics=True is not available with neighborhood='neighbors', because a "
                "prediction depends on the records of neighbors and the sensitivity of the counts is "
                "unbounded. Omit private_metrics."
            )
        if self.out_degree_bound is not None or self.encoder_share is not None:
            raise ConfigError(
                "out_degree_bound and encoder_share have no effect with neighborhood='neighbors', which "
                "has no encoder and no noisy aggregation. Omit them. Use max_out_edges to limit the "
                "out-edges that each node uses."
            )
        unit = self.protected_unit
        assert isinstance(unit, NodeUnit)  # the unit is checked first
        roots = Reach.from_unit(unit, slots=self.max_out_edges, depth=self.layers).roots
        if roots > MAX_ROOTS:
            why = f"layers={self.layers} and max_out_edges={self.max_out_edges}"
            way = "take fewer slots or layers"
            if isinstance(unit, NodeBoundedDegree):
                why = f"an asserted degree of {unit.max_degree}"
                way = (
                    "use unit 'node-record', under which a node reports max_out_edges of its own list, or gap"
                )
            raise ConfigError(
                f"With {why} one node record is in {roots} ego graphs. Above {MAX_ROOTS} ego graphs the "
                f"noise is too large to learn anything; {way}."
            )
        if self.layers > 1 and self.max_out_edges > 2 and not self.allow_high_noise:
            raise ConfigError(
                f"With layers={self.layers} and max_out_edges={self.max_out_edges} one record is in "
                f"{sum(self.max_out_edges**level for level in range(self.layers + 1))} ego graphs, "
                "and the noise grows in proportion to this number. Use max_out_edges=1 or 2, or pass "
                "allow_high_noise=True."
            )

    def _build_method(self) -> OneHopGNN | MultiHopGNN:
        schedule = PrivateSchedule(**self._named(PrivateSchedule), decay="cosine", average=_AVERAGED)
        if self.neighborhood == "neighbors":
            return self._method(
                MultiHopGNN,
                schedule=schedule,
                slots=self.max_out_edges,
                cap=self.leaves or _MAX_LEAVES_PER_SLOT * self.max_out_edges,
            )
        return self._method(
            OneHopGNN,
            schedule=schedule,
            shares=(self.encoder_share, self.module_share),
            leaves=self.leaves or _LEAVES,
            out_degree_bound=self.out_degree_bound or 1,
            use_code_prior=self.start == "codes",
        )
