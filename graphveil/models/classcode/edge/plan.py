"""What ClassCode asks at edge level, from public sizes alone: of the graph of a fit, and of another one."""

from collections.abc import Callable
from dataclasses import dataclass

from graphveil.models.classcode.edge.queries import Steering
from graphveil.models.sizes import PublicSizes
from graphveil.models.terms import Terms
from graphveil.models.weighting import Weighting
from graphveil.release import ReleasePlan, calibrate_plan
from graphveil.release.plan import Query


@dataclass(frozen=True, kw_only=True)
class EdgePlan:
    """The public choices behind a release at edge level.

    Args:
        count_share: share of a labelled pair's budget that goes to class-pair counts (rho).
        few_labels: whether the variant for few labels is used; None decides by how many nodes have one.
        reverse_weight: weight from targets back to labelled nodes in that variant (b).
        weighting: what weighs messages; None for weights of one.

    >>> from graphveil.privacy import UndirectedEdge
    >>> terms = Terms(unit=UndirectedEdge(), epsilon=1.0)
    >>> sizes = PublicSizes(nodes=1000, classes=3, labelled=100)
    >>> [query.kind for query in EdgePlan().of_fit(terms, sizes).queries]
    ['counts', 'rows', 'rows']
    >>> [query.kind for query in EdgePlan(few_labels=False).of_rows(terms, sizes).queries]
    ['rows']
    """

    count_share: float = 0.05
    few_labels: bool | None = None
    reverse_weight: float = 0.3
    weighting: Weighting | None = None

    @property
    def reads_previous(self) -> bool:
        """Whether the weights of a second round read what the first one said."""
        return self.weighting is not None and self.weighting.rows == "previous"

    def few(self, sizes: PublicSizes) -> bool:
        """Whether labels are few: as configured, or where under half of the nodes are known to have one."""
        if self.few_labels is not None:
            return self.few_labels
        return sizes.labelled is not None and 2 * sizes.labelled < sizes.nodes

    def of_fit(self, terms: Terms, sizes: PublicSizes) -> ReleasePlan:
        """Return the counts and the rounds of rows, as one release."""
        return _calibrated(terms, sizes, self._steering(terms, sizes, self.count_share).queries)

    def of_rows(self, terms: Terms, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of rows alone: what a fit learns from counts holds for other graphs, too."""
        return _calibrated(terms, sizes, self._steering(terms, sizes, 0.0).rows)

    def _steering(self, terms: Terms, sizes: PublicSizes, count_share: float) -> Steering:
        similarity = None if self.weighting is None else self.weighting.similarity
        return Steering.choose(terms.unit, count_share, self.few(sizes), self.reverse_weight, similarity)


def _calibrated(
    terms: Terms, sizes: PublicSizes, queries: Callable[[float, int], tuple[Query, ...]]
) -> ReleasePlan:
    """Return the plan of these queries, which are of a total mu and of C classes."""
    return calibrate_plan(
        terms.unit,
        terms.budget,
        terms.delta_for(sizes.nodes),
        lambda mu: queries(mu, sizes.classes),
        num_nodes=sizes.nodes,
    )
