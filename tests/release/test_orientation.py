"""An undirected edge counts once in training, in a direction that does not depend on other edges."""

import numpy as np

from graphveil.core.queries.held_out import counts_at_target

UP, DOWN = np.triu_indices(200, k=1)
ALL_NODES = np.ones(200, dtype=np.int64)


def test_exactly_one_direction_of_an_undirected_edge_is_used() -> None:
    for ranks in (ALL_NODES, 0 * ALL_NODES, np.arange(200) % 3):
        assert (counts_at_target(UP, DOWN, ranks) ^ counts_at_target(DOWN, UP, ranks)).all()


def test_an_undirected_edge_counts_at_the_training_node() -> None:
    learns = np.arange(200) < 50
    into = counts_at_target(UP, DOWN, learns.astype(np.int64))
    assert not into[learns[UP] & ~learns[DOWN]].any()
    assert counts_at_target(DOWN, UP, learns.astype(np.int64))[learns[UP] & ~learns[DOWN]].all()


def test_directions_between_equal_nodes_are_balanced() -> None:
    used = counts_at_target(UP, DOWN, ALL_NODES)
    assert abs(used.mean() - 0.5) < 5 * 0.5 / len(used) ** 0.5
    received = np.bincount(DOWN[used], minlength=200) + np.bincount(UP[~used], minlength=200)
    assert np.abs(received - 199 / 2).max() < 5 * (199 / 4) ** 0.5


def test_a_direction_depends_on_its_own_two_ends_only() -> None:
    one_by_one = [
        counts_at_target(UP[i : i + 1], DOWN[i : i + 1], ALL_NODES)[0] for i in range(0, len(UP), 97)
    ]
    assert (counts_at_target(UP, DOWN, ALL_NODES)[::97] == one_by_one).all()
