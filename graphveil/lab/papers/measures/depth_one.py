"""One hop with the noise that each of K hops has: what their noise costs, apart from what they see."""

from dataclasses import replace
from typing import Any

from graphveil.errors import CalibrationError
from graphveil.estimators.base import Estimator
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures import fit
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths

_STEPS = 60  # of bisection
_HOPS = "hops"


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit one hop at the budget at which its noise is that of K hops at the budget asked for."""
    one = fit.experiment_of(work, paths.root)
    sizes = one.model(0).config.sizes_of(one.split(fit.prepared(one), 0))
    epsilon = budget_of_one(type(one.model(0)), dict(one.model(0).get_params()), sizes)
    alone = {**work.parameters, _HOPS: 1, "epsilon": epsilon}
    return fit.measure(replace(work, parameters=alone), paths)


def budget_of_one(method: type[Estimator], keywords: dict[str, Any], sizes: PublicSizes) -> float:
    """Return the budget at which one hop has the noise of the keywords' K hops.

    Noise falls as the budget grows, so the budget is found by bisection; K hops at epsilon are never quieter
    than one hop at epsilon.

    >>> from graphveil.estimators.gap import GAP
    >>> keywords = GAP(unit="undirected-edge", epsilon=4.0, delta=1e-7, hops=4).get_params()
    >>> sizes = PublicSizes(nodes=1000, classes=5)
    >>> round(budget_of_one(GAP, keywords, sizes), 3), budget_of_one(GAP, keywords | {"hops": 1}, sizes)
    (1.879, 4.0)
    """

    def noise(**changed: Any) -> float:
        plan = method(**{**keywords, **changed}).config.plan(sizes)
        assert plan is not None
        return plan.noise_std[-1]

    if keywords[_HOPS] == 1:
        return float(keywords["epsilon"])
    wanted, low, high = noise(), 1e-3, float(keywords["epsilon"])
    for _ in range(_STEPS):
        middle = (low + high) / 2
        try:
            louder = noise(hops=1, epsilon=middle) > wanted
        except CalibrationError:  # the training alone costs more
            louder = True
        low, high = (middle, high) if louder else (low, middle)
        if high - low < 1e-4 * high:
            break
    return high
