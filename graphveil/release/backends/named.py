"""Backends by name, for one call or for all queries within a block of code.

The table is closed, since a name may come from a command line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.stored.file_stamps import check_unchanged
from graphveil.errors import ConfigError
from graphveil.release.backends.base import AggregationBackend

BACKENDS = {  # by module and class, so that a backend is imported when it is chosen
    "memory": "graphveil.release.backends.in_memory:InMemoryBackend",
    "disk": "graphveil.release.backends.disk:DiskBackend",
    "ray": "graphveil.cluster.backend:RayBackend",
    "cuda": "graphveil.release.backends.on_cuda:CudaBackend",
}

_chosen: ContextVar[AggregationBackend | str | None] = ContextVar("graphveil backend", default=None)


@contextmanager
def using(backend: AggregationBackend | str | None) -> Iterator[None]:
    """Have a backend do what is asked within, where no other one is named; None leaves all as it is.

    It is for whatever takes no ``backend=`` of its own: predictions, released graphs, rows of hops.

    Raises:
        ConfigError: there is no backend of the name.

    >>> with using("memory"):
    ...     pass
    """
    check_backend(backend)
    token = _chosen.set(_chosen.get() if backend is None else backend)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_backend(backend: object) -> None:
    """Refuse what is neither a backend nor the name of one.

    Raises:
        ConfigError: it is something else.
    """
    if backend is not None and not isinstance(backend, AggregationBackend):
        checks.one_of(tuple(BACKENDS), backend=backend)


def make_backend(name: str, **options: Any) -> AggregationBackend:
    """Make a backend by its name, with the options of its class."""
    module, _, kind = BACKENDS[name].partition(":")
    made: AggregationBackend = getattr(import_module(module), kind)(**options)
    return made


def named(name: str | None, address: str | None = None) -> AggregationBackend | str | None:
    """Return a backend by its name and, of a cluster, its address, as a command line has them.

    Raises:
        ConfigError: there is no backend of the name, or the address of a backend that has none.

    >>> named("ray", "10.0.0.1:6379").address
    '10.0.0.1:6379'
    """
    check_backend(name)
    if address is None:
        return name
    if name != "ray":
        raise ConfigError("address= (--address) is that of a cluster; add backend='ray' (--backend ray)")
    return make_backend(name, address=address)


def backend_for(backend: AggregationBackend | str | None, adjacency: Adjacency) -> AggregationBackend:
    """Return a backend that can read these edges: as given, by name, or by where the edges are.

    Raises:
        ConfigError: there is no backend of the name, or it cannot read these edges; nothing is spent.
        GraphError: the edges are mapped from files that have changed.
    """
    check_unchanged(adjacency)
    if backend is None:
        backend = _chosen.get()
    if backend is None:
        backend = "memory" if adjacency.folder is None else "disk"
    check_backend(backend)
    if isinstance(backend, str):
        backend = make_backend(backend)
    backend.check(adjacency)
    return backend
