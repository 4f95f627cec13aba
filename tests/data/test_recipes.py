import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import RECIPES, DatasetRecipe, Graph, hash_split, load_dataset, to_dense
from graphveil.data.recipes import (
    CLASSES_PUBLIC,
    CONSTANT_DROPPED,
    ISOLATED_DROPPED,
    NO_CROSSING,
    RANGES_PUBLIC,
    ClassFilter,
)
from graphveil.errors import GraphError

# Classes 0, 1, 2 with three, one and two nodes; node 6 has no label; node 3 is isolated.
Y = [0, 1, 0, 0, 2, 2, -1]
EDGES = ([0, 1, 4, 0], [1, 2, 5, 6])


def small(name="graph", **changes):
    x = torch.tensor([[float(node), 5.0] for node in range(7)])
    fields = {"name": name, "class_names": ("a", "b", "c"), "directed": False}
    return Graph.from_edges(x, Y, *EDGES, **(fields | changes))


def large(name="graph", nodes=400):
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        torch.rand(nodes, 3),
        np.arange(nodes) % 4,
        rng.integers(nodes, size=2000),
        rng.integers(nodes, size=2000),
        directed=False,
        num_classes=4,
        name=name,
    )


class TestClassFilter:
    def test_small_classes_go_with_their_nodes_and_edges(self):
        graph = ClassFilter(min_nodes=2)(small())
        assert graph.y.tolist() == [0, 0, 0, 1, 1] and graph.class_names == ("a", "c")
        assert graph.x[:, 0].tolist() == [0, 2, 3, 4, 5]
        assert graph.adjacency.edge_index().tolist() == [[4, 3], [3, 4]]

    def test_unlabeled_nodes_always_go(self):
        assert ClassFilter()(small()).num_nodes == 6

    def test_the_largest_stay_in_their_old_order(self):
        graph = ClassFilter(largest=2)(small(class_names=()))
        assert graph.y.tolist() == [0, 0, 0, 1, 1] and graph.class_names == ()

    def test_fewer_than_two_classes_are_refused(self):
        with pytest.raises(
            GraphError, match="fewer than two classes of 'graph' have 3 nodes or more; lower min"
        ):
            ClassFilter(min_nodes=3)(small())

    def test_empty_classes_do_not_count(self):
        assert ClassFilter()(small(num_classes=5, class_names=())).num_classes == 3

    def test_the_edge_set_stays(self):
        graph = small()
        assert ClassFilter()(graph).edge_set is graph.edge_set


class TestTable:
    def test_names(self):
        assert set(RECIPES) == {"gap", "lpgnn", "weighted", "planetoid"}
        assert all(name == recipe.name for name, recipe in RECIPES.items())

    def test_it_cannot_be_changed(self):
        with pytest.raises(TypeError):
            RECIPES["gap"] = RECIPES["lpgnn"]
        with pytest.raises(dataclasses.FrozenInstanceError):
            RECIPES["gap"].shares = (0.5, 0.5)

    @pytest.mark.parametrize("name", list(RECIPES))
    def test_every_recipe_says_that_classes_and_split_are_public(self, name):
        graph = small().with_split(*torch.eye(7, dtype=torch.bool)[:3])
        split = RECIPES[name].split(RECIPES[name].prepare(graph), 0)
        assert CLASSES_PUBLIC in split.notes and split.deviations == ()

    def test_notes(self):
        assert RECIPES["lpgnn"].split(large(), 0).notes == (CLASSES_PUBLIC, RANGES_PUBLIC)
        assert RECIPES["weighted"].split(large(), 0).notes == (CLASSES_PUBLIC, NO_CROSSING)

    @pytest.mark.parametrize(
        ("name", "marks"),
        [("gap", (ISOLATED_DROPPED,)), ("lpgnn", (CONSTANT_DROPPED,)), ("weighted", ()), ("planetoid", ())],
    )
    def test_what_paper_mode_did_stays_on_the_graph(self, name, marks):
        graph = RECIPES[name].prepare(small(), paper=True)
        assert graph.deviations == marks
        assert RECIPES[name].prepare(graph, paper=True).deviations == marks  # listed once
        masks = torch.eye(graph.num_nodes, dtype=torch.bool)[:3]
        everybody = torch.ones(graph.num_nodes, dtype=torch.bool)
        for derived in (graph.with_split(*masks), graph.subgraph(everybody), graph.replace(name="other")):
            assert derived.deviations == marks

    def test_the_mark_does_not_tell_whether_a_node_was_isolated(self):
        ring = Graph.from_edges(torch.eye(4), [0, 1, 0, 1], range(4), [1, 2, 3, 0], directed=False)
        assert RECIPES["gap"].prepare(ring, paper=True).deviations == (ISOLATED_DROPPED,)

    def test_only_planetoid_has_a_fixed_split(self):
        assert [name for name, recipe in RECIPES.items() if recipe.fixed_split] == ["planetoid"]


