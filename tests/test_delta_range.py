"""A delta outside the range of the proofs is rejected wherever one is given."""

from collections.abc import Callable

import pytest

import graphveil as gv
from graphveil.errors import ConfigError
from graphveil.ledger.rows import limit_of
from graphveil.privacy import MemoryLedger, UndirectedEdge, check_delta
from graphveil.release import calibrate_plan
from graphveil.release.plan import hops

TAKERS: dict[str, Callable[[float], object]] = {
    "calibrate": lambda delta: gv.calibrate("classcode", "undirected-edge", epsilon=1.0, delta=delta),
    "plan": lambda delta: calibrate_plan(
        UndirectedEdge(), 1.0, delta, lambda mu: hops(mu, 1, 4), num_nodes=10
    ),
    "unit": lambda delta: check_delta(UndirectedEdge(), delta, 10),
    "ledger in memory": lambda delta: MemoryLedger(epsilon=1.0, delta=delta),
    "ledger limit": lambda delta: limit_of(1.0, delta),
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("delta", [1e-300, 1e-50, 9.9e-16, 1.01e-3, 3e-3, 0.05])
def test_a_delta_without_a_proof_is_rejected(name: str, delta: float) -> None:
    with pytest.raises(ConfigError, match=r"outside the range of the proofs|each 0 or at least"):
        TAKERS[name](delta)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3])
def test_a_delta_with_a_proof_is_taken(name: str, delta: float) -> None:
    TAKERS[name](delta)


def test_ledger_limits_of_pure_releases_may_have_delta_0() -> None:
    MemoryLedger(epsilon=1.0, delta=0.0)
    assert limit_of(1.0, 0) is not None


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1e-2, 1.0])
def test_a_pure_epsilon_that_is_0_at_delta_is_calibrated(epsilon: float) -> None:
    found = gv.calibrate("classcode", "undirected-edge", epsilon=epsilon, delta=1e-3)
    assert found.noise_std[0] > 0
