"""Scaling of feature columns: an unscaled column does not reduce accuracy, under any unit."""

import json

import numpy as np
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.features.scaling import BOUND, MAX_UNSCALED, FeatureScaling, ranges_of

N = 600
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, N)
X = RNG.normal(size=(N, 3))
X[np.arange(N), Y] += 3
A = np.arange(N).repeat(4)
B = np.array([RNG.choice(np.flatnonzero(Y[i] == Y)) for i in A])
COLUMNS = {
    "year of birth": RNG.integers(1950, 2005, N),
    "salary": RNG.normal(50_000, 10_000, N),
    "money": RNG.lognormal(12, 1, N),
    "negative money": -RNG.lognormal(12, 1, N),
    "customer number": RNG.integers(10**9, 10**10, N),
    "Unix seconds": 1_700_000_000 + RNG.integers(0, 3e7, N),
    "Unix milliseconds": 1.7e12 + RNG.integers(0, 3e10, N),
    "heavy tail": RNG.standard_cauchy(N) * 1e4,
    "constant": np.full(N, 50_000.0),
    "one extreme": np.where(np.arange(N) == 5, 1e30, RNG.normal(size=N)),
    "all extreme": RNG.normal(size=N) * 1e30,
    "two values": RNG.integers(0, 2, N) * 1e6,
    "sparse counts": RNG.integers(0, 10**6, N) * (RNG.random(N) < 0.1),
}
OF_RECORDS = FeatureScaling.from_public_ranges({}, dense=True)
MODELS = {
    "mlp": lambda seed: gv.MLP(unit="undirected-edge", epsilon=1.0, seed=seed, unsafe_noise_seed=seed),
    "gap": lambda seed: gv.GAP(unit="undirected-edge", epsilon=8.0, seed=seed, unsafe_noise_seed=seed),
    "classcode": lambda seed: gv.ClassCode(
        unit="undirected-edge", epsilon=1.0, seed=seed, unsafe_noise_seed=seed
    ),
    "mlp on records": lambda seed: gv.MLP(unit="node-record", epsilon=8.0, seed=seed, unsafe_noise_seed=seed),
}
SEEDS = (0, 1)
# Edge-level methods share the scaling of public features: the MLP sees all columns, the others the worst.
WORST = {"gap": ("money", "one extreme"), "classcode": ("Unix milliseconds", "sparse counts")}
CASES = [(column, model) for model in MODELS for column in WORST.get(model, COLUMNS)]


def graph(extra=None, *, as_sparse=False, seed=0):
    x = X if extra is None else np.column_stack([X, extra])
    x = sparse.csr_array(x) if as_sparse else torch.tensor(x, dtype=torch.float32)
    plain = gv.Graph.from_edges(x, torch.tensor(Y), torch.tensor(A), torch.tensor(B), directed=False)
    return gv.split(plain, 0.6, 0.1, unit="undirected-edge", seed=seed)


def accuracy(model, extra=None, *, as_sparse=False):
    seeds = SEEDS if model == "gap" else SEEDS[:1]
    graphs = [graph(extra, as_sparse=as_sparse, seed=seed) for seed in seeds]
    return np.mean([MODELS[model](seed).fit(g).score(g) for seed, g in zip(seeds, graphs, strict=True)])


@pytest.fixture(scope="module")
def without():
    kinds = [*((model, False) for model in MODELS), ("gap", True)]
    return {(model, as_sparse): accuracy(model, as_sparse=as_sparse) for model, as_sparse in kinds}


@pytest.mark.parametrize(("column", "model"), CASES)
def test_an_unscaled_column_does_not_reduce_accuracy(column, model, without):
    assert accuracy(model, COLUMNS[column]) > without[model, False] - 0.02


@pytest.mark.parametrize("column", ["money", "Unix milliseconds", "sparse counts"])
def test_columns_of_sparse_features_are_scaled_and_stay_sparse(column, without):
    scaled = FeatureScaling.from_public_features(graph(COLUMNS[column], as_sparse=True).x)
    x = scaled.apply(graph(COLUMNS[column], as_sparse=True).x)
    assert sparse.issparse(x) and x.nnz == graph(COLUMNS[column], as_sparse=True).x.nnz
    # Sums of sparse products differ between processors, and some nodes with them.
    assert accuracy("gap", COLUMNS[column], as_sparse=True) > without["gap", True] - 0.03


@pytest.mark.parametrize("of_records", [False, True])
@pytest.mark.parametrize(
    "x",
    [torch.eye(5), torch.tensor([[-3.0, 0.5], [3.0, 1.0]]), sparse.csr_array(np.eye(3, dtype=np.float32))],
)
def test_small_values_are_not_copied(of_records, x):
    scaling = OF_RECORDS if of_records else FeatureScaling.from_public_features(x)
    assert scaling.apply(x) is x


def test_scaling_of_a_record_reads_no_other_record():
    other = graph(COLUMNS["salary"]).x * 7
    assert torch.equal(OF_RECORDS.apply(other)[:1], OF_RECORDS.apply(other[:1]))


