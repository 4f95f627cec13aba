"""EdgeRR: four ways to find a tree, counts that cost epsilon once, and edges drawn from them."""

import numpy as np
import pytest
import torch

from graphveil import perturb
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.events import ApproximateDP
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.random import RowStream
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.dendrogram import (
    BlockCountData,
    BlockCountQuery,
    ChainSchedule,
    Dendrogram,
    DendrogramBlocks,
    DendrogramChain,
    step_loss,
)
from graphveil.core.release import Release
from graphveil.core.unit import EdgeSubset
from graphveil.data import Graph
from graphveil.errors import ConfigError, UnitError
from graphveil.perturb.edge_rr import STRUCTURES, EdgeRR, draw_edges

NODES = 20
PUBLIC = Adjacency.from_edges(range(9), range(1, 10), num_nodes=NODES, directed=False)
ALL = torch.ones(NODES, dtype=torch.bool)
PRIVATE = {"unit": "edge-subset", "public_edges": PUBLIC, "private_nodes": ALL}


def graph_of(*pairs: tuple[int, int]) -> Graph:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    labels = [0, 1] * (NODES // 2)
    return Graph.from_edges(torch.eye(NODES), labels, ends[:, 0], ends[:, 1], directed=False)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_each_structure_has_its_guarantee(structure: str) -> None:
    mechanism = EdgeRR(epsilon=2.0, structure=structure, rounds=20, private_rounds=4)  # type: ignore[arg-type]
    perturbed = perturb.release_graph(graph_of((0, 5), (3, 9)), mechanism, **PRIVATE)  # type: ignore[arg-type]
    guarantee = perturbed.guarantee
    certified = structure in ("public", "lazy_audited")
    assert guarantee.valid == certified
    assert guarantee.formal_statement().startswith("No valid") != certified
    parts = guarantee.event.events  # type: ignore[union-attr]
    if structure == "public":  # nothing is spent on the tree
        assert parts == (ApproximateDP(2.0),)
    else:
        delta = 1e-7 if structure == "lazy_audited" else 0.0
        assert parts == (ApproximateDP(1.0, delta), ApproximateDP(1.0))


def test_the_public_tree_reads_no_private_edge() -> None:
    domain, mechanism = Domain.within(PUBLIC, ALL), EdgeRR(epsilon=1.0, rounds=20)
    assert (mechanism.public_tree(domain).left == mechanism.public_tree(domain).left).all()
    assert (
        mechanism.public_tree(domain).left != EdgeRR(epsilon=1.0, rounds=20, seed=1).public_tree(domain).left
    ).any()


def test_without_public_edges_the_tree_is_a_balanced_one() -> None:
    without_public = Domain.within(Adjacency.from_edges([], [], num_nodes=NODES, directed=False), ALL)
    assert np.sort(EdgeRR(epsilon=1.0).public_tree(without_public).size)[-3:].tolist() == [10, 10, 20]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_seed_reproduces_the_graph(structure: str) -> None:
    graph = graph_of((0, 5), (3, 9), (11, 12))
    mechanism = EdgeRR(epsilon=1.0, structure=structure, rounds=20, private_rounds=4)  # type: ignore[arg-type]
    found = [
        perturb.release_graph(graph, mechanism, unsafe_noise_seed=3, **PRIVATE).graph.adjacency.edge_index()  # type: ignore[arg-type]
        for _ in range(2)
    ]
    assert found[0].tolist() == found[1].tolist()


def test_public_edges_are_kept() -> None:  # section 14.18: the source's text overwrites them
    full = [(u, v) for u in range(NODES) for v in range(u)]
    for pairs in ([], full):
        perturbed = perturb.edge_rr(graph_of(*pairs), epsilon=0.5, **PRIVATE)  # type: ignore[arg-type]
        source, target = perturbed.graph.adjacency.edge_index().tolist()
        assert {(v, v + 1) for v in range(9)} <= set(zip(source, target, strict=True))


def test_a_large_budget_keeps_the_counts() -> None:
    pairs = [(u, v) for u in range(NODES) for v in range(u) if (u * v) % 7 == 1]
    perturbed = perturb.edge_rr(graph_of(*pairs), epsilon=36.0, **PRIVATE)  # type: ignore[arg-type]
    private = perturbed.num_edges - 9
    assert abs(private - len([p for p in pairs if p[0] - p[1] > 1 or p[0] > 9])) <= 12


def test_the_walk_takes_the_charged_number_of_private_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ChainSchedule]] = []
    run = DendrogramChain.run

    def noted(chain: DendrogramChain, steps: int, schedule: ChainSchedule, stream: RowStream) -> None:
        taken.append((steps, schedule))
        run(chain, steps, schedule, stream)

    monkeypatch.setattr(DendrogramChain, "run", noted)
    mechanism = EdgeRR(epsilon=2.0, structure="lazy_audited", rounds=20, private_rounds=4)
    perturb.release_graph(graph_of((0, 5), (3, 9)), mechanism, **PRIVATE)  # type: ignore[arg-type]
    ((steps, schedule),) = taken
    assert schedule.kappa == step_loss(1.0, 1e-7, steps // schedule.every, NODES)
    assert steps // schedule.every == 4 * NODES


def test_a_released_graph_has_no_public_part() -> None:
    graph = graph_of((0, 5), (3, 9)).with_public(PUBLIC, ALL)
    perturbed = perturb.edge_rr(graph, epsilon=2.0, unit="edge-subset")
    assert graph.public is not None and perturbed.graph.public is None


def test_priv_hrg_protects_all_edges() -> None:
    guarantee = perturb.priv_hrg(graph_of((0, 1)), epsilon=2.0, unit="undirected-edge").guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.releases) == (2.0, 1e-7, 1)
    assert guarantee.group_epsilon(2) > 4  # delta of a group is more than that of one edge


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"structure": "best"}, "structure"),
        ({"tree_share": 1.0}, "tree_share"),
        ({"rounds": 0}, "rounds"),
        ({"delta": 0.0, "structure": "lazy_audited"}, "delta"),
        ({"delta": 0.01}, "delta"),
    ],
)
def test_rejects_invalid_fields(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        EdgeRR(epsilon=1.0, **wrong)  # type: ignore[arg-type]


def test_rejects_directed_edges() -> None:
    graph = Graph.from_edges(torch.eye(3), [0, 1, 0], [0], [1], directed=True)
    with pytest.raises(UnitError, match="this graph is directed"):
        perturb.priv_hrg(graph, epsilon=1.0, unit="directed-edge")


# -- counts and draws --------------------------------------------------------------------------------------


def counted(graph: Graph, tree: Dendrogram, epsilon: float) -> np.ndarray:
    """Return the blocks' counts of one release."""
    plan = ReleasePlan(EdgeSubset(), (BlockCountQuery(epsilon),), delta=0.0)
    release = Release.open(plan, graph.adjacency, budget=MemoryLedger())
    return release.answer(BlockCountData(Domain.within(PUBLIC, ALL), tree=tree)).numpy()


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 100.0])
def test_one_private_edge_changes_one_count(epsilon: float) -> None:
    """Without noise, any private edge moves one count by one, and a public one none."""
    tree = Dendrogram.balanced(NODES, np.random.default_rng(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            DiscreteLaplace, "draw", lambda self, stream, rows: np.zeros((len(rows), 1), dtype=np.int64)
        )
        before = counted(graph_of((0, 5)), tree, epsilon)
        assert len(before) == len(
            DendrogramBlocks.from_tree(tree, Domain.within(PUBLIC, ALL).public, epsilon).slots
        )
        for pair in [(1, 7), (0, 19), (3, 15), (4, 5)]:
            change = np.abs(counted(graph_of((0, 5), pair), tree, epsilon) - before)
            assert change.sum() == (0 if pair == (4, 5) else 1), "an edge moves the counts by more than one"


def test_a_subtree_that_is_one_block_has_one_count() -> None:  # section 14.8: not one draw for each node
    tree = Dendrogram.balanced(NODES, np.random.default_rng(4))
    assert len(counted(graph_of((0, 5)), tree, 0.1)) == 1
    assert 1 < len(counted(graph_of((0, 5)), tree, 2.0)) < NODES - 1


def test_all_pairs_of_a_block_are_equally_likely() -> None:
    tree = Dendrogram.balanced(8, np.random.default_rng(0))
    public = Adjacency.from_edges([0, 3], [1, 5], num_nodes=8, directed=False)
    domain = Domain.within(public, torch.ones(8, dtype=torch.bool))
    for epsilon in (0.01, 100.0):  # one block, or one for each node
        blocks, rng = DendrogramBlocks.from_tree(tree, domain.public, epsilon), np.random.default_rng(1)
        counts = np.ceil(blocks.slots / 3).astype(np.int64)
        seen = np.zeros(28)
        for _ in range(1500):
            found = draw_edges(blocks, counts, domain, rng, 1000)
            assert (np.diff(found) > 0).all() and domain.protects(found).all()
            seen[found] += 1
        assert (seen[domain.public] == 0).all()
        source, target = domain.slots.ends(np.arange(28))
        chance = (counts / blocks.slots)[blocks.owner[tree.lowest_common_ancestors(source, target)]]
        spread = np.abs(seen - 1500 * chance)[domain.protects(np.arange(28))]
        assert spread.max() < 5 * np.sqrt(1500 * 0.25)


def test_clips_counts_to_the_size_of_a_block() -> None:
    tree = Dendrogram.balanced(6, np.random.default_rng(0))
    domain = Domain.whole(6, directed=False)
    blocks, rng = DendrogramBlocks.from_tree(tree, domain.public, 100.0), np.random.default_rng(1)
    assert draw_edges(blocks, blocks.slots + 5, domain, rng, 1000).tolist() == list(range(15))
    assert draw_edges(blocks, -blocks.slots, domain, rng, 1000).size == 0
    assert len(draw_edges(blocks, blocks.slots, domain, rng, 4)) == 4


def test_rejects_a_tree_over_other_nodes() -> None:
    from graphveil.errors import ReleaseError

    with pytest.raises(ReleaseError, match="dendrogram over the listed nodes"):
        counted(graph_of((0, 5)), Dendrogram.balanced(7, np.random.default_rng(0)), 1.0)
