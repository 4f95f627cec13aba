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

RENAMED = {  # old public names, for one release
    "Budget": "PrivacyLedger",
    "MemoryBudget": "MemoryLedger",
    "attach_budget": "attach_ledger",
    "budget_of": "ledger_of",
    "joint_budget": "joint_ledger",
}


def renamed(name: str, *, stacklevel: int = 2) -> Any:
    """Return what an old name stands for, with a warning that it goes."""
    new = RENAMED[name]
    message = f"{name} is now {new}; the old name goes with version 0.2"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)
    return globals()[new]


if not TYPE_CHECKING:  # a type checker is to refuse the old names

    def __getattr__(name: str) -> Any:
        """Return an old name's new object."""
        if name in RENAMED:
            return renamed(name)
        raise AttributeError(f"module 'graphveil.privacy' has no attribute {name!r}")
