"""What mechanisms share: public edges stay, only listed nodes get edges, and each query is charged."""

import math

import numpy as np
import pytest
import torch

from graphveil import perturb
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.ledger import MemoryLedger, ledger_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.graph_queries import DiscreteLaplace, EdgeTotalData, EdgeTotalQuery
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.data import Graph
from graphveil.data.recipes import public_edges_outside, sample_public_edges
from graphveil.errors import ConfigError, GraphError, InputError, UnitError
from graphveil.perturb import MECHANISMS, GraphMechanism, release_graph
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from perturb.chosen_total import edges_given_total

NODES = 24
PUBLIC = Adjacency.from_edges(range(10), range(1, 11), num_nodes=NODES, directed=False)
LISTED = torch.arange(NODES) < 16
PRIVATE = {"unit": "edge-subset", "public_edges": PUBLIC, "private_nodes": LISTED}
NAMES, TREES = list(MECHANISMS), ("priv-hrg", "edge-rr")


def graph_of(source: object = range(NODES - 1), target: object = range(1, NODES), **more: object) -> Graph:
    return Graph.from_edges(
        torch.eye(NODES),
        [0, 1] * (NODES // 2),
        source,
        target,
        directed=False,
        **more,  # type: ignore[arg-type]
    )


def mechanism(name: str, epsilon: float = 2.0) -> GraphMechanism:
    return MECHANISMS[name](epsilon=epsilon)


def pairs(adjacency: Adjacency) -> set[tuple[int, int]]:
    source, target = adjacency.edge_index().tolist()
    return {(u, v) for u, v in zip(source, target, strict=True) if u < v}


@pytest.mark.parametrize("name", NAMES)
def test_edges_are_public_or_between_listed_nodes(name: str) -> None:
    added = set[tuple[int, int]]()
    for seed in range(8):
        perturbed = release_graph(graph_of(), mechanism(name, 0.5), unsafe_noise_seed=seed, **PRIVATE)  # type: ignore[arg-type]
        found = pairs(perturbed.graph.adjacency)
        assert pairs(PUBLIC) <= found
        assert all(v < 16 for _, v in found)  # the path goes on to 23, and none of it is in the list
        added |= found - pairs(PUBLIC)
    assert added


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("listed", [range(16), list(range(16)), np.arange(16), LISTED.tolist()])
def test_private_nodes_may_be_any_sequence(name: str, listed: object) -> None:
    found = []
    for nodes in (listed, LISTED):
        given = PRIVATE | {"private_nodes": nodes, "unsafe_noise_seed": 1}
        found.append(pairs(release_graph(graph_of(), mechanism(name), **given).graph.adjacency))  # type: ignore[arg-type]
    assert found[0] == found[1]


FEW = Adjacency.from_edges([0], [1], num_nodes=5, directed=False)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        *(
            (name, {**PRIVATE, "private_nodes": "all"}, "private_nodes must be a bool array")
            for name in NAMES
        ),
        *(
            (name, {**PRIVATE, "public_edges": FEW, "private_nodes": [0]}, "edges have 5 nodes")
            for name in NAMES
        ),
        *((name, {**PRIVATE, "public_edges": [(0, 1)]}, "must be an Adjacency") for name in NAMES),
        *((name, {"unsafe_noise_seed": "x"}, "unsafe_noise_seed='x' must be a whole") for name in NAMES),
        *((name, {"epsilon": 1e-300}, "not fit") for name in NAMES if name != "edge-rand"),
    ],
)
def test_rejects_invalid_options_before_a_charge(name: str, changes: dict[str, object], words: str) -> None:
    graph, given = graph_of(), {"unit": "undirected-edge", "epsilon": 2.0} | changes
    epsilon = given.pop("epsilon")
    with pytest.raises(InputError, match=words):
        release_graph(graph, MECHANISMS[name](epsilon=epsilon), **given)  # type: ignore[arg-type]
    assert ledger_of(graph.edge_set).entries == ()


