"""Estimators, by the name that the command line and a saved model use. Importing this loads none of them."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphveil.models.base import Estimator

__all__ = ["METHODS"]

_CLASSES = {
    "mlp": ("graphveil.models.mlp", "MLP"),
    "gap": ("graphveil.models.gap", "GAP"),
    "sage": ("graphveil.models.sage", "SAGE"),
    "gcn": ("graphveil.models.gcn", "GCN"),
    "gat": ("graphveil.models.gat", "GAT"),
    "classcode": ("graphveil.models.classcode", "ClassCode"),
    "lpgnn": ("graphveil.models.lpgnn", "LPGNN"),
    "label-posterior": ("graphveil.models.label_posterior", "LabelPosterior"),
    "heterorr": ("graphveil.models.heterorr", "HeteroRR"),
    "simgat": ("graphveil.models.simgat", "SimGAT"),
}


class _Methods(Mapping[str, "type[Estimator]"]):
    """The closed table of methods: its names are known at once, a class is imported when asked for."""

    def __getitem__(self, name: str) -> "type[Estimator]":
        module, cls = _CLASSES[name]
        found: type[Estimator] = getattr(import_module(module), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


METHODS: Mapping[str, "type[Estimator]"] = _Methods()
