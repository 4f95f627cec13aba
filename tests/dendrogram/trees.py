"""All dendrograms of a few leaves, all graphs on them, and the shipped steps between the former."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from graphveil.core.queries import dendrogram as walks
from graphveil.core.queries.dendrogram import (
    NEVER,
    ChainSchedule,
    Dendrogram,
    DendrogramChain,
    no_pairs,
    score,
)

Shape = frozenset  # of shapes or leaves


def shapes(leaves: tuple[int, ...]) -> Iterator[object]:
    """Yield every unordered full binary tree over some leaves, (2n - 3)!! of them."""
    if len(leaves) == 1:
        yield leaves[0]
        return
    first, rest = leaves[0], leaves[1:]
    for count in range(len(rest)):
        for others in combinations(rest, count):
            one = (first, *others)
            other = tuple(leaf for leaf in rest if leaf not in others)
            yield from (Shape((a, b)) for a in shapes(one) for b in shapes(other))


def dendrogram(shape: object, leaves: int) -> Dendrogram:
    """Return a shape as arrays."""
    left, right = np.full(2 * leaves - 1, -1), np.full(2 * leaves - 1, -1)
    following = [2 * leaves - 2]

    def place(part: object, node: int) -> None:
        for side, child in zip((left, right), sorted(part, key=str), strict=True):  # type: ignore[call-overload]
            if isinstance(child, int):
                side[node] = child
            else:
                following[0] -= 1
                side[node] = following[0]
                place(child, following[0])

    place(shape, 2 * leaves - 2)
    return Dendrogram(left, right)


def shape_of(tree: Dendrogram, node: int | None = None) -> object:
    """Return arrays as a shape."""
    here = tree.root if node is None else node
    if here < tree.leaves:
        return here
    return Shape(shape_of(tree, int(side[here])) for side in (tree.left, tree.right))


@cache
def all_trees(leaves: int) -> tuple[Dendrogram, ...]:
    return tuple(dendrogram(shape, leaves) for shape in shapes(tuple(range(leaves))))


def ends(leaves: int, graph: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of a graph that is given by the bits of its node pairs."""
    one, other = np.triu_indices(leaves, 1)
    kept = np.array([graph >> bit & 1 == 1 for bit in range(len(one))])
    return one[kept], other[kept]


@cache
def likelihoods(leaves: int) -> np.ndarray:
    """Return L(D) of every tree (columns) and every graph (rows)."""
    one, other = np.triu_indices(leaves, 1)
    bits = np.arange(1 << len(one))[:, None] >> np.arange(len(one)) & 1
    columns = []
    for tree in all_trees(leaves):
        at = tree.lowest_common_ancestors(one, other)
        total = np.zeros(len(bits))
        for node in np.unique(at):
            edges, slots = bits[:, at == node].sum(axis=1), int((at == node).sum())
            total += np.array([score(slots, e) for e in range(slots + 1)])[edges]
        columns.append(total)
    return np.stack(columns, axis=1)


def transitions(leaves: int, graph: int, schedule: ChainSchedule, public: int = 0) -> np.ndarray:
    """Return the law of one step between all trees, from the shipped loop run on every proposal."""
    trees = all_trees(leaves)
    place = {shape_of(tree): number for number, tree in enumerate(trees)}
    law = np.zeros((len(trees), len(trees)))
    each = 1 / (2 * (leaves - 2))
    with pytest.MonkeyPatch.context() as patch:
        for start, tree in enumerate(trees):
            for pick in range(leaves - 2):
                for turn in range(2):
                    moved, chance = _proposal(patch, tree, graph, public, schedule, pick, turn)
                    moves_at_all = 0.5 if schedule.kappa is not None else 1.0
                    law[start, place[moved]] += each * moves_at_all * chance
                    law[start, start] += each * (1 - moves_at_all * chance)
    return law


def _proposal(
    patch: pytest.MonkeyPatch,
    tree: Dendrogram,
    graph: int,
    public: int,
    schedule: ChainSchedule,
    pick: int,
    turn: int,
) -> tuple[object, float]:
    """Return where a proposal leads, and the probability that it is accepted."""
    seen: list[float] = []

    def noted(ratio: float) -> float:
        seen.append(ratio)
        return 2.0  # so that whatever is proposed is accepted

    patch.setattr(walks, "exp", noted)
    chain = DendrogramChain(
        tree, ends(tree.leaves, public) if public else no_pairs(), ends(tree.leaves, graph)
    )
    lists = [array.tolist() for array in chain._arrays]
    numbers = 1, 0, tree.leaves, *schedule.numbers
    walks.walk(numbers, [schedule.weights.tolist(), [pick], [turn], [0.0], *lists])
    moved = Dendrogram(np.array(lists[0]), np.array(lists[1]))
    return shape_of(moved), float(np.exp(seen[0])) if seen else 1.0


def likelihood(chain: DendrogramChain) -> tuple[float, float]:
    """Return the log-likelihoods of the public and of the private edges."""
    return float(chain._scores[0::2].sum()), float(chain._scores[1::2].sum())


__all__ = ["NEVER", "all_trees", "ends", "likelihood", "likelihoods", "transitions"]
