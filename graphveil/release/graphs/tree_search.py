"""A dendrogram found by private steps of a random walk."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import RowStream
from graphveil.data.domain import Domain
from graphveil.privacy import ApproximateDP, Unit
from graphveil.release.dendrogram.accounting import sensitivity, step_loss
from graphveil.release.dendrogram.chain import ChainSchedule, DendrogramChain
from graphveil.release.dendrogram.tree import Dendrogram
from graphveil.release.graphs.bounded import BoundedQuery, NodePairData, PreparedNodePairs
from graphveil.release.graphs.edge_total import exact_node_pairs
from graphveil.release.private_edges import PrivateEdges

_START = 1 << 60  # the row of a stream that the first tree is drawn from, far behind those of steps

Walk = Literal["lazy_audited", "joint_mh", "paper"]


@dataclass(frozen=True, eq=False, repr=False)
class TreeSearchData(NodePairData):
    """The slots: nodes of the list are leaves. The answer is the parent of each node, int64 (2n - 1)."""


@dataclass(frozen=True)
class TreeSearchQuery(BoundedQuery):
    """Steps of a chain over dendrograms, some of which read private edges; the last tree comes out.

    ``lazy_audited``: each ``every``-th step is private and lazy: it stays with probability 1/2, and otherwise
    accepts by the private likelihood, weighed so that one step loses at most kappa. One edge meets few of
    them, which makes the whole walk (epsilon, delta)-indistinguishable after any number of steps
    (:mod:`graphveil.release.dendrogram.accounting`). The others read public edges alone.

    ``joint_mh``: plain Metropolis steps on exp(L_pub + epsilon L_pri / (2 Delta)), the exponential mechanism;
    its epsilon holds for the chain's limit, and nothing is proved of finitely many steps.

    ``paper``: ``public_rounds`` steps on exp(L_pub) and ``private_rounds`` on exp(epsilon L_pri / Delta) in
    turn, which has neither law as its limit and half of the exponent's factor too much: no guarantee.
    """

    kind: ClassVar[str] = "tree"
    wire_name: ClassVar[str] = "TreeSearchQuery"
    stage: ClassVar[str] = "tree"
    data: ClassVar[type[TreeSearchData]] = TreeSearchData

    walk: Walk
    steps: int
    every: int
    delta: float = 0.0
    public_rounds: int = 1000
    private_rounds: int = 10
    use_public_edges: bool = (
        True  # whether public edges say how good a tree is; their slots are none either way
    )

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        checks.one_of(("lazy_audited", "joint_mh", "paper"), walk=self.walk)
        checks.integer_at_least(1, steps=self.steps, every=self.every)
        checks.integer_at_least(1, public_rounds=self.public_rounds, private_rounds=self.private_rounds)
        if self.walk == "lazy_audited":
            checks.positive(delta=self.delta)

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound of the whole walk."""
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def noise(self) -> tuple[float, ...]:
        """The inverse of epsilon: a walk has no noise of its own to name."""
        return (1 / self.epsilon,)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the parents of the last tree; the chain and its counts live and die here."""
        leaves = data.domain.slots.nodes
        if leaves < 3:
            return torch.from_numpy(Dendrogram.balanced(leaves, np.random.default_rng(0)).parents)
        stream = RowStream(key)
        rng = np.random.default_rng(stream.words(np.array([_START]), words_per_row=4)[0])
        chain = DendrogramChain(
            Dendrogram.balanced(leaves, rng), public_pairs(data.domain), self._pairs(private, data)
        )
        self._take(chain, stream, leaves)
        return torch.from_numpy(chain.tree.parents)

    def _pairs(self, private: PrivateEdges, data: PreparedNodePairs) -> tuple[np.ndarray, np.ndarray]:
        return data.domain.slots.ends(exact_node_pairs(private, data.domain))

    def _take(self, chain: DendrogramChain, stream: RowStream, leaves: int) -> None:
        """Take all steps."""
        if self.walk == "lazy_audited":
            taken = self.steps // self.every
            kappa = step_loss(self.epsilon, self.delta, taken, leaves)
            chain.run(self.steps, ChainSchedule(every=self.every, kappa=kappa), stream)
        elif self.walk == "joint_mh":
            weight = self.epsilon / (2 * sensitivity(leaves))
            public = 1.0 if self.use_public_edges else 0.0
            chain.run(self.steps, ChainSchedule(public=public, every=1, private=weight, joint=True), stream)
        else:
            self._alternate_public_private(chain, stream, self.epsilon / sensitivity(leaves))

    def _alternate_public_private(self, chain: DendrogramChain, stream: RowStream, weight: float) -> None:
        private = ChainSchedule(every=1, private=weight)
        turns = [(self.public_rounds, ChainSchedule()), (self.private_rounds, private)]
        left = self.steps
        while left > 0:
            for rounds, schedule in turns if self.use_public_edges else [(left, private)]:
                chain.run(min(rounds, left), schedule, stream)
                left -= min(rounds, left)


def public_pairs(domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Return the public edges between listed nodes, by their places in the list."""
    return domain.slots.ends(domain.public)
