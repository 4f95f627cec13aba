"""Engines: where edges are read, and who sums over them. The choice changes no bit of a result.

``engine=`` of an estimator or of its ``fit``, and ``--engine`` of commands, take a name (``"memory"``,
``"disk"``, ``"ray"``, ``"cuda"``) or one of these objects. By default edges are summed where they are: in
memory, or of a graph of :func:`graphveil.open_graph` on disk. :func:`using` is for whatever takes no
``engine=``.

>>> import graphveil as gv
>>> engine = gv.engines.Memory(block_rows=4096)
>>> gv.GAP(unit="undirected-edge", epsilon=1.0, engine=engine).engine
InMemoryEngine(block_rows=4096)
"""

from graphveil.release.engines.disk import DiskEngine as Disk
from graphveil.release.engines.in_memory import InMemoryEngine as Memory
from graphveil.release.engines.named import using
from graphveil.release.engines.on_cuda import CudaEngine as Cuda
from graphveil.release.engines.on_ray import RayEngine as Ray

__all__ = ["Cuda", "Disk", "Memory", "Ray", "using"]
