"""The ledger of predictions says what the worst set of edges pays, whatever kinds of releases there are."""

import pytest

from graphveil.data import EdgeSet
from graphveil.ledger.predictions import PredictionComposition
from graphveil.privacy import Gaussian, Guarantee, PoissonGaussian, UndirectedEdge, compose

STEPS = compose(PoissonGaussian(4.0, 0.01, 20, "replace"), Gaussian(0.2))


def test_growth_after_sampled_training_is_told_at_what_the_new_edges_pay() -> None:
    fit, more = (
        Guarantee.from_event(UndirectedEdge(), event, delta=1e-5, releases=1)
        for event in (STEPS, Gaussian(0.2))
    )
    fitted, new = EdgeSet(), EdgeSet()
    ledger = PredictionComposition(fitted).apart(new, [fitted])
    said, paid = [], []
    for predictions in (1, 2, 3, 4):  # of a graph that has grown: its new edges alone pay
        ledger.note(new, more)
        said.append(ledger.total_guarantee(fit).epsilon)
        paid.append(more.repeated(predictions).epsilon)
    assert said == pytest.approx([max(fit.epsilon, new_edges) for new_edges in paid])
    assert said[0] == fit.epsilon < said[1] < said[2] < said[3]
