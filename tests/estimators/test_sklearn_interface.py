"""Display of models, and their interface to scikit-learn and pickle."""

import dataclasses
import logging
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score

import graphveil as gv
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.ledger import ledger_of
from graphveil.errors import ConfigError, GraphError

BRIEF = {"encoder_epochs": 1, "epochs": 1}
EDGES = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-5}


@pytest.fixture(scope="module")
def graph():
    return gv.load_dataset("synthetic/tiny")


@pytest.fixture(scope="module")
def fitted(graph):
    return gv.GAP(**EDGES, **BRIEF, seed=0).fit(graph)


def test_str_has_three_lines(fitted, graph):
    before = str(gv.GAP(**EDGES)).splitlines()
    assert before[0] == "GAP(unit='undirected-edge', epsilon=1.0, delta=1e-05)" and len(before) == 3
    lines = str(fitted).splitlines()
    assert lines[0] == repr(fitted) and len(lines) == 3 and all(len(line) < 160 for line in lines)
    assert f"{graph.num_nodes:,} nodes" in lines[1]
    assert lines[2].startswith("undirected-edge: epsilon") and "1 release" in lines[2]
    reference = gv.MLP(unit="none", tuned=False, epochs=1).fit(graph)
    assert str(reference).endswith("no guarantee: nothing is protected")
    seeded = gv.GAP(**EDGES, **BRIEF, unsafe_noise_seed=1).fit(graph)
    assert "invalid" in str(seeded).splitlines()[2]


def test_texts_contain_no_private_count(fitted, graph):
    stored = len(graph.adjacency.indices)
    for shown in (str(fitted), repr(fitted), repr(graph), str(graph)):
        assert str(stored) not in shown and f"{stored // 2}" not in shown


def test_classes_are_names_or_numbers(fitted, graph):
    assert fitted.classes_.tolist() == list(range(graph.num_classes)) and not gv.GAP(**EDGES).classes_.size
    named = graph.replace(class_names=tuple(f"c{number}" for number in range(graph.num_classes)))
    assert gv.MLP(unit="none", tuned=False, epochs=1).fit(named).classes_[0] == "c0"


def test_scikit_learn_can_clone_and_cannot_cross_validate(fitted, graph):
    model, y = gv.GAP(**EDGES, **BRIEF), np.zeros(graph.num_nodes)
    assert is_classifier(model) and clone(model).get_params() == model.get_params()
    before = len(ledger_of(graph.edge_set))
    for search in (
        lambda: GridSearchCV(model, {"hops": [1, 2]}).fit(graph),
        lambda: GridSearchCV(model, {"hops": [1, 2]}, scoring="accuracy").fit(graph, y),
        lambda: cross_val_score(model, graph),
        lambda: cross_val_score(model, np.zeros((len(y), 2)), y, cv=2, error_score="raise"),
    ):
        with pytest.raises(GraphError, match=r"Use gv\.sweep"):
            search()
    assert len(ledger_of(graph.edge_set)) == before


def test_only_unfitted_models_can_be_pickled(fitted, graph):
    model = gv.ClassCode(**EDGES)
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
    with pytest.raises(ConfigError, match=r"load_model\(folder\)"):
        pickle.dumps(fitted)
    with pytest.raises(GraphError, match="its privacy budget would not be sent with it"):
        pickle.dumps(graph)
    public = Adjacency.from_edges([0], [1], num_nodes=2, directed=False, edge_set=EdgeSet(released="words"))
    again = pickle.loads(pickle.dumps(public))
    assert again.edge_set.released == "words" and again.edge_index().tolist() == [[1, 0], [0, 1]]


def test_the_log_contains_public_values_only(graph, caplog):
    with caplog.at_level(logging.INFO, logger="graphveil"):
        gv.GAP(**EDGES, **BRIEF).fit(graph)
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 2 and "its release is recorded first" in words[0] and "undirected-edge" in words[1]


def test_custom_methods_have_the_short_repr() -> None:
    @dataclasses.dataclass(kw_only=True)
    class Deep(gv.MLP):
        depth: int = 3

    assert repr(Deep(unit="node-record", epsilon=1.0)) == "Deep(unit='node-record', epsilon=1.0)"
    model = gv.PrivateGNN(module="sage", unit="node-record", epsilon=1.0)
    assert repr(model) == "PrivateGNN(unit='node-record', epsilon=1.0, module='sage')"
