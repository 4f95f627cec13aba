"""Recipe R: the hand example, reading without one's own messages, and the combiner's public start."""

import numpy as np
import pytest
import torch
from contracts.steps import SilentRelease

from graphveil.data import Adjacency
from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.node_method import (
    Combiner,
    NodeMessages,
    combiner_inputs,
    fit_combiner,
    own_neighborhood_sum,
    prior_combiner_weights,
    row_shrinkage,
)
from graphveil.release.out_edge_sums import read_out_neighbor_sums
from tests.estimators.classcode.owner.exact import ExactPush

HAND = torch.tensor([[1.0, 0.0], [-0.5, 0.8660254], [-0.5, -0.8660254]], dtype=torch.float64)
LISTS = {0: [2, 3], 1: [2]}
ONE = torch.ones(4, dtype=torch.int64)


class Silent:
    steps = 2.0**20

    def noise(self, step: int) -> np.ndarray:
        return np.zeros(33, dtype=np.int64)


def hand_sent() -> torch.Tensor:
    sent = torch.zeros(4, 2, dtype=torch.float64)
    sent[0], sent[1] = HAND[0], HAND[1]
    return sent


def adjacency(lists: dict[int, list[int]] = LISTS) -> Adjacency:
    source, target = zip(*((u, v) for u, own in lists.items() for v in own), strict=True)
    return Adjacency.from_edges(source, target, num_nodes=4, directed=True)


def neighborhood_sum(
    sent: torch.Tensor,
    rows: torch.Tensor,
    lists: dict[int, list[int]] = LISTS,
    shrinkage: torch.Tensor | None = None,
    out_degree_bound: float = 1.0,
) -> torch.Tensor:
    shrinkage = torch.ones(4) if shrinkage is None else shrinkage
    return own_neighborhood_sum(
        lambda rows: read_out_neighbor_sums(adjacency(lists), rows),
        rows,
        2.0,
        shrinkage,
        sent,
        out_degree_bound,
    )


def test_hand_example_rows() -> None:
    rows = ExactPush(LISTS, 4).mean(hand_sent(), ONE)
    expected = torch.tensor([[0, 0], [0, 0], [0.2071068, 0.8660254], [0.7071068, 0]])
    torch.testing.assert_close(rows, expected.double(), atol=1e-6, rtol=0)
    for q, own in ((0, [1]), (1, [0])):
        without = ExactPush({u: LISTS[u] for u in own}, 4).mean(hand_sent(), ONE)
        assert float((rows - without).norm()) == pytest.approx(1.0, abs=1e-7), q


def test_hand_example_reading() -> None:
    heard = neighborhood_sum(hand_sent(), ExactPush(LISTS, 4).mean(hand_sent(), ONE))
    torch.testing.assert_close(heard[0] * 2.0 * 2**0.5, HAND[1])  # rows 2 and 3 without its own writes
    torch.testing.assert_close(heard[1:] * 2.0, torch.tensor([[0.7071068, 0], [0, 0], [0, 0]]).double())


@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_nodes_reading_does_not_depend_on_its_own_label(label: int) -> None:
    sent = hand_sent()
    before = neighborhood_sum(sent, ExactPush(LISTS, 4).mean(sent, ONE))
    sent[0] = HAND[label]
    after = neighborhood_sum(sent, ExactPush(LISTS, 4).mean(sent, ONE))
    torch.testing.assert_close(before[0], after[0])


def test_a_reading_depends_on_published_rows_and_the_own_record_only() -> None:
    sent, rows = hand_sent(), torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    before = neighborhood_sum(sent, rows)
    changed = sent.clone()
    changed[1] = 9.0
    after = neighborhood_sum(changed, rows, {**LISTS, 1: [3, 0]})
    torch.testing.assert_close(before[[0, 2, 3]], after[[0, 2, 3]], rtol=0, atol=0)
    assert not torch.allclose(before[1], after[1])


def test_noise_of_a_reading_is_one_whatever_the_degree() -> None:
    lists = {0: list(range(1, 200)), 1: [5, 7]}
    source, target = zip(*((u, v) for u, own in lists.items() for v in own), strict=True)
    edges = Adjacency.from_edges(source, target, num_nodes=300, directed=True)
    generator = torch.Generator().manual_seed(0)
    rows = 0.3 * torch.randn(300, 5000, generator=generator).double()
    none_before_fit = torch.zeros(300, 5000).double()
    for shrinkage in (torch.ones(300), torch.rand(300, generator=generator) + 0.1):
        heard = own_neighborhood_sum(
            lambda z: read_out_neighbor_sums(edges, z), rows, 0.3, shrinkage, none_before_fit
        )
        assert heard[:2].std(dim=1).tolist() == pytest.approx([1, 1], abs=0.05)


