"""Compare the noise of sampled training steps with the least noise that dp_accounting certifies.

    python benchmarks/step_calibration.py [--every 1]

For 200 settings of batch size, number of steps and epsilon, this calibrates DP-SGD steps on 20,000 records at
delta 1e-5 and checks with dp_accounting that a 1.02 times smaller noise multiplier would exceed the budget.
The ratio to the needed noise is interpolated between the epsilons of both. It prints the settings that fail,
the largest ratio and the slowest search. It exits with 1 if one fails, a search takes more than 3 CPU
seconds, or a budget is rejected.
"""

import argparse
import math
import sys
import time
from itertools import product

import dp_accounting as dpa
from dp_accounting.pld import PLDAccountant

from graphveil.core.noise.steps import public_rate
from graphveil.core.plan import calibrate_plan
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.unit import NodeRecord
from graphveil.errors import GraphveilError

RECORDS, DELTA, PARAMETERS = 20_000, 1e-5, 500
BATCHES = (32, 256, 1024, 8192)
STEPS = (1, 10, 100, 1000, 10_000)
EPSILONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 4.0, 16.0, 50.0)
MAX_RATIO, MAX_SECONDS = 1.02, 3.0


def calibrated(batch: int, steps: int, epsilon: float) -> tuple[DPSGDQuery, float]:
    """Return the calibrated steps and the CPU seconds of the search."""
    rate = public_rate(batch, RECORDS)
    started = time.process_time()
    plan = calibrate_plan(
        NodeRecord(),
        epsilon,
        DELTA,
        lambda scale: (
            DPSGDQuery(parameters=PARAMETERS, steps=steps, noise_multiplier=1 / scale, sampling_rate=rate),
        ),
        num_nodes=RECORDS,
    )
    query = plan.queries[0]
    assert isinstance(query, DPSGDQuery)
    return query, time.process_time() - started


def independent_epsilon(query: DPSGDQuery, noise_multiplier: float, epsilon: float) -> float:
    """Return epsilon by dp_accounting, on a grid that is fine enough for this epsilon."""
    interval = min(1e-4, epsilon / 30 / math.sqrt(query.steps))
    accountant = PLDAccountant(
        dpa.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    step = dpa.PoissonSampledDpEvent(query.sampling_rate, dpa.GaussianDpEvent(noise_multiplier))
    accountant.compose(step, query.steps)
    return float(accountant.get_epsilon(DELTA))


def main() -> int:
    """Run every setting, or each n-th one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="run each n-th setting only")
    settings = list(product(BATCHES, STEPS, EPSILONS))[:: parser.parse_args().every]
    above, rejected, slowest, largest = [], [], (0.0, ""), (0.0, "")
    for batch, steps, epsilon in settings:
        name = f"batch {batch}, {steps} steps, epsilon {epsilon:g}"
        try:
            query, seconds = calibrated(batch, steps, epsilon)
        except GraphveilError as error:
            rejected.append(f"{name}: {error}")
            continue
        slowest = max(slowest, (seconds, name))
        spent = independent_epsilon(query, query.noise_multiplier, epsilon)
        more = independent_epsilon(query, query.noise_multiplier / MAX_RATIO, epsilon)
        if more <= epsilon:
            above.append(name)
        ratio = MAX_RATIO ** (math.log(epsilon / spent) / math.log(more / spent))
        largest = max(largest, (ratio, name))
        print(
            f"{name}: noise multiplier {query.noise_multiplier:.4f}, {ratio:.4f} times, {seconds:.2f} s",
            flush=True,
        )
    print(f"{len(settings)} settings; more than {MAX_RATIO} times the needed noise: {above or 'none'}")
    print(f"largest ratio: {largest[0]:.4f} ({largest[1]})")
    print(f"slowest search: {slowest[0]:.2f} CPU s ({slowest[1]}); rejected: {rejected or 'none'}")
    return int(bool(above or rejected or slowest[0] > MAX_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
