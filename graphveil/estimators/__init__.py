"""Estimators, by the name that the command line and a saved model use. Importing this loads none of them."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil._util.checks import checked

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator

__all__ = ["METHODS", "register"]

T = TypeVar("T", bound=Callable[..., Any])

_CLASSES = {
    "mlp": ("graphveil.estimators.mlp", "MLP"),
    "gap": ("graphveil.estimators.gap", "GAP"),
    "sage": ("graphveil.estimators.sage", "SAGE"),
    "gcn": ("graphveil.estimators.full_graph", "GCN"),
    "gat": ("graphveil.estimators.full_graph", "GAT"),
    "classcode": ("graphveil.estimators.classcode", "ClassCode"),
    "spectral": ("graphveil.estimators.spectral", "Spectral"),
    "lpgnn": ("graphveil.local.lpgnn", "LPGNN"),
    "label-posterior": ("graphveil.local.label_posterior", "LabelPosterior"),
    "heterorr": ("graphveil.local.heterorr", "HeteroRR"),
    "simgat": ("graphveil.local.simgat", "SimGAT"),
    "gnn": ("graphveil.estimators.gnn", "PrivateGNN"),
    "module": ("graphveil.estimators.own.private_module", "PrivateModule"),
}


_REGISTERED: dict[str, "type[Estimator]"] = {}


@checked
def register(code: T, name: str | None = None) -> T:
    """Let a name stand for a method or a module of your own, in this process, and return what was given.

    An :class:`~graphveil.estimators.base.Estimator` of yours becomes a method like those of the library: it
    stands in ``METHODS`` under its ``method`` name, and ``train``, ``calibrate``, ``sweep``, ``load_model``
    and the benchmarks take it from there. Any other class or function builds a torch module from two public
    sizes, and its name is what a saved :class:`~graphveil.estimators.gnn.PrivateGNN` says. It may stand above
    the class as a decorator.

    Guarantee: none of its own, and none is lent. A custom method guarantees the cost of its plan only if it
    touches edges and records through ``session.open(graph)`` alone; ``how-to/extend.md`` has the contract
    and the checks that a method of the library has to pass.

    Raises:
        ConfigError: the name is taken, or says no method, or what is given can build nothing.

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
            f"the method calls itself {given.method!r} and cannot be called {known!r}; rename it"
        )
    if known in _CLASSES or not known.replace("-", "_").isidentifier():
        raise ConfigError(f"method={known!r} is taken by the library, or is no name; choose another")
    _REGISTERED[known] = given
    return code


class _Methods(Mapping[str, "type[Estimator]"]):
    """The table of methods: the library's, of which a class is imported when asked for, and those registered.

    It is closed to files: a name that stands in one is looked up here and never imported.
    """

    def __getitem__(self, name: str) -> "type[Estimator]":
        if name in _REGISTERED:
            return _REGISTERED[name]
        module, cls = _CLASSES[name]
        found: type[Estimator] = getattr(import_module(module), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter([*_CLASSES, *_REGISTERED])

    def __len__(self) -> int:
        return len(_CLASSES) + len(_REGISTERED)


METHODS: Mapping[str, "type[Estimator]"] = _Methods()
