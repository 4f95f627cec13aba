"""The state of a chain over dendrograms, and taking many steps of it."""

from dataclasses import dataclass

import numpy as np

from graphveil import _kernels
from graphveil._kernels import Floats, Ints
from graphveil._util.random import RowStream
from graphveil.mechanisms._draws import uniform_below
from graphveil.release.dendrogram import moves
from graphveil.release.dendrogram.tree import Dendrogram

STEPS = 1 << 14  # drawn for at a time; a row of the stream each
NEVER = 1 << 62
_UNIT = 2.0**-53

Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, kw_only=True)
class ChainSchedule:
    """What a chain's steps weigh; see :func:`graphveil.release.dendrogram.moves.walk`.

    Public steps accept with min(1, exp(public dL_pub)). Every ``every``-th step is private, none for 0, and
    accepts with min(1, exp(private dL_pri)), ``joint`` with the public part besides. Lazy private steps stay
    with probability 1/2, and weigh dL_pri by kappa over the most that one edge can change it in that move.
    """

    public: float = 1.0
    private: float = 0.0
    every: int = 0
    joint: bool = False
    kappa: float | None = None

    @property
    def numbers(self) -> tuple[int, int, int]:
        """How often a step is private, whether jointly, and whether lazily."""
        return self.every or NEVER, int(self.joint), int(self.kappa is not None)

    @property
    def weights(self) -> Floats:
        """The three weights as an array."""
        return np.array([self.public, self.private, self.kappa or 0.0])


class DendrogramChain:
    """A dendrogram with the counts that moves change, over public and private edges.

    Private slots are the pairs of leaves without a public edge; public slots are all pairs.

    >>> tree = Dendrogram.balanced(4, np.random.default_rng(0))
    >>> chain = DendrogramChain(tree, no_pairs(), (np.array([0]), np.array([1])))
    >>> chain.run(10, ChainSchedule(), RowStream(bytes(32)))
    >>> chain.tree.leaves, chain.likelihood[0]
    (4, 0.0)
    """

    def __init__(self, tree: Dendrogram, public: Pairs, private: Pairs) -> None:
        """Count the edges of each node."""
        nodes = len(tree.left)
        self._left, self._right = tree.left.copy(), tree.right.copy()
        self._parent, self._size = tree.parents.copy(), tree.size.copy()
        self._one, self._other = (np.concatenate(both) for both in zip(public, private, strict=True))
        self._kind = np.repeat(np.arange(2), [len(public[0]), len(private[0])])
        at = tree.lowest_common_ancestors(self._one, self._other)
        self._counts = np.bincount(2 * at + self._kind, minlength=2 * nodes)
        self._head, self._next = _lists(at, nodes)
        self._under, self._done = np.zeros_like(self._one), np.zeros(2, dtype=np.int64)
        self._scores = _scores(tree, self._counts)
        self._steps = 0

    @property
    def tree(self) -> Dendrogram:
        """The dendrogram as it is now."""
        return Dendrogram(self._left.copy(), self._right.copy())

    @property
    def likelihood(self) -> tuple[float, float]:
        """The public and the private log-likelihood, added up anew."""
        return float(self._scores[0::2].sum()), float(self._scores[1::2].sum())

    @property
    def counts(self) -> Ints:
        """The public and the private edges of each node, (2n - 1, 2)."""
        return self._counts.reshape(-1, 2).copy()

    @property
    def accepted(self) -> int:
        """How many moves were accepted."""
        return int(self._done[0])

    def run(self, steps: int, schedule: ChainSchedule, stream: RowStream, *, plain: bool = False) -> None:
        """Take steps, with the words of a keyed stream: all at once or in parts, they are the same.

        ``plain`` takes them in Python, which the loop in C agrees with to the last bit. Two leaves have
        one tree, and nothing to choose.
        """
        take = _run_python if plain or not _kernels.available() else _kernels.walk
        last = self._steps + steps
        while self._steps < last and self._leaves > 2:
            row, within = divmod(self._steps, STEPS)
            count = min(STEPS - within, last - self._steps)
            some = slice(within, within + count)
            pick, turn, coin = _draws(stream, row, self._leaves)
            take(
                (count, self._steps, self._leaves, *schedule.numbers),
                (schedule.weights, pick[some], turn[some], coin[some], *self._arrays),
            )
            self._steps += count
        self._steps = last

    @property
    def _leaves(self) -> int:
        return (len(self._left) + 1) // 2

    @property
    def _arrays(self) -> tuple[Ints | Floats, ...]:
        """What steps change, in the order of :func:`~graphveil.release.dendrogram.moves.walk`."""
        tree = self._left, self._right, self._parent, self._size
        lists = self._head, self._next, self._one, self._other, self._kind, self._under
        return (*tree, self._counts, self._scores, *lists, self._done)


def no_pairs() -> Pairs:
    """Return no pairs."""
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _draws(stream: RowStream, row: int, leaves: int) -> tuple[Ints, Ints, Floats]:
    """Return what the steps of one row draw: which node, which turn, and a coin."""
    words = stream.words(np.array([row]), words_per_row=2 * STEPS)[0].reshape(-1, 2)
    turn = (words[:, 1] & np.uint64(3)).astype(np.int64)
    return uniform_below(words[:, 0], leaves - 2), turn, (words[:, 1] >> np.uint64(11)) * _UNIT


def _lists(at: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Return the edges of each node as linked lists: its first, and each edge's next; -1 ends them."""
    head, following = np.full(nodes, -1), np.full(len(at), -1)
    for edge, node in enumerate(at.tolist()):
        following[edge], head[node] = head[node], edge
    return head, following


def _scores(tree: Dendrogram, counts: Ints) -> Floats:
    """Return the public and the private l(N, e) of each node, one after the other."""
    size, found = tree.size, np.zeros(2 * len(tree.left))
    for node in range(tree.leaves, len(tree.left)):
        pairs = int(size[tree.left[node]] * size[tree.right[node]])
        public, private = counts[2 * node : 2 * node + 2].tolist()
        found[2 * node : 2 * node + 2] = moves.score(pairs, public), moves.score(pairs - public, private)
    return found


def _run_python(numbers: tuple[int, ...], arrays: tuple[Ints | Floats, ...]) -> None:
    """Take steps in Python: on lists, whose entries are plain numbers, written back at the end."""
    lists = [array.tolist() for array in arrays]
    moves.walk(*map(int, numbers), *lists)  # type: ignore[arg-type]
    for array, changed in zip(arrays, lists, strict=True):
        array[:] = changed