def binary(extra=None, *, as_sparse):
    """Records of few ones among many columns, as of words or of answers to questions."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 3000)
    x = (rng.random((len(y), 160)) < np.where(np.arange(160) % 4 == y[:, None], 0.05, 0.02)).astype(
        np.float32
    )
    x = x if extra is None else np.column_stack([x, extra(rng, len(y))]).astype(np.float32)
    x = sparse.csr_array(x) if as_sparse else torch.from_numpy(x)
    return gv.split(gv.Graph.from_edges(x, y, [0], [1], directed=False), 0.6, 0.1, unit="node-record")


EXTRA = {
    "money": lambda rng, n: rng.lognormal(12, 1, n),
    "three of money": lambda rng, n: rng.lognormal(12, 1, (n, 3)),
    "customer number": lambda rng, n: rng.integers(10**9, 10**10, n),
    "Unix milliseconds": lambda rng, n: 1.7e12 + rng.integers(0, 3e10, n),
    "both signs": lambda rng, n: rng.normal(size=n) * 1e5,
}


def binary_accuracy(extra, *, as_sparse):
    rows = binary(extra, as_sparse=as_sparse)
    models = [gv.MLP(unit="node-record", epsilon=4.0, seed=s, unsafe_noise_seed=s) for s in SEEDS]
    return np.mean([model.fit(rows).score(rows) for model in models])


@pytest.fixture(scope="module")
def binary_without():
    return {as_sparse: binary_accuracy(None, as_sparse=as_sparse) for as_sparse in (False, True)}


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("column", EXTRA)
def test_a_large_column_does_not_dominate_records_of_few_ones(column, as_sparse, binary_without):
    assert binary_accuracy(EXTRA[column], as_sparse=as_sparse) > binary_without[as_sparse] - 0.04


@pytest.mark.parametrize("column", EXTRA)
def test_every_record_is_compressed_independently(column):
    dense, rows = (binary(EXTRA[column], as_sparse=kind).x for kind in (False, True))
    scaled = OF_RECORDS.apply(dense)
    assert torch.equal(torch.from_numpy(OF_RECORDS.apply(rows).toarray()), scaled)
    assert float(scaled.abs().max()) < 2
    for one in range(20):
        assert torch.equal(OF_RECORDS.apply(dense[one : one + 1])[0], scaled[one])


@pytest.mark.parametrize("unit", ["node-record", "node-bounded-degree"])
def test_node_units_scale_by_public_constants_only(unit):
    extra = {"max_degree": 100} if unit == "node-bounded-degree" else {}
    rows = graph(COLUMNS["money"])
    model = gv.MLP(unit=unit, epsilon=8.0, seed=0, **extra)
    other = rows.replace(x=rows.x * 3)
    assert model._scaling(model.config, rows) == model._scaling(model.config, other)
    assert model._scaling(model.config, rows).bound == BOUND


@pytest.mark.parametrize("unit", ["undirected-edge", "node-record"])
def test_a_saved_model_scales_as_the_fitted_one(unit, tmp_path):
    model = gv.MLP(unit=unit, epsilon=8.0, seed=0, feature_range="0=-20:20").fit(graph(COLUMNS["money"]))
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    other = graph(COLUMNS["money"][::-1].copy())
    assert loaded.fitted.scaling == model.fitted.scaling
    assert torch.equal(loaded.predict_proba(other), model.predict_proba(other))


def test_another_graph_is_scaled_by_the_training_graph():
    model = gv.MLP(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph(COLUMNS["salary"]))
    one = graph(COLUMNS["salary"] * 10).subgraph(torch.arange(N) < 100)
    seen = model._as_graph(one).x[:, 3]
    assert float(seen.min()) == 2.0  # all of them are outliers there


def test_feature_scaling_none_keeps_values():
    rows = graph(COLUMNS["salary"])
    model = gv.MLP(unit="undirected-edge", epsilon=1.0, seed=0, feature_scaling="none").fit(rows)
    assert model._as_graph(rows).x is rows.x


@pytest.mark.parametrize(
    ("unit", "given", "words"),
    [
        ("undirected-edge", None, "column 3 by median and spread, outliers clipped"),
        ("undirected-edge", "3=0:1e6", "column 3 by the public range"),
        ("node-record", "3=0:1e6", "column 3 by the public range; all other values beyond 3 compressed"),
        ("none", None, "column 3 by median and spread, outliers clipped"),
    ],
)
def test_the_plan_names_scaled_columns(unit, given, words):
    budget = {} if unit == "none" else {"epsilon": 8.0}
    model = gv.MLP(unit=unit, seed=0, feature_range=given, **budget)
    assert model.scaling_summary(graph(COLUMNS["money"])).startswith(words)


@pytest.mark.parametrize("text", ["", "3", "a=1", "a=2:1", "a=0:inf", "a=0:1,a=0:2", "0:1,1:2", "a=0:nan"])
def test_rejects_invalid_ranges(text):
    with pytest.raises(ConfigError, match="not a list of ranges"):
        gv.MLP(unit="none", feature_range=text)


@pytest.mark.parametrize("given", [(0, 1), 5, {"a": (0, 1)}])
def test_rejects_ranges_that_are_not_text(given):
    with pytest.raises(ConfigError, match=r"must be (text|a string)"):
        gv.MLP(unit="none", feature_range=given)


def test_rejects_a_range_of_an_unknown_column():
    with pytest.raises(GraphError, match="'sallary', which is not in the graph"):
        ranges_of("sallary=0:1", ("salary",), 1)


def test_rejects_a_range_for_methods_that_perturb_features():
    with pytest.raises(ConfigError, match="low= and high="):
        gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, feature_range="0:1")


def test_columns_with_outliers_only_are_clipped():
    (one,) = FeatureScaling.from_public_features(graph(COLUMNS["one extreme"]).x).columns
    assert (one.center, one.scale, one.high) == (0.0, 1.0, MAX_UNSCALED)


def test_private_hops_scales_features():
    rows = gv.private_hops(graph(COLUMNS["money"]), unit="undirected-edge", epsilon=8.0)
    assert float(rows.sent[:, 3].abs().mean()) < 0.5


def test_a_saved_model_contains_the_scaling(tmp_path):
    gv.MLP(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph(COLUMNS["money"])).save(tmp_path / "r")
    (one,) = json.loads((tmp_path / "r" / "model.json").read_text())["scaling"]["columns"]
    assert one["column"] == 3 and one["low"] == -2.0