def test_rows_count_by_their_trust_and_own_messages_go_out_at_the_same() -> None:
    sent, shrinkage = hand_sent(), torch.tensor([1.0, 1.0, 3.0, 0.5]).double()
    rows = ExactPush(LISTS, 4).mean(sent, ONE)
    heard = neighborhood_sum(sent, rows, shrinkage=shrinkage)
    own = HAND[0] / 2**0.5
    expected = (3 * (rows[2] - own) + 0.5 * (rows[3] - own)) / (2.0 * (9 + 0.25) ** 0.5)
    torch.testing.assert_close(heard[0], expected)


def test_a_degree_budget_weighs_short_lists_down() -> None:
    sent = hand_sent()
    rows = ExactPush(LISTS, 4).mean(sent, ONE) * 0
    heard = neighborhood_sum(sent, rows, out_degree_bound=8.0)
    torch.testing.assert_close(heard[0], -2 * HAND[0] / 8**0.5 / (2.0 * 2**0.5))


def test_faint_rows_count_by_strength_and_strong_ones_by_direction() -> None:
    strengths, sigma = torch.tensor([0.01, 0.02, 50.0, 100.0]).double(), 2.0
    shrinkage = row_shrinkage(strengths, sigma)
    assert shrinkage[1] / shrinkage[0] == pytest.approx(2, rel=1e-3)
    assert (shrinkage * strengths)[2] / (shrinkage * strengths)[3] == pytest.approx(1, rel=1e-2)


def test_inputs_are_as_specified() -> None:
    log = torch.tensor([[0.0, -3.0, -6.0]]).double()
    likely = torch.tensor([[9.0, -3.0, 0.0]]).double()
    short, long = torch.tensor([[3.0, 0.0]]).double(), torch.tensor([[0.0, 60.0]]).double()
    expected = [[3, 0, -3, 1, 0, 1, 0, 2, -1, 0]]
    assert combiner_inputs(log, short, likely).tolist() == expected
    assert combiner_inputs(log, long, likely)[0, 3:7].tolist() == [0, 2, 0, 1]
    assert (combiner_inputs(log, 0 * short, likely)[0, 3:7] == 0).all()


def test_the_start_believes_that_friends_resemble_each_other() -> None:
    codes = simplex_codes(3)
    start = Combiner(prior_combiner_weights(3))
    flat = torch.zeros(3, 3).double()
    assert start.log_posteriors(combiner_inputs(flat, codes, flat)).argmax(dim=1).tolist() == [0, 1, 2]
    like = combiner_inputs(flat, 0 * codes, 3 * torch.eye(3).double())
    torch.testing.assert_close(start.log_posteriors(like), (2 * torch.eye(3).double()).log_softmax(dim=1))


def test_the_combiner_learns_which_evidence_to_trust() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    wrong = simplex_codes(3)[(y + 1) % 3] * 2 + 0.1 * torch.randn(600, 2, generator=generator).double()
    flat = torch.zeros(600, 3).double()
    inputs, labeled = combiner_inputs(flat, wrong, flat), torch.arange(600) < 400
    fitted = fit_combiner(inputs[labeled], y[labeled], 40, SilentRelease())  # type: ignore[arg-type]
    assert (
        Combiner(prior_combiner_weights(3)).log_posteriors(inputs).argmax(dim=1) == y
    ).float().mean() < 0.1
    assert (fitted.log_posteriors(inputs).argmax(dim=1) == y)[~labeled].float().mean() > 0.9


def test_messages_and_reading_agree_on_what_was_written() -> None:
    sent = NodeMessages(torch.tensor([0, 1, -1, -1]), torch.tensor([True, True, False, False]), 3, 0.0)
    vectors = sent.first(torch.zeros(4, 3))
    heard = neighborhood_sum(vectors, ExactPush(LISTS, 4).mean(vectors, ONE))
    torch.testing.assert_close(heard[0] * 2.0 * 2**0.5, vectors[1])
