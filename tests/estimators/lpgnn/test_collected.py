"""Fits to LDP reports of clients: the protocol defines the mechanisms, and nothing is randomized again."""

import math

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import ledger_of
from graphveil.errors import ConfigError, GraphError
from graphveil.local.collect import CollectionProtocol, Collector, randomize_records
from graphveil.local.local_estimator import as_graph, estimates_of
from graphveil.mechanisms import Bounds, FeatureRR, LabelRR, MultiBit, WeightedAllocation
from graphveil.publish.release_folder import read_guarantee

NODES, DIM, CLASSES = 30, 6, 3
NOT_COUNTED = [4, 11, 29]
LABEL = LabelRR(epsilon=2.0, classes=CLASSES)
RANGES = Bounds((0.0,) * DIM, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
LAWS = {
    "multi-bit": MultiBit(epsilon=1.0, dim=DIM),
    "paper's m": MultiBit(epsilon=9.0, dim=DIM, m="floor", bounds=Bounds(-1.0, 2.0)),
    "one bit": MultiBit(epsilon=1.0, dim=DIM, m="all"),
    "own ranges": MultiBit(epsilon=1.0, dim=DIM, m=2, bounds=RANGES),
    "bins": FeatureRR(epsilon=3.0, dim=DIM),
    "own bins": FeatureRR(epsilon=3.0, dim=DIM, k=5, mode="ceil", decode="naive"),
    "weights": FeatureRR(epsilon=3.0, dim=DIM, allocation=WeightedAllocation([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])),
}
SURVEY = CollectionProtocol(features=LAWS["multi-bit"], label=LABEL)
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def collector(
    protocol: CollectionProtocol = SURVEY, silent: list[int] = NOT_COUNTED, nodes: int = NODES
) -> Collector:
    """Return what a server has after all nodes but the silent ones have answered."""
    rng = np.random.default_rng(0)
    x, y = rng.random((nodes, DIM)), rng.integers(CLASSES, size=nodes)
    given = {"features": None if protocol.features is None else x, "labels": y}
    complete_from_protocol = {"max_eps": math.inf, "allow_unprotected_label": True}
    encoded_reports = randomize_records(
        protocol, nodes=range(nodes), secret=bytes(32), **given, **complete_from_protocol
    )
    found = Collector(protocol, nodes)
    assert found.accept_all({n: encoded_reports[n] for n in range(nodes) if n not in silent}) == {}
    return found


@pytest.fixture
def edges() -> Adjacency:
    ends = np.random.default_rng(1).integers(NODES, size=(2, 80))
    return Adjacency.from_edges(ends[0], ends[1], num_nodes=NODES, directed=False)


@every_law
def test_the_estimator_has_the_mechanisms_of_the_protocol(law) -> None:
    model = gv.LPGNN.from_protocol(CollectionProtocol(features=law, label=LABEL), hidden=5, seed=3)
    assert model.report_config().mechanism(DIM) == law
    assert model.label_mechanism(CLASSES) == LABEL
    assert (model.unit, model.hidden, model.seed) == ("local-attributes", 5, 3)
    assert (model.eps_x, model.eps_y) == (law.epsilon, 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"eps_x": 2.0},
        {"eps_y": 1.0},
        {"unit": "none"},
        {"features": "1bm"},
        {"m": "floor"},
        {"high": 2.0},
        {"scaling": "row"},
        {"unsafe_noise_seed": 1},
        {"k": 2},
    ],
)
def test_rejects_keywords_that_contradict_the_protocol(wrong, edges) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}=.* differs from the protocol"):
        gv.LPGNN.from_protocol(SURVEY, **wrong)
    gv.LPGNN.from_protocol(SURVEY, eps_x=1.0, low=0.0)  # what agrees is not