def test_rejects_other_types_and_accepts_numpy_numbers() -> None:
    with pytest.raises(GraphError, match="Expected a graph, but got a ndarray"):
        perturb.edge_rand(np.eye(3), epsilon=1.0, unit="undirected-edge")  # type: ignore[arg-type]
    made = [mechanism("edge-rand", epsilon) for epsilon in (np.float32(0.5), np.float16(0.5), 0.5)]  # type: ignore[arg-type]
    assert made[0] == made[1] == made[2] and type(made[0].epsilon) is float


@pytest.mark.parametrize("name", NAMES)
def test_charges_queries_that_sum_to_epsilon(name: str) -> None:
    graph = graph_of()
    guarantee = release_graph(graph, mechanism(name), unit="undirected-edge").guarantee
    (entry,) = ledger_of(graph.edge_set).entries
    assert guarantee.epsilon == pytest.approx(2.0) and guarantee.valid
    assert guarantee.delta == (1e-7 if name == "priv-hrg" else 0)
    assert sum(part.epsilon for part in entry.event.events) == pytest.approx(2.0)  # type: ignore[union-attr]
    assert guarantee_from_plain(guarantee_to_plain(guarantee)) == guarantee


@pytest.mark.parametrize("name", NAMES)
def test_the_statement_of_edge_subset_is_verbatim(name: str) -> None:
    guarantee = release_graph(graph_of(), mechanism(name), **PRIVATE).guarantee  # type: ignore[arg-type]
    assert guarantee.formal_statement().startswith(
        "Public: the public edges and the list of nodes that may have private ones. For any two graphs that "
        "differ in one pair inside that list and outside the public edges, the released graph and all "
        f"computed from it are (2, {'1e-07' if name == 'priv-hrg' else 0})-indistinguishable. Nothing else "
        "is hidden."
    )
    with pytest.raises(UnitError):
        guarantee.group_epsilon(10)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_edges_is_released_like_any_other(name: str) -> None:
    for source in (range(0), range(1)):
        graph = graph_of(source, [place + 1 for place in source])
        release_graph(graph, mechanism(name, 0.1), unit="undirected-edge")
    one = Graph.from_edges(torch.eye(2), [0, 1], [], [], directed=False).subgraph(torch.tensor([True, False]))
    if name in TREES:
        with pytest.raises(ConfigError, match="needs at least two nodes"):
            release_graph(one, mechanism(name), unit="undirected-edge")
    else:
        assert release_graph(one, mechanism(name), unit="undirected-edge").graph.num_nodes == 1


@pytest.mark.parametrize("name", NAMES)
def test_facts_follow_from_public_numbers(name: str) -> None:
    found = mechanism(name).facts(Domain.within(PUBLIC, LISTED))
    assert any("110" in text for _, text in found)  # 16 of 24 nodes, and ten public edges


def test_the_list_of_private_nodes_is_never_inferred() -> None:
    graph = graph_of()
    with pytest.raises(UnitError, match="read from the edges"):
        perturb.edge_rand(graph, epsilon=1.0, unit="edge-subset", public_edges=PUBLIC)
    with pytest.raises(UnitError, match="edge-subset"):
        perturb.edge_rand(graph, epsilon=1.0, unit="undirected-edge", public_edges=PUBLIC)
    assert not ledger_of(graph.edge_set).entries


@pytest.mark.parametrize("name", ["lap-graph", "arr"])
def test_a_negative_number_of_edges_is_zero(name: str) -> None:
    # section 14.16 of the specification: T = E + Laplace may be negative, and is then cut to 0
    found = edges_given_total(mechanism(name), graph_of(), -50)
    assert len(found) <= (0 if name == "lap-graph" else NODES)


@pytest.mark.parametrize("name", ["lap-graph", "arr"])
def test_the_noisy_number_alone_decides_the_size(name: str) -> None:
    graphs = graph_of(), graph_of(range(0), range(0))
    sizes = [len(edges_given_total(mechanism(name, 36.0), graph, 40)) for graph in graphs]
    assert sizes[0] == 40 if name == "lap-graph" else sizes[0] == NODES - 1
    assert sizes[1] == 40 if name == "lap-graph" else sizes[1] <= 3  # at most a flip in 10^15 is from noise


