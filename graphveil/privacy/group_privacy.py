"""What several edges of one person cost together, under units of edges."""

import math
from collections.abc import Iterator
from dataclasses import replace

from graphveil.privacy.accountant import (
    CanonicalComposition,
    dominating_composition,
    privacy_curve,
    worst_case_compositions,
)
from graphveil.privacy.events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    PureDP,
    compose,
)
from graphveil.privacy.gaussian import epsilon_of

_LARGE = 500.0  # of a loss: beyond, no delta is left


def node_group_epsilon(
    event: Event, num_edges: int, delta: float, *, directed: bool, linear_group_scaling: bool
) -> float:
    """Return epsilon for all of one person's k friendships together.

    Shifts add up at worst in length: k mu. Rows of equal weight and noise (``linear_group_scaling`` False)
    leave less: k edges meet in one row only, and k other rows move by one edge each.

    >>> round(node_group_epsilon(Gaussian(0.2), 2, 1e-7, directed=False, linear_group_scaling=True), 3)
    1.956
    """
    edges = num_edges * (2 if directed else 1)  # stored edges that differ in so many friendships
    squared = edges**2 if linear_group_scaling else edges * (num_edges + 1) / 2
    return multi_edge_epsilon(event, edges, math.sqrt(squared), delta)


def multi_edge_epsilon(event: Event, edges: int, longest: float, delta: float) -> float:
    """Return epsilon for several edges, whose shifts together are that many times one edge's.

    In sampled steps k edges change k sampled gradients. Their sum with noise z tells no more than each of
    them with noise z / sqrt k of its own, which adds up to z.

    Edges may lie in different data sets, where different steps read them: every edge is then charged for
    what costs at least as much as any of its cases.
    """
    total = dominating_composition(worst_case_compositions(event))
    pure = not total.mu_squared and all(isinstance(part, ApproximateDP | PureDP) for part in total.rest)
    if delta <= 0 and not (pure and delta == 0):
        return math.inf
    mu = longest * math.sqrt(total.mu_squared)
    if not total.rest:
        return epsilon_of(mu, delta)
    return privacy_curve(compose(Gaussian(mu), *_repeated(total, edges))).epsilon(delta)


def _repeated(total: CanonicalComposition, edges: int) -> Iterator[Event]:
    """Yield what is no Gaussian, when so many edges differ in it."""
    for part, count in total.rest.items():
        if isinstance(part, ApproximateDP):
            yield from [_group(part, edges)] * count
            continue
        if isinstance(part, PureDP):  # one edge after the other: each costs epsilon once more
            yield PureDP(edges * count * part.epsilon)
            continue
        if not isinstance(part, PoissonGaussian):
            yield NonPrivate()  # no bound is proved for several edges of any other kind of event
            continue
        noise = part.noise_multiplier / math.sqrt(edges)
        yield replace(part, noise_multiplier=noise, steps=part.steps * count * edges)


def _group(part: ApproximateDP, edges: int) -> ApproximateDP:
    """Return what a release tells about k edges: k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1).

    One edge after the other is changed, and the deltas on the way add up with the factors of what follows.
    """
    if not part.delta:
        return ApproximateDP(edges * part.epsilon)
    if edges * part.epsilon > _LARGE:
        return ApproximateDP(edges * part.epsilon, 1.0)
    factor = math.expm1(edges * part.epsilon) / math.expm1(part.epsilon) if part.epsilon else edges
    return ApproximateDP(edges * part.epsilon, min(1.0, factor * part.delta))
