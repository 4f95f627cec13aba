"""Recipe R: sums over out-neighbors without a node's own contribution, and the combiner that reads them."""

import pytest
import torch
from contracts.steps import SilentRelease

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.estimators.classcode.node import (
    NodeMessages,
    combine,
    combiner_inputs,
    fit_combiner,
    own_neighborhood_sum,
    prior_combiner_weights,
    row_shrinkage,
)
from tests.estimators.classcode.node.exact_aggregation import ExactAggregation

CODES = torch.tensor([[1.0, 0.0], [-0.5, 0.8660254], [-0.5, -0.8660254]], dtype=torch.float64)
OUT_NEIGHBORS = {0: [2, 3], 1: [2]}
SIGMA = 2.0


def sent_codes() -> torch.Tensor:
    sent = torch.zeros(4, 2, dtype=torch.float64)
    sent[:2] = CODES[:2]
    return sent


def exact_rows(sent: torch.Tensor, out_neighbors: dict[int, list[int]] = OUT_NEIGHBORS) -> torch.Tensor:
    return ExactAggregation(out_neighbors, 4).mean(sent, torch.ones(4, dtype=torch.int64))


def neighborhood_sum(
    sent: torch.Tensor,
    rows: torch.Tensor,
    out_neighbors: dict[int, list[int]] = OUT_NEIGHBORS,
    *,
    shrinkage: torch.Tensor | None = None,
    sigma: float = SIGMA,
    out_degree_bound: float = 1.0,
) -> torch.Tensor:
    source, target = zip(*((u, v) for u, own in out_neighbors.items() for v in own), strict=True)
    adjacency = Adjacency.from_edges(source, target, num_nodes=len(sent), directed=True)
    trusted = torch.ones(len(sent)) if shrinkage is None else shrinkage
    return own_neighborhood_sum(adjacency, rows, sigma, trusted, sent, out_degree_bound)


def test_a_node_changes_aggregates_by_one_at_most() -> None:
    rows = exact_rows(sent_codes())
    expected = torch.tensor([[0, 0], [0, 0], [0.2071068, 0.8660254], [0.7071068, 0]])
    torch.testing.assert_close(rows, expected.double(), atol=1e-6, rtol=0)
    for other in (0, 1):
        without = exact_rows(sent_codes(), {other: OUT_NEIGHBORS[other]})
        assert float((rows - without).norm()) == pytest.approx(1.0, abs=1e-7)


def test_a_sum_excludes_the_nodes_own_contribution_and_so_its_label() -> None:
    found = neighborhood_sum(sent_codes(), exact_rows(sent_codes()))
    torch.testing.assert_close(found[0] * SIGMA * 2**0.5, CODES[1])  # only what node 1 sent to node 2
    torch.testing.assert_close(found[1:] * SIGMA, torch.tensor([[0.7071068, 0], [0, 0], [0, 0]]).double())
    for label in range(3):
        sent = sent_codes()
        sent[0] = CODES[label]
        torch.testing.assert_close(neighborhood_sum(sent, exact_rows(sent))[0], found[0])


def test_a_sum_depends_on_published_aggregates_and_the_own_record_only() -> None:
    sent, rows = sent_codes(), torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    before = neighborhood_sum(sent, rows)
    changed = sent.clone()
    changed[1] = 9.0
    after = neighborhood_sum(changed, rows, {**OUT_NEIGHBORS, 1: [3, 0]})
    torch.testing.assert_close(before[[0, 2, 3]], after[[0, 2, 3]], rtol=0, atol=0)
    assert not torch.allclose(before[1], after[1])


def test_the_noise_of_a_sum_does_not_depend_on_the_degree() -> None:
    out_neighbors = {0: list(range(1, 200)), 1: [5, 7]}
    generator = torch.Generator().manual_seed(0)
    rows = 0.3 * torch.randn(300, 5000, generator=generator).double()
    for shrinkage in (torch.ones(300), torch.rand(300, generator=generator) + 0.1):
        found = neighborhood_sum(0 * rows, rows, out_neighbors, sigma=0.3, shrinkage=shrinkage)
        assert found[:2].std(dim=1).tolist() == pytest.approx([1, 1], abs=0.05)


