"""Generated splits, class filters, and the recipes of papers."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.features import to_dense
from graphveil.data import RECIPES, DatasetRecipe, Graph, hash_split, load_dataset, random_split, split
from graphveil.data.recipes import (
    CLASSES_PUBLIC,
    CONSTANT_DROPPED,
    ISOLATED_DROPPED,
    NO_CROSSING,
    RANGES_PUBLIC,
    ClassFilter,
)
from graphveil.errors import ConfigError, GraphError

# Classes 0, 1, 2 with three, one and two nodes; node 6 has no label; node 3 is isolated.
Y = [0, 1, 0, 0, 2, 2, -1]
EDGES = ([0, 1, 4, 0], [1, 2, 5, 6])


def small(name: str = "graph", **changes: Any) -> Graph:
    x = torch.tensor([[float(node), 5.0] for node in range(7)])
    fields = {"name": name, "class_names": ("a", "b", "c"), "directed": False}
    return Graph.from_edges(x, Y, *EDGES, **(fields | changes))


def large(nodes: int = 400, unlabeled: int = 0, **fields: Any) -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(nodes) % 4
    y[:unlabeled] = -1
    ends = rng.integers(nodes, size=(2, 2000))
    return Graph.from_edges(torch.rand(nodes, 3), y, *ends, directed=False, num_classes=4, **fields)


def sizes(graph: Graph) -> list[int]:
    return [int(graph.labeled_in(part).sum()) for part in ("train", "val", "test")]


def same_split(one: Graph, other: Graph) -> bool:
    return all(torch.equal(one.masks[name], other.masks[name]) for name in one.masks)


# -- splits ----


def test_random_split_has_exact_shares_of_the_labeled_nodes() -> None:
    graph = random_split(large(1000, 100), train=0.75, val=0.10, seed=0)
    assert sizes(graph) == [675, 90, 135]
    assert torch.equal(torch.stack(list(graph.masks.values())).any(dim=0), graph.labeled)
    # Products just below a whole number are rounded to it.
    assert sizes(random_split(large(100), train=0.29, val=0.28, seed=0)) == [29, 28, 43]


def test_random_split_depends_on_the_seed_and_not_on_label_values() -> None:
    graph = large(1000, 100)
    first, again, other = (random_split(graph, train=0.5, val=0.25, seed=seed) for seed in (1, 1, 2))
    assert same_split(first, again) and not same_split(first, other)
    shifted = graph.replace(y=torch.where(graph.labeled, (graph.y + 1) % 4, -1))
    assert same_split(first, random_split(shifted, train=0.5, val=0.25, seed=1))


@pytest.mark.parametrize("shares", [(0.9, 0.2), (0.0, 0.5), (-0.1, 0.5), (0.5, -0.1)])
def test_rejects_invalid_shares(shares: tuple[float, float]) -> None:
    for make in (random_split, hash_split):
        with pytest.raises(ConfigError, match=r"train=|val="):
            make(small(), train=shares[0], val=shares[1], seed=0)


def test_hash_split_covers_all_nodes_and_has_shares_on_average() -> None:
    found = sizes(hash_split(large(10_000), train=0.75, val=0.10, seed=0))
    assert sum(found) == 10_000
    assert abs(found[0] - 7500) < 200 and abs(found[1] - 1000) < 150


def test_hash_split_of_a_node_depends_on_its_id_and_the_seed_alone() -> None:
    ids = np.array([f"user {number}" for number in range(1000)])
    whole = hash_split(large(1000, ids=ids), train=0.5, val=0.25, seed=3)
    assert same_split(whole, hash_split(large(1000, 101, ids=ids), train=0.5, val=0.25, seed=3))
    keep = torch.arange(1000) % 2 == 0
    fewer = hash_split(large(1000, ids=ids).subgraph(keep), train=0.5, val=0.25, seed=3)
    assert torch.equal(fewer.masks["train_mask"], whole.masks["train_mask"][keep])
    assert not same_split(whole, hash_split(large(1000, ids=ids), train=0.5, val=0.25, seed=4))


@pytest.mark.parametrize("unit", [None, "node-record", "local-attributes"])
def test_split_hashes_ids_if_records_are_protected(unit: str | None) -> None:
    graph = large()
    made = split(graph, unit=unit)
    assert same_split(made, split(graph.replace(y=torch.full_like(graph.y, -1)), unit=unit))
    assert same_split(made, hash_split(graph, train=0.75, val=0.1, seed=0))


def test_split_is_exact_if_edges_are_protected() -> None:
    made = split(large(400, 40), 0.5, 0.25, unit="undirected-edge")
    assert sizes(made) == [180, 90, 90] and not made.masks["train_mask"][:40].any()
    with pytest.raises(ConfigError, match="did you mean 'undirected-edge'"):
        split(large(), unit="undirected-edges")


@pytest.mark.parametrize("value", [None, "graph", np.eye(3)])
def test_split_rejects_values_that_are_not_graphs(value: Any) -> None:
    with pytest.raises(GraphError, match=f"got a {type(value).__name__}"):
        split(value)


# -- class filters ----


def test_class_filter_removes_small_classes_and_unlabeled_nodes_with_their_edges() -> None:
    before = small()
    graph = ClassFilter(min_nodes=2)(before)
    assert graph.y.tolist() == [0, 0, 0, 1, 1] and graph.class_names == ("a", "c")
    assert to_dense(graph.x)[:, 0].tolist() == [0, 2, 3, 4, 5]
    assert graph.adjacency.edge_index().tolist() == [[4, 3], [3, 4]]
    assert graph.edge_set is before.edge_set
    assert ClassFilter()(before).num_nodes == 6
    assert ClassFilter()(small(num_classes=5, class_names=())).num_classes == 3  # empty classes do not count


def test_class_filter_keeps_the_largest_classes_in_their_old_order() -> None:
    graph = ClassFilter(largest=2)(small(class_names=()))
    assert graph.y.tolist() == [0, 0, 0, 1, 1] and graph.class_names == ()


def test_class_filter_rejects_fewer_than_two_classes() -> None:
    with pytest.raises(
        GraphError, match=r"Fewer than two classes of 'graph' have at least 3 nodes. Lower min"
    ):
        ClassFilter(min_nodes=3)(small())


# -- recipes ----


def test_recipes_are_frozen_and_one_has_a_fixed_split() -> None:
    assert set(RECIPES) == {"gap", "lpgnn", "weighted", "planetoid"}
    assert all(name == recipe.name for name, recipe in RECIPES.items())
    assert [name for name, recipe in RECIPES.items() if recipe.fixed_split] == ["planetoid"]
    with pytest.raises(TypeError):
        RECIPES["gap"] = RECIPES["lpgnn"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPES["gap"].shares = (0.5, 0.5)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "notes", "expected"),
    [
        ("gap", (CLASSES_PUBLIC,), [300, 40, 60]),
        ("lpgnn", (CLASSES_PUBLIC, RANGES_PUBLIC), [200, 100, 100]),
        ("weighted", (CLASSES_PUBLIC, NO_CROSSING), [288, 32, 80]),
    ],
)
def test_recipes_note_what_they_treat_as_public(
    name: str, notes: tuple[str, ...], expected: list[int]
) -> None:
    graph = RECIPES[name].split(large(), 0)
    assert sizes(graph) == expected and graph.notes == notes and graph.deviations == ()


@pytest.mark.parametrize("by_id", [False, True])
def test_planetoid_keeps_the_split_of_the_data(by_id: bool) -> None:
    graph = small().with_split(*torch.eye(7, dtype=torch.bool)[:3])
    recipe = RECIPES["planetoid"].on_clients() if by_id else RECIPES["planetoid"]
    made = recipe.split(recipe.prepare(graph), 5)
    assert same_split(made, graph) and made.adjacency is graph.adjacency
    assert CLASSES_PUBLIC in made.notes and made.deviations == ()
    with pytest.raises(GraphError, match=r"has no split\. Call gv\.split"):
        recipe.split(small(), 0)


@pytest.mark.parametrize(
    ("name", "deviations"),
    [("gap", (ISOLATED_DROPPED,)), ("lpgnn", (CONSTANT_DROPPED,)), ("weighted", ()), ("planetoid", ())],
)
def test_paper_mode_is_recorded_in_derived_graphs(name: str, deviations: tuple[str, ...]) -> None:
    graph = RECIPES[name].prepare(small(), paper=True)
    assert graph.deviations == deviations
    assert RECIPES[name].prepare(graph, paper=True).deviations == deviations  # listed once
    masks = torch.eye(graph.num_nodes, dtype=torch.bool)[:3]
    all_nodes = torch.ones(graph.num_nodes, dtype=torch.bool)
    for derived in (graph.with_split(*masks), graph.subgraph(all_nodes), graph.replace(name="other")):
        assert derived.deviations == deviations


def test_gap_drops_isolated_nodes_in_paper_mode_and_does_not_reveal_whether_there_were_any() -> None:
    recipe = RECIPES["gap"]
    assert recipe.prepare(small("cora")).num_nodes == 7
    assert to_dense(recipe.prepare(small("cora"), paper=True).x)[:, 0].tolist() == [0, 1, 2, 4, 5, 6]
    assert recipe.prepare(small("cora", directed=True), paper=True).num_nodes == 6  # out-edges count
    ring = Graph.from_edges(torch.eye(4), [0, 1, 0, 1], range(4), [1, 2, 3, 0], directed=False)
    assert recipe.prepare(ring, paper=True).deviations == (ISOLATED_DROPPED,)


@pytest.mark.parametrize(
    ("name", "least"), [("facebook100/UCLA26", 1_000), ("reddit", 10_000), ("ogbn_products", 100_000)]
)
def test_gap_filters_classes_by_dataset(name: str, least: int) -> None:
    with pytest.raises(GraphError, match=f"have at least {least} nodes"):
        RECIPES["gap"].prepare(small(name))
    assert RECIPES["gap"].prepare(small("facebook100/Reed98")).num_nodes == 6  # all classes of a small school


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize(
    ("x", "expected", "is_sparse"),
    [
        ([[0, 5], [6, 5], [3, 5]], [[0, 0], [1, 0], [0.5, 0]], False),
        (sparse.csr_array([[0, 0, 4.0], [2, 0, 1], [1, 0, 0]]), [[0, 0, 1], [1, 0, 0.25], [0.5, 0, 0]], True),
        # A shift would fill the zeros of a sparse matrix, which therefore becomes dense.
        (sparse.csr_array(np.array([[1.0, 0], [3, -1], [2, 0]])), [[0, 1], [1, 0], [0.5, 1]], False),
    ],
)
def test_lpgnn_scales_features_and_drops_constant_ones_in_paper_mode(
    x: Any, expected: Any, is_sparse: bool, paper: bool
) -> None:
    graph = Graph.from_edges(x, [0, 1, 1], [0], [1], directed=False)
    found = RECIPES["lpgnn"].prepare(graph, paper=paper).x
    columns = np.array(expected)
    assert np.allclose(to_dense(found).numpy(), columns[:, columns.any(axis=0)] if paper else columns)
    assert isinstance(found, sparse.csr_array) == is_sparse


def test_weighted_removes_exactly_the_edges_between_test_and_other_nodes() -> None:
    before, recipe = large(), RECIPES["weighted"]
    graph = recipe.split(before, 0)
    test = graph.masks["test_mask"]
    (source, target), (old_source, old_target) = graph.adjacency.edge_index(), before.adjacency.edge_index()
    assert torch.equal(test[source], test[target]) and graph.edge_set is before.edge_set
    assert len(source) == int((test[old_source] == test[old_target]).sum())
    assert (graph.masks["train_mask"][source] & graph.masks["val_mask"][target]).any()
    with pytest.raises(GraphError, match="Prepare the original graph instead"):
        recipe.split(graph, 1)  # which has lost edges that this split may need
    assert RECIPES["gap"].split(graph, 1).edge_set is graph.edge_set


def test_custom_recipes() -> None:
    recipe = DatasetRecipe(name="mine", shares=(0.5, 0.0), class_filters={"graph": ClassFilter(min_nodes=2)})
    graph = recipe.split(recipe.prepare(small()), 0)
    assert graph.num_nodes == 5 and sizes(graph)[2] == 3


# -- recipes for protected records ----


@pytest.mark.parametrize("name", ["gap", "lpgnn", "weighted"])
def test_recipes_on_clients_do_not_read_labels(name: str) -> None:
    graph, recipe = large(), RECIPES[name].on_clients()
    relabeled = graph.replace(y=torch.where(torch.arange(400) < 50, -1, (graph.y + 1) % 4))
    first, second = (recipe.split(one, 3) for one in (graph, relabeled))
    assert same_split(first, second) and torch.equal(first.adjacency.indices, second.adjacency.indices)
    assert torch.stack(list(first.masks.values())).any(dim=0).all()
    assert first.notes == recipe.public_notes
    assert not same_split(first, recipe.split(graph, 4))


def test_recipes_on_clients_do_not_scale_features() -> None:
    graph, recipe = large(), RECIPES["lpgnn"].on_clients()
    x = to_dense(graph.x)
    moved = graph.replace(x=torch.cat([x[:1] * 100, x[1:]]))
    first, second = (to_dense(recipe.prepare(one).x) for one in (graph, moved))
    assert torch.equal(first[1:], second[1:]) and RANGES_PUBLIC not in recipe.public_notes


def test_load_dataset_for_protected_records_neither_scales_nor_reads_labels() -> None:
    raw = load_dataset("synthetic/tiny", recipe=None)
    graph = load_dataset("synthetic/tiny", recipe="lpgnn", by_id=True)
    assert torch.equal(to_dense(graph.x), to_dense(raw.x))
    assert same_split(graph, hash_split(raw, train=0.5, val=0.25, seed=0))
