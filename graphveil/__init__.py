"""Learn from graphs whose edges, nodes or attributes are secret, under differential privacy.

Nothing heavy is imported until a name is used.

>>> import graphveil as gv
>>> gv.calibrate("gap", unit="directed-edge", epsilon=1.0, delta=1e-5, hops=1).mu < 0.26805112
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil import attacks as attacks
    from graphveil import audit as audit
    from graphveil import backends as backends
    from graphveil import errors as errors
    from graphveil import mechanisms as mechanisms
    from graphveil import perturb as perturb
    from graphveil.audit.fidelity import compare as compare
    from graphveil.auto import AutoClassifier as AutoClassifier
    from graphveil.data import Graph as Graph
    from graphveil.data import Interactions as Interactions
    from graphveil.data import Rows as Rows
    from graphveil.data import Tables as Tables
    from graphveil.data import list_datasets as list_datasets
    from graphveil.data import load_dataset as load_dataset
    from graphveil.data import open_graph as open_graph
    from graphveil.data import read_graph as read_graph
    from graphveil.data import split as split
    from graphveil.estimators import METHODS as METHODS
    from graphveil.estimators import register as register
    from graphveil.estimators.base import Estimator as Estimator
    from graphveil.estimators.classcode import ClassCode as ClassCode
    from graphveil.estimators.full_graph import GAT as GAT
    from graphveil.estimators.full_graph import GCN as GCN
    from graphveil.estimators.gap import GAP as GAP
    from graphveil.estimators.gnn import PrivateGNN as PrivateGNN
    from graphveil.estimators.mlp import MLP as MLP
    from graphveil.estimators.own.private_module import PrivateModule as PrivateModule
    from graphveil.estimators.private_hops import ReleasedRows as ReleasedRows
    from graphveil.estimators.private_hops import private_hops as private_hops
    from graphveil.estimators.relational import RelationalClassifier as RelationalClassifier
    from graphveil.estimators.sage import SAGE as SAGE
    from graphveil.estimators.saved import load_model as load_model
    from graphveil.estimators.spectral import Spectral as Spectral
    from graphveil.ledger import MemoryLedger as MemoryLedger
    from graphveil.ledger import attach_ledger as attach_ledger
    from graphveil.ledger import ledger_of as ledger_of
    from graphveil.links.link_predictor import LinkPredictor as LinkPredictor
    from graphveil.links.recommender import Recommender as Recommender
    from graphveil.local.heterorr import HeteroRR as HeteroRR
    from graphveil.local.label_posterior import LabelPosterior as LabelPosterior
    from graphveil.local.lpgnn import LPGNN as LPGNN
    from graphveil.papers.simgat import SimGAT as SimGAT
    from graphveil.privacy import Guarantee as Guarantee
    from graphveil.runs.calibration import calibrate as calibrate
    from graphveil.runs.sweep import sweep as sweep

__version__ = "0.1.0"

_SUBMODULES = ("attacks", "audit", "backends", "errors", "mechanisms", "perturb")
# Documented too, but not among the names that most programs use.
_OTHER_SUBMODULES = ("estimators", "ledger", "links", "local", "papers", "privacy", "serve", "training")
_MODULES = {
    "graphveil.audit.fidelity": ("compare",),
    "graphveil.auto": ("AutoClassifier",),
    "graphveil.data": (
        "Graph",
        "Interactions",
        "Rows",
        "Tables",
        "list_datasets",
        "load_dataset",
        "open_graph",
        "read_graph",
        "split",
    ),
    "graphveil.estimators": ("METHODS", "register"),
    "graphveil.estimators.base": ("Estimator",),
    "graphveil.estimators.classcode": ("ClassCode",),
    "graphveil.estimators.full_graph": ("GAT", "GCN"),
    "graphveil.estimators.gap": ("GAP",),
    "graphveil.estimators.gnn": ("PrivateGNN",),
    "graphveil.estimators.mlp": ("MLP",),
    "graphveil.estimators.relational": ("RelationalClassifier",),
    "graphveil.estimators.own.private_module": ("PrivateModule",),
    "graphveil.estimators.private_hops": ("ReleasedRows", "private_hops"),
    "graphveil.estimators.sage": ("SAGE",),
    "graphveil.estimators.saved": ("load_model",),
    "graphveil.estimators.spectral": ("Spectral",),
    "graphveil.ledger": ("MemoryLedger", "attach_ledger", "ledger_of"),
    "graphveil.links.link_predictor": ("LinkPredictor",),
    "graphveil.links.recommender": ("Recommender",),
    "graphveil.local.heterorr": ("HeteroRR",),
    "graphveil.local.label_posterior": ("LabelPosterior",),
    "graphveil.local.lpgnn": ("LPGNN",),
    "graphveil.papers.simgat": ("SimGAT",),
    "graphveil.privacy": ("Guarantee",),
    "graphveil.runs.calibration": ("calibrate",),
    "graphveil.runs.sweep": ("sweep",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted([*_SUBMODULES, *_HOMES])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _SUBMODULES or name in _OTHER_SUBMODULES:
        found: Any = import_module(f"graphveil.{name}")
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'graphveil' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