def test_rejects_unknown_keywords() -> None:
    with pytest.raises(TypeError, match="hiden"):
        gv.LPGNN.from_protocol(SURVEY, hiden=5)


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        (CollectionProtocol(features=LAWS["multi-bit"]), "collects no labels"),
        (
            CollectionProtocol(
                features=MultiBit(epsilon=1.0, dim=2, bounds=Bounds(0.0, 1.0, from_data=True)), label=LABEL
            ),
            "bounds in the protocol were computed from data",
        ),
    ],
)
def test_rejects_protocols_without_labels_or_with_bounds_from_data(protocol, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        gv.LPGNN.from_protocol(protocol)


ALONE = CollectionProtocol(label=LABEL)


@pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT])
def test_fits_labels_with_public_features(method, edges) -> None:
    x = np.random.default_rng(2).random((NODES, DIM))
    model = method.from_protocol(ALONE, seed=0, epochs=3).fit_from_collector(
        collector(ALONE), edges, public_features=x
    )
    assert (model.eps_x, model.eps_y) == (np.inf, 2.0)
    assert torch.equal(model.fitted.trained.reports.features.dense(), torch.from_numpy(x).float())
    assert model.predict_proba().shape == (NODES, CLASSES)
    said = model.guarantee.formal_statement()
    assert "eps_x = inf and its label at eps_y = 2" in said and "saw only what had left" in said
    assert ledger_of(edges.edge_set).entries == ()


def test_checks_public_features_against_the_protocol(edges) -> None:
    x, found = np.zeros((NODES, DIM)), collector(ALONE)
    model = gv.LPGNN.from_protocol(ALONE, seed=0, epochs=1)
    with pytest.raises(ConfigError, match="Pass public features"):
        model.fit_from_collector(found, edges)
    with pytest.raises(ConfigError, match="Remove public_features"):
        gv.LPGNN.from_protocol(SURVEY, epochs=1).fit_from_collector(collector(), edges, public_features=x)
    with pytest.raises(ConfigError, match="2 values of the public features are outside"):
        model.fit_from_collector(found, edges, public_features=np.vstack([[[2.0] * 2 + [0.5] * 4], x[1:]]))
    wide = gv.LPGNN.from_protocol(ALONE, seed=0, epochs=1, high=2.0)
    wide.fit_from_collector(found, edges, public_features=2 + x)
    with pytest.raises(GraphError):
        model.fit_from_collector(found, edges, public_features=x[1:])
    with pytest.raises(GraphError, match="finite"):
        model.fit_from_collector(found, edges, public_features=x + np.nan)


def test_rejects_bins_of_other_mechanisms() -> None:
    with pytest.raises(ConfigError, match="k, rounding and decode are only for features='feature-rr'"):
        gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, k=5)


@every_law
def test_nodes_without_a_report_get_the_middle_of_the_range(law) -> None:
    found = collector(CollectionProtocol(features=law, label=LABEL))
    dense = estimates_of(found).dense().numpy()
    np.testing.assert_allclose(dense[found.answered], found.features(), rtol=1e-6, atol=1e-6)
    middle = np.asarray(law.bounds.low) + law.bounds.width / 2
    np.testing.assert_allclose(
        dense[NOT_COUNTED], np.broadcast_to(middle, (len(NOT_COUNTED), DIM)), rtol=1e-6
    )


def test_splits_the_reporting_nodes_by_the_seed(edges) -> None:
    found = collector()
    graph, records = as_graph(found, edges, seed=0)
    train, val, test = (graph.labeled_in(part) for part in ("train", "val", "test"))
    assert (int(train.sum()), int(val.sum()), int(test.sum())) == (18, 9, 0)
    assert torch.equal(train | val, torch.from_numpy(found.answered))
    assert records.labels[NOT_COUNTED].tolist() == [-1] * len(NOT_COUNTED)
    assert records.labels[found.answered].tolist() == found.labels().tolist()
    assert torch.equal(as_graph(found, edges, seed=0)[0].labeled_in("train"), train)
    assert not torch.equal(as_graph(found, edges, seed=1)[0].labeled_in("train"), train)


