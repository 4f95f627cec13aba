"""Published code: what it releases, what it costs, and that no guarantee is given for it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from graphveil import METHODS, perturb
from graphveil.core.backends import InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger, ledger_of
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.plan import ReleasePlan
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.data import Graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, UnitError
from graphveil.papers import as_published
from graphveil.papers.as_published.graph_mechanisms import PUBLISHED
from graphveil.papers.as_published.graph_queries import (
    ChunkDensityData,
    ChunkDensityQuery,
    ChunkResponseData,
    ChunkResponseQuery,
)
from graphveil.perturb import MECHANISMS, mechanism_class
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from perturb.chosen_total import edges_given_total

NODES = 24
PAPER = {"unit": "undirected-edge"}
EDGES = UndirectedEdge()


def path(nodes: int = NODES, *, directed: bool = False) -> Graph:
    return Graph.from_edges(
        torch.eye(nodes), [v % 2 for v in range(nodes)], range(nodes - 1), range(1, nodes), directed=directed
    )


def pairs(adjacency: Adjacency) -> set[tuple[int, int]]:
    source, target = adjacency.edge_index().tolist()
    return set(zip(source, target, strict=True))


HELD = {  # of epsilon 2 and 24 nodes
    "edge-rand": 2.0,
    "lap-graph": 2.0 + math.log(2),
    "arr": 1.8 * 2 + 2 * 0.2,
    "priv-hrg": 2.0,
    "edge-rr": 2.0,
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_paper_mode_has_no_valid_guarantee(name: str) -> None:
    graph, strict = path(), MECHANISMS[name](epsilon=2.0)
    guarantee = perturb.release_graph(graph, PUBLISHED[name](epsilon=2.0), **PAPER).guarantee  # type: ignore[arg-type]
    assert not guarantee.valid
    assert guarantee.formal_statement().startswith("No valid guarantee. Known deviations: ")
    assert guarantee.epsilon == pytest.approx(HELD[name])
    (entry,) = ledger_of(graph.edge_set).entries  # booked at what holds, not at what is claimed
    assert sum(part.epsilon for part in entry.event.events) == pytest.approx(HELD[name])  # type: ignore[union-attr]
    assert guarantee_from_plain(guarantee_to_plain(guarantee)) == guarantee
    assert perturb.release_graph(graph, strict, unit="undirected-edge").guarantee.valid


@pytest.mark.parametrize("name", MECHANISMS)
def test_paper_mode_has_the_settings_of_strict_mode(name: str) -> None:
    assert mechanism_class(f"{name}-paper") is PUBLISHED[name] and mechanism_class(name) is MECHANISMS[name]
    published = PUBLISHED[name](epsilon=2.0, max_edges=77)
    assert (published.epsilon, published.max_edges) == (2.0, 77)
    assert published.facts(Domain.whole(NODES, directed=False))


def test_an_unknown_mechanism_is_rejected() -> None:
    for name in ("own-paper", "arr-papers"):
        with pytest.raises(ConfigError, match="is not one of"):
            mechanism_class(name)


@pytest.mark.parametrize("name", ["edge-rand", "lap-graph", "arr"])
def test_rejects_units_that_the_sources_do_not_define(name: str) -> None:
    graph = path()
    private = {"unit": "edge-subset", "private_nodes": torch.ones(NODES, dtype=torch.bool)}
    with pytest.raises(UnitError, match="edge-subset"):
        perturb.release_graph(graph, PUBLISHED[name](epsilon=2.0), **private)  # type: ignore[arg-type]
    assert not ledger_of(graph.edge_set).entries
    with pytest.raises(UnitError):
        perturb.release_graph(path(directed=True), PUBLISHED[name](epsilon=2.0), **PAPER)  # type: ignore[arg-type]
    if name != "arr":
        with pytest.raises(UnitError, match="whole undirected graphs"):
            perturb.release_graph(path(directed=True), PUBLISHED[name](epsilon=2.0), unit="directed-edge")


# -- EdgeRand and LapGraph ---------------------------------------------------------------------------------


def test_stored_zeros_come_with_the_graph(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    perturbed = perturb.release_graph(path(), PUBLISHED["edge-rand"](epsilon=1.0), **PAPER)  # type: ignore[arg-type]
    adjacency = perturbed.graph.adjacency
    weights = torch.as_tensor(adjacency.weights)
    assert set(weights.tolist()) == {0.0, 1.0}
    table = pq.read_table(perturbed.save(tmp_path / "out") / "edges.parquet")
    assert (
        table.num_rows == perturbed.num_edges
        and table["weight"].to_pylist().count(0) == (weights == 0).sum() / 2
    )
    zeros = [
        pair
        for pair, weight in zip(zip(*adjacency.edge_index().tolist(), strict=True), weights, strict=True)
        if not weight
    ]
    assert not set(zeros) & pairs(path().adjacency)


def test_one_seed_is_one_graph_and_another_is_another() -> None:
    found = [
        pairs(perturb.release_graph(path(), mechanism, unit="undirected-edge").graph.adjacency)
        for kind in (as_published.PaperEdgeRand, as_published.PaperLapGraph)
        for mechanism in (kind(epsilon=1.0), kind(epsilon=1.0), kind(epsilon=1.0, noise_seed=7))
    ]
    assert found[0] == found[1] != found[2] and found[3] == found[4]
    with pytest.raises(ConfigError, match="noise_seed"):
        as_published.PaperLapGraph(epsilon=1.0, noise_seed=-1)


@pytest.mark.parametrize(("total", "edges"), [(30, 30), (0, 276), (-50, 226), (900, 276)])
def test_the_noisy_number_is_not_clipped(total: int, edges: int) -> None:
    for most in (276, 25):
        published = as_published.PaperLapGraph(epsilon=10.0, max_edges=most)
        assert len(edges_given_total(published, path(), total)) == min(edges, most)


def test_max_edges_includes_stored_zeros() -> None:
    with pytest.raises(ConfigError, match="would add about 148 edges"):
        perturb.release_graph(path(), PUBLISHED["edge-rand"](epsilon=1.0, max_edges=147), **PAPER)  # type: ignore[arg-type]


# -- ARR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "nodes", "chunk", "loss"),
    [
        (DirectedEdge(), 19_717, 1000, 19_717 / 717),  # the last chunk has 717 rows
        (DirectedEdge(), 20_000, 1000, 20.0),
        (EDGES, 20_000, 1000, 40.0),
        (EDGES, 2001, 1000, 2001 + 2.001),  # one end in a chunk of one row, the other in a full one
        (EDGES, 24, 1000, 2.0),
        (DirectedEdge(), 24, 1000, 1.0),  # a single chunk of everybody: what is claimed
    ],
)
def test_privacy_loss_of_chunk_densities(unit: Unit, nodes: int, chunk: int, loss: float) -> None:
    event = ChunkDensityQuery(0.1, chunk, nodes=nodes).event(unit)
    assert event.epsilon == pytest.approx(0.1 * loss)


def densities(graph: Graph, chunk: int, epsilon: float = 1e9, **more: object) -> np.ndarray:
    """Return the densities of one release."""
    plan = ReleasePlan(EDGES, (ChunkDensityQuery(epsilon, chunk, nodes=graph.num_nodes),), delta=0.0)
    release = Release.open(plan, graph.adjacency, budget=MemoryLedger(), **more)  # type: ignore[arg-type]
    return release.answer(ChunkDensityData(Domain.whole(graph.num_nodes, directed=True))).numpy()


@pytest.mark.parametrize("block_rows", [3, 8, 100])
def test_densities_are_those_of_rows(block_rows: int) -> None:
    graph, degrees = path(), np.bincount(path().adjacency.edge_index()[1].numpy(), minlength=NODES)
    for chunk in (1, 7, 24, 50):
        parts = [degrees[first : first + chunk] for first in range(0, NODES, chunk)]
        expected = [part.sum() / (len(part) * NODES) for part in parts]
        found = densities(graph, chunk, backend=InMemoryBackend(block_rows=block_rows))
        assert found.tolist() == pytest.approx(expected, abs=1e-8)


def test_densities_have_the_noise_of_the_density_of_all_rows() -> None:
    noise = np.concatenate([densities(path(), 1, 0.5) - densities(path(), 1) for _ in range(40)])
    assert noise.std() == pytest.approx(2**0.5 / (0.5 * NODES**2), rel=0.15)


def responded(shares: list[float], epsilon: float, chunk: int, **more: object) -> set[tuple[int, int]]:
    """Return the directed edges that a response of a path leaves, chunk by chunk."""
    plan = ReleasePlan(EDGES, (ChunkResponseQuery(epsilon, chunk),), delta=0.0)
    domain = Domain.whole(NODES, directed=True)
    release = Release.open(plan, path().adjacency, budget=MemoryLedger(), **more)  # type: ignore[arg-type]
    found = release.answer(ChunkResponseData(domain, torch.tensor(shares, dtype=torch.float64)))
    assert (found.diff() > 0).all()
    return set(zip(*(part.tolist() for part in domain.ends(found.numpy())), strict=True))


def test_each_chunk_has_its_share() -> None:
    found = responded([0.0, 1.0, 0.0], 40.0, 10)
    assert found == {(u, v) for u, v in pairs(path().adjacency) if 10 <= v < 20}


def test_blocks_of_any_size_draw_the_same() -> None:
    key = ReleaseKey.from_seed(1, "arr")
    shares, sizes = [0.4, 0.9, 1.0, 0.1], (1, 5, 100)
    found = [responded(shares, 1.0, 7, key=key, backend=InMemoryBackend(block_rows=rows)) for rows in sizes]
    assert found[0] == found[1] == found[2] and len(found[0]) > 20


def test_both_directions_are_independent() -> None:
    repeats, epsilon, share = 150, 1.0, 0.6
    drawn = [responded([share], epsilon, 50) for _ in range(repeats)]
    keep = (1 - EdgeRandomizedResponse(epsilon).flip) * share
    both = np.mean([[(v, v + 1) in one and (v + 1, v) in one for v in range(NODES - 1)] for one in drawn])
    either = np.mean([[(v, v + 1) in one for v in range(NODES - 1)] for one in drawn])
    assert either == pytest.approx(keep, abs=0.04) and both == pytest.approx(keep**2, abs=0.04)


def test_rejects_invalid_shares() -> None:
    from graphveil.errors import ReleaseError

    for shares in ([0.5], [0.5, 1.5], [0.5] * 3):
        with pytest.raises(ReleaseError, match="one share"):
            responded(shares, 1.0, 12)


def test_paper_arr_is_directed_and_keeps_the_density() -> None:
    graph = path(200)
    perturbed = perturb.release_graph(graph, PUBLISHED["arr"](epsilon=6.0), **PAPER)  # type: ignore[arg-type]
    found = pairs(perturbed.graph.adjacency)
    assert perturbed.graph.directed and perturbed.num_edges == len(found)
    assert any((v, u) not in found for u, v in found)
    assert 300 < len(found) < 500  # of 398 stored edges
    assert perturb.release_graph(
        path(200), PUBLISHED["arr"](epsilon=6.0), unit="directed-edge"
    ).guarantee.epsilon == pytest.approx(6.0)


# -- through the commands and the models -------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
def test_networks_train_on_graphs_of_paper_mode(name: str) -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    model = METHODS["gcn-paper"](**PAPER, epsilon=3.0, perturb=name, seed=0, epochs=2).fit(graph)  # type: ignore[arg-type]
    assert not model.guarantee.valid
    kind = PUBLISHED[name]
    whole = Domain.whole(graph.num_nodes, directed=False)
    assert model.guarantee.deviations == kind(epsilon=3.0).deviations(whole)


def test_sage_on_a_papers_graph_has_one_round_to_rows_of_norm_one() -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    sage = METHODS["sage-paper"]
    shapes = {
        mode: METHODS[name](unit="undirected-edge", epsilon=3.0, perturb="arr").config.shape.keywords  # type: ignore[attr-defined]
        for mode, name in (("strict", "sage"), ("paper", "sage-paper"))
    }
    assert shapes["strict"]["depth"] == 2 and "unit_rounds" not in shapes["strict"]
    assert shapes["paper"]["depth"] == 1 and shapes["paper"]["unit_rounds"] and "unit" not in shapes["paper"]
    fits = [
        sage(**PAPER, epsilon=3.0, perturb="arr", seed=0, epochs=2, unsafe_noise_seed=1).fit(graph)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    assert torch.equal(fits[0].predict_proba(), fits[1].predict_proba())
    assert fits[0].guarantee.epsilon > 1.9 * 3.0


def test_directed_guarantees_state_the_loss_of_an_undirected_edge() -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    model = METHODS["sage-paper"](unit="directed-edge", epsilon=3.0, perturb="arr", seed=0, epochs=2)
    guarantee = model.fit(graph).guarantee
    assert guarantee.epsilon == pytest.approx(3.0)  # one chunk: what is claimed of one stored edge
    assert any("an undirected edge is protected at eps = 6 only" in why for why in guarantee.deviations)


def test_stored_graphs_of_paper_mode_are_marked_invalid(tmp_path: Path) -> None:
    for number, mechanism in enumerate(kind(epsilon=1.0) for kind in PUBLISHED.values()):
        perturbed = perturb.release_graph(path(), mechanism, **PAPER)  # type: ignore[arg-type]
        folder = perturbed.save(tmp_path / str(number))
        assert "No valid guarantee." in (folder / "RELEASED.md").read_text()
        assert json.loads((folder / "guarantee.json").read_text())["valid"] is False
