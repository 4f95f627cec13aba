"""The total of a model's predictions is that of the edge set with the largest cost."""

import pytest

from graphveil.data import EdgeSet
from graphveil.ledger.predictions import PredictionComposition
from graphveil.privacy import Gaussian, Guarantee, PoissonGaussian, UndirectedEdge, compose

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
