"""LPGNN: learns from records that were randomized one by one, over public edges."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from graphveil.local.lpgnn.keywords import LpgnnKeywords
from graphveil.local.lpgnn.lpgnn_method import LearningConfig, LpgnnMethod
from graphveil.local.lpgnn.propagation_config import KPropConfig
from graphveil.local.lpgnn.record_estimator import RecordEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class LPGNN(LpgnnKeywords, RecordEstimator):
    """Locally private graph neural network (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

    Every node randomizes its features at ``eps_x`` and, if it is a training or validation node, its label at
    ``eps_y``. From then on a server sees randomized records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop),

    with X' the estimated features, Y' the randomized labels, T the law of what is said for each class, and A^
    the normalized edges without self-loops. The epoch that is kept is chosen on randomized labels alone. Test
    labels are read for the score of the test nodes and for nothing else.

    Guarantee, unit ``local-attributes``: eps_x-LDP for each node's whole feature vector and eps_y-LDP for its
    label, so eps_x + eps_y for the record; with ``features="agm"`` it is (epsilon, delta). Unit ``none`` is
    the reference without noise.

    Shapes: features (N, d) to probabilities (N, C).

    Arguments are those of :class:`~graphveil.local.lpgnn.keywords.LocalKeywords` (how a node randomizes its
    record) and :class:`~graphveil.local.lpgnn.keywords.LpgnnKeywords` (how the network learns).

    Raises:
        UnitError: the unit is neither ``"local-attributes"`` nor ``"none"``.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (3.0, (1.0, 2.0))
    """

    method: ClassVar[str] = "lpgnn"

    def no_graph_baseline(self) -> "LPGNN":
        """Return the unfitted baseline that reads no edge: an MLP on each node's own X' and Y'.

        It is for the same reports (:meth:`fit_same_reports`, or :meth:`fit_from_collector` on the same LDP
        reports), which were paid for already. What is learned are P(y'|x) = softmax(MLP(X')) T; the width,
        the learning parameters and how the epoch is chosen are this model's own.

        >>> beside = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, hidden=8).no_graph_baseline()
        >>> beside.backbone, beside.x_steps, beside.y_steps, beside.hidden, beside.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        return baseline_of(self)

    def _build_method(self) -> LpgnnMethod:
        return LpgnnMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            device=self.device,
            report_config=self._report_config(),
            propagation_config=KPropConfig.from_keywords(self, self.x_steps),
            smoothing=KPropConfig.from_keywords(self, self.y_steps) if self.y_steps else None,
            learning=LearningConfig.from_keywords(self),
        )


def baseline_of(model: RecordEstimator) -> LPGNN:
    """Return the baseline of a method that learns as LPGNN does, see :meth:`LPGNN.no_graph_baseline`."""
    own = {part.name for part in fields(LPGNN) if part.init}
    kept = {name: value for name, value in model.get_params().items() if name in own}
    none_before_fit: dict[str, Any] = {
        "x_steps": 0,
        "y_steps": 0,
        "posterior_steps": 0,
        "forward_correction": True,
    }
    no_posterior = {"prior": "diffusion", "posterior_use": "product"}
    return LPGNN(**{**kept, "backbone": "mlp", **none_before_fit, **no_posterior})
