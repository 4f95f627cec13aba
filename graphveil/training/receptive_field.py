"""Which rows of a map a root's loss can depend on, found without looking at a record.

In a module of one round of messages the loss at the root reads the map's output at the root alone, and the
gradients of all other rows are zeros that need not be multiplied. Which rows those are is found on random
full stars or trees with random weights, so it is public, and it is part of what the gradient *is*: rows
beyond are neither in its norm nor in the sum, and where that changes nothing else they do not even pass the
map. Places of one depth are alike, so they are read together or not at all.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_STARS, _SEED, _MISSING, _LENGTH = 8, 5, 0.3, 0.3


def random_full_trees(parents: Tensor, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return random full trees, and such with edges missing: rows (8, W, columns), edges (8, 2, W - 2).

    >>> x, edges = random_full_trees(torch.tensor([0, 0, 1]), 4, torch.float64)
    >>> tuple(x.shape), edges[0].tolist()
    ((8, 5, 4), [[1, 2, 3], [0, 0, 1]])
    """
    generator, width = torch.Generator().manual_seed(_SEED), len(parents) + 2
    x = torch.randn(_STARS, width, columns, generator=generator, dtype=torch.float64).to(dtype)
    missing = torch.rand(_STARS, len(parents), generator=generator) < _MISSING
    missing[0] = False
    edges = torch.stack([torch.arange(1, width - 1), parents]).expand(_STARS, 2, -1)
    return x, torch.where(missing[:, None], width - 1, edges)


def random_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of the same shapes, none of them zero."""
    generator = torch.Generator().manual_seed(_SEED)
    return {
        name: _LENGTH * torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part)
        for name, part in weights.items()
    }


def rows_read(delta: Tensor, parents: Tensor) -> int:
    """Return how many rows of a map's output, from the first on, a loss reads: a whole number of depths.

    Args:
        delta: the gradients by the output on full trees, (8, .., e).
        parents: the place above each place but the root's.

    >>> delta = torch.zeros(8, 5, 2)
    >>> delta[3, 1] = 1.0
    >>> rows_read(delta, torch.tensor([0, 0, 1]))
    3
    """
    places = delta.flatten(start_dim=1, end_dim=-2) if delta.ndim > 3 else delta
    rows = places.shape[1] if places.ndim == 3 else 1
    read = places.reshape(len(delta), rows, -1).ne(0).any(dim=2).any(dim=0).cpu().nonzero()
    ends = [end for end in _ends(rows, parents) if len(read) and end > int(read.max())]
    return min(ends, default=rows)


def are_close(found: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Return whether gradients (8, rows, ..) are much the same as others, of which there may be fewer rows.

    >>> rows = torch.eye(3)[None]
    >>> are_close([rows], [rows[:, :2]]), are_close([rows], [rows[:, :2] + 1])
    (True, False)
    """

    def same(one: Tensor, other: Tensor) -> bool:
        close = 1e-9 if one.dtype == torch.float64 else 1e-4
        return torch.allclose(one, other, rtol=close, atol=close)

    return all(
        same(one[:, : other.shape[1]] if one.ndim > 1 else one, other)
        for one, other in zip(found, others, strict=True)
    )


def _ends(rows: int, parents: Tensor) -> list[int]:
    """Return where each depth ends among the places, or among the edges; only there if it is neither."""
    depths = [0]
    for parent in parents.tolist():
        depths.append(depths[parent] + 1)
    counts = [sum(depth <= most for depth in depths) for most in range(depths[-1] + 1)]
    if rows == len(parents) + 2:
        return [*counts, rows]
    if rows == len(parents):
        return [count - 1 for count in counts[1:]]
    return [rows]
