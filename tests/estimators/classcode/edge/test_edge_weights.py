"""ClassCode with edge weights: the expected aggregates, their privacy cost, and the inputs of the weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import compose
from graphveil.core.ledger import ledger_of
from graphveil.core.queries.out_edge_sums import simplex_codes, soft_codes
from graphveil.core.unit import DirectedEdge, UndirectedEdge
from graphveil.errors import ConfigError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.edge import GROUPS, code_sum_queries
from graphveil.estimators.classcode.likelihoods import EdgeWeightModel, Signal, row_log_likelihood, weighted
from graphveil.papers.weights import HalfCos, SigmoidCos
from graphveil.release.weights import DotWeight, parse_weight, register_weight, weights_from
from tests.estimators.conftest import PAIR_WEIGHTS, Queries, grouped

QUICK: dict[str, Any] = {
    "unit": "undirected-edge",
    "epsilon": 4.0,
    "delta": 1e-5,
    "seed": 0,
    "unsafe_noise_seed": 0,
    "self_training": False,
}


# -- expected aggregates -----------------------------------------------------------------------------------


def drawn(nodes: int, classes: int, sharpness: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return classes and log-posteriors that are right on average."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=generator)
    logits = torch.randn(nodes, classes, generator=generator, dtype=torch.float64)
    logits[torch.arange(nodes), y] += sharpness
    return y, (sharpness * logits).log_softmax(dim=1)


def test_moments_are_means_over_all_other_nodes_of_a_class() -> None:
    y, log = drawn(200, 3, 1.0)
    weight_model = EdgeWeightModel(HalfCos())
    keys = weight_model.keys(torch.empty(0), log)
    member = torch.nn.functional.one_hot(y, 3).double()
    moments = weight_model.moments(keys, member, torch.Generator().manual_seed(0))
    rows = soft_codes(log, simplex_codes(3))
    rows = rows / rows.norm(dim=1, keepdim=True)
    weights = (1 + rows @ rows.T) / 2
    weights.fill_diagonal_(0)
    expected = weights @ member / (member.sum(dim=0) - member)
    torch.testing.assert_close(moments[0], expected, atol=0.02, rtol=0)
    squares = weights.square() @ member / (member.sum(dim=0) - member)
    torch.testing.assert_close(moments[1], squares, atol=0.02, rtol=0)


def test_a_sample_of_nodes_is_enough_for_the_moments() -> None:
    y, log = drawn(3000, 3, 1.0)
    member = torch.nn.functional.one_hot(y, 3).double()
    weight_model = EdgeWeightModel(parse_weight("exp_cos(0.5)"))  # type: ignore[arg-type]  # it is no weight of one
    keys = weight_model.keys(torch.empty(0), log)
    one, other = (weight_model.moments(keys, member, torch.Generator().manual_seed(k)) for k in (0, 1))
    assert float((one[0] - other[0]).abs().mean()) < 0.05


def test_weights_of_one_do_not_change_the_likelihood() -> None:
    codes, between = simplex_codes(3), torch.full((3, 3), 0.2) + 0.4 * torch.eye(3)
    plain = Signal(torch.full((5,), 4.0), between.double() @ codes, torch.ones(()))
    ones = torch.ones(5, 3, dtype=torch.float64)
    same = weighted(plain, between.double(), codes, torch.stack([ones, ones]), 1.0)
    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(
        row_log_likelihood(rows, same, 0.6, 0.05), row_log_likelihood(rows, plain, 0.6, 0.05)
    )


@pytest.mark.parametrize("name", ["half_cos", "relu_cos", "posterior_dot", "class_agree(0.2)"])
def test_the_likelihood_of_weighted_aggregates_needs_their_moments(name: str) -> None:
    nodes, classes, degree = 1500, 3, 30
    y, log = drawn(nodes, classes, 1.0, seed=3)
    rng, codes = np.random.default_rng(0), simplex_codes(classes)
    between = torch.full((3, 3), 0.1, dtype=torch.float64) + 0.7 * torch.eye(3, dtype=torch.float64)
    by_class = [torch.from_numpy(rng.choice(np.flatnonzero(y == k), size=(nodes, degree))) for k in range(3)]
    combined_aggregates = torch.multinomial(
        between[y], degree, replacement=True, generator=torch.Generator().manual_seed(2)
    )
    neighbors = torch.stack(by_class).gather(0, combined_aggregates[None])[0]
    weight_model = EdgeWeightModel(parse_weight(name))  # type: ignore[arg-type]  # it is no weight of one
    keys = weight_model.keys(torch.empty(0), log)
    assert isinstance(keys, Tensor)
    every = weights_from(weight_model.similarity, keys, torch.arange(nodes))
    weights = torch.cat(list(every)).T.double()  # by the source first
    w = torch.stack([weights[row, v] for v, row in enumerate(neighbors)])
    noise = torch.from_numpy(rng.normal(size=(nodes, classes - 1)))
    rows = (w[:, :, None] * codes[y[neighbors]]).sum(dim=1) + noise
    plain = Signal(torch.full((nodes,), float(degree)), between @ codes, torch.ones(()))
    moments = weight_model.moments(
        keys, torch.nn.functional.one_hot(y, classes).double(), torch.Generator().manual_seed(1)
    )
    known = weighted(plain, between, codes, moments, 1.0)
    scaled = Signal(known.length, plain.means, known.scatter)  # knows how long rows are, and no more

    def loss(signal: Signal) -> float:
        likelihood = row_log_likelihood(rows, signal, 0.6, 0.05)
        return float(torch.nn.functional.nll_loss((log + likelihood).log_softmax(dim=1), y))

    assert loss(known) < loss(scaled)
    assert loss(known) < loss(plain)


# -- privacy cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAIR_WEIGHTS, "half_cos"])
@pytest.mark.parametrize("few", [False, True])
def test_no_pair_of_groups_is_charged_more_than_the_budget(name: str, few: bool) -> None:
    similarity = parse_weight(name)
    for unit in (UndirectedEdge(), DirectedEdge()):
        queries, plain = (
            code_sum_queries(unit, 0.5, 4, count_share=0.05, few_labels=few, reverse_weight=0.3, similarity=w)
            for w in (similarity, None)
        )
        tables = [torch.tensor(query.event(unit).mu_squared) for query in queries]
        same = [torch.tensor(query.event(unit).mu_squared) for query in plain]
        torch.testing.assert_close(tables, same)
        assert tables[0].shape == (GROUPS, GROUPS)
        assert (total_mu(compose(*(query.event(unit) for query in queries))) or 0) <= 0.5 * (1 + 1e-9)


def test_noise_is_proportional_to_the_bound_of_the_weights() -> None:
    plain, weighted_ = (
        ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-7, weights=name, noise="gaussian").plan(
            num_nodes=10_000, num_classes=6
        )
        for name in ("one", "sigmoid_cos")
    )
    assert plain is not None
    assert weighted_ is not None
    assert weighted_.queries[0] == plain.queries[0]  # counts know no weights
    assert weighted_.noise_std[1] == pytest.approx(SigmoidCos().bound * plain.noise_std[1])
    assert weighted_.noise_std[1] == pytest.approx(0.731058578630 * 4.6787, rel=1e-4)


# -- fits --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("name", PAIR_WEIGHTS)
def test_every_weight_is_fitted_within_the_budget(name: str) -> None:
    graph = grouped(as_sparse=True)
    model = ClassCode(**{**QUICK, "unsafe_noise_seed": None}, weights=name).fit(graph)
    assert model.guarantee.valid
    assert model.guarantee.epsilon <= 4.0
    (entry,) = ledger_of(graph.edge_set).entries
    assert total_mu(entry.event) == pytest.approx(total_mu(model.guarantee.event))
    assert bool(torch.isfinite(model.predict_proba()).all())


@pytest.mark.usefixtures("quick_classcode")
def test_weights_read_posteriors_codes_features_or_learned_vectors(queries: Queries) -> None:
    graph = grouped()
    for name in ("posterior_dot", "half_cos", "jaccard", "learned_public", "one"):
        ClassCode(**QUICK, weights=name, noise="gaussian").fit(graph)
    (_, probabilities), (_, codes), (_, features), (_, learned), (_, none_before_fit) = queries
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(150))
    torch.testing.assert_close(codes, probabilities.double() @ simplex_codes(3))
    assert features is graph.x
    assert learned.shape == (150, 16)
    assert none_before_fit is None


@pytest.mark.usefixtures("quick_classcode")
def test_weights_into_a_node_do_not_depend_on_its_label(queries: Queries) -> None:
    graph = grouped()
    node = int(graph.labeled_in("train").nonzero()[0])
    labels = graph.y.clone()
    labels[node] = (labels[node] + 1) % 3
    for y in (graph.y, labels):
        ClassCode(**QUICK, weights="half_cos").fit(graph.replace(y=y))
    (codes, keys), (others, changed) = queries
    assert not torch.equal(codes[node], others[node])
    assert torch.equal(keys[node], changed[node])


@pytest.mark.usefixtures("quick_classcode")
def test_both_rounds_have_the_same_weights(queries: Queries) -> None:
    ClassCode(**QUICK, weights="half_cos", few_labels=True).fit(grouped())
    (_, first), (_, second) = queries
    assert torch.equal(first, second)


@pytest.mark.usefixtures("quick_classcode", "own_names")
def test_a_registered_weight_is_used_by_its_name() -> None:
    class Sharp(DotWeight):
        def transform(self, dots: np.ndarray) -> np.ndarray:
            return 1.2 * np.maximum(0, dots) ** 3

    register_weight("sharp", Sharp)
    model = ClassCode(**QUICK, weights="sharp").fit(grouped())
    assert model.guarantee.epsilon <= 4.0
    plain = ClassCode(**QUICK, noise="gaussian").plan(num_nodes=150, num_classes=3)
    assert model.plan_.noise_std[1] == pytest.approx(1.2 * plain.noise_std[1])


@pytest.mark.usefixtures("quick_classcode")
def test_an_interrupted_fit_is_resumed_with_the_same_weights(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "aggregate" and done == total:  # after the counts
            raise KilledError

    options, graph = {**QUICK, "weights": "learned_public"}, grouped()
    with pytest.raises(KilledError):
        ClassCode(**options).fit(graph, on_progress=kill, workspace=tmp_path)
    resumed = ClassCode(**options).fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), ClassCode(**options).fit(grouped()).predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "sigmoid"}, "not a known weight"),
        ({"weights": "attention"}, "Use weights='learned_public'"),
        ({"weights": "given"}, "Use method gap"),
        ({"weights": "half_cos", "unit": "node-record", "self_training": None}, "node-level units protect"),
    ],
)
def test_rejects_contradictory_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassCode(**{**QUICK, **options})
