"""Mechanisms as in published code, including its flaws; none has a valid guarantee.

The deviations of each describe its flaws; its epsilon is the valid part, if there is any.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.queries.graph_queries import EdgeResponseData, EdgeTotalData, TopNodePairsData
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.papers.as_published.graph_queries import (
    ChunkDensityData,
    ChunkDensityQuery,
    ChunkResponseData,
    ChunkResponseQuery,
    ReplacedNodePairs,
    SeededCellsQuery,
    SeededResponseQuery,
    SeededTotalQuery,
)
from graphveil.perturb.edge_rr import DendrogramRelease, EdgeRR, PrivHRG, Structure
from graphveil.perturb.mechanism import (
    ARR,
    EdgeRand,
    GraphMechanism,
    LapGraph,
    adjacency_of,
    check_share,
    count_facts,
    response_facts,
)

SEED = 42  # that the source has for all its graphs
_SHARED = (
    "the noise follows from the seed {seed} for every graph: who knows the seed takes it off, and two "
    "released graphs that differ in a slot show it; epsilon holds for one graph under a secret seed"
)
_ZEROS = (
    "pairs that noise left at zero are stored as entries of value zero, and none of them was an edge: "
    "epsilon holds for which pairs have value one, and nothing holds for what is stored"
)
_TRUNCATED = (
    "the noise of the number of edges is cut to a whole number before it is added, which costs ln 2 on top, "
    "in the stated epsilon; a number that is not positive is not cut to zero, and nearly every pair "
    "becomes an edge"
)
_TWICE = (
    "both directions of an undirected edge are randomized on their own, so what comes out is directed, and "
    "the density is queried for each {chunk:,} rows with noise for that of all rows: the source calls this "
    "epsilon {claimed:g}, and the stated epsilon is what holds of exact real noise"
)


@dataclass(frozen=True, kw_only=True)
class PaperEdgeRand(GraphMechanism):
    """``EdgeRand`` as in the code of LinkTeller: one seed for all graphs, and stored zeros.

    Guarantee: none; see the deviations.

    Args:
        noise_seed: Seed of the noise, the same for every graph.
    """

    name: ClassVar[str] = EdgeRand.name

    noise_seed: int = SEED

    def check_fields(self) -> None:
        """Validate the seed."""
        checks.integer_at_least(0, noise_seed=self.noise_seed)

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the one response."""
        return (SeededResponseQuery(self.epsilon, self.noise_seed),)

    def expected_edges(self, domain: Domain) -> float:
        """Return the number of node pairs that noise alone stores: as many zeros as ones."""
        return ReplacedNodePairs(self.epsilon).selected * domain.size

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the flip probability, and the expected number of entries that it adds."""
        flip = EdgeRandomizedResponse(self.epsilon).flip
        return response_facts(flip, self.expected_edges(domain), domain)

    def deviations(self, domain: Domain) -> tuple[str, ...]:
        """Return why the release has no valid guarantee."""
        return _SHARED.format(seed=self.noise_seed), _ZEROS

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the stored entries, each as 2 slot + value."""
        return release.answer(EdgeResponseData(domain))

    def adjacency(self, found: Tensor, domain: Domain, public: Adjacency | None, origin: str) -> Adjacency:
        """Return the stored entries as weights of 0 and 1; for training, which omits zeros, only the ones."""
        if not origin:
            return adjacency_of(found[(found & 1) == 1] >> 1, domain, public, origin)
        stored = adjacency_of(found >> 1, domain, public, origin)
        source, target = stored.edge_index().numpy()
        slots = domain.slots.number(np.minimum(source, target), np.maximum(source, target))
        values = found.numpy()[np.searchsorted(found.numpy() >> 1, slots)] & 1
        weights = torch.from_numpy(values.astype(np.float32))  # the constructor would drop those of zero
        parts = stored.indptr, stored.indices, stored.directed, stored.edge_set
        return Adjacency._in_order(*parts, weights=weights, max_weight=1.0)


