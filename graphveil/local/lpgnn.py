"""LPGNN: train a graph neural network on locally randomized records and public edges."""

from dataclasses import dataclass, fields
from typing import ClassVar

from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod
from graphveil.local.network_learner import KPropConfig, LpgnnKeywords, NetworkLearner
from graphveil.local.report_config import FeatureKeywords, LabelKeywords


@dataclass(kw_only=True, eq=False, repr=False)
class LPGNN(LpgnnKeywords, FeatureKeywords, LabelKeywords, LocalEstimator, Estimator):
    """Locally private graph neural network (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

    Every node randomizes its features at ``eps_x``. Training and validation nodes also randomize their label
    at ``eps_y``. The server reads only randomized records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop).

    X' are the estimated features, Y' the randomized labels, and T the distribution of the report for each
    class. A^ is the normalized adjacency without self-loops. The epoch is selected by randomized labels
    alone. Labels of test nodes are read only to score the test nodes.

    Shapes: features (N, d) to probabilities (N, C).

    Arguments are those of ``FeatureKeywords`` and ``LabelKeywords`` (randomization of a node record), and of
    ``LpgnnKeywords`` (training of the network).

    Raises:
        UnitError: The unit is neither ``"local-attributes"`` nor ``"none"``.

    Privacy:
        Unit ``local-attributes``: eps_x-LDP for the feature vector of each node and eps_y-LDP for its label,
        so eps_x + eps_y for the node record. With ``features="agm"`` it is (epsilon, delta)-LDP. Charges:
        these budgets, once per collection. Unit ``none`` is the reference without noise.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (3.0, (1.0, 2.0))
    """

    method: ClassVar[str] = "lpgnn"

    selected_ = FittedAttribute[dict[str, int | str]](lambda fit: dict(fit.learned.get("selected", {})), dict)

    def no_graph_baseline(self) -> "LPGNN":
        """Return the unfitted no-graph baseline: an MLP on each node's own X' and Y'.

        Fit it to the same reports, with ``fit_same_reports`` or ``fit_from_collector``. This does not spend
        privacy budget (post-processing). The model is P(y'|x) = softmax(MLP(X')) T. Width, training
        parameters and the selection of the epoch are those of this model.

        Privacy:
            Reads: no data. Charges: nothing.

        >>> baseline = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, hidden=8).no_graph_baseline()
        >>> baseline.backbone, baseline.x_steps, baseline.y_steps, baseline.hidden, baseline.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        return baseline_of(self)

    def _build_method(self) -> LocalMethod:
        hops = KPropConfig.from_keywords(self, self.x_steps)
        return self._local_method(NetworkLearner.from_keywords(self, hops), self.missing_labels)


def baseline_of(model: Estimator) -> LPGNN:
    """Return the no-graph baseline of a model that trains like LPGNN; see ``LPGNN.no_graph_baseline``."""
    own = {part.name for part in fields(LPGNN) if part.init}
    kept = {name: value for name, value in model.get_params().items() if name in own}
    no_hops = {"backbone": "mlp", "x_steps": 0, "y_steps": 0, "forward_correction": True}
    no_posterior = {"posterior_steps": 0, "prior": None, "posterior_use": None}
    return LPGNN(**{**kept, **no_hops, **no_posterior})
