"""A delta outside the range of the proofs is rejected wherever one is given."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import graphveil as gv
from graphveil.core.accounting.gaussian import check_delta
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, calibrate_plan, hops
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import ConfigError
from graphveil.estimators.spectral import Spectral
from graphveil.ledger.costs import limit_of
from graphveil.papers import as_published
from graphveil.papers.analytic_gaussian import AnalyticGaussian
from graphveil.perturb.edge_rr import EdgeRR

CALLS: dict[str, Callable[[float], object]] = {
    "calibrate": lambda delta: gv.calibrate("classcode", "undirected-edge", epsilon=1.0, delta=delta),
    "plan": lambda delta: calibrate_plan(
        UndirectedEdge(), 1.0, delta, lambda mu: hops(mu, 1, 4), num_nodes=10
    ),
    "unit": lambda delta: check_delta(UndirectedEdge(), delta, 10),
    "ledger in memory": lambda delta: MemoryLedger(epsilon=1.0, delta=delta),
    "ledger limit": lambda delta: limit_of(1.0, delta),
    "estimator": lambda delta: gv.ClassCode(unit="undirected-edge", epsilon=1.0, delta=delta),
    "as published": lambda delta: as_published.GAP(unit="directed-edge", epsilon=1.0, delta=delta),
    "release plan": lambda delta: ReleasePlan(UndirectedEdge(), hops(0.1, 1, 4), delta=delta),
    "random walk": lambda delta: EdgeRR(epsilon=1.0, delta=delta, structure="lazy_audited"),
    "local Gaussian": lambda delta: AnalyticGaussian(epsilon=1.0, dim=4, delta=delta),
    "local features": lambda delta: gv.LPGNN(
        unit="local-attributes", eps_x=1.0, eps_y=1.0, features="agm", delta=delta
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("delta", [1e-300, 1e-50, 9.9e-16, 1.01e-3, 3e-3, 0.05])
def test_a_delta_outside_the_range_of_the_proofs_is_rejected(name: str, delta: float) -> None:
    with pytest.raises(ConfigError, match=r"outside the range of the proofs|must be 0 or at least"):
        CALLS[name](delta)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("delta", [1e-15, 1e-12, 1e-7, 1e-3])
def test_a_delta_in_the_range_of_the_proofs_is_accepted(name: str, delta: float) -> None:
    CALLS[name](delta)


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1e-2, 1.0])
def test_a_pure_epsilon_below_delta_is_calibrated(epsilon: float) -> None:
    found = gv.calibrate("classcode", "undirected-edge", epsilon=epsilon, delta=1e-3)
    assert found.noise_std[0] > 0


UNIT = "undirected-edge"
PURE: dict[str, Callable[[gv.Graph], Any]] = {
    "classcode": lambda graph: gv.ClassCode(unit=UNIT, epsilon=1.0, delta=0, seed=0).fit(graph).guarantee_,
    "mlp": lambda graph: gv.MLP(unit=UNIT, epsilon=1.0, delta=0, seed=0, epochs=1).fit(graph).guarantee_,
    "spectral": lambda graph: Spectral(unit=UNIT, epsilon=1.0, delta=0.0, seed=0).fit(graph).guarantee_,
    "lpgnn": lambda graph: (
        gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, delta=0, seed=0, epochs=1)
        .fit(graph)
        .guarantee_
    ),
    "calibrate": lambda graph: gv.calibrate("classcode", UNIT, epsilon=1.0, delta=0),
    "ledger limit": lambda graph: limit_of(1.0, 0),
}
GAUSSIAN: dict[str, Callable[[gv.Graph], object]] = {
    "gap": lambda graph: gv.GAP(unit=UNIT, epsilon=1.0, delta=0, seed=0).fit(graph),
    "gap-paper": lambda graph: as_published.GAP(unit=UNIT, epsilon=1.0, delta=0, seed=0).fit(graph),
    "mlp on records": lambda graph: gv.MLP(unit="node-record", epsilon=4.0, delta=0, seed=0).fit(graph),
    "classcode on records": lambda graph: gv.calibrate("classcode", "node-record", epsilon=4.0, delta=0),
    "random walk": lambda graph: EdgeRR(epsilon=1.0, delta=0, structure="lazy_audited"),
    "local Gaussian": lambda graph: AnalyticGaussian(epsilon=1.0, dim=4, delta=0),
    "plan": lambda graph: calibrate_plan(UndirectedEdge(), 1.0, 0.0, lambda mu: hops(mu, 1, 4), num_nodes=10),
}


@pytest.mark.parametrize("name", PURE)
def test_pure_noise_is_accepted_at_delta_0(name: str) -> None:
    found = PURE[name](gv.load_dataset("synthetic/tiny", seed=0))
    assert found.delta == 0
    assert 0 <= found.epsilon < math.inf


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_is_rejected_at_delta_0(name: str) -> None:
    with pytest.raises(ConfigError, match=r"delta=0 requires pure epsilon-DP noise, and .* needs delta > 0"):
        GAUSSIAN[name](gv.load_dataset("synthetic/tiny", seed=0))
