"""Engines by name, for one call or for all that is asked within a block of code.

The table is closed, since a name may come from a command line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from graphveil import _check
from graphveil.errors import ConfigError
from graphveil.graph import Adjacency
from graphveil.graph.stored.watched import check_unchanged
from graphveil.release.engines.base import Engine
from graphveil.release.engines.disk import DiskEngine
from graphveil.release.engines.in_memory import InMemoryEngine
from graphveil.release.engines.on_cuda import CudaEngine
from graphveil.release.engines.on_ray import RayEngine

ENGINES: dict[str, type[Engine]] = {
    "memory": InMemoryEngine,
    "disk": DiskEngine,
    "ray": RayEngine,
    "cuda": CudaEngine,
}

_chosen: ContextVar[Engine | str | None] = ContextVar("graphveil engine", default=None)


@contextmanager
def using(engine: Engine | str | None) -> Iterator[None]:
    """Have an engine do what is asked within, where no other one is named; None leaves all as it is.

    It is for whatever takes no ``engine=`` of its own: predictions, released graphs, rows of hops.

    Raises:
        ConfigError: there is no engine of the name.

    >>> with using("memory"):
    ...     pass
    """
    check_engine(engine)
    token = _chosen.set(_chosen.get() if engine is None else engine)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_engine(engine: object) -> None:
    """Refuse what is neither an engine nor the name of one.

    Raises:
        ConfigError: it is something else.
    """
    if engine is not None and not isinstance(engine, Engine):
        _check.one_of(tuple(ENGINES), engine=engine)


def named(name: str | None, address: str | None = None) -> Engine | str | None:
    """Return an engine by its name and, of a cluster, its address, as a command line has them.

    Raises:
        ConfigError: there is no engine of the name, or the address of an engine that has none.

    >>> named("ray", "10.0.0.1:6379").address
    '10.0.0.1:6379'
    """
    check_engine(name)
    if address is None:
        return name
    if name != "ray":
        raise ConfigError("address= (--address) is that of a cluster; add engine='ray' (--engine ray)")
    return RayEngine(address=address)


def engine_for(engine: Engine | str | None, adjacency: Adjacency) -> Engine:
    """Return an engine that can read these edges: as given, by name, or by where the edges are.

    Raises:
        ConfigError: there is no engine of the name, or it cannot read these edges; nothing is spent.
        GraphError: the edges are mapped from files that have changed.
    """
    check_unchanged(adjacency)
    if engine is None:
        engine = _chosen.get()
    if engine is None:
        engine = "memory" if adjacency.folder is None else "disk"
    check_engine(engine)
    if isinstance(engine, str):
        engine = ENGINES[engine]()
    engine.check(adjacency)
    return engine
