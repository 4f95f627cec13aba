"""What is protected, what it costs, and the words for it."""

from graphveil.privacy.accountant import Curve, privacy_curve
from graphveil.privacy.budget import Budget, Entry, MemoryBudget, attach_budget, budget_of, joint_budget
from graphveil.privacy.calibration import auto_delta, calibrate_mu, check_delta
from graphveil.privacy.events import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    LocalReport,
    PairwiseGaussian,
    PoissonGaussian,
    compose,
    within_partition,
)
from graphveil.privacy.guarantee import Guarantee
from graphveil.privacy.unit import (
    DirectedEdge,
    NodeFeatures,
    NodeOwner,
    NodePromise,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    Unit,
    parse_unit,
)

__all__ = [
    "Budget",
    "ByGroup",
    "Composed",
    "Curve",
    "DirectedEdge",
    "Entry",
    "Event",
    "Gaussian",
    "Guarantee",
    "LocalReport",
    "MemoryBudget",
    "NoUnit",
    "NodeFeatures",
    "NodeOwner",
    "NodePromise",
    "NodeUnit",
    "PairwiseGaussian",
    "PoissonGaussian",
    "UndirectedEdge",
    "Unit",
    "attach_budget",
    "auto_delta",
    "budget_of",
    "calibrate_mu",
    "check_delta",
    "compose",
    "joint_budget",
    "parse_unit",
    "privacy_curve",
    "within_partition",
]
