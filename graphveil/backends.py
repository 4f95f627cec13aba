"""Aggregation backends: where edges are read and summed. The choice does not affect results.

``backend=`` of an estimator or of its ``fit``, and ``--backend`` of commands, take a name (``"memory"``,
``"disk"``, ``"ray"``) or one of these objects. By default edges are summed where they are
stored: in memory, or on disk for a graph of ``graphveil.open_graph``. Use ``using`` for functions without a
``backend=`` parameter.

>>> import graphveil as gv
>>> backend = gv.backends.Memory(block_rows=4096)
>>> gv.GAP(unit="undirected-edge", epsilon=1.0, backend=backend).backend
InMemoryBackend(block_rows=4096)
"""

from graphveil.cluster.backend import RayBackend as Ray
from graphveil.core.backends import DiskBackend as Disk
from graphveil.core.backends import InMemoryBackend as Memory
from graphveil.core.backends import using

__all__ = ["Disk", "Memory", "Ray", "using"]
