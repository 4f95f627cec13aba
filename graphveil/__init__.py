"""Learn from graphs whose edges, nodes or attributes are secret, under differential privacy.

Nothing heavy is imported until a name is used.

>>> import graphveil as gv
>>> gv.calibrate("gap", unit="directed-edge", epsilon=1.0, delta=1e-5, hops=1).mu < 0.26805112
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil import attacks, audit, backends, errors, mechanisms, perturb
    from graphveil.audit.fidelity import compare
    from graphveil.auto import AutoClassifier
    from graphveil.data import Graph, Interactions, list_datasets, load_dataset, open_graph, read_graph, split
    from graphveil.estimators import METHODS, register
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.classcode import ClassCode
    from graphveil.estimators.full_graph import GAT, GCN
    from graphveil.estimators.gap import GAP
    from graphveil.estimators.gnn import PrivateGNN
    from graphveil.estimators.mlp import MLP
    from graphveil.estimators.own.private_module import PrivateModule
    from graphveil.estimators.private_hops import ReleasedRows, private_hops
    from graphveil.estimators.sage import SAGE
    from graphveil.estimators.saved import load_model
    from graphveil.estimators.spectral import Spectral
    from graphveil.ledger import MemoryLedger, attach_ledger, ledger_of
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender
    from graphveil.local.heterorr import HeteroRR
    from graphveil.local.label_posterior import LabelPosterior
    from graphveil.local.lpgnn import LPGNN
    from graphveil.papers.simgat import SimGAT
    from graphveil.privacy import Guarantee
    from graphveil.runs.calibration import calibrate
    from graphveil.runs.sweep import sweep

__version__ = "0.1.0"

_LAZY_MODULES = {
    "attacks": "graphveil.attacks",
    "audit": "graphveil.audit",
    "backends": "graphveil.backends",
    "errors": "graphveil.errors",
    "mechanisms": "graphveil.mechanisms",
    "perturb": "graphveil.perturb",
}
_LAZY_IMPORTS = {
    "AutoClassifier": "graphveil.auto",
    "ClassCode": "graphveil.estimators.classcode",
    "Estimator": "graphveil.estimators.base",
    "GAP": "graphveil.estimators.gap",
    "GAT": "graphveil.estimators.full_graph",
    "GCN": "graphveil.estimators.full_graph",
    "Graph": "graphveil.data",
    "Guarantee": "graphveil.privacy",
    "Interactions": "graphveil.data",
    "HeteroRR": "graphveil.local.heterorr",
    "LPGNN": "graphveil.local.lpgnn",
    "LabelPosterior": "graphveil.local.label_posterior",
    "LinkPredictor": "graphveil.links.link_predictor",
    "METHODS": "graphveil.estimators",
    "MLP": "graphveil.estimators.mlp",
    "MemoryLedger": "graphveil.ledger",
    "PrivateGNN": "graphveil.estimators.gnn",
    "PrivateModule": "graphveil.estimators.own.private_module",
    "Recommender": "graphveil.links.recommender",
    "ReleasedRows": "graphveil.estimators.private_hops",
    "SAGE": "graphveil.estimators.sage",
    "Spectral": "graphveil.estimators.spectral",
    "SimGAT": "graphveil.papers.simgat",
    "attach_ledger": "graphveil.ledger",
    "calibrate": "graphveil.runs.calibration",
    "compare": "graphveil.audit.fidelity",
    "ledger_of": "graphveil.ledger",
    "list_datasets": "graphveil.data",
    "load_dataset": "graphveil.data",
    "load_model": "graphveil.estimators.saved",
    "open_graph": "graphveil.data",
    "private_hops": "graphveil.estimators.private_hops",
    "read_graph": "graphveil.data",
    "register": "graphveil.estimators",
    "split": "graphveil.data",
    "sweep": "graphveil.runs.sweep",
}

__all__ = [
    "GAP",
    "GAT",
    "GCN",
    "LPGNN",
    "METHODS",
    "MLP",
    "SAGE",
    "AutoClassifier",
    "ClassCode",
    "Estimator",
    "Graph",
    "Guarantee",
    "HeteroRR",
    "Interactions",
    "LabelPosterior",
    "LinkPredictor",
    "MemoryLedger",
    "PrivateGNN",
    "PrivateModule",
    "Recommender",
    "ReleasedRows",
    "SimGAT",
    "Spectral",
    "attach_ledger",
    "attacks",
    "audit",
    "backends",
    "calibrate",
    "compare",
    "errors",
    "ledger_of",
    "list_datasets",
    "load_dataset",
    "load_model",
    "mechanisms",
    "open_graph",
    "perturb",
    "private_hops",
    "read_graph",
    "register",
    "split",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _LAZY_MODULES:
        found: Any = import_module(_LAZY_MODULES[name])
    elif name in _LAZY_IMPORTS:
        found = getattr(import_module(_LAZY_IMPORTS[name]), name)
    else:
        raise AttributeError(f"module 'graphveil' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