@dataclass(frozen=True, kw_only=True)
class PaperLapGraph(GraphMechanism):
    """``LapGraph`` as in the code of LinkTeller: one seed for all graphs, and a number clipped too early.

    Every cell gets a draw, so the time is proportional to the number of node pairs.

    Guarantee: none; see the deviations.

    Args:
        count_fraction: Share of epsilon for the number of edges.
        noise_seed: Seed of the noise, the same for every graph.
    """

    name: ClassVar[str] = LapGraph.name

    count_fraction: float = 0.01
    noise_seed: int = SEED

    def check_fields(self) -> None:
        """Validate the share of the budget, and the seed."""
        check_share(count_fraction=self.count_fraction)
        checks.integer_at_least(0, noise_seed=self.noise_seed)

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the query of the number of edges, then that of the cells."""
        first = self.count_fraction * self.epsilon
        cells = SeededCellsQuery(self.epsilon - first, self.noise_seed, most=self.max_edges)
        return SeededTotalQuery(first, self.noise_seed), cells

    def expected_edges(self, domain: Domain) -> float:
        """Return the expected number of edges that noise adds to an empty graph: half of its scale."""
        return min(domain.size, 0.5 / (self.count_fraction * self.epsilon))

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the noise of both queries, and the maximum number of released edges."""
        return count_facts(self.queries(domain), domain, self.max_edges)

    def deviations(self, domain: Domain) -> tuple[str, ...]:
        """Return why the release has no valid guarantee."""
        return _SHARED.format(seed=self.noise_seed), _TRUNCATED

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the node pairs that are edges in the released graph; the number is used unchanged."""
        total = int(release.answer(EdgeTotalData(domain)))
        return release.answer(TopNodePairsData(domain, total))


@dataclass(frozen=True, kw_only=True)
class PaperARR(GraphMechanism):
    """``ARR`` as in the code of GAP: each direction separately, a density for each chunk.

    The released graph is always directed.

    Guarantee: none of epsilon. With r rows in the smallest chunk, one stored edge costs (1 - f) eps + f eps N
    / r, f being the density's share, and an undirected edge about twice that.

    Args:
        density_fraction: Share of epsilon for the densities.
        chunk: Number of rows with one density.
    """

    name: ClassVar[str] = ARR.name

    density_fraction: float = 0.1
    chunk: int = 1000

    def check_fields(self) -> None:
        """Validate the share of the budget, and the size of a chunk."""
        check_share(density_fraction=self.density_fraction)
        checks.integer_at_least(1, chunk=self.chunk)

    @property
    def strict(self) -> ARR:
        """The strict mechanism with the same settings. Both keep the same share of ones at a density."""
        return ARR(epsilon=self.epsilon, max_edges=self.max_edges, density_fraction=self.density_fraction)

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the densities, then the response."""
        first = self.density_fraction * self.epsilon
        densities = ChunkDensityQuery(first, self.chunk, nodes=domain.slots.nodes)
        return densities, ChunkResponseQuery(self.epsilon - first, self.chunk)

    def expected_edges(self, domain: Domain) -> float:
        """Return the expected number of edges that noise adds to an empty graph."""
        return self.strict.expected_edges(domain)

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the noise of the densities, and the response."""
        directed_domain = both_ways(domain)
        densities = self.queries(domain)[0]
        return [
            ("density", f"of each {self.chunk:,} rows, with noise of {densities.noise[0]:,.4g} edges"),
            (
                "graph",
                f"each of {directed_domain.size:,} directed slots reports the truth with probability "
                f"{self.strict.keep_probability:.6g}, and then as large a share of the edges is kept as "
                "leaves the noisy density of its rows",
            ),
            ("expected", f"about as many edges as there are, and at most {self.max_edges:,}"),
        ]

    def deviations(self, domain: Domain) -> tuple[str, ...]:
        """Return why the release has no valid guarantee."""
        return (_TWICE.format(chunk=self.chunk, claimed=self.epsilon),)

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the directed node pairs that are edges in the released graph."""
        directed_domain = both_ways(domain)
        densities = release.answer(ChunkDensityData(directed_domain)).tolist()
        most = self.max_edges / max(1, directed_domain.size)
        shares = [max(0.0, self.strict.share(max(0.0, density), most)) for density in densities]
        return release.answer(ChunkResponseData(directed_domain, torch.tensor(shares, dtype=torch.float64)))

    def adjacency(self, found: Tensor, domain: Domain, public: Adjacency | None, origin: str) -> Adjacency:
        """Return the released graph, which is directed."""
        return adjacency_of(found, both_ways(domain), public, origin)


@dataclass(frozen=True, kw_only=True)
class PaperEdgeRR(DendrogramRelease):
    """``EdgeRR`` with the source's own search of the tree.

    Guarantee: none; see the deviations.
    """

    name: ClassVar[str] = EdgeRR.name

    structure: Structure = field(default="paper", init=False)


@dataclass(frozen=True, kw_only=True)
class PaperPrivHRG(DendrogramRelease):
    """``PrivHRG`` with the source's own search of the tree.

    Guarantee: none; see the deviations.
    """

    name: ClassVar[str] = PrivHRG.name
    uses_public_edges: ClassVar[bool] = False

    structure: Structure = field(default="paper", init=False)


def both_ways(domain: Domain) -> Domain:
    return Domain.whole(len(domain.rank), directed=True)


PUBLISHED: dict[str, type[GraphMechanism]] = {
    one.name: one for one in (PaperEdgeRand, PaperLapGraph, PaperARR, PaperEdgeRR, PaperPrivHRG)
}
