"""EdgeRR: private edges are replaced block by block of a dendrogram; public edges are kept."""

import heapq
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.accounting.gaussian import check_proved_delta, require_delta
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise._kernels import Floats, Ints
from graphveil.core.noise.random import PublicStreams, RowStream
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.dendrogram import (
    BlockCountData,
    BlockCountQuery,
    ChainSchedule,
    Dendrogram,
    DendrogramBlocks,
    DendrogramChain,
    TreeSearchData,
    TreeSearchQuery,
    no_pairs,
    public_pairs,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import Unit
from graphveil.data import Graph
from graphveil.errors import ConfigError, UnitError
from graphveil.perturb.mechanism import MAX_EDGES, GraphMechanism, ReleaseOptions, check_share, release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph

_TRIES = 3  # pairs drawn at a time, per pair that is wanted: some are drawn twice
Structure = Literal["public", "lazy_audited", "joint_mh", "paper"]
STRUCTURES: tuple[Structure, ...] = ("public", "lazy_audited", "joint_mh", "paper")
_WHY = {
    "joint_mh": (
        "the budget of the tree holds for the limit of a Metropolis chain, and nothing is proved of the "
        "finitely many steps that were taken"
    ),
    "paper": (
        "steps on public and on private likelihoods alternate, so that neither law is the chain's limit, and "
        "the private ones have twice the exponent of the exponential mechanism"
    ),
}


@dataclass(frozen=True, kw_only=True)
class DendrogramRelease(GraphMechanism):
    """Settings and steps of ``EdgeRR`` and ``PrivHRG``.

    Args:
        epsilon, max_edges: See ``GraphMechanism``.
        structure: Search for the dendrogram, see ``EdgeRR``.
        tree_share: eps_1 / eps, for all but ``public``, where it is 0.
        rounds: Steps of the chain for each listed node; None for 50 under ``public``, which starts at a good
            tree, else for 200.
        private_rounds: Private steps for each listed node, under ``lazy_audited``.
        delta: delta_1, under ``lazy_audited``.
        seed: Seed of public randomness: the first tree, public steps, and edges within blocks.
    """

    uses_public_edges: ClassVar[bool] = True  # whether public edges inform where private ones may be

    structure: Structure = "public"
    tree_share: float = 0.5
    rounds: int | None = None
    private_rounds: int = 20
    delta: float = 1e-7
    seed: int = 0

    def check_fields(self) -> None:
        checks.one_of(STRUCTURES, structure=self.structure)
        check_share(tree_share=self.tree_share)
        checks.integer_at_least(1, rounds=self.steps_a_node, private_rounds=self.private_rounds)
        checks.integer_at_least(0, seed=self.seed)
        checks.non_negative(delta=self.delta)
        if self.structure == "lazy_audited":
            require_delta(self.delta, "the random walk of structure='lazy_audited'")
        if self.delta:
            check_proved_delta(self.delta)

    @property
    def steps_a_node(self) -> int:
        if self.rounds is None:
            return 50 if self.structure == "public" else 200
        return self.rounds

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        if self.structure == "public" or not self._searches(domain):
            return (BlockCountQuery(self.epsilon),)
        first, leaves = self.tree_share * self.epsilon, domain.slots.nodes
        steps, every, delta = self.steps_a_node * leaves, 1, 0.0
        reads_public = self.uses_public_edges and len(domain.public) > 0
        if self.structure == "lazy_audited":
            delta, every = self.delta, max(1, self.steps_a_node // self.private_rounds)
            if not reads_public:  # public steps would accept every move and undo what private ones find
                steps, every = self.private_rounds * leaves, 1
        search = TreeSearchQuery(first, self.structure, steps, every, delta, use_public_edges=reads_public)
        return search, BlockCountQuery(self.epsilon - first)

    def _searches(self, domain: Domain) -> bool:
        """Whether private edges select a tree; over two nodes there is only one."""
        return self.structure != "public" and domain.slots.nodes > 2

    def plan(self, unit: Unit, domain: Domain) -> ReleasePlan:
        """Return the release. It needs a delta only if the steps of a walk are observed."""
        queries = self.queries(domain)
        delta = max((getattr(query, "delta", 0.0) for query in queries), default=0.0)
        return ReleasePlan(unit, queries, delta=delta)

    def check_domain(self, domain: Domain) -> None:
        if domain.slots.directed:
            raise UnitError(
                f"{self.name} needs an undirected graph, but this graph is directed. Build it with "
                "directed=False, or use 'edge-rand', 'lap-graph' or 'arr'."
            )
        if domain.slots.nodes < 2:
            raise ConfigError(
                f"{self.name} needs at least two nodes that may have private edges. List more in "
                "private_nodes."
            )

    def deviations(self, domain: Domain) -> tuple[str, ...]:
        """Return why the tree's budget is not proved, if it is not."""
        return (_WHY[self.structure],) if self._searches(domain) and self.structure in _WHY else ()

    def expected_edges(self, domain: Domain) -> float:
        """Return a bound on the edges that noise adds to an empty graph: 1 / (2 eps_2) for each count."""
        return min(domain.size, max(1, domain.slots.nodes - 1) / (2 * self._counted(domain)))

    def _counted(self, domain: Domain) -> float:
        return (1 - self.tree_share) * self.epsilon if self._searches(domain) else self.epsilon

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        epsilon = self._counted(domain)
        left = self.epsilon - epsilon
        cost = f"epsilon {left:g}" if left else "nothing is spent on it"
        return [
            ("tree", f"over {domain.slots.nodes:,} listed nodes, structure {self.structure}: {cost}"),
            (
                "counts",
                f"of disjoint blocks of {domain.size:,} slots, each with noise of scale {1 / epsilon:.4g}",
            ),
            ("expected", f"at most {self.expected_edges(domain):,.0f} private edges from noise alone"),
        ]

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        if self._searches(domain):
            tree = Dendrogram.from_parents(release.answer(TreeSearchData(domain)).numpy())
        else:
            tree = self.public_tree(domain)
        counts = release.answer(BlockCountData(domain, tree=tree))
        blocks = DendrogramBlocks.from_tree(tree, domain.public, self._counted(domain))
        rng = PublicStreams(self.seed).numpy("edges in blocks")
        return torch.from_numpy(draw_edges(blocks, counts.numpy(), domain, rng, self.max_edges))

    def public_tree(self, domain: Domain) -> Dendrogram:
        """Return the best tree for the public edges, or a balanced one; private edges are not read."""
        streams, leaves = PublicStreams(self.seed), domain.slots.nodes
        if not len(domain.public):
            return Dendrogram.balanced(leaves, streams.numpy("tree"))
        public = public_pairs(domain)
        chain = DendrogramChain(average_linkage(leaves, *public, streams.numpy("tree")), public, no_pairs())
        key = streams.derive("public steps").to_bytes(32, "big")
        chain.run(self.steps_a_node * leaves, ChainSchedule(), RowStream(key))
        return chain.tree


@dataclass(frozen=True, kw_only=True)
class EdgeRR(DendrogramRelease):
    """A dendrogram of the listed nodes, noisy counts of its blocks, and as many random edges (HeteroRR).

    The dendrogram groups nodes with similar links (hierarchical random graph: Clauset et al., 2008;
    released privately by Xiao, Chen, Tan, 2014). Its structure is found as follows:

    =============== ============================================================ ====================
    ``structure``   what runs                                                    guarantee of the tree
    =============== ============================================================ ====================
    public          average linkage of public edges, then Metropolis steps on    post-processing
                    their likelihood
    lazy_audited    private lazy steps among public ones                         (eps_1, delta_1), proved
    joint_mh        one chain on both likelihoods                                eps_1 in the limit only
    paper           the source's alternation                                     none
    =============== ============================================================ ====================

    Guarantee: eps = eps_1 + eps_2 for one private edge; counts have eps_2 in total, since every node pair is
    in one block, and edges are drawn from noisy counts. Without a proof for the tree it is not valid.

    Args:
        epsilon, max_edges: See ``GraphMechanism``.
        structure, tree_share, rounds, private_rounds, delta, seed: See ``DendrogramRelease``.
    """

    name: ClassVar[str] = "edge-rr"


@dataclass(frozen=True, kw_only=True)
class PrivHRG(DendrogramRelease):
    """``EdgeRR`` without public edges (Xiao, Chen, Tan: Network data release, 2014).

    Private edges alone determine a good tree, so ``structure`` is ``lazy_audited`` by default. Public edges
    are kept, and not used for the tree.
    """

    name: ClassVar[str] = "priv-hrg"
    uses_public_edges: ClassVar[bool] = False

    structure: Structure = "lazy_audited"


def edge_rr(
    graph: Graph,
    *,
    epsilon: float,
    structure: Structure = "public",
    seed: int = 0,
    max_edges: int = MAX_EDGES,
    **options: Unpack[ReleaseOptions],
) -> PerturbedGraph:
    """Release a graph by ``EdgeRR``; arguments and errors as for ``edge_rand``.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: the guarantee to the ledger of the graph's edge
        set, before the edges are read. Public: the released edges and their guarantee, which is valid only if
        the search of the tree is proved (see ``EdgeRR``). Features, labels and public edges are unchanged,
        and not covered.

    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> public = path.adjacency.from_edges([0], [1], num_nodes=4, directed=False)
    >>> listed = torch.ones(4, dtype=torch.bool)
    >>> edge_rr(
    ...     path, epsilon=2.0, unit="edge-subset", public_edges=public, private_nodes=listed
    ... ).guarantee.epsilon
    2.0
    """
    mechanism = EdgeRR(epsilon=epsilon, structure=structure, seed=seed, max_edges=max_edges)
    return release_graph(graph, mechanism, **options)


def priv_hrg(
    graph: Graph,
    *,
    epsilon: float,
    structure: Structure = "lazy_audited",
    seed: int = 0,
    max_edges: int = MAX_EDGES,
    **options: Unpack[ReleaseOptions],
) -> PerturbedGraph:
    """Release a graph by ``PrivHRG``; arguments and errors as for ``edge_rand``.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: the guarantee to the ledger of the graph's edge
        set, before the edges are read. Public: the released edges and their guarantee, which is valid only if
        the search of the tree is proved (see ``EdgeRR``). Features, labels and public edges are unchanged,
        and not covered.

    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> guarantee = priv_hrg(path, epsilon=2.0, unit="undirected-edge").guarantee
    >>> guarantee.epsilon, guarantee.delta
    (2.0, 1e-07)
    """
    mechanism = PrivHRG(epsilon=epsilon, structure=structure, seed=seed, max_edges=max_edges)
    return release_graph(graph, mechanism, **options)


def draw_edges(
    blocks: DendrogramBlocks, counts: Ints, domain: Domain, rng: np.random.Generator, max_edges: int
) -> Ints:
    """Return the node pairs of a random graph with the counts of blocks, ascending, up to a maximum.

    A block of N node pairs with the noisy count e has p = e / N, clipped to [0, 1]. A binomial number of its
    pairs becomes edges, with all subsets equally likely; none of them is a public edge.
    """
    order, start = blocks.tree.spans()
    size = blocks.tree.size
    chance = np.clip(counts / np.maximum(1, blocks.slots), 0, 1)
    wanted = rng.binomial(blocks.slots, chance)
    found = [np.empty(0, dtype=np.int64)]
    for block in np.flatnonzero(wanted).tolist():
        node = int(blocks.node[block])
        first, last = int(start[node]), int(start[node] + size[node])
        middle = first + int(size[blocks.tree.left[node]])
        ends = (first, last) if blocks.collapsed[block] else (first, middle, last)
        found.append(_sample_block(order, ends, int(wanted[block]), int(blocks.slots[block]), domain, rng))
    slots = np.concatenate(found)
    if len(slots) > max_edges:
        slots = rng.choice(slots, max_edges, replace=False)
    return np.sort(slots)


def _sample_block(
    order: Ints, ends: tuple[int, ...], wanted: int, slots: int, domain: Domain, rng: np.random.Generator
) -> Ints:
    """Draw protected pairs of a block, drawn until distinct, or from all pairs if most are needed."""
    first, last = ends[0], ends[-1]
    middle = ends[1] if len(ends) == 3 else None  # None for a block that is a whole subtree
    if 2 * wanted > slots:
        if middle is None:
            leaves = order[first:last]
            one, other = (leaves[part] for part in np.triu_indices(len(leaves), 1))
        else:
            one, other = (part.ravel() for part in np.meshgrid(order[first:middle], order[middle:last]))
        return rng.choice(_protected(one, other, domain), wanted, replace=False)
    found = np.empty(0, dtype=np.int64)
    while len(found) < wanted:
        one = order[rng.integers(first, last if middle is None else middle, _TRIES * wanted)]
        other = order[rng.integers(first if middle is None else middle, last, _TRIES * wanted)]
        apart = one != other
        merged = np.concatenate([found, _protected(one[apart], other[apart], domain)])
        _, places = np.unique(merged, return_index=True)
        found = merged[np.sort(places)][:wanted]  # the first that came, not the smallest
    return found


def _protected(one: Ints, other: Ints, domain: Domain) -> Ints:
    slots = domain.slots.number(np.minimum(one, other), np.maximum(one, other))
    return slots[domain.protects(slots)]


ROUNDS = 1000  # merge rounds; a star needs one for each leaf, most graphs about two hundred in total


def average_linkage(
    leaves: int, one: Ints, other: Ints, rng: np.random.Generator, rounds: int = ROUNDS
) -> Dendrogram:
    """Return the average-linkage tree of public edges.

    Two groups merge if each is the other's closest group. The closest group is the one with the largest share
    of edges among the pairs across, p_r = e_r / N_r: the probability of the node above them in a hierarchical
    random graph. All such pairs of groups merge in one round. Groups that no edge joins, or that remain after
    ``ROUNDS``, merge by size, smallest first.

    Privacy:
        Reads: public edges only. Charges: nothing.

    >>> tree = average_linkage(4, np.array([0, 1]), np.array([2, 3]), np.random.default_rng(0))
    >>> bool(tree.parents[0] == tree.parents[2] != tree.parents[1])
    True
    """
    parent, size = np.full(2 * leaves - 1, -1), np.ones(2 * leaves - 1, dtype=np.int64)
    edges, made = np.ones(len(one)), leaves
    for _ in range(rounds):
        if not len(one):
            break
        merged = _mutual_nearest_pairs(edges / (size[one] * size[other]), one, other, rng)
        above = made + np.arange(len(merged))
        group, made = np.arange(made), made + len(merged)
        for end in (one[merged], other[merged]):
            parent[end], group[end] = above, above
            size[above] += size[end]
        size[above] -= 1
        one, other, edges = _between(group[one], group[other], edges)
    return Dendrogram.from_parents(_by_size(parent, size, made, rng))


def _mutual_nearest_pairs(shares: Floats, one: Ints, other: Ints, rng: np.random.Generator) -> Ints:
    """Return the pairs of groups that are each other's closest, with ties broken symmetrically."""
    rank = np.empty(len(one), dtype=np.int64)
    rank[np.lexsort((rng.random(len(one)), shares))] = np.arange(len(one))
    closest = np.zeros(1 + max(one.max(), other.max()), dtype=np.int64)
    for end in (one, other):
        np.maximum.at(closest, end, rank)
    return np.flatnonzero((closest[one] == rank) & (closest[other] == rank))


def _between(one: Ints, other: Ints, edges: Floats) -> tuple[Ints, Ints, Floats]:
    apart = one != other
    low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
    keys, place = np.unique(low << 32 | high, return_inverse=True)
    many = np.bincount(place, edges[apart], minlength=len(keys)).astype(np.float64)
    return keys >> 32, keys & 0xFFFFFFFF, many


def _by_size(parent: Ints, size: Ints, made: int, rng: np.random.Generator) -> Ints:
    loose = rng.permutation(np.flatnonzero(parent[:made] < 0))
    waiting = [(int(size[node]), place, int(node)) for place, node in enumerate(loose)]
    heapq.heapify(waiting)
    for node in range(made, len(parent)):
        (few, _, left), (more, _, right) = heapq.heappop(waiting), heapq.heappop(waiting)
        parent[[left, right]] = node
        heapq.heappush(waiting, (few + more, node, node))
    return parent