def test_own_contributions_are_subtracted_with_the_shrinkage_of_each_aggregate() -> None:
    sent, shrinkage = sent_codes(), torch.tensor([1.0, 1.0, 3.0, 0.5]).double()
    rows = exact_rows(sent)
    own = CODES[0] / 2**0.5
    expected = (3 * (rows[2] - own) + 0.5 * (rows[3] - own)) / (SIGMA * (9 + 0.25) ** 0.5)
    torch.testing.assert_close(neighborhood_sum(sent, rows, shrinkage=shrinkage)[0], expected)


def test_a_bound_on_out_degrees_reduces_the_weight_of_nodes_below_it() -> None:
    sent = sent_codes()
    found = neighborhood_sum(sent, 0 * exact_rows(sent), out_degree_bound=8.0)
    torch.testing.assert_close(found[0], -2 * CODES[0] / 8**0.5 / (SIGMA * 2**0.5))


def test_sums_exclude_what_messages_of_a_fit_contribute() -> None:
    messages = NodeMessages(torch.tensor([0, 1, -1, -1]), torch.tensor([True, True, False, False]), 3, 0.0)
    vectors = messages.first(torch.zeros(4, 3))
    found = neighborhood_sum(vectors, exact_rows(vectors))
    torch.testing.assert_close(found[0] * SIGMA * 2**0.5, vectors[1])


def test_weak_aggregates_count_by_strength_and_strong_ones_by_direction() -> None:
    strengths, sigma = torch.tensor([0.01, 0.02, 50.0, 100.0]).double(), 2.0
    shrinkage = row_shrinkage(strengths, sigma)
    assert shrinkage[1] / shrinkage[0] == pytest.approx(2, rel=1e-3)
    assert (shrinkage * strengths)[2] / (shrinkage * strengths)[3] == pytest.approx(1, rel=1e-2)


# -- the combiner ------------------------------------------------------------------------------------------


def test_inputs_are_clipped_as_specified() -> None:
    log = torch.tensor([[0.0, -3.0, -6.0]]).double()
    likely = torch.tensor([[9.0, -3.0, 0.0]]).double()
    short, long = torch.tensor([[3.0, 0.0]]).double(), torch.tensor([[0.0, 60.0]]).double()
    assert combiner_inputs(log, short, likely).tolist() == [[3, 0, -3, 1, 0, 1, 0, 2, -1, 0]]
    assert combiner_inputs(log, long, likely)[0, 3:7].tolist() == [0, 2, 0, 1]
    assert (combiner_inputs(log, 0 * short, likely)[0, 3:7] == 0).all()


def test_the_initial_combiner_assumes_homophily() -> None:
    codes, start, flat = simplex_codes(3), prior_combiner_weights(3), torch.zeros(3, 3).double()
    assert combine(start, combiner_inputs(flat, codes, flat)).argmax(dim=1).tolist() == [0, 1, 2]
    like = combiner_inputs(flat, 0 * codes, 3 * torch.eye(3).double())
    torch.testing.assert_close(combine(start, like), (2 * torch.eye(3).double()).log_softmax(dim=1))


def test_training_corrects_a_wrong_prior() -> None:
    y, generator = torch.arange(600) % 3, torch.Generator().manual_seed(0)
    wrong = simplex_codes(3)[(y + 1) % 3] * 2 + 0.1 * torch.randn(600, 2, generator=generator).double()
    flat = torch.zeros(600, 3).double()
    inputs, labeled = combiner_inputs(flat, wrong, flat), torch.arange(600) < 400
    query = DPSGDQuery(parameters=33, steps=40, noise_multiplier=1.0)
    start, fitted = (
        combine(weights, inputs).argmax(dim=1) == y
        for weights in (
            prior_combiner_weights(3),
            fit_combiner(inputs[labeled], y[labeled], query, SilentRelease()),  # type: ignore[arg-type]
        )
    )
    assert start.float().mean() < 0.1 and fitted[~labeled].float().mean() > 0.9
