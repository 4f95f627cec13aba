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
    from graphveil.experiment.accounts.calibration import calibrate
    from graphveil.experiment.sweeps.sweep import sweep
    from graphveil.fidelity.comparison import compare
    from graphveil.graph import Graph, list_datasets, load_dataset, open_graph, read_graph, split
    from graphveil.models import METHODS, register
    from graphveil.models.base import Estimator
    from graphveil.models.classcode import ClassCode
    from graphveil.models.gap import GAP
    from graphveil.models.gat import GAT
    from graphveil.models.gcn import GCN
    from graphveil.models.gnn import PrivateGNN
    from graphveil.models.heterorr import HeteroRR
    from graphveil.models.label_posterior import LabelPosterior
    from graphveil.models.lpgnn import LPGNN
    from graphveil.models.mlp import MLP
    from graphveil.models.own.private_module import PrivateModule
    from graphveil.models.private_hops import ReleasedRows, private_hops
    from graphveil.models.sage import SAGE
    from graphveil.models.saved import load_model
    from graphveil.models.simgat import SimGAT
    from graphveil.privacy import Guarantee, MemoryLedger, attach_ledger, ledger_of

__version__ = "0.1.0"

_RENAMED = ("MemoryBudget", "attach_budget", "budget_of")  # old names, for one release
_LAZY_IMPORTS = {
    "ClassCode": "graphveil.models.classcode",
    "Estimator": "graphveil.models.base",
    "GAP": "graphveil.models.gap",
    "GAT": "graphveil.models.gat",
    "GCN": "graphveil.models.gcn",
    "Graph": "graphveil.graph",
    "Guarantee": "graphveil.privacy",
    "HeteroRR": "graphveil.models.heterorr",
    "LPGNN": "graphveil.models.lpgnn",
    "LabelPosterior": "graphveil.models.label_posterior",
    "METHODS": "graphveil.models",
    "MLP": "graphveil.models.mlp",
    "MemoryLedger": "graphveil.privacy",
    "PrivateGNN": "graphveil.models.gnn",
    "PrivateModule": "graphveil.models.own.private_module",
    "ReleasedRows": "graphveil.models.private_hops",
    "SAGE": "graphveil.models.sage",
    "SimGAT": "graphveil.models.simgat",
    "attach_ledger": "graphveil.privacy",
    "attacks": "",
    "audit": "",
    "calibrate": "graphveil.experiment.accounts.calibration",
    "compare": "graphveil.fidelity",
    "backends": "",
    "errors": "",
    "ledger_of": "graphveil.privacy",
    "list_datasets": "graphveil.graph",
    "load_dataset": "graphveil.graph",
    "load_model": "graphveil.models.saved",
    "mechanisms": "",
    "open_graph": "graphveil.graph",
    "perturb": "",
    "private_hops": "graphveil.models.private_hops",
    "read_graph": "graphveil.graph",
    "register": "graphveil.models",
    "split": "graphveil.graph",
    "sweep": "graphveil.experiment.sweeps.sweep",
}

__all__ = [
    "GAP",
    "GAT",
    "GCN",
    "LPGNN",
    "METHODS",
    "MLP",
    "SAGE",
    "ClassCode",
    "Estimator",
    "Graph",
    "Guarantee",
    "HeteroRR",
    "LabelPosterior",
    "MemoryLedger",
    "PrivateGNN",
    "PrivateModule",
    "ReleasedRows",
    "SimGAT",
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
    if name in _RENAMED:  # not kept, so that every use is told
        return import_module("graphveil.privacy").renamed(name)
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'graphveil' has no attribute {name!r}")
    home = _LAZY_IMPORTS[name]
    found = getattr(import_module(home), name) if home else import_module(f"graphveil.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
