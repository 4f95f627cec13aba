"""The table of aggregation backends: names, and where their classes are.

Help texts list the names, so this file imports nothing.
"""

BACKENDS = {  # module and class names, so that a backend is imported only if it is chosen
    "memory": "graphveil.core.backends:InMemoryBackend",
    "disk": "graphveil.core.backends:DiskBackend",
    "ray": "graphveil.cluster.backend:RayBackend",
}
