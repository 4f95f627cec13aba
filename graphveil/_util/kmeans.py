"""k-means with given first centers, whose results do not depend on the number of threads."""

import numpy as np
import numpy.typing as npt

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
    """Return the number of the nearest center of each point."""
    scores = np.square(centers).sum(axis=1) - 2 * points @ centers.T
    found: npt.NDArray[np.int64] = scores.argmin(axis=1)
    return found