class TestGap:
    recipe = RECIPES["gap"]

    def test_other_data_keep_every_node(self):
        assert self.recipe.prepare(small("cora")).num_nodes == 7

    def test_isolated_nodes_go_in_paper_mode_only(self):
        graph = self.recipe.prepare(small("cora"), paper=True)
        assert graph.x[:, 0].tolist() == [0, 1, 2, 4, 5, 6]

    def test_a_directed_node_with_out_edges_is_not_isolated(self):
        graph = self.recipe.prepare(small("cora", directed=True), paper=True)
        assert graph.num_nodes == 6

    @pytest.mark.parametrize(
        ("name", "least"), [("facebook100/UCLA26", 1_000), ("reddit", 10_000), ("ogbn_products", 100_000)]
    )
    def test_thresholds(self, name, least):
        with pytest.raises(GraphError, match=f"have {least} nodes or more"):
            self.recipe.prepare(small(name))

    def test_the_small_school_keeps_every_class(self):
        assert self.recipe.prepare(small("facebook100/Reed98")).num_nodes == 6

    def test_split(self):
        graph = self.recipe.split(large(), 0)
        assert [int(graph.mask(part).sum()) for part in ("train", "val", "test")] == [300, 40, 60]


class TestLpgnn:
    recipe = RECIPES["lpgnn"]

    def test_features_lie_in_the_unit_interval(self):
        graph = self.recipe.prepare(small())
        assert torch.allclose(graph.x[:, 0], torch.arange(7) / 6)
        assert graph.x[:, 1].tolist() == [0] * 7

    def test_constant_features_go_in_paper_mode_only(self):
        assert self.recipe.prepare(small(), paper=True).num_features == 1

    @pytest.mark.parametrize("paper", [False, True])
    def test_sparse_features_stay_sparse(self, paper):
        x = np.array([[0, 0, 4.0], [2, 0, 1], [1, 0, 0]])
        graph = Graph.from_edges(sparse.csr_array(x), [0, 1, 1], [0], [1], directed=False)
        graph = self.recipe.prepare(graph, paper=paper)
        assert isinstance(graph.x, sparse.csr_array)
        expected = np.array([[0, 0, 1], [1, 0, 0.25], [0.5, 0, 0]])
        assert np.array_equal(
            to_dense(graph.x).numpy(), np.delete(expected, 1, axis=1) if paper else expected
        )

    def test_sparse_features_that_a_shift_would_fill_become_dense(self):
        x = sparse.csr_array(np.array([[1.0, 0], [3, -1], [2, 0]]))
        graph = self.recipe.prepare(Graph.from_edges(x, [0, 1, 1], [0], [1], directed=False))
        assert graph.x.tolist() == [[0, 1], [1, 0], [0.5, 1]]

    def test_split(self):
        graph = self.recipe.split(large(), 0)
        assert [int(graph.mask(part).sum()) for part in ("train", "val", "test")] == [200, 100, 100]


