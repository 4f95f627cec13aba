"""What is protected, what it costs, and the words for it."""

import warnings
from typing import TYPE_CHECKING, Any

from graphveil.privacy.accountant import Curve, privacy_curve
from graphveil.privacy.calibration import auto_delta, calibrate_mu, check_delta
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
from graphveil.privacy.guarantee import Guarantee
from graphveil.privacy.ledger import (
    Entry,
    MemoryLedger,
    PrivacyLedger,
    attach_ledger,
    joint_ledger,
    ledger_of,
)
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
    "Entry",
    "Event",
    "Gaussian",
    "Guarantee",
    "LocalAttributes",
    "LocalReport",
    "MemoryLedger",
    "NoUnit",
    "NodeBoundedDegree",
    "NodeRecord",
    "NodeUnit",
    "PairwiseGaussian",
    "PoissonGaussian",
    "PoissonRoots",
    "PrivacyLedger",
    "PureDP",
    "UndirectedEdge",
    "Unit",
    "attach_ledger",
    "auto_delta",
    "calibrate_mu",
    "check_delta",
    "compose",
    "joint_ledger",
    "ledger_of",
    "parse_unit",
    "privacy_curve",
    "within_partition",
]
