"""An undirected edge counts once in training, in a direction that does not depend on other edges."""

import numpy as np

from graphveil.core.queries.held_out import select_one_direction

UP, DOWN = np.triu_indices(200, k=1)
ALL_NODES = np.ones(200, dtype=bool)


def test_exactly_one_direction_of_an_undirected_edge_is_used() -> None:
    for learns in (ALL_NODES, ~ALL_NODES, np.arange(200) % 3 == 0):
        assert (select_one_direction(UP, DOWN, learns) ^ select_one_direction(DOWN, UP, learns)).all()


def test_an_undirected_edge_counts_at_the_training_node() -> None:
    learns = np.arange(200) < 50
    into = select_one_direction(UP, DOWN, learns)
    assert not into[learns[UP] & ~learns[DOWN]].any()
    assert select_one_direction(DOWN, UP, learns)[learns[UP] & ~learns[DOWN]].all()


def test_directions_between_equal_nodes_are_balanced() -> None:
    used = select_one_direction(UP, DOWN, ALL_NODES)
    assert abs(used.mean() - 0.5) < 5 * 0.5 / len(used) ** 0.5
    received = np.bincount(DOWN[used], minlength=200) + np.bincount(UP[~used], minlength=200)
    assert np.abs(received - 199 / 2).max() < 5 * (199 / 4) ** 0.5


def test_a_direction_depends_on_its_own_two_ends_only() -> None:
    one_by_one = [
        select_one_direction(UP[i : i + 1], DOWN[i : i + 1], ALL_NODES)[0] for i in range(0, len(UP), 97)
    ]
    assert (select_one_direction(UP, DOWN, ALL_NODES)[::97] == one_by_one).all()
