"""The total of a model's predictions is that of the edge set with the largest cost."""

import numpy as np
import pytest

from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.events import Gaussian, PoissonGaussian, compose
from graphveil.core.unit import UndirectedEdge
from graphveil.estimators.inference import PredictionComposition
from graphveil.privacy import Guarantee

STEPS = compose(PoissonGaussian(4.0, 0.01, 20, "replace"), Gaussian(0.2))


def test_the_total_is_the_maximum_of_fitted_and_new_edges() -> None:
    fit, prediction = (
        Guarantee.from_event(UndirectedEdge(), event, delta=1e-5, releases=1)
        for event in (STEPS, Gaussian(0.2))
    )
    fitted, new = EdgeSet(), EdgeSet()
    composition = PredictionComposition(fitted).apart(new, [fitted])
    totals, of_new_edges = [], []
    for count in (1, 2, 3, 4):  # a grown graph: only its new edges are charged
        composition.note(new, prediction)
        totals.append(composition.total_guarantee(fit).epsilon)
        of_new_edges.append(prediction.repeated(count).epsilon)
    assert totals == pytest.approx([max(fit.epsilon, epsilon) for epsilon in of_new_edges])
    assert totals[0] == fit.epsilon < totals[1] < totals[2] < totals[3]


@pytest.mark.parametrize("seed", range(20))
def test_a_release_is_charged_to_every_part_that_may_share_an_edge(seed: int) -> None:
    """Random histories of graphs of several parts, against the definition edge by edge.

    Two parts are apart only if that was stated about them. Each release is charged to its own parts, and to a
    queried part unless all of its own parts are apart from it.
    """
    rng = np.random.default_rng(seed)
    parts = [EdgeSet() for _ in range(6)]
    fitted = parts[:2] if rng.random() < 0.5 else parts[:1]
    composition, queried = PredictionComposition(EdgeSet(parts=tuple(fitted))), list(fitted)
    apart = set[frozenset[int]]()
    guarantee = Guarantee.from_event(UndirectedEdge(), Gaussian(0.2), delta=1e-5, releases=1)
    for _ in range(5):
        own = [parts[k] for k in rng.choice(6, size=rng.integers(1, 4), replace=False)]
        given = EdgeSet(parts=tuple(own))
        if rng.random() < 0.6:  # one part, or all, is known to be apart from some that were queried
            few = [own[0]] if rng.random() < 0.5 else own
            others = [one for one in queried if rng.random() < 0.5 and one not in few]
            composition.apart(EdgeSet(parts=tuple(few)), others)
            apart |= {frozenset((id(one), id(other))) for one in few for other in others}
        also = [
            other
            for other in queried
            if other not in own and not all(frozenset((id(one), id(other))) in apart for one in own)
        ]
        copied = composition.copy()
        assert set(composition.charged_edge_sets(given)) == {*own, *also}
        composition.note(given, guarantee)
        assert set(composition.last.charged) == {*own, *also}
        assert copied.releases == composition.releases - 1
        queried += [one for one in own if one not in queried]
