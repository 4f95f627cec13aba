"""The table of aggregation backends: names, and where their classes are.

Help texts list the names, so this file imports nothing.
"""

BACKENDS = {  # module and class names, so that a backend is imported only if it is chosen
    "memory": "graphveil.release.backends:InMemoryBackend",
    "disk": "graphveil.release.backends:DiskBackend",
    "ray": "graphveil.cluster.backend:RayBackend",
}
