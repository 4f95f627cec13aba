"""The privacy cost of ClassCode's release: one in every pair of groups, for any share of counts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import compose
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumQuery
from graphveil.core.query import Query
from graphveil.core.unit import DirectedEdge, UndirectedEdge
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.edge import GROUPS, TARGET, TRAIN, VAL, code_sum_queries


def pair_costs(queries: tuple[Query, ...], unit: UndirectedEdge | DirectedEdge) -> torch.Tensor:
    """Sum the squared shifts of all queries for each pair of groups."""
    tables = [query.event(unit).mu_squared for query in queries]  # type: ignore[attr-defined]  # all are Gaussian
    return torch.tensor(tables, dtype=torch.float64).sum(dim=0)


def test_target_weights_have_sensitivity_one_and_equal_weights_sqrt_two() -> None:
    unit = UndirectedEdge()
    assert GroupWeights.target_weighted().sensitivity(unit) == pytest.approx(1.0, abs=1e-12)
    assert GroupWeights.equal("x", 3).sensitivity(unit) == pytest.approx(1.414214, abs=1e-6)


def test_every_pair_of_groups_is_charged_the_budget() -> None:
    queries = code_sum_queries(
        UndirectedEdge(), 0.5, 3, count_share=0.05, few_labels=False, reverse_weight=0.3
    )
    costs = pair_costs(queries, UndirectedEdge())
    torch.testing.assert_close(costs, torch.full((GROUPS, GROUPS), 0.25, dtype=torch.float64))


@given(
    rho=st.floats(0.001, 0.5),
    target_to_labeled_weight=st.floats(0, 1),
    mu=st.floats(0.01, 5),
    few=st.booleans(),
)
def test_no_pair_of_groups_is_ever_charged_more(
    rho: float, target_to_labeled_weight: float, mu: float, few: bool
) -> None:
    for unit in (UndirectedEdge(), DirectedEdge()):
        queries = code_sum_queries(
            unit, mu, 4, count_share=rho, few_labels=few, reverse_weight=target_to_labeled_weight
        )
        event = compose(*(query.event(unit) for query in queries))
        assert (total_mu(event) or 0) <= mu * (1 + 1e-9)


def test_a_pair_with_a_target_costs_what_is_proved_with_few_labels() -> None:
    rho, target_to_labeled_weight = 0.05, 0.3
    queries = code_sum_queries(
        UndirectedEdge(), 1.0, 3, count_share=rho, few_labels=True, reverse_weight=target_to_labeled_weight
    )
    costs = pair_costs(queries, UndirectedEdge())
    assert float(costs[TRAIN, TARGET]) == pytest.approx(
        (1 - target_to_labeled_weight**2) + (1 - rho) * target_to_labeled_weight**2
    )
    assert float(costs[TRAIN, VAL]) == pytest.approx(1.0)
    assert float(costs[TARGET, TARGET]) == pytest.approx(1.0)


def test_aggregates_at_epsilon_one_have_the_noise_of_the_proof() -> None:
    model = ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-7, noise="gaussian")
    plan = model.plan(num_nodes=10_000, num_classes=6)
    assert plan is not None
    row = plan.queries[1]
    assert isinstance(row, NeighborSumQuery)
    assert row.sigma[TARGET] == pytest.approx(4.6787, rel=1e-4)
    assert row.sigma[TRAIN] == pytest.approx(4.6787 / math.sqrt(0.95), rel=1e-4)
    assert plan.epsilon <= 1.0
