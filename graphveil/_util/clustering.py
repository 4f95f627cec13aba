"""Communities by the Louvain method, in node order, and k-means from given centers: both deterministic."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

Matrix = Any  # a csr_array; slicing and products lose its type parameters
Integers = npt.NDArray[np.int64]
_MIN_GAIN = 1e-12  # minimum gain of a move, in edges; smaller gains are rounding errors
_CONVERGENCE_THRESHOLD = 1e-3  # share of moving nodes below which a level ends
_MAX_PASSES = 20


def louvain(graph: Matrix, resolution: float = 1.0) -> Integers:
    found = np.arange(graph.shape[0])
    while True:
        moved = _local_moves(graph, resolution)
        count = int(moved.max(initial=-1)) + 1
        if count == graph.shape[0]:
            return found
        found = moved[found]
        # Communities become nodes; the weights within one become its self-loop.
        cells = (np.ones(len(moved)), (np.arange(len(moved)), moved))
        into = sparse.csr_array(cells, shape=(len(moved), count))
        graph = (into.T @ graph @ into).tocsr()


def _local_moves(graph: Matrix, resolution: float) -> Integers:
    # Lists are faster than arrays here: each move depends on the previous one.
    starts, others, weights = graph.indptr.tolist(), graph.indices.tolist(), graph.data.tolist()
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    pull = (resolution * degrees / max(degrees.sum(), 1.0)).tolist()
    degree, total = degrees.tolist(), degrees.tolist()
    member = list(range(len(degree)))
    for _ in range(_MAX_PASSES):
        moves = 0
        for node, own in enumerate(member):
            links: dict[int, float] = {own: 0.0}
            for place in range(starts[node], starts[node + 1]):
                if others[place] != node:
                    there = member[others[place]]
                    links[there] = links.get(there, 0.0) + weights[place]
            total[own] -= degree[node]
            best, most = own, links[own] - pull[node] * total[own] + _MIN_GAIN
            for there, weight in links.items():
                gain = weight - pull[node] * total[there]
                if gain > most:
                    best, most = there, gain
            total[best] += degree[node]
            moves += best != own
            member[node] = best
        if moves <= _CONVERGENCE_THRESHOLD * len(member):
            break
    return np.unique(member, return_inverse=True)[1]


Floats = npt.NDArray[np.float64]


def k_means(points: Floats, centers: Floats, iterations: int) -> Floats:
    """Return the centers after Lloyd's iterations; a center without points stays where it is.

    >>> k_means(np.array([[0.0], [2.0], [9.0]]), np.array([[0.0], [9.0]]), 5).tolist()
    [[1.0], [9.0]]
    """
    centers = centers.copy()
    for _ in range(iterations):
        nearest = nearest_center(points, centers)
        sizes = np.bincount(nearest, minlength=len(centers))
        order = np.argsort(nearest, kind="stable")
        starts, filled = np.cumsum(sizes) - sizes, sizes > 0
        sums = np.add.reduceat(points[order], starts[filled], axis=0)
        centers[filled] = sums / sizes[filled, None]
    return centers


def nearest_center(points: Floats, centers: Floats) -> npt.NDArray[np.int64]:
    scores = np.square(centers).sum(axis=1) - 2 * points @ centers.T
    found: npt.NDArray[np.int64] = scores.argmin(axis=1)
    return found
