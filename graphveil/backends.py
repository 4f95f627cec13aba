"""Backends: where edges are read, and who sums over them. The choice changes no bit of a result.

``backend=`` of an estimator or of its ``fit``, and ``--backend`` of commands, take a name (``"memory"``,
``"disk"``, ``"ray"``, ``"cuda"``) or one of these objects. By default edges are summed where they are: in
memory, or of a graph of :func:`graphveil.open_graph` on disk. :func:`using` is for whatever takes no
``backend=``.

>>> import graphveil as gv
>>> backend = gv.backends.Memory(block_rows=4096)
>>> gv.GAP(unit="undirected-edge", epsilon=1.0, backend=backend).backend
InMemoryBackend(block_rows=4096)
"""

from graphveil.cluster.backend import RayBackend as Ray
from graphveil.release.backends import CudaBackend as Cuda
from graphveil.release.backends import DiskBackend as Disk
from graphveil.release.backends import InMemoryBackend as Memory
from graphveil.release.backends import using

__all__ = ["Cuda", "Disk", "Memory", "Ray", "using"]
