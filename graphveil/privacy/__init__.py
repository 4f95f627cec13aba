"""Privacy units, privacy events, accounting, and guarantee summaries."""

from graphveil.privacy.accountant import Curve, privacy_curve
from graphveil.privacy.events import (
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
from graphveil.privacy.gaussian import auto_delta, calibrate_mu, check_delta
from graphveil.privacy.guarantee import Guarantee
from graphveil.privacy.unit import (
    DirectedEdge,
    EdgeSubset,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    Unit,
    parse_unit,
)

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
    "PoissonGaussian",
    "PoissonRoots",
    "PureDP",
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