@every_law
@pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT])
def test_a_fit_draws_no_noise_and_charges_nothing(method, law, edges) -> None:
    protocol = CollectionProtocol(features=law, label=LABEL)
    found = collector(protocol)
    first, again = (
        method.from_protocol(protocol, seed=0, epochs=3).fit_from_collector(found, edges) for _ in range(2)
    )
    assert torch.equal(first.predict_proba(), again.predict_proba())  # without a seed of the noise
    assert first.predict_proba().shape == (NODES, CLASSES)
    assert torch.allclose(first.predict_proba().sum(dim=1), torch.ones(NODES))
    assert ledger_of(edges.edge_set).entries == ()
    assert first.clipped_ is None


def test_raw_records_of_the_graph_are_not_read(edges) -> None:
    found = collector()
    collected = gv.LPGNN.from_protocol(SURVEY, seed=5, epochs=10).fit_from_collector(found, edges)
    graph, records = as_graph(found, edges, seed=5)
    raw = graph.replace(x=torch.rand(NODES, DIM))
    model = gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=5, epochs=10)
    fitted = model.fit_from_reports(raw, records)
    assert torch.equal(fitted.predict_proba(), collected.predict_proba())


def test_the_guarantee_is_that_of_the_protocol_also_after_loading(edges, tmp_path) -> None:
    found = collector()
    ids = np.array([f"u{n}" for n in range(NODES)])
    model = gv.LPGNN.from_protocol(SURVEY, seed=0, epochs=3).fit_from_collector(found, edges, ids=ids)
    guarantee = model.guarantee
    assert guarantee.valid and guarantee.local_budgets == (1.0, 2.0)
    assert guarantee.formal_statement().startswith(SURVEY.formal_statement(on_clients=None))
    assert "held the raw data" not in guarantee.formal_statement()
    model.save(tmp_path / "model")
    again = gv.load_model(tmp_path / "model")
    assert again.guarantee == guarantee == read_guarantee(tmp_path / "model").guarantee
    assert again.guarantee.formal_statement() == guarantee.formal_statement()
    assert torch.equal(again.predict_proba(), model.predict_proba())
    assert again.ids_.tolist() == ids.tolist()


def test_a_later_fit_on_raw_records_is_charged(edges) -> None:
    found = collector()
    model = gv.LPGNN.from_protocol(SURVEY, seed=0, epochs=2).fit_from_collector(found, edges)
    raw = as_graph(found, edges, seed=0)[0].replace(x=torch.rand(NODES, DIM))
    assert "This process held the raw data" in model.fit(raw).guarantee.formal_statement()
    assert len(ledger_of(edges.edge_set).entries) == 1


def test_loads_bounds_bins_and_class_names(edges, tmp_path) -> None:
    for name in ("own ranges", "own bins"):
        protocol = CollectionProtocol(features=LAWS[name], label=LABEL, class_names=("red", "green", "blue"))
        model = gv.LPGNN.from_protocol(protocol, seed=0, epochs=2).fit_from_collector(
            collector(protocol), edges
        )
        model.save(tmp_path / name)
        again = gv.load_model(tmp_path / name)
        assert again.report_config().mechanism(DIM) == LAWS[name]
        assert again.class_names_ == ("red", "green", "blue")


def test_rejects_other_protocols_other_nodes_and_too_few_reports(edges) -> None:
    model = gv.LPGNN.from_protocol(SURVEY, epochs=2)
    other = CollectionProtocol(features=MultiBit(epsilon=4.0, dim=DIM), label=LABEL)
    with pytest.raises(ConfigError, match=r"eps_x=1\.0 differs from the protocol"):
        model.fit_from_collector(collector(other), edges)
    with pytest.raises(GraphError, match="The edges have 30 nodes, but the LDP reports have 29"):
        model.fit_from_collector(collector(nodes=29, silent=[]), edges)
    with pytest.raises(GraphError, match="Fewer than two nodes have reported"):
        model.fit_from_collector(collector(silent=list(range(1, NODES))), edges)
    with pytest.raises(GraphError, match="Fewer than two nodes have reported"):
        model.fit_from_collector(Collector(SURVEY, NODES), edges)
    assert model.guarantee_ is None
