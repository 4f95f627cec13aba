"""Engines by name: a closed table, since a name may come from a command line."""

from graphveil import _check
from graphveil.graph import Adjacency
from graphveil.release.engines.base import Engine
from graphveil.release.engines.disk import DiskEngine
from graphveil.release.engines.in_memory import InMemoryEngine

ENGINES: dict[str, type[Engine]] = {"memory": InMemoryEngine, "disk": DiskEngine}


def engine_for(engine: Engine | str | None, adjacency: Adjacency) -> Engine:
    """Return an engine that can read these edges: as given, by name, or by where the edges are.

    Raises:
        ConfigError: there is no engine of the name, or it cannot read these edges; nothing is spent.
    """
    if engine is None:
        engine = "memory" if adjacency.folder is None else "disk"
    if isinstance(engine, str):
        _check.one_of(tuple(ENGINES), engine=engine)
        engine = ENGINES[engine]()
    engine.check(adjacency)
    return engine
