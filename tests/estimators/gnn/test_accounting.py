"""The privacy cost of plans, against an integration that shares no code with the accountant."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.plan import calibrate_plan
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.unit import NodeRecord
from graphveil.estimators.gnn.one_hop import OneHopGNN
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.private_training import DPSGDTraining
from graphveil.estimators.public_sizes import PublicSizes

_STEP, _SIZE = 2e-4, 1 << 18


def loss_distribution(mu: float, z: float, rate: float, steps: int, *, back: bool) -> Any:
    """Return the privacy loss distribution of a Gaussian of mu and sampled null-out steps, on a grid.

    Losses are integrated cell by cell over a step's output and split between the two nearest multiples, and
    all are composed by one Fourier transform: the error is of either sign, and of second order.
    """
    x = np.linspace(-14 - 1 / z, 14 + 1 / z, 400_001)
    edges = (x[1:] + x[:-1]) / 2
    sampled = (1 - rate) * ndtr(edges) + rate * ndtr(edges - 1 / z)
    log_ratio = np.log1p(rate * np.expm1(x[1:-1] / z - 0.5 / z**2))
    step = (-log_ratio, np.diff(ndtr(edges))) if back else (log_ratio, np.diff(sampled))
    y = np.linspace(-14, 14, 100_001)
    whole = (mu * y[1:-1] + mu**2 / 2, np.diff(ndtr((y[1:] + y[:-1]) / 2)))
    first, second = (binned(*part) for part in (step, whole))
    return np.fft.ifft(np.fft.fft(first) ** steps * np.fft.fft(second)).real.clip(0)


def delta_of(law: Any, epsilon: float) -> float:
    losses = _STEP * np.where(np.arange(_SIZE) < _SIZE // 2, np.arange(_SIZE), np.arange(_SIZE) - _SIZE)
    above = losses > epsilon
    return float((law[above] * -np.expm1(epsilon - losses[above])).sum())


def binned(losses: Any, masses: Any) -> Any:
    """Split each mass between two multiples of the step, so that its mean stays."""
    place = np.floor(losses / _STEP).astype(np.int64)
    share = losses / _STEP - place
    law = np.zeros(_SIZE)
    np.add.at(law, place % _SIZE, masses * (1 - share))
    np.add.at(law, (place + 1) % _SIZE, masses * share)
    return law


def integrated_epsilon(plan: Any, delta: float) -> float:
    encoder, push, module = plan.queries[:3]
    assert (
        isinstance(encoder, DPSGDQuery)
        and isinstance(push, OutEdgeSumQuery)
        and isinstance(module, DPSGDQuery)
    )
    mu = math.hypot(math.sqrt(encoder.steps) / encoder.noise_multiplier, push.bounds[0] / push.sigma)
    settings = (mu, module.noise_multiplier, module.sampling_rate, module.steps)
    laws = [loss_distribution(*settings, back=back) for back in (False, True)]
    training = float(brentq(lambda e: max(delta_of(law, e) for law in laws) - delta, 1e-3, 20, xtol=1e-5))
    alone = max(push.bounds) / push.sigma
    gaussian = float(
        brentq(
            lambda e: (
                norm.cdf(alone / 2 - e / alone) - math.exp(e) * norm.cdf(-alone / 2 - e / alone) - delta
            ),
            0,
            60,
        )
    )
    return max(training, gaussian)


def plan_of(seed: int) -> Any:
    """A plan of random public settings."""
    rng = np.random.default_rng(seed)
    records = int(rng.integers(200, 20_000))
    schedule = PrivateSchedule(
        epochs=int(rng.integers(1, 12)), batch_size=max(1, int(records * rng.uniform(0.01, 0.2)))
    )
    features, classes = int(rng.integers(1, 500)), int(rng.integers(2, 10))
    training = DPSGDTraining(schedule=schedule, parameters=int(rng.integers(10, 1000)), records=records)
    method = OneHopGNN(
        name="gnn",
        privacy_config=PrivacyConfig(unit=NodeRecord()),
        module="sage",
        schedule=schedule,
        shares=(rng.uniform(0.05, 0.4), rng.uniform(0.05, 0.4)),
        leaves=8,
        out_degree_bound=1,
        use_code_prior=True,
    )
    sizes = PublicSizes(nodes=records, classes=classes, features=features)
    queries = partial(method.queries, sizes, training)
    epsilon = float(rng.choice([0.5, 1, 2, 4, 8]))
    return calibrate_plan(NodeRecord(), epsilon, 1e-5, queries, num_nodes=records), epsilon


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 100), marks=pytest.mark.slow)], ids=["few", "hundred"]
)
def test_the_charged_epsilon_is_the_integrated_one_or_up_to_a_hundredth_more(seeds: range) -> None:
    for seed in seeds:
        plan, epsilon = plan_of(seed)
        assert plan.epsilon <= epsilon
        found = integrated_epsilon(plan, plan.delta - plan.slack)
        assert found <= plan.epsilon * (1 + 2e-4), (seed, found, plan.epsilon)  # its grid errs to either side
        assert plan.epsilon <= 1.01 * found, (seed, found, plan.epsilon)