class TestWeighted:
    recipe = RECIPES["weighted"]

    def test_no_edge_crosses_to_the_test_nodes(self):
        before = large()
        graph = self.recipe.split(before, 0)
        assert [int(graph.mask(part).sum()) for part in ("train", "val", "test")] == [288, 32, 80]
        source, target = graph.adjacency.edge_index()
        assert torch.equal(graph.test_mask[source], graph.test_mask[target])
        source, target = before.adjacency.edge_index()
        kept = int((graph.test_mask[source] == graph.test_mask[target]).sum())
        assert len(graph.adjacency.indices) == kept and graph.edge_set is before.edge_set

    def test_edges_between_train_and_val_stay(self):
        graph = self.recipe.split(large(), 0)
        source, target = graph.adjacency.edge_index()
        assert (graph.train_mask[source] & graph.val_mask[target]).any()

    def test_a_graph_that_lost_its_crossing_edges_is_not_split_again(self):
        graph = self.recipe.split(large(), 0)
        with pytest.raises(GraphError, match="split the prepared graph"):
            self.recipe.split(graph, 1)
        assert RECIPES["gap"].split(graph, 1).edge_set is graph.edge_set  # takes nothing away, now or before


class TestSplitById:
    @pytest.mark.parametrize("name", ["gap", "lpgnn", "weighted"])
    def test_every_node_has_a_part_whatever_its_label_says(self, name):
        graph = large()
        moved = graph.replace(y=torch.where(torch.arange(400) < 50, -1, (graph.y + 1) % 4))
        recipe = RECIPES[name].on_clients()
        first, second = (recipe.split(one, 3) for one in (graph, moved))
        for part in ("train_mask", "val_mask", "test_mask"):
            assert torch.equal(getattr(first, part), getattr(second, part))
        assert bool((first.train_mask | first.val_mask | first.test_mask).all())
        assert first.notes == recipe.public_notes

    def test_no_record_decides_how_others_are_scaled(self):
        graph = large()
        moved = graph.replace(x=torch.cat([graph.x[:1] * 100, graph.x[1:]]))
        recipe = RECIPES["lpgnn"].on_clients()
        first, second = (recipe.prepare(one) for one in (graph, moved))
        assert torch.equal(first.x[1:], second.x[1:]) and RANGES_PUBLIC not in recipe.public_notes
        with pytest.raises(GraphError, match=r"scales features.*on_clients"):
            RECIPES["lpgnn"].split(RECIPES["lpgnn"].prepare(graph), 0, by_id=True)

    @pytest.mark.parametrize("flag", ["by_id", "on_clients"])
    def test_a_data_set_for_protected_records_is_neither_scaled_nor_split_by_labels(self, flag):
        raw = load_dataset("synthetic/tiny", recipe=None)
        graph = load_dataset("synthetic/tiny", recipe="lpgnn", **{flag: True})
        assert torch.equal(to_dense(graph.x), to_dense(raw.x))
        assert torch.equal(graph.train_mask, hash_split(raw, train=0.5, val=0.25, seed=0).train_mask)

    def test_no_label_decides_which_edges_cross(self):
        graph = large()
        nulled = graph.replace(y=torch.where(torch.arange(400) < 50, -1, graph.y))
        kept = [RECIPES["weighted"].split(one, 3, by_id=True).adjacency.indices for one in (graph, nulled)]
        assert torch.equal(*kept)

    def test_several_seeds_are_several_splits(self):
        splits = [RECIPES["gap"].split(large(), seed, by_id=True).train_mask for seed in (0, 1)]
        assert not torch.equal(*splits)

    def test_the_split_of_the_data_stays(self):
        graph = small().with_split(*torch.eye(7, dtype=torch.bool)[:3])
        split = RECIPES["planetoid"].split(graph, 0, by_id=True)
        assert torch.equal(split.train_mask, graph.train_mask)


class TestPlanetoid:
    recipe = RECIPES["planetoid"]

    def test_the_split_of_the_data_stays(self):
        masks = torch.eye(7, dtype=torch.bool)[:3]
        graph = small().with_split(*masks)
        split = self.recipe.split(graph, 5)
        assert all(torch.equal(split.mask(part), graph.mask(part)) for part in ("train", "val", "test"))
        assert split.adjacency is graph.adjacency

    def test_without_one_it_is_refused(self):
        with pytest.raises(GraphError, match="has no split"):
            self.recipe.split(small(), 0)


def test_a_recipe_of_ones_own():
    recipe = DatasetRecipe(name="mine", shares=(0.5, 0.0), class_filters={"graph": ClassFilter(min_nodes=2)})
    graph = recipe.split(recipe.prepare(small()), 0)
    assert graph.num_nodes == 5 and int(graph.mask("test").sum()) == 3
