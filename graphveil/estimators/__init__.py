"""Estimators by their name on the command line and in saved models; loaded on first use."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil._util.checks import checked

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator

__all__ = ["METHODS", "register"]

T = TypeVar("T", bound=Callable[..., Any])

_CLASSES = {
    "auto": ("graphveil.auto", "AutoClassifier"),
    "mlp": ("graphveil.estimators.mlp", "MLP"),
    "gap": ("graphveil.estimators.gap", "GAP"),
    "sage": ("graphveil.estimators.sage", "SAGE"),
    "gcn": ("graphveil.estimators.full_graph", "GCN"),
    "gat": ("graphveil.estimators.full_graph", "GAT"),
    "classcode": ("graphveil.estimators.classcode", "ClassCode"),
    "relational": ("graphveil.estimators.relational", "RelationalClassifier"),
    "spectral": ("graphveil.estimators.spectral", "Spectral"),
    "lpgnet": ("graphveil.papers.lpgnet", "LPGNet"),
    "lpgnn": ("graphveil.local.lpgnn", "LPGNN"),
    "label-posterior": ("graphveil.local.label_posterior", "LabelPosterior"),
    "heterorr": ("graphveil.local.heterorr", "HeteroRR"),
    "simgat": ("graphveil.papers.simgat", "SimGAT"),
    "gnn": ("graphveil.estimators.gnn", "PrivateGNN"),
    "module": ("graphveil.estimators.own.private_module", "PrivateModule"),
}

# Methods as published, which have no valid guarantee: found by name, and not listed.
_PAPERS = "graphveil.papers.as_published"
_PUBLISHED = {
    f"{name.lower()}-paper": name
    for name in ("GAP", "MLP", "SAGE", "GCN", "GAT", "LPGNN", "SimGAT", "HeteroRR")
}
_REGISTERED: dict[str, "type[Estimator]"] = {}


@checked
def register(code: T, name: str | None = None) -> T:
    """Register a custom estimator or module under a name, in this process.

    A subclass of ``Estimator`` becomes a method like those of the library. It is in ``METHODS`` under its
    ``method`` name, and ``train``, ``calibrate``, ``sweep``, ``load_model`` and the benchmarks can use it.
    Any other class or function is a factory of torch modules, called with two public sizes. A saved
    ``PrivateGNN`` or ``PrivateModule`` stores its name. Can be used as a class decorator.

    Args:
        code: An ``Estimator`` class, or a class or function that builds a torch module.
        name: Name to register; by default the ``method`` name of an estimator, or the name of the code.

    Returns:
        ``code``, unchanged.

    Raises:
        ConfigError: If the name is taken or invalid, or ``code`` can build nothing.

    Privacy:
        Registering does not prove a guarantee. A custom method guarantees the privacy cost of its plan only
        if it reads edges and records through ``session.open(graph)`` alone. ``how-to/extend.md`` has the
        contract and the checks that a method of the library has to pass.

    >>> import torch
    >>> @register
    ... class MyHead(torch.nn.Linear):
    ...     pass
    >>> MyHead(2, 3).out_features
    3
    """
    from graphveil.errors import ConfigError
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.own.code import register_factory

    given: Any = code
    if not (isinstance(given, type) and issubclass(given, Estimator)):
        register_factory(given, name)
        return code
    known = name or str(given.method)
    if known != given.method:
        raise ConfigError(
            f"The method is called {given.method!r} and cannot be registered as {known!r}. Use one "
            "name for both."
        )
    if known in (*_CLASSES, *_PUBLISHED) or not known.replace("-", "_").isidentifier():
        raise ConfigError(
            f"method={known!r} is reserved by the library or is not a valid name. Use another name."
        )
    _REGISTERED[known] = given
    return code


class _Methods(Mapping[str, "type[Estimator]"]):
    """Mapping of method names to classes; classes of the library are imported on first access.

    Names in files are looked up here and never imported. Methods as published are found as well, such as
    ``METHODS["gap-paper"]``, but not listed.
    """

    def __getitem__(self, name: str) -> "type[Estimator]":
        if name in _REGISTERED:
            return _REGISTERED[name]
        module, cls = (_PAPERS, _PUBLISHED[name]) if name in _PUBLISHED else _CLASSES[name]
        found: type[Estimator] = getattr(import_module(module), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter([*_CLASSES, *_REGISTERED])

    def __len__(self) -> int:
        return len(_CLASSES) + len(_REGISTERED)


METHODS: Mapping[str, "type[Estimator]"] = _Methods()
