"""ClassCode with weights: what a row is expected to be, what it costs, and what a fit asks with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.errors import ConfigError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.codes import simplex_codes, soft_codes
from graphveil.estimators.classcode.edge_plan import GROUPS, BudgetAllocation
from graphveil.estimators.classcode.edge_rows import (
    EdgeWeightModel,
    Signal,
    WeightMoments,
    row_log_likelihood,
    weighted,
)
from graphveil.ledger import ledger_of
from graphveil.privacy import DirectedEdge, UndirectedEdge, compose
from graphveil.privacy.accountant import total_mu
from graphveil.release import NeighborSumQuery
from graphveil.release.weights import _NAMED, DotWeight, HalfCos, SigmoidCos, Similarity, parse_weight
from tests.estimators.conftest import PAIR_WEIGHTS, Asked, grouped

QUICK: dict[str, Any] = {
    "unit": "undirected-edge",
    "epsilon": 4.0,
    "delta": 1e-5,
    "seed": 0,
    "unsafe_noise_seed": 0,
    "self_training": False,
}


# -- the model of a row ------------------------------------------------------------------------------------


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
    torch.testing.assert_close(moments.mean, expected, atol=0.02, rtol=0)
    squares = weights.square() @ member / (member.sum(dim=0) - member)
    torch.testing.assert_close(moments.square, squares, atol=0.02, rtol=0)


def test_a_sample_of_nodes_is_enough_for_the_moments() -> None:
    y, log = drawn(3000, 3, 1.0)
    member = torch.nn.functional.one_hot(y, 3).double()
    weight_model = EdgeWeightModel(parse_weight("exp_cos(0.5)"))  # type: ignore[arg-type]  # it is no weight of one
    keys = weight_model.keys(torch.empty(0), log)
    one, other = (weight_model.moments(keys, member, torch.Generator().manual_seed(k)) for k in (0, 1))
    assert float((one.mean - other.mean).abs().mean()) < 0.05


def test_weights_of_one_leave_the_model_of_a_row_as_it_is() -> None:
    codes, between = simplex_codes(3), torch.full((3, 3), 0.2) + 0.4 * torch.eye(3)
    plain = Signal(torch.full((5,), 4.0), between.double() @ codes, torch.ones(()))
    ones = torch.ones(5, 3, dtype=torch.float64)
    same = weighted(plain, between.double(), codes, WeightMoments(ones, ones), 1.0)
    rows = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(
        row_log_likelihood(rows, same, 0.6, 0.05), row_log_likelihood(rows, plain, 0.6, 0.05)
    )


@pytest.mark.parametrize("name", ["half_cos", "relu_cos", "posterior_dot", "class_agree(0.2)"])
def test_the_likelihood_explains_weighted_rows_only_if_it_knows_the_weights(name: str) -> None:
    nodes, classes, degree = 1500, 3, 30
    y, log = drawn(nodes, classes, 1.0, seed=3)
    rng, codes = np.random.default_rng(0), simplex_codes(classes)
    between = torch.full((3, 3), 0.1, dtype=torch.float64) + 0.7 * torch.eye(3, dtype=torch.float64)
    by_class = [torch.from_numpy(rng.choice(np.flatnonzero(y == k), size=(nodes, degree))) for k in range(3)]
    combined_aggregates = torch.multinomial(
        between[y], degree, replacement=True, generator=torch.Generator().manual_seed(2)
    )
    friends = torch.stack(by_class).gather(0, combined_aggregates[None])[0]
    weight_model = EdgeWeightModel(parse_weight(name))  # type: ignore[arg-type]  # it is no weight of one
    keys = weight_model.keys(torch.empty(0), log)
    assert isinstance(keys, Tensor)
    weights = all_weights(weight_model.similarity, keys)
    w = torch.stack([weights[row, v] for v, row in enumerate(friends)])
    noise = torch.from_numpy(rng.normal(size=(nodes, classes - 1)))
    rows = (w[:, :, None] * codes[y[friends]]).sum(dim=1) + noise
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


def all_weights(similarity: Similarity, keys: Tensor) -> Tensor:
    """Return the weights of all pairs, by the source first."""
    from graphveil.release.weights import weights_from

    return torch.cat(list(weights_from(similarity, keys, torch.arange(len(keys))))).T.double()


# -- what it costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAIR_WEIGHTS, "half_cos"])
@pytest.mark.parametrize("few", [False, True])
def test_no_pair_of_groups_pays_more_than_the_budget(name: str, few: bool) -> None:
    similarity = parse_weight(name)
    for unit in (UndirectedEdge(), DirectedEdge()):
        weighed, plain = (BudgetAllocation.choose(unit, 0.05, few, 0.3, w) for w in (similarity, None))
        queries = weighed.queries(0.5, classes=4)
        tables = [torch.tensor(query.event(unit).mu_squared) for query in queries]
        same = [torch.tensor(query.event(unit).mu_squared) for query in plain.queries(0.5, classes=4)]
        torch.testing.assert_close(tables, same)
        assert tables[0].shape == (GROUPS, GROUPS)
        assert (total_mu(compose(*(query.event(unit) for query in queries))) or 0) <= 0.5 * (1 + 1e-9)


def test_noise_is_that_of_the_weights_bound() -> None:
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
def test_every_weight_fits_within_its_budget(name: str) -> None:
    graph = grouped(as_sparse=True)
    model = ClassCode(**{**QUICK, "unsafe_noise_seed": None}, weights=name).fit(graph)
    assert model.guarantee.valid
    assert model.guarantee.epsilon <= 4.0
    (entry,) = ledger_of(graph.edge_set).entries
    assert total_mu(entry.event) == pytest.approx(total_mu(model.guarantee.event))
    assert bool(torch.isfinite(model.predict_proba()).all())


@pytest.mark.usefixtures("quick_classcode")
def test_weights_read_posteriors_codes_features_or_learned_rows(asked: Asked) -> None:
    graph = grouped()
    for name in ("posterior_dot", "half_cos", "jaccard", "learned_public", "one"):
        ClassCode(**QUICK, weights=name, noise="gaussian").fit(graph)
    (_, probabilities), (_, codes), (_, features), (_, learned), (_, none_before_fit) = asked
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(150))
    torch.testing.assert_close(codes, probabilities.double() @ simplex_codes(3))
    assert features is graph.x
    assert learned.shape == (150, 16)
    assert none_before_fit is None


@pytest.mark.usefixtures("quick_classcode")
def test_a_nodes_label_has_no_part_in_the_weights_into_it(asked: Asked) -> None:
    graph = grouped()
    node = int(graph.mask("train").nonzero()[0])
    labels = graph.y.clone()
    labels[node] = (labels[node] + 1) % 3
    for y in (graph.y, labels):
        ClassCode(**QUICK, weights="half_cos").fit(graph.replace(y=y))
    (codes, keys), (others, changed) = asked
    assert not torch.equal(codes[node], others[node])
    assert torch.equal(keys[node], changed[node])


@pytest.mark.usefixtures("quick_classcode")
def test_a_second_round_may_read_what_the_first_one_said(asked: Asked) -> None:
    for rows in ("input", "previous"):
        ClassCode(**QUICK, weights="half_cos", weight_rows=rows, few_labels=True).fit(grouped())
    (_, first), (_, second), (_, again), (_, updated) = asked
    assert torch.equal(first, second)
    assert torch.equal(first, again)
    assert not torch.equal(again, updated)


@pytest.mark.usefixtures("quick_classcode")
def test_a_weight_of_ones_own_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    class Sharp(DotWeight):
        def transform(self, dots: np.ndarray) -> np.ndarray:
            return 1.2 * np.maximum(0, dots) ** 3

    monkeypatch.setitem(_NAMED, "sharp", Sharp)
    model = ClassCode(**QUICK, weights="sharp").fit(grouped())
    assert model.guarantee.epsilon <= 4.0
    plain = ClassCode(**QUICK, noise="gaussian").plan(num_nodes=150, num_classes=3)
    assert plain is not None
    assert model.plan_ is not None
    assert model.plan_.noise_std[1] == pytest.approx(1.2 * plain.noise_std[1])


@pytest.mark.usefixtures("quick_classcode")
def test_a_weighted_model_comes_back_from_a_folder(tmp_path: Path) -> None:
    model = ClassCode(**QUICK, weights="learned_public").fit(grouped())
    model.save(tmp_path / "run")
    loaded = gv.load_model(tmp_path / "run")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    again = loaded.fitted.trained.state()
    for name, value in model.fitted.trained.state().items():
        assert torch.equal(again[name], value)


@pytest.mark.usefixtures("quick_classcode")
def test_a_resumed_fit_is_asked_with_the_same_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(Exception):
        pass

    def killed(*_: Any) -> Tensor:
        raise KilledError

    options = {**QUICK, "weights": "learned_public"}
    graph = grouped()
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(NeighborSumQuery, "answer", killed)
        ClassCode(**options).fit(graph, workspace=tmp_path)
    resumed = ClassCode(**options).fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), ClassCode(**options).fit(grouped()).predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "sigmoid"}, "names no weight"),
        ({"weights": "attention"}, "use 'learned_public'"),
        ({"weights": "given"}, "use gap"),
        ({"weights": "half_cos", "weight_rows": "next"}, "weight_rows"),
        ({"weights": "jaccard", "weight_rows": "previous"}, "stay the same"),
        ({"weights": "half_cos", "unit": "node-record", "self_training": None}, "protect edges"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassCode(**{**QUICK, **options})
