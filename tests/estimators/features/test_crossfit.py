"""Cross-fitted posteriors: no label affects its own node, and no edge is read."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.estimators.features import crossfit
from graphveil.estimators.features.crossfit import blend_similar_nodes, public_posteriors, unit_rows
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session


def small() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


@pytest.mark.parametrize("part", ["train", "val"])
def test_the_label_of_a_node_does_not_affect_its_own_posterior(part: str) -> None:
    graph = small()
    node = int(torch.nonzero(graph.labeled_in(part))[0])
    labels = graph.y.clone()
    labels[node] = (labels[node] + 1) % graph.num_classes

    def log(graph: Graph) -> torch.Tensor:
        session = Session(streams=PublicStreams(3))
        one_candidate = crossfit.CANDIDATES[:1]  # the choice of a candidate may depend on all labels
        return blend_similar_nodes(crossfitted(graph, session, one_candidate).log, graph)

    before, after = log(graph), log(graph.replace(y=labels))
    assert torch.equal(before[node], after[node])
    others = torch.nonzero(graph.labeled_in("train"))[1:, 0]
    assert not torch.equal(before[others], after[others])


def test_posteriors_do_not_depend_on_edges() -> None:
    graph = small()
    empty = Adjacency.from_edges(
        np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), num_nodes=graph.num_nodes, directed=False
    )
    with_edges = public_posteriors(graph, Session(streams=PublicStreams(0))).log
    without = public_posteriors(graph.replace(adjacency=empty), Session(streams=PublicStreams(0))).log
    assert torch.equal(with_edges, without)


def test_unit_rows_of_sparse_and_dense_features_agree() -> None:
    dense = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    scaled = unit_rows(sparse.csr_array(dense.numpy()))
    assert not isinstance(scaled, torch.Tensor)
    torch.testing.assert_close(torch.from_numpy(scaled.toarray()), unit_rows(dense))


def crossfitted(
    graph: Graph, session: Session, candidates: Sequence[crossfit.Candidate]
) -> crossfit.CrossFitPosteriors:
    nodes = nodes_of(graph.labeled_in("train", "val"))
    return crossfit.CrossFit(graph, session, "posterior", nodes, graph.y).best(candidates)


def test_a_clearly_worse_candidate_is_stopped_early() -> None:
    candidates = (crossfit.Candidate(8, hidden=8), crossfit.Candidate(8, hidden=8, weight_decay=1e4))
    stages: list[tuple[str, int]] = []
    session = Session(streams=PublicStreams(0), on_progress=lambda *report: stages.append(report[:2]))
    trained = crossfitted(small(), session, candidates)
    assert trained.candidate == candidates[0]
    assert len(trained.ensemble.networks) == crossfit.FOLDS
    last = dict(stages)  # the last epoch that was reported of each stage
    assert last == {
        "posterior candidate 1 of 2": 8,
        "posterior candidate 2 of 2": 4,
        "posterior, folds 2 to 5": 8,
    }


@pytest.mark.parametrize(("above", "tried"), [(0, False), (1, True)])
def test_the_candidate_for_few_labels_does_not_affect_the_others(above: int, tried: bool) -> None:
    graph = small()
    labels = int((graph.labeled_in("train", "val")).sum())
    usual = crossfit.Candidate(40, hidden=8)
    worse = crossfit.Candidate(8, hidden=8, weight_decay=1e4, labels_below=labels + above)

    def log_of(*candidates: crossfit.Candidate) -> tuple[torch.Tensor, set[str]]:
        stages: set[str] = set()
        session = Session(streams=PublicStreams(0), on_progress=lambda stage, *_: stages.add(stage))
        return crossfitted(graph, session, candidates).log, stages

    (alone, _), (both, stages) = log_of(usual), log_of(usual, worse)
    assert ("posterior candidate for few labels" in stages) is tried
    assert torch.equal(alone, both)
