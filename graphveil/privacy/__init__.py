"""Privacy units, privacy events, accounting, and guarantees with their words."""

from graphveil.core.accounting.accountant import Curve, privacy_curve
from graphveil.core.accounting.gaussian import auto_delta, calibrate_mu, check_delta
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    LocalReport,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
    within_partition,
)
from graphveil.core.guarantee import Guarantee
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
    Person,
    Row,
    UndirectedEdge,
    Unit,
    parse_unit,
)
from graphveil.privacy import statements

Guarantee.words = statements  # the core has no sentences

__all__ = [
    "ApproximateDP",
    "ByGroup",
    "Composed",
    "Curve",
    "DirectedEdge",
    "EdgeSubset",
    "Event",
    "Gaussian",
    "Guarantee",
    "LocalAttributes",
    "LocalReport",
    "NoUnit",
    "NodeBoundedDegree",
    "NodeRecord",
    "NodeUnit",
    "PairwiseGaussian",
    "Person",
    "PoissonGaussian",
    "PoissonRoots",
    "PureDP",
    "Row",
    "UndirectedEdge",
    "Unit",
    "auto_delta",
    "calibrate_mu",
    "check_delta",
    "compose",
    "parse_unit",
    "privacy_curve",
    "within_partition",
]