@pytest.mark.parametrize("name", ["lap-graph", "arr"])
def test_releases_at_most_max_edges(name: str) -> None:
    full = np.triu_indices(NODES, 1)
    graph = graph_of(*full)
    perturbed = release_graph(graph, MECHANISMS[name](epsilon=36.0, max_edges=20), unit="undirected-edge")
    assert perturbed.num_edges <= (20 if name == "lap-graph" else 60)


def test_golden_shares_of_arr() -> None:
    for epsilon, density, share in (
        (1, 0.0014395, 0.0049696569),
        (2, 0.01, 0.0671077689),
        (4, 0.1, 0.8245546106),
    ):
        assert perturb.ARR(epsilon=epsilon).share(density) == pytest.approx(share, rel=1e-7)
    assert perturb.ARR(epsilon=1).share(0.5) == pytest.approx(1)
    assert perturb.ARR(epsilon=1).share(0.9) == 1


@pytest.mark.parametrize(
    ("epsilon", "count", "cell"), [(0.1, 1000, 10.1010101), (1, 100, 1.01010101), (4, 25, 0.25252525)]
)
def test_golden_scales_of_lap_graph(epsilon: float, count: float, cell: float) -> None:
    first, second = perturb.LapGraph(epsilon=epsilon).queries(Domain.whole(9, directed=False))
    assert 1 / first.epsilon == pytest.approx(count)  # type: ignore[attr-defined]
    assert 1 / second.epsilon == pytest.approx(cell)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["count_fraction", "density_fraction"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1])
def test_rejects_shares_outside_the_range(name: str, value: float) -> None:
    kind = perturb.LapGraph if name == "count_fraction" else perturb.ARR
    with pytest.raises(ConfigError, match=name):
        kind(epsilon=1.0, **{name: value})  # type: ignore[arg-type]


def totals(epsilon: float, count: int) -> np.ndarray:
    """Return noisy numbers of edges of one graph, each a release of its own."""
    adjacency, plan = (
        graph_of().adjacency,
        ReleasePlan(UndirectedEdge(), (EdgeTotalQuery(epsilon),), delta=0.0),
    )
    domain = Domain.whole(NODES, directed=False)
    return np.array(
        [
            int(Release.open(plan, adjacency, budget=MemoryLedger()).answer(EdgeTotalData(domain)))
            for _ in range(count)
        ]
    )


def test_the_number_of_edges_has_its_noise() -> None:
    """Mean and variance are those of the count and of discrete Laplace noise."""
    epsilon, count = 0.2, 300
    found, deviation = totals(epsilon, count), DiscreteLaplace(epsilon).sigma
    assert abs(found.mean() - (NODES - 1)) < 5 * deviation / math.sqrt(count)
    assert 0.7 < found.std() / deviation < 1.4, "the number of edges has other noise"


def test_edges_are_split_for_experiments() -> None:
    adjacency = graph_of().adjacency
    public = sample_public_edges(adjacency, 0.5, seed=1)
    assert 3 < len(pairs(public)) < 20 and pairs(public) < pairs(adjacency)
    assert pairs(sample_public_edges(adjacency, 0.0, seed=1)) == pairs(adjacency)
    assert pairs(sample_public_edges(adjacency, 1.0, seed=1)) == set()
    outside = pairs(public_edges_outside(adjacency, LISTED))
    assert outside == {(v, v + 1) for v in range(15, NODES - 1)}


def test_a_private_edge_outside_the_list_is_left_out() -> None:
    # Whether a private edge is outside the list is not protected, and it cannot be released either.
    perturbed = perturb.edge_rand(graph_of([20], [21]), epsilon=30.0, **PRIVATE)  # type: ignore[arg-type]
    assert pairs(perturbed.graph.adjacency) == pairs(PUBLIC)
