"""Learned ranges of feature columns under node-level units: one query, and post-processing of its answer."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.queries.record_counts import FeatureHistogramData, FeatureHistogramQuery
from graphveil.core.release import Release
from graphveil.core.view import unwrapped
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.scaling import MAX_COLUMNS, magnitude_cells, noisy_range, numeric_columns
from tests.estimators.gnn.modules import Mean, Records

N = 4000
RNG = np.random.default_rng(0)
AGE, WORK = RNG.integers(18, 70, N), RNG.normal(10, 5, N)
X = np.column_stack([AGE, WORK, RNG.normal(size=N)])
Y = (AGE > 44).astype(int)
EDGES = RNG.integers(N, size=(2, 3 * N))
BUDGET: dict[str, Any] = {"unit": "node-record", "epsilon": 8.0, "delta": 1e-5, "seed": 0}
METHODS: dict[str, Estimator] = {
    "mlp": gv.MLP(**BUDGET),
    "mlp with metrics": gv.MLP(**BUDGET, private_metrics=True),
    "mlp replaced": gv.MLP(**BUDGET, replace_one=True),
    "network": gv.MLP(**BUDGET, epochs=2, batch_size=200),
    "numbers": gv.MLP(**BUDGET, task="regression", target_range=(0.0, 1.0)),
    "gap": gv.GAP(**BUDGET, epochs=2, out_degree_bound=3),
    "gap bounded": gv.GAP(**{**BUDGET, "unit": "node-bounded-degree"}, max_degree=50, epochs=2),
    "classcode": gv.ClassCode(**BUDGET),
    "module": gv.PrivateModule(**BUDGET, module=Records, epochs=2),
    "gnn": gv.PrivateGNN(**BUDGET, module=Mean, epochs=1),
    "gnn of neighbors": gv.PrivateGNN(**BUDGET, module=Mean, epochs=1, neighborhood="neighbors", layers=1),
    "auto": gv.AutoClassifier(**BUDGET),
}


def graph(x: Any = X, *, numbers: bool = False) -> gv.Graph:
    labels = {"targets": Y.astype(float)} if numbers else {}
    plain = gv.Graph.from_edges(
        torch.tensor(x, dtype=torch.float32),
        None if numbers else torch.tensor(Y),
        *torch.tensor(EDGES),
        directed=True,
        **labels,  # type: ignore[arg-type]  # one keyword
    )
    return gv.split(plain, 0.6, 0.1, unit="node-record", seed=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_plan_begins_with_ranges_of_at_most_two_percent(method: str) -> None:
    model = METHODS[method]
    plan = model.prepare(graph(numbers=model.task == "regression")).plan
    assert plan is not None
    query, unit = plan.queries[0], plan.unit
    assert isinstance(query, FeatureHistogramQuery) and query.columns == 3
    assert [kind for kind in plan.queries if isinstance(kind, FeatureHistogramQuery)] == [query]
    assert plan.epsilon <= 8.0 * (1 + 1e-12)
    mu = total_mu(query.event(unit))
    assert mu is not None and mu == pytest.approx(query.sensitivity(unit) / query.sigma)
    assert mu**2 <= 0.02 * 1.6660306**2 * (1 + 1e-9)  # the exact mu of epsilon 8, delta 1e-5
    assert plan.mu == 0 or mu**2 == pytest.approx(0.02 * plan.mu**2)


@pytest.mark.parametrize(
    "model",
    [
        gv.MLP(**BUDGET, feature_range="0=18:70"),
        gv.MLP(**BUDGET, feature_scaling="none"),
        gv.MLP(**{**BUDGET, "unit": "undirected-edge"}),
        gv.METHODS["mlp-paper"](**BUDGET),
        gv.MLP(**{**BUDGET, "epsilon": 0.2}),
    ],
    ids=["public range", "no scaling", "public features", "paper", "too much noise"],
)
def test_nothing_is_queried_without_need(model: Estimator) -> None:
    plan = model.prepare(graph()).plan
    assert plan is None or not any(isinstance(one, FeatureHistogramQuery) for one in plan.queries)


def answered(patch: pytest.MonkeyPatch, given: Tensor | None = None) -> list[FeatureHistogramData]:
    """Return the list in which the data of histograms are stored; they are answered by ``given``, if any."""
    seen, shipped = list[FeatureHistogramData](), Release.answer

    def answer(release: Release, data: Any) -> Any:
        found = shipped(release, data)
        if isinstance(data, FeatureHistogramData):
            seen.append(data)
            return found if given is None else given.clone()
        return found

    patch.setattr(Release, "answer", answer)
    return seen


def with_record(x: Any, node: int, values: Any) -> Any:
    changed = np.array(x, dtype=float)
    changed[node] = values
    return changed


def test_a_record_is_counted_once_in_each_column_and_test_records_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, rows = answered(monkeypatch), graph()
    train, test = (int(rows.labeled_in(part).nonzero()[0]) for part in ("train", "test"))

    def counts(x: Any) -> Tensor:
        ready = gv.MLP(**BUDGET, epochs=1).prepare(graph(x))
        assert ready.plan is not None
        session = gv.MLP(**BUDGET)._session(lambda *_: None)
        session.plan, session.guarantee = ready.plan, ready.guarantee
        ready.with_learned_ranges(session)
        columns = unwrapped(seen.pop().cells).T.to(torch.int64)
        return torch.stack([torch.bincount(column + 1, minlength=3073)[1:] for column in columns]).double()

    before, filled = counts(with_record(X, train, [40, 9, 2])), counts(with_record(X, train, [1e9, -3, -7]))
    nulled = counts(with_record(X, train, 0.0))
    assert float((before - nulled).norm()) == pytest.approx(3**0.5)
    assert float((before - filled).norm()) == pytest.approx(6**0.5)
    assert torch.equal(counts(X), counts(with_record(X, test, 1e6)))


def test_the_scaling_follows_from_noisy_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.zeros(3, 3072, dtype=torch.float64)
    for place, column in enumerate((AGE, WORK, AGE - 100)):
        cells = magnitude_cells(torch.tensor(column[:, None], dtype=torch.float32))[:, 0]
        given[place] += torch.bincount(cells[cells >= 0].long(), minlength=3072)
    answered(monkeypatch, given)
    scalings = [gv.MLP(**BUDGET).fit(graph(x)).fitted.scaling for x in (X, -1e3 * X)]
    assert scalings[0] == scalings[1]
    assert [one.column for one in scalings[0].columns] == [0, 1, 2]


@pytest.mark.parametrize("method", ["mlp", "gap", "classcode", "auto"])
def test_ages_are_learned_as_with_public_ranges(method: str) -> None:
    model = METHODS[method].fit(graph())
    assert model.guarantee.releases == 1 and model.guarantee.epsilon <= 8.0
    assert method == "gap" or model.score(graph()) > 0.8  # gap: two epochs on random edges
    columns = {one.column: one for one in model.fitted.scaling.columns}
    assert {0, 1} <= set(columns) and not columns[0].public
    low, high = (columns[0].center + sign * columns[0].scale for sign in (-1, 1))
    assert 0 <= low <= 35 and 50 <= high <= 110


def test_stored_ranges_scale_other_graphs_and_are_never_queried_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gv.GAP(**BUDGET, epochs=2, out_degree_bound=3).fit(graph())
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert loaded.fitted.scaling == model.fitted.scaling
    assert loaded.fitted.sizes.learned_columns == 3
    other, seen = graph(2 * X), answered(monkeypatch)
    assert torch.equal(loaded._as_graph(other).x, model._as_graph(other).x)
    assert float(model._as_graph(other).x[:, 0].max()) == pytest.approx(1.0)  # clipped to the fitted range
    costs = [one.privacy_cost(other) for one in (model, loaded)]
    assert costs[0] is not None and costs[1] is not None and costs[0].epsilon == costs[1].epsilon
    assert model.is_fitted_graph(graph())
    model.predict(other, allow_spend=True)
    assert not seen


def test_a_resumed_fit_has_the_same_ranges_and_is_charged_once(tmp_path: Any) -> None:
    rows = graph()
    first, again = (gv.MLP(**BUDGET).fit(rows, workspace=tmp_path / "work") for _ in range(2))
    assert first.fitted.scaling == again.fitted.scaling and first.fitted.scaling.columns
    assert torch.equal(first.predict_proba(), again.predict_proba())


def test_a_fit_without_learned_ranges_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="graphveil"):
        gv.MLP(**{**BUDGET, "epsilon": 0.2}).fit(graph())
        assert "feature_range" in caplog.text
        caplog.clear()
        for more in ({}, {"feature_range": "0=18:70"}, {"feature_scaling": "none"}):
            gv.MLP(**BUDGET, **more).fit(graph())
    assert not caplog.text


def test_only_numbers_of_a_table_have_ranges() -> None:
    nodes = {
        "id": np.arange(N),
        "y": Y,
        "plan": np.array(["free", "paid"])[Y],
        "age": AGE,
        "active": AGE > 30,
        "work": WORK,
    }
    edges = {"a": EDGES[0], "b": EDGES[1]}
    table = gv.Graph.from_frames(
        nodes, edges, id="id", label="y", source="a", target="b", categories={"plan": ["free", "paid"]}
    )
    assert numeric_columns(table)[0] == (2, 4)
    model = gv.MLP(**BUDGET)
    split = gv.split(table, 0.6, 0.1, unit="node-record", seed=0)
    assert model._scaling(model.config, split).learned == (2, 4)
    assert "age, work by ranges from noisy histograms" in model.scaling_summary(split)


def test_many_columns_are_compressed_as_before() -> None:
    model = gv.MLP(**{**BUDGET, "epsilon": 30.0})
    wide = np.zeros((N, MAX_COLUMNS + 1))
    assert model._scaling(model.config, graph(wide[:, 1:])).learned == tuple(range(MAX_COLUMNS))
    assert not model._scaling(model.config, graph(wide)).learned


def test_cells_are_in_the_order_of_values() -> None:
    values = torch.cat([-torch.logspace(15, -3, 700), torch.zeros(1), torch.logspace(-3, 15, 700)])
    cells = magnitude_cells(values[:, None])[:, 0]
    counted = cells[cells >= 0]
    assert bool((counted.diff() >= 0).all()) and int(counted.min()) == 0 and int(counted.max()) == 3071
    assert torch.equal(cells >= 0, values.abs() >= 2.0**-6)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (AGE, (0, 28), (60, 72)),
        (RNG.integers(1950, 2010, N), (1800, 1955), (2000, 2020)),
        (1.6e9 + 3e7 * RNG.random(N), (1.5e9, 1.6e9), (1.63e9, 1.7e9)),
        (-RNG.gamma(2, 300, N), (-2500, -900), (-200, 0)),
        (np.where(RNG.random(N) < 0.01, 1e9, RNG.normal(50, 10, N)), (0, 40), (60, 90)),
        (np.where(RNG.random(N) < 0.3, 0, RNG.integers(1950, 2010, N)), (1800, 1930), (2000, 2020)),
        (5.0 * (RNG.random(N) < 0.5), (0, 4.95), (5, 5.2)),
    ],
    ids=["age", "year", "seconds", "negative", "outliers", "years and zeros", "zero or five"],
)
def test_ranges_contain_most_values_in_spite_of_noise(values: Any, low: Any, high: Any) -> None:
    cells = magnitude_cells(torch.tensor(values, dtype=torch.float32)[:, None])[:, 0]
    exact = torch.bincount(cells[cells >= 0].long(), minlength=3072).numpy()
    for seed in range(20):
        found = noisy_range(exact + np.random.default_rng(seed).normal(0, 8.0, 3072), 8.0, N)
        assert found is not None
        assert low[0] <= found[0] <= low[1] and high[0] <= found[1] <= high[1]


def test_noise_alone_has_no_range() -> None:
    rng = np.random.default_rng(1)
    assert all(noisy_range(rng.normal(0, 8.0, 3072), 8.0, N) is None for _ in range(100))


def test_bits_keep_their_values() -> None:
    bits = (RNG.random((N, 3)) < [0.5, 0.1, 0.01]).astype(float)
    model = gv.MLP(**BUDGET).fit(graph(bits))
    assert not model.fitted.scaling.columns
    assert torch.equal(model._as_graph(graph(bits)).x, graph(bits).x)
