"""The objective of a fit: the metric that selects epochs and models on public labels."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from graphveil._util import checks
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphError
from graphveil.training.metrics import METRICS, RANKING_METRICS, metric_value

Score = tuple[float, float]  # higher is better: the metric, then the likelihood
WORST: Score = (-math.inf, -math.inf)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What selects epochs, candidates and combinations of posteriors.

    Args:
        metric: A name of ``METRICS``; None for each method's own rule.

    >>> log = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]).log()
    >>> labels = torch.tensor([0, 0, 1])
    >>> Objective(metric="roc_auc").score(log, labels), Objective().score(log, labels)
    ((0.5, -0.606...), (0.0, -0.606...))
    """

    metric: str | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.metric is not None:
            checks.one_of(METRICS, metric=self.metric)

    def score(self, log_posteriors: Tensor, labels: Tensor) -> Score:
        """Return the score of log-posteriors (M, C). The likelihood decides between ties.

        Without a metric the likelihood alone decides.
        """
        found = 0.0 if self.metric is None else metric_value(self.metric, labels, log_posteriors.exp())
        return found, -float(nll_loss(log_posteriors, labels))

    def check_graph(self, graph: Graph) -> None:
        """Reject validation labels for which the metric is not defined, before anything is charged.

        Raises:
            GraphError: If they are of one class, and the metric compares classes.
        """
        if self.metric in RANKING_METRICS and torch.unique(graph.y[graph.mask("val")]).numel() < 2:
            raise GraphError(
                f"The validation nodes have one class, for which metric={self.metric!r} is not defined. Use "
                "another split, or metric='accuracy'. No privacy budget was spent."
            )


DEFAULT_OBJECTIVE = Objective()


def check_metric(method: str, metric: str, unit: str, *, on_records: bool, selects: bool) -> None:
    """Reject a metric that cannot select anything under a unit, or in a method.

    Raises:
        ConfigError: If labels are protected, or the method selects nothing by a metric.
    """
    checks.one_of(METRICS, metric=metric)
    if on_records:
        raise ConfigError(
            f"metric={metric!r} (--metric) would select models by validation labels, which unit {unit!r} "
            "protects. Leave it out, or use private_metrics=True (--private-metrics) to release metrics."
        )
    if not selects:
        raise ConfigError(
            f"metric={metric!r} (--metric) has no effect on {method}, which selects no epoch and no model by "
            "a metric of public labels. Leave it out."
        )
