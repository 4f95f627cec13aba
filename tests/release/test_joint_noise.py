"""The joint law of the noise: no two numbers of a release share noise, but where the query says so."""

import numpy as np
import pytest
import torch
from audit.test_query_neighbor_tests import CASES, families, id_of

from graphveil.audit.example_data import NeighborView, example_data
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.audit.small_graphs import adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.pair_sums import EdgeProductQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import Unit

RUNS = 40
# Steps add noise to parameters that later steps depend on; reported graphs have random sizes.
SKIPPED = ("blocks", "node pairs", "steps on edges", "steps of both ends")
EVERY = [(name, unit) for name, (units, _) in CASES.items() if name not in SKIPPED for unit in units]
FEW_ERRORS = 5.0  # standard errors: no false positive among 25,000 correlations


def shared(query: Query, shape: torch.Size) -> np.ndarray:
    """Return which numbers of an answer have the same noise, as equal indices."""
    index = np.arange(shape.numel()).reshape(tuple(shape))
    if isinstance(query, EdgeProductQuery) and query.symmetric:
        index = np.minimum(index, index.T)
    return index.ravel()


@pytest.mark.parametrize(("name", "unit"), EVERY, ids=[f"{name}-{id_of(unit)}" for name, unit in EVERY])
def test_all_numbers_of_a_release_have_independent_noise(name: str, unit: Unit) -> None:
    queries = [*CASES[name][1](unit), *CASES[name][1](unit)]  # a repeated query draws again
    drawn = next(found for found in families(unit) if found.graph.nodes > 3)
    groups = torch.arange(drawn.graph.nodes) % max(query.groups for query in queries)
    edges = adjacency(drawn.graph, drawn.public, weighted=any(query.reads_edge_weights for query in queries))
    data = [example_data(query, NeighborView(drawn.graph, drawn.public, groups, 0)) for query in queries]

    def answers(plan: ReleasePlan) -> list[torch.Tensor]:
        release = Release.open(plan, edges, groups, budget=MemoryLedger())
        return [release.answer(one).double() for one in data]

    exact = answers(zero_noise_plan(unit, tuple(queries)))
    plan = ReleasePlan(unit, tuple(queries), 1e-5)
    runs = [answers(plan) for _ in range(RUNS)]
    noise = np.stack(
        [np.concatenate([(a - b).numpy().ravel() for a, b in zip(run, exact, strict=True)]) for run in runs]
    )
    drawn_for = noise.std(axis=0) > 0  # others are known, such as rows of nodes without a column
    index, start = list[int](), 0
    for query, answer in zip(queries, exact, strict=True):
        index += (start + shared(query, answer.shape)).tolist()
        start += answer.numel()
    assert drawn_for.mean() > 0.5 and not noise[:, ~drawn_for].any()
    noise, places = noise[:, drawn_for], np.array(index)[drawn_for]
    same = np.equal.outer(places, places)
    correlation = np.corrcoef(noise.T)
    assert np.abs(correlation[~same]).max(initial=0) < FEW_ERRORS / np.sqrt(RUNS)
    assert correlation[same].min() > 0.999
    assert np.abs(noise.mean(axis=0) / noise.std(axis=0)).max() < FEW_ERRORS / np.sqrt(RUNS)
